"""Collectors of other packages: real entry points, in temporary dist-info directories, seen by a fresh process."""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aorta_collectors.api
from aorta_collectors.api import Collector, Verification
from aorta_collectors.errors import CollectorLoadError
from aorta_collectors.registry import collector_names, load_collector
from tests.support import PYTHON, run

PRELUDE = """
import contextlib, os
from aorta_collectors.api import Collector, Verdict, Verification

@contextlib.contextmanager
def beating(capture):
    directory = capture()
    (directory.artifacts / "beats").write_text(directory.run_id + "\\n")
    yield
"""

# Loads collectors by name and says what came of each.
LOAD = """
import json, sys
from aorta_collectors.errors import CollectorLoadError
from aorta_collectors.registry import collector_names, load_collector
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = type(load_collector(name)).__name__
    except CollectorLoadError as error:
        found[name] = str(error)
print(json.dumps([sorted(collector_names()), found, "torch" in sys.modules]))
"""

# A whole trial of the heartbeat collector: plan, run, verify, by hand.
USE = """
import json, os, subprocess, sys
from pathlib import Path
from aorta_collectors.api import Capture, Expected
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.trial import check_artifacts
from aorta_collectors.launch import Launch
from aorta_collectors.registry import load_collector

heartbeat = load_collector("heartbeat")
options = heartbeat.validate(None)
here = Path.cwd()
program = "import os; open(os.environ['HEARTBEAT_FILE'], 'w').write(os.environ['HEARTBEAT_RUN_ID'])"

def verdict(artifacts, run_id):
    expected = Expected(options, frozenset({run_id}))
    found = check_artifacts(heartbeat, Anchor(here), artifacts, expected)
    return [found.verification.verdict.value, dict(found.files)]

planned = here / "planned"
planned.mkdir()
launch = heartbeat.plan(Launch((sys.executable, "-c", program)), options, Capture(planned, "run-1"))
print(json.dumps(verdict(planned, "run-1")))
subprocess.run(launch.argv, env={**os.environ, **launch.env}, check=True)
print(json.dumps(verdict(planned, "run-1")))
print(json.dumps(verdict(planned, "run-2")))
armed = here / "armed"
armed.mkdir()
with heartbeat.armed(options, lambda: Capture(armed, "run-3")):
    pass
print(json.dumps(verdict(armed, "run-3")))
"""


def heartbeat_source() -> str:
    """The example of api.py's docstring, made whole by what it leaves out."""
    documentation = aorta_collectors.api.__doc__ or ""
    found = re.search(r"\n( +class Heartbeat\(Collector\):\n.*?)\n\nTraps:", documentation, re.DOTALL)
    assert found, "the example has left the docstring of api.py"
    return PRELUDE + textwrap.dedent(found.group(1)) + "\n"


def package(site: Path, name: str, entries: dict[str, str], **modules: str) -> None:
    """Install a package: modules, and a dist-info directory with entry points of group aorta.collectors."""
    site.mkdir(exist_ok=True)
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source)
    directory = site / f"{name.replace('-', '_')}-1.0.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (directory / "entry_points.txt").write_text("\n".join(["[aorta.collectors]", *lines, ""]))


def load(tmp_path: Path, *names: str, sites: tuple[str, ...] = ("site",)) -> tuple[list[str], dict[str, str], bool]:
    path = os.pathsep.join(str(tmp_path / site) for site in sites)
    env = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    offered, found, torch = json.loads(run([PYTHON, "-c", LOAD, *names], tmp_path, env).ok().out)
    return offered, found, torch


