"""The wheel, used as its users will: installed in an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support import PYTHON, ROOT, TRAIN, run

pytestmark = pytest.mark.sweep

RECIPE = """
schema_version: 1
mode: probe
ticket: T-1
trials: 1
mitigation_axis: [none]
diagnostic_axis: [none]
collect: {layer_numerics: {NANLOG_SPEC: '{"watch": [{"tensors": ["output"]}], "sample_every": 1}'}}
"""

#: Runs in the clean environment: where the package is, and whether its schemas are found.
LOOK = """
import json
import aorta_collectors
from aorta_collectors.schema_check import load_schema, schema_names
names = schema_names()
assert all(load_schema(name)["title"] for name in names)
print(json.dumps({"file": aorta_collectors.__file__, "schemas": names}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("aorta_collectors", "schemas"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run([PYTHON, "-m", "build", "-w", "--no-isolation"], source).ok()
    (built,) = (source / "dist").glob("aorta_collectors-*-py3-none-any.whl")
    return built


@pytest.fixture
def clean_bin(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The bin directory of an environment that holds the wheel and what its metadata asks for."""
    directory = tmp_path / "clean"
    run([PYTHON, "-m", "venv", str(directory)], tmp_path).ok()
    # The pins of the CPU machine as constraints: the CPU build of torch, and versions that were tested.
    pins = ["--constraint", str(ROOT / "requirements" / "cpu.txt")]
    install = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*install, *pins, str(wheel)], tmp_path, timeout=170).ok()
    yield directory / "bin"
    shutil.rmtree(directory)  # torch is large, and pytest keeps its directories for some time


def test_the_wheel_holds_its_types_and_schemas_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "aorta_collectors/py.typed" in names
    assert "aorta_collectors/frontend/site/sitecustomize.py" in names
    for schema in (ROOT / "schemas").glob("*.json"):
        assert f"aorta_collectors/schemas/{schema.name}" in names
    top = {name.split("/", 1)[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"aorta_collectors"}


def test_the_wheel_has_all_modules_of_the_checkout(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert packed == {str(path.relative_to(ROOT)) for path in (ROOT / "aorta_collectors").rglob("*.py")}


def test_the_entry_points_are_there(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    entries = ConfigParser()
    entries.read_string(archive.read(name).decode())
    assert dict(entries["console_scripts"]) == {"aorta-collectors": "aorta_collectors.cli:main"}
    assert dict(entries["aorta.mitigations"]) == {"no_collectors": "aorta_collectors.host:no_collectors"}
    assert entries["aorta.collectors"]["layer_numerics"] == "aorta_collectors.layer_numerics.collector:LayerNumerics"


def test_the_licence_is_in_the_wheel(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())
    (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    assert "\nLicense-Expression: MIT\n" in archive.read(metadata).decode()


@pytest.mark.timeout(300)
def test_the_installed_wheel_works_away_from_the_checkout(clean_bin: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{clean_bin}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(clean_bin.parent)}
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "train.py").write_text(TRAIN)

    looked = json.loads(run([str(clean_bin / "python"), "-c", LOOK], tmp_path, env).ok().out)
    assert Path(looked["file"]).is_relative_to(clean_bin.parent)
    assert set(looked["schemas"]) == {path.stem for path in (ROOT / "schemas").glob("*.json")}

    listed = run([str(clean_bin / "aorta-collectors"), "list"], tmp_path, env).ok().out
    assert "layer_numerics" in listed
    assert "the plugin attaches" in listed

    words = ["sweep", "run", "--recipe", "r.yaml", "--output", "out", "--", "python", "train.py", "--lr", "2"]
    swept = run([str(clean_bin / "aorta"), *words], tmp_path, env).ok()
    assert "captured" in swept.out
    (summary,) = (tmp_path / "out").rglob("summary_rank0.json")
    assert json.loads(summary.read_text())["spec_applied"] is True
    run([str(clean_bin / "aorta-collectors"), "verify", "out"], tmp_path, env).ok()
