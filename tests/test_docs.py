"""The documentation says what is true: pages, commands, options and error names exist."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aorta_collectors import errors
from aorta_collectors.cli import main
from aorta_collectors.schema_check import load_schema
from tests.support import PYTHON, ROOT, run

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_generated_reference_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "reference.py"), "--check"], check=False)
    assert done.returncode == 0, "run python tools/reference.py"


def test_every_error_has_its_section_and_every_section_its_error() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    page = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
    assert {kind.slug for kind in kinds} == set(re.findall(r"^## (\S+)$", page, flags=re.M))


def test_every_variable_that_the_pages_name_is_an_option() -> None:
    known = set(load_schema("layer_numerics.options")["properties"]) | {"NANLOG_DIR"}
    assert set(re.findall(r"NANLOG_[A-Z_]+", TEXT)) <= known


def test_every_command_of_ours_that_the_pages_name_exists() -> None:
    named = set(re.findall(r"aorta-collectors (verify|list|[a-z-]+) ", TEXT)) & {
        "verify",
        "list",
        "first-bad",
        "report",
    }
    assert named <= set(main.commands)


def test_make_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:`|^)make ([a-z-]+)", TEXT, flags=re.M)):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_every_verdict_is_explained() -> None:
    page = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text(encoding="utf-8")
    verdicts = load_schema("receipt")["properties"]["verdict"]["enum"]
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M)) == set(verdicts)


def test_the_specs_in_the_pages_are_valid() -> None:
    from aorta_collectors.layer_numerics.support import check_spec

    found = re.findall(r"NANLOG_SPEC: '(\{.*?\})'$", TEXT, flags=re.M)
    assert found
    for text in found:
        check_spec(json.loads(text))


@pytest.mark.sweep
def test_the_collector_of_the_how_to_works_in_a_sweep(tmp_path: Path) -> None:
    """As a package of its own, under a name that the host accepts in recipes."""
    page = (ROOT / "docs" / "how-to" / "write-a-collector.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n# heartbeat_collector.py\n(.*?)```", page, flags=re.S)
    assert code is not None
    site = tmp_path / "site"
    info = site / "heartbeat_collector-1.dist-info"
    info.mkdir(parents=True)
    source = code.group(1).replace('name = "heartbeat"', 'name = "amd_log"')
    (site / "heartbeat_collector.py").write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heartbeat-collector\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\namd_log = heartbeat_collector:Heartbeat\n")
    (tmp_path / "probe.yaml").write_text(
        "schema_version: 1\nmode: probe\nticket: T\ntrials: 1\nmitigation_axis: [none]\ndiagnostic_axis: [none]\n"
        "collect: [amd_log]\n"
    )
    beat = "import os; open(os.environ['HEARTBEAT_FILE'], 'w').write(os.environ['HEARTBEAT_RUN_ID'])"
    env = {"PYTHONPATH": str(site)}
    sweep = ["aorta", "sweep", "run", "--recipe", "probe.yaml", "--output"]
    alive = run([*sweep, "alive", "--", PYTHON, "-c", beat], tmp_path, env).ok()
    assert re.search(r"none-none +0 +amd_log +captured", alive.out)
    dead = run([*sweep, "dead", "--", PYTHON, "-c", "pass"], tmp_path, env)
    assert dead.code == 1
    assert "no file beats" in dead.out
    listed = run(["aorta-collectors", "list"], tmp_path, env).ok()
    assert "Has the program write down that it is alive." in listed.out