class TestThirdParties:
    def test_the_example_of_the_contract_is_a_working_collector(self, tmp_path: Path) -> None:
        entries = {"heartbeat": "my_package:Heartbeat"}
        package(tmp_path / "site", "my-package", entries, my_package=heartbeat_source())
        offered, found, torch = load(tmp_path, "heartbeat", "layer_numerics")
        assert offered == ["heartbeat", "layer_numerics", "memory", "numerics", "tensors"]
        assert found == {"heartbeat": "Heartbeat", "layer_numerics": "LayerNumerics"}
        assert not torch

        ran = run([PYTHON, "-c", USE], tmp_path, {"PYTHONPATH": str(tmp_path / "site")}).ok()
        verdicts = [json.loads(line) for line in ran.out.splitlines()]
        assert verdicts == [
            ["missing", {}],
            ["captured", {"beats": 5}],
            ["stale", {"beats": 5}],
            ["captured", {"beats": 5}],
        ]

    def test_a_collector_that_cannot_be_imported_is_named_with_its_cause_and_disturbs_nobody(
        self, tmp_path: Path
    ) -> None:
        site = tmp_path / "site"
        package(site, "my-package", {"heartbeat": "my_package:Heartbeat"}, my_package=heartbeat_source())
        package(site, "broken-one", {"broken": "broken_one:Broken"}, broken_one="import nowhere_to_be_found\n")
        package(site, "broken-two", {"absent": "broken_two:Absent"}, broken_two="")
        package(site, "broken-three", {"syntax": "broken_three:X"}, broken_three="def f(:\n")
        source = "class Fails:\n    def __init__(self): raise ValueError('no licence')\nclass Odd: pass\n"
        package(site, "broken-four", {"fails": "broken_four:Fails", "odd": "broken_four:Odd"}, broken_four=source)
        nameless = "from aorta_collectors.api import Collector\nclass N(Collector):\n    output_subdir = 'n'\n"
        package(site, "broken-five", {"nameless": "broken_five:N"}, broken_five=nameless)
        names = ["broken", "absent", "syntax", "fails", "odd", "nameless", "heartbeat", "layer_numerics"]
        _, found, torch = load(tmp_path, *names)
        start = "collector {!r} of package {} "
        assert found["broken"] == (
            start.format("broken", "broken-one")
            + "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found'"
        )
        assert found["absent"].startswith(start.format("absent", "broken-two") + "cannot be loaded: ")
        assert "Absent" in found["absent"]
        assert found["syntax"].startswith(start.format("syntax", "broken-three") + "cannot be loaded: SyntaxError: ")
        assert found["fails"] == start.format("fails", "broken-four") + "cannot be loaded: ValueError: no licence"
        assert found["odd"] == start.format("odd", "broken-four") + "is a Odd, not an aorta_collectors.api.Collector"
        assert found["nameless"].endswith("TypeError: broken_five.N needs a class attribute name: str")
        assert (found["heartbeat"], found["layer_numerics"]) == ("Heartbeat", "LayerNumerics")
        assert not torch

    def test_a_name_that_two_packages_offer_is_refused_naming_both(self, tmp_path: Path) -> None:
        source = heartbeat_source()
        package(tmp_path / "site", "first-package", {"heartbeat": "first:Heartbeat"}, first=source)
        package(tmp_path / "site", "second-package", {"heartbeat": "second:Heartbeat"}, second=source)
        package(tmp_path / "site", "a-copy", {"layer_numerics": "first:Heartbeat"})
        offered, found, _ = load(tmp_path, "heartbeat", "layer_numerics")
        assert offered == ["heartbeat", "layer_numerics", "memory", "numerics", "tensors"]
        assert found["heartbeat"] == (
            "collector 'heartbeat' is offered by first-package and second-package; "
            "uninstall one, since neither is preferred"
        )
        assert found["layer_numerics"] == (
            "collector 'layer_numerics' is offered by a-copy and aorta-collectors; "
            "uninstall one, since neither is preferred"
        )

    def test_the_same_package_seen_twice_on_the_path_is_one_offer(self, tmp_path: Path) -> None:
        for site in ("site", "again"):
            entries = {"heartbeat": "my_package:Heartbeat"}
            package(tmp_path / site, "my-package", entries, my_package=heartbeat_source())
        assert load(tmp_path, "heartbeat", sites=("site", "again"))[1] == {"heartbeat": "Heartbeat"}

    def test_a_collector_must_call_itself_by_the_name_of_its_entry_point(self, tmp_path: Path) -> None:
        package(tmp_path / "site", "my-package", {"pulse": "my_package:Heartbeat"}, my_package=heartbeat_source())
        assert load(tmp_path, "pulse")[1]["pulse"] == (
            "collector 'pulse' of package my-package calls itself 'heartbeat'; the entry point must have that name"
        )


class TestInThisProcess:
    def test_our_own_collector_is_offered_and_loads(self) -> None:
        assert "layer_numerics" in collector_names()
        assert load_collector("layer_numerics").name == "layer_numerics"

    def test_an_unknown_name_is_an_error_that_lists_the_known_ones(self) -> None:
        with pytest.raises(CollectorLoadError) as caught:
            load_collector("layer_numeric")
        known = ", ".join(sorted(collector_names()))
        assert str(caught.value) == f"no installed package offers a collector named 'layer_numeric'; installed: {known}"
        assert caught.value.exit_code == 1


def define(**attributes: Any) -> type[Collector]:
    return type("Mine", (Collector,), attributes)


class TestContract:
    @pytest.mark.parametrize(
        ("attributes", "missing"),
        [
            ({}, "name"),
            ({"output_subdir": "x"}, "name"),
            ({"name": "x"}, "output_subdir"),
            ({"name": 1, "output_subdir": "x"}, "name"),
        ],
    )
    def test_a_class_without_its_names_fails_when_it_is_defined(self, attributes: dict[str, Any], missing: str) -> None:
        with pytest.raises(TypeError, match=f"Mine needs a class attribute {missing}: str"):
            define(**attributes)

    def test_a_class_with_a_schema_that_is_none_fails_when_it_is_defined(self) -> None:
        """Style guide, section 3: `__init_subclass__` checks `name` and meta-validates `schema`."""
        for schema in ({"type": "odd"}, {"type": "object", "properties": []}, "object"):
            with pytest.raises((TypeError, ValueError)):
                define(name="mine", output_subdir="mine", schema=schema)

    def test_verify_has_no_default(self) -> None:
        kind = define(name="mine", output_subdir="mine", schema={}, plan=lambda *_: None, armed=lambda *_: None)
        with pytest.raises(TypeError, match="verify"):
            kind()
        whole = type("Whole", (kind,), {"verify": lambda *_: Verification})
        assert whole().summarize(None) == {}  # type: ignore[arg-type]
