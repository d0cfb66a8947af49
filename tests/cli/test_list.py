"""`aorta-collectors list`: for machines too, with where each collector comes from and what is missing."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from tests.support import PYTHON, run

#: As if nothing but what this package needs were installed.
WITHOUT_EXTRAS = """
import importlib.metadata as metadata, sys
found = metadata.version
def version(name):
    if name in ("duckdb", "tensorboard"):
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
from aorta_collectors.cli import main
sys.argv = ["aorta-collectors", "list", *sys.argv[1:]]
main()
"""


def test_json_has_collectors_host_and_packages(tmp_path: Path) -> None:
    listed = json.loads(run(["aorta-collectors", "list", "--json"], tmp_path).ok().out)
    (ours,) = [each for each in listed["collectors"] if each["name"] == "layer_numerics"]
    assert (ours["package"], ours["version"]) == ("aorta-collectors", version("aorta-collectors"))
    assert (ours["output_subdir"], ours["error"]) == ("layer_numerics", None)
    assert listed["host"]["version"] == version("amd-aorta")
    assert listed["host"]["fits"] is True
    assert listed["packages"]["duckdb"] == version("duckdb")


def test_what_is_not_installed_is_said_with_how_to_get_it(tmp_path: Path) -> None:
    shown = run([PYTHON, "-c", WITHOUT_EXTRAS], tmp_path).ok().out
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert "not installed; pip install 'aorta-collectors[report]'" in lines["duckdb"]
    assert "pip install 'aorta-collectors[tensorboard]'" in lines["tensorboard"]
    assert "not installed" not in lines["torch"]
    listed = json.loads(run([PYTHON, "-c", WITHOUT_EXTRAS, "--json"], tmp_path).ok().out)
    assert listed["packages"]["duckdb"] is None


def test_a_collector_that_cannot_be_loaded_is_told_to_machines_too(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\nfaulty = no_such_module:Faulty\n")
    ran = run(["aorta-collectors", "list", "--json", "-o", "out.json"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert ran.code == 1
    faulty = json.loads((tmp_path / "out.json").read_text())["collectors"][0]
    assert (faulty["name"], faulty["package"], faulty["version"]) == ("faulty", "broken", "1.0")
    assert "no_such_module" in faulty["error"]
