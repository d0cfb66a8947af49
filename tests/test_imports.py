"""The one-way lines between the parts of the package, read from its imports, and what importing them loads."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import PYTHON, ROOT, run

PACKAGE = ROOT / "aorta_collectors"
FILES = sorted(PACKAGE.rglob("*.py"))
OURS = "aorta_collectors"

#: Where functions of others are replaced, outside of host.
PATCHES = (
    "observe/builders.py",
    "observe/calls.py",
    "observe/compiling/own_hooks.py",
    "observe/process/hard_exit.py",
)
#: What observes with torch. The sweep's side may read what these left, and does not import what watches.
COLLECTORS = {"layer_numerics", "numerics", "tensors", "memory"}
#: What runs sweeps to answer a question, beside scaleout.
INVESTIGATE = "investigate"

# What the interpreter itself does for an uncaught exception; the front-end stands in its place.
INTERPRETERS_OWN = {
    ("frontend/program.py", name)
    for name in ("sys.excepthook", "sys.last_type", "sys.last_value", "sys.last_traceback", "sys.last_exc")
}


@dataclass(frozen=True)
class Import:
    """One import statement: the file, the module it names, and whether it stands in an `if TYPE_CHECKING:`."""

    file: Path
    line: int
    module: str

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(PACKAGE)}:{self.line}"

    @property
    def part(self) -> str:
        """The part of our package that is imported: "launch" of aorta_collectors.launch.value, "" of the package.

        What is so of any process that is observed, observe/process, is a part of its own: it needs no torch.
        """
        inside = self.module.split(".")[1:]
        return "process" if inside[:2] == ["observe", "process"] else "".join(inside[:1])


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions too. `from a import b` counts as a.b where that is a module."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            for alias in node.names:
                path = ROOT.joinpath(*node.module.split("."), alias.name)
                is_module = path.with_suffix(".py").is_file() or path.is_dir()
                yield Import(file, node.lineno, f"{node.module}.{alias.name}" if is_module else node.module)


IMPORTS = [found for file in FILES for found in imports_of(file)]


def imports_from(part: str) -> list[Import]:
    """Imports in the folder or the file named `part`."""
    inside = [found for found in IMPORTS if found.file.relative_to(PACKAGE).with_suffix("").parts[0] == part]
    assert inside, f"nothing is called {part}"
    return inside


def is_ours(found: Import) -> bool:
    return found.module.partition(".")[0] == OURS


def places(found: list[Import]) -> list[str]:
    return [f"{item.place} imports {item.module}" for item in found]


class TestLines:
    """DESIGN: cli, report -> analysis -> evidence; host -> launch, evidence, options, registry, api; and so on."""

    def test_observe_knows_nothing_but_itself_and_what_imports_nothing_of_ours(self) -> None:
        allowed = {"", "observe", "process", "import_watch", "environment", "linux"}
        leaves = [item for item in IMPORTS if item.file.stem in allowed and item.file.parent == PACKAGE]
        assert places([item for item in leaves if is_ours(item)]) == []
        assert places([item for item in imports_from("observe") if is_ours(item) and item.part not in allowed]) == []

    def test_observe_needs_torch_alone(self) -> None:
        third = [item for item in imports_from("observe") if not is_ours(item) and not _is_standard(item)]
        other = [item for item in third if item.module.partition(".")[0] != "torch"]
        # Triton comes with the builds of torch that are for GPUs, and is asked for when a tensor lies on one.
        kernels = [item for item in other if item.module.partition(".")[0] == "triton"]
        assert {item.file.parent.relative_to(PACKAGE).as_posix() for item in kernels} == {"observe/device"}
        assert places([item for item in other if item not in kernels]) == []

    @pytest.mark.parametrize(
        ("part", "forbidden"),
        [
            *(
                (collector, {"host", "cli", "evidence", "registry", "investigate", *COLLECTORS} - {collector})
                for collector in sorted(COLLECTORS)
            ),
            (
                "torch_collector",
                {"host", "cli", "evidence", "registry", "observe", "analysis", "report", "artifacts", *COLLECTORS},
            ),
            ("artifacts", {"host", "cli", "evidence", "registry", "frontend", "observe", *COLLECTORS}),
            (
                "frontend",
                {"host", "cli", "evidence", "registry", "options", "api", "observe", "process", *COLLECTORS},
            ),
            ("api", {"host", "evidence", "cli", "registry", "frontend", "torch_collector", *COLLECTORS}),
            ("launch", {"host", "evidence", "cli", "registry", "api", "options", *COLLECTORS}),
            ("options", {"host", "evidence", "cli", "registry", "api", "launch", *COLLECTORS}),
            ("schema_check", {"host", "evidence", "cli", "registry", "api", "launch", "options", *COLLECTORS}),
            ("packing", {"host", "evidence", "cli", "registry", "api", "launch", "options", "observe", *COLLECTORS}),
            ("registry", {"host", "evidence", "cli", *COLLECTORS}),
            (
                "evidence",
                {"host", "cli", "registry", "observe", "frontend", "analysis", "report", "scaleout", *COLLECTORS},
            ),
            (
                "analysis",
                {"host", "cli", "registry", "observe", "frontend", "scaleout", "report", "export", INVESTIGATE},
            ),
            (
                "report",
                {"host", "cli", "registry", "observe", "frontend", "scaleout", "export", INVESTIGATE, *COLLECTORS},
            ),
            # The timeline that it writes is the one of numerics' --trace-output.
            ("export", {"host", "cli", "registry", "observe", "frontend", "scaleout", "layer_numerics"}),
            ("host", {"cli", "observe", "frontend", "workloads", "analysis", "scaleout", INVESTIGATE, *COLLECTORS}),
            ("scaleout", {"cli", "observe", "frontend", "workloads", "analysis", INVESTIGATE, *COLLECTORS}),
            (INVESTIGATE, {"cli", "observe", "frontend", "workloads", "scaleout", *COLLECTORS}),
            ("workloads", {"cli", "registry", "observe", "frontend", *COLLECTORS}),
            ("cli", {"observe", "frontend", *COLLECTORS}),
            ("import_watch", {"host", "evidence", "cli", "registry", "api", "launch", "options", *COLLECTORS}),
        ],
    )
    def test_a_part_imports_nothing_that_stands_above_it(self, part: str, forbidden: set[str]) -> None:
        assert places([item for item in imports_from(part) if is_ours(item) and item.part in forbidden]) == []

    def test_the_front_end_needs_the_standard_library_alone(self) -> None:
        assert places([item for item in imports_from("frontend") if not is_ours(item) and not _is_standard(item)]) == []

    def test_only_host_imports_aorta_and_a_workload_the_class_it_is_one_of(self) -> None:
        users = [item for item in IMPORTS if item.module.partition(".")[0] == "aorta"]
        assert users
        others = [item for item in users if item.file.relative_to(PACKAGE).parts[0] != "host"]
        assert {(item.file.parent.name, item.module) for item in others} == {("workloads", "aorta.workloads")}

    def test_torch_is_imported_at_the_top_only_where_a_model_is_observed(self) -> None:
        lazy = {"collector", "support", "verification", "names", "config", "arming", "__main__", "__init__"}
        lazy |= {"span", "options", "standalone", "metrics", "reading", "contents", "caveats"}
        lazy |= {"chrome", "causal", "span_lines", "trace_context", "otlp", "steps"}
        for file in FILES:
            part, *below = file.relative_to(PACKAGE).parts
            is_lazy = file.stem in lazy or "verify" in below
            if (part == "observe" and below[0] != "process") or (part in COLLECTORS and not is_lazy):
                continue
            top = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
            names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
            names += [str(node.module) for node in top if isinstance(node, ast.ImportFrom)]
            assert not [name for name in names if name.partition(".")[0] == "torch"], file

    @pytest.mark.parametrize("collector", sorted(COLLECTORS))
    def test_the_repositorys_own_collectors_use_the_contract_an_author_has(self, collector: str) -> None:
        """Whatever collector.py takes from the package, beyond its own folder, is open to others too."""
        found = {item.part for item in imports_of(PACKAGE / collector / "collector.py") if is_ours(item)}
        assert found <= {"api", "import_watch", "options", "process", "schema_check", "torch_collector", collector}


class TestFiles:
    @pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
    def test_a_file_has_one_idea_said_in_its_first_line_and_at_most_300_lines(self, file: Path) -> None:
        text = file.read_text()
        assert len(text.splitlines()) <= 300
        assert ast.get_docstring(ast.parse(text)), "no module docstring"

    def test_nobody_assigns_attributes_of_foreign_modules_outside_the_places_for_patches(self) -> None:
        found = []
        for file in FILES:
            name = str(file.relative_to(PACKAGE))
            if name.startswith("host/") or name in PATCHES:
                continue
            found += [f"{name}: {what}" for what in _foreign_assignments(file) if (name, what) not in INTERPRETERS_OWN]
        assert found == []

    def test_the_check_for_foreign_assignments_finds_them(self, tmp_path: Path) -> None:
        source = (
            "import torch.nn as nn, sys\nfrom torch import Tensor\nfrom aorta_collectors import api\n"
            "nn.Module.forward = 1\nsetattr(Tensor, 'add', 2)\ndel sys.argv\nsys.x += 1\napi.y = 1\nlocal = nn\n"
        )
        (tmp_path / "patches.py").write_text(source)
        found = sorted(_foreign_assignments(tmp_path / "patches.py"))
        assert found == ["nn.Module.forward", "setattr(Tensor)", "sys.argv", "sys.x"]


def _is_standard(found: Import) -> bool:
    return found.module.partition(".")[0] in sys.stdlib_module_names


def _foreign_assignments(file: Path) -> Iterator[str]:
    """Attributes of imported foreign names that a file sets or deletes, as written."""
    tree = ast.parse(file.read_text())
    foreign = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            for alias in node.names:
                if (module or alias.name).partition(".")[0] != OURS:
                    foreign.add((alias.asname or alias.name).partition(".")[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in foreign:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and node.args:
            call = f"{ast.unparse(node.func)}({ast.unparse(node.args[0])})"
            if call in {f"{function}({name})" for function in ("setattr", "delattr") for name in foreign}:
                yield call


HEAVY = ("torch", "jsonschema", "stevedore", "rich", "aorta", "torchrec", "numpy")
HEAVY += ("duckdb", "plotly", "jinja2", "plotext")
IMPORT_ONE_BY_ONE = f"""
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name, *sorted(set(sys.modules) & {set(HEAVY)}))
"""
WITHOUT_THE_HOST = """
import sys
for name in ("jsonschema", "stevedore", "click", "rich", "orjson", "aorta", "yaml", "referencing"):
    sys.modules[name] = None
