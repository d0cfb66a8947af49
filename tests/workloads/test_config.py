"""What a recipe may say of a script, and the command that comes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.errors import OptionsError
from aorta_collectors.schema_check import load_schema
from aorta_collectors.workloads.config import ScriptConfig
from tests.support import BIN, PYTHON, ROOT

RANKED = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@pytest.fixture(autouse=True)
def this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")


def config(**given: Any) -> ScriptConfig:
    return ScriptConfig.of({"argv": ["python", "train.py"], **given})


def test_what_is_not_said_has_its_default() -> None:
    found = config()
    assert found == ScriptConfig(("python", "train.py"), os.getcwd())
    default = load_schema("script_workload")["properties"]["fail_on"]["default"]
    assert found.fail_on == frozenset(default)


def test_what_the_host_adds_is_no_part_of_it() -> None:
    found = config(steps=20, _aorta_environment={"name": "local"}, _aorta_trial_env={})
    assert found.steps == 20
    assert found.argv == ("python", "train.py")


@pytest.mark.parametrize(
    ("given", "place", "says"),
    [
        ({"argv": "python train.py"}, "argv", "must be a list of words, such as [python, train.py"),
        ({"argv": []}, "argv", "must be a list of words"),
        ({"argv": ["python", "train.py", "--lr", 2]}, "argv[3]", "must be a string: put it in quotes"),
        ({"argv": [""]}, "argv[0]", "must not be empty"),
        ({"argv": ["python", "a\0b"]}, "argv[1]", "NUL"),
        ({"argvs": ["python"]}, "", "unknown key argvs; did you mean argv?"),
        ({"env": {"LR": 2}}, "env.LR", "must be a string, or null to remove it, got 2; quote numbers"),
        ({"env": {"A=B": "1"}}, "env", "'A=B' is not a variable's name"),
        ({"env": {1: "1"}}, "env", "1 is not a variable's name"),
        ({"env": {"PATH": "/opt/bin"}}, "env.PATH", "write argv[0] as a path, or use extra_env"),
        ({"env": ["LR=2"]}, "env", "must be an object"),
        ({"timeout_s": 0}, "timeout_s", "must be a number > 0, got 0"),
        ({"timeout_s": "60"}, "timeout_s", 'must be a number > 0, got "60"'),
        ({"timeout_s": float("inf")}, "timeout_s", "must be a finite number"),
        ({"nproc": 0}, "nproc", "must be an integer >= 1, got 0"),
        ({"nproc": True}, "nproc", "must be an integer >= 1, got true"),
        ({"cwd": ""}, "cwd", "must not be empty"),
        ({"fail_on": ["nonfinit"]}, "fail_on[0]", "did you mean nonfinite?"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_place_and_the_fix(given: dict[str, Any], place: str, says: str) -> None:
    with pytest.raises(OptionsError) as raised:
        config(**given)
    assert raised.value.path == place
    assert says in raised.value.message


def test_without_argv_there_is_no_script() -> None:
    with pytest.raises(OptionsError, match="argv is missing"):
        ScriptConfig.of({"timeout_s": 3})


@pytest.mark.parametrize(
    ("argv", "becomes"),
    [
        (["python", "train.py", "--lr", "2"], ["python", *RANKED, "train.py", "--lr", "2"]),
        ([PYTHON, "-u", "train.py"], [PYTHON, "-u", *RANKED, "train.py"]),
        (["python", "-m", "pkg.train", "-v"], ["python", *RANKED, "-m", "pkg.train", "-v"]),
        (["nice", "-n", "5", "python", "train.py"], ["nice", "-n", "5", "python", *RANKED, "train.py"]),
    ],
)
def test_ranks_are_put_in_front_of_a_python_program(argv: list[str], becomes: list[str]) -> None:
    assert config(argv=argv, nproc=2).argv == tuple(becomes)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["python", "-c", "print(1)"], "needs argv to end in a python script"),
        (["bash", "train.sh"], "needs argv to end in a python script"),
        (["torchrun", "--nproc_per_node=2", "train.py"], "write the launcher into argv instead"),
        (["/usr/bin/python9", "train.py"], "needs argv to end in a python script"),
        (["python", "-W", "error", "train.py"], "ranks get no other option"),
        (["python", "-um", "pkg.train"], "needs "),
        (["python", "-O", "train.py"], "ranks get no other option"),
        (["python"], "needs argv to end in a python script"),
    ],
)
def test_ranks_of_anything_else_are_refused(argv: list[str], says: str) -> None:
    with pytest.raises(OptionsError) as raised:
        config(argv=argv, nproc=2)
    assert raised.value.path == "nproc"
    assert says in raised.value.message


def test_a_directory_is_that_of_aorta_and_a_program_is_looked_for_there(tmp_path: Path) -> None:
    found = config(argv=["./run", "./data"], cwd=os.path.relpath(tmp_path))
    assert found.cwd == str(tmp_path)
    assert found.argv == (str(tmp_path / "run"), "./data")
    assert config(argv=["python", "./train.py"], cwd=str(tmp_path)).argv == ("python", "./train.py")


def test_the_reference_page_has_each_property_and_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "script.md").read_text(encoding="utf-8")
    properties = load_schema("script_workload")["properties"]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows][: len(properties)] == list(properties)
    for row, (name, entry) in zip(rows, properties.items(), strict=False):
        assert ("[nonfinite]" in row) == (name == "fail_on"), row
        assert entry["description"]


def test_loading_the_entry_point_again_gives_the_same_class() -> None:
    import aorta_collectors.workloads as package

    assert package.script is package.script
    assert sys.modules["aorta_collectors.workloads"].script.runs_command
    with pytest.raises(AttributeError, match="no attribute 'scripts'"):
        package.scripts  # noqa: B018
