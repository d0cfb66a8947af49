# Everything here works on a machine that has only Python, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup test lint demo docs bench host-suite clean

setup: $(READY)

$(READY): requirements/cpu.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet --no-deps torchrec==1.8.0
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=examples/loss_collector $(BIN)/mypy --strict examples/loss_collector/loss_collector

demo: $(READY)
	$(BIN)/python recipes/demo.py

# The pages as a site, in site/. A link that leads nowhere is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py

# The host's own tests, with the plugin installed and without it.
host-suite: $(READY)
	$(BIN)/python tools/host_suite.py

clean:
	rm -rf $(VENV) demo_results site