from aorta_collectors.observe.observer import Observer
from aorta_collectors.layer_numerics.session import Session
from aorta_collectors.layer_numerics.config import Config
import aorta_collectors.numerics.session
print(Config.from_environment({"NANLOG_SAMPLE_EVERY": "3"}).sample_every)
print(Config.from_environment({"NANLOG_SPEC": '{"sample_every": 2}'}).sample_every)
print(Config.from_environment({"NANLOG_SPEC": '{"sample_evry": 2}'}).spec_error)
"""


class TestLoading:
    def test_the_sweeps_side_loads_no_torch(self, tmp_path: Path) -> None:
        names = ["aorta_collectors", "aorta_collectors.host", "aorta_collectors.api", "aorta_collectors.cli"]
        names += [f"aorta_collectors.{collector}.collector" for collector in sorted(COLLECTORS)]
        names += [f"aorta_collectors.{collector}.__main__" for collector in sorted(COLLECTORS)]
        names += ["aorta_collectors.evidence.run"]
        for name in names:
            loaded = run([PYTHON, "-c", IMPORT_ONE_BY_ONE, name], tmp_path).ok().out.split()[1:]
            assert "torch" not in loaded, name

    @pytest.mark.parametrize("collector", sorted(COLLECTORS))
    def test_a_front_end_leaves_the_order_of_exit_handlers_as_it_is(self, tmp_path: Path, collector: str) -> None:
        """multiprocessing registers its own when it is imported: that is for the program to do."""
        code = f"import sys, aorta_collectors.{collector}.__main__; print('multiprocessing' in sys.modules)"
        assert run([PYTHON, "-c", code], tmp_path).ok().out == "False\n"

    def test_importing_the_package_or_its_host_side_loads_nothing_heavy(self, tmp_path: Path) -> None:
        ran = run([PYTHON, "-c", IMPORT_ONE_BY_ONE, "aorta_collectors", "aorta_collectors.host"], tmp_path).ok()
        assert ran.out == "aorta_collectors\naorta_collectors.host\n"

    def test_the_entry_points_of_the_package_load_without_torch(self, tmp_path: Path) -> None:
        """Taking no_collectors, or script, attaches the plugin: aorta does that in every sweep."""
        code = """
import sys
from importlib.metadata import entry_points
for group in ("aorta.collectors", "aorta.mitigations", "aorta.workloads"):
    for entry in entry_points(group=group):
        if entry.value.startswith("aorta_collectors"):
            entry.load()
            print(entry.name, "torch" in sys.modules)
"""
        assert run([PYTHON, "-c", code], tmp_path).ok().out.split() == [
            *("layer_numerics", "False", "memory", "False", "numerics", "False", "tensors", "False"),
            *("no_collectors", "False", "script", "False"),
        ]

    def test_the_observing_side_runs_where_only_torch_is_installed(self, tmp_path: Path) -> None:
        out = run([PYTHON, "-c", WITHOUT_THE_HOST], tmp_path).ok().out.splitlines()
        assert out == ["3", "2", "unknown key sample_evry; did you mean sample_every?"]

    def test_importing_reads_no_environment_and_starts_no_thread(self, tmp_path: Path) -> None:
        code = """
import os, sys, threading
class Watched(dict):
    def __getitem__(self, key): raise AssertionError(key)
    get = __getitem__
before = list(sys.meta_path)
os.environ = Watched()
import aorta_collectors.api, aorta_collectors.launch, aorta_collectors.options, aorta_collectors.registry
import aorta_collectors.frontend.arming, aorta_collectors.evidence.run, aorta_collectors.layer_numerics.collector
print(threading.active_count(), sys.meta_path == before)
"""
        assert run([PYTHON, "-c", code], tmp_path).ok().out == "1 True\n"
