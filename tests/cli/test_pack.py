"""`aorta-collectors pack`: one file that does beside torch alone what the installed front-end does here."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.schema_check import first_error
from tests.frontend.compare import PROBE, script
from tests.layer_numerics.test_children import PROGRAMS, own_lines, seen, summaries
from tests.support import PYTHON, TRAIN, Ran, records, run, summary

#: What torch does not start without.
TORCHS_OWN = (
    *("torch", "torchgen", "functorch", "sympy", "mpmath", "networkx"),
    *("jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions"),
)
NOT_THERE = ("aorta_collectors", "aorta", "jsonschema", "referencing", "stevedore", "click", "rich", "orjson", "yaml")
SPEC = {"watch": [{"scope": {"types": ["*"]}, "tensors": ["output", "igrad", "weight"]}], "sample_every": 1}
#: Of when and where a run was, and how long it took.
OF_A_RUN = {"run_id", "started_at", "pid", "jsonl", "overhead", "step_times_ms"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that holds torch and what torch needs, and nothing else."""
    directory = tmp_path_factory.mktemp("alone")
    run([PYTHON, "-m", "venv", "--without-pip", "."], directory).ok()
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in TORCHS_OWN:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        here = Path(found.origin)
        here = here.parent if here.name == "__init__.py" else here
        (packages / here.name).symlink_to(here)
    python = str(directory / "bin" / "python")
    look = f"from importlib.util import find_spec; print([name for name in {NOT_THERE} if find_spec(name)])"
    assert run([python, "-c", look], directory).ok().out == "[]\n"
    return python


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("to hand over") / "nan log.pyz"
    run(["aorta-collectors", "pack", "-o", path.name], path.parent).ok()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, source in {**PROGRAMS, "train.py": TRAIN, "spec.json": json.dumps(SPEC)}.items():
        (tmp_path / name).write_text(source)
    return tmp_path


def packed(python: str, pyz: Path, words: list[str], cwd: Path, **env: str) -> Ran:
    """Run through the file, named as one who stands in `cwd` names it."""
    return run([python, os.path.relpath(pyz, cwd), *words], cwd, {"NANLOG_DIR": "out", **env})


def same(ran: Ran, bare: Ran) -> None:
    assert (ran.code, ran.out, own_lines(ran.err)) == (bare.code, bare.out, bare.err)


class TestTheFile:
    def test_the_command_says_what_it_made_and_how_to_run_it(self, tmp_path: Path, alone: str) -> None:
        ran = run(["aorta-collectors", "pack", "-o", "my file"], tmp_path).ok()
        content = (tmp_path / "my file").read_bytes()
        assert f"{len(content)} bytes" in ran.out
        assert f"sha256 {hashlib.sha256(content).hexdigest()}\n" in ran.out
        assert "python 'my file' train.py" in ran.out
        assert os.listdir(tmp_path) == ["my file"]
        helped = run([alone, "my file", "--help"], tmp_path).ok().out
        assert helped.startswith("usage: python 'my file' [--config spec.json] script.py")

    def test_its_bytes_do_not_depend_on_when_where_and_by_whom_it_is_made(self, tmp_path: Path, pyz: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        command = "umask 077; aorta-collectors pack -o other.pyz"
        env = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
        run(["sh", "-c", command], tmp_path / "elsewhere", env).ok()
        assert (tmp_path / "elsewhere" / "other.pyz").read_bytes() == pyz.read_bytes()

    def test_it_holds_the_observing_side_its_schemas_and_the_licence_alone(self, pyz: Path) -> None:
        names = zipfile.ZipFile(pyz).namelist()
        assert {name.split("/")[0] for name in names} == {"aorta_collectors", "LICENSE", "__main__.py"}
        parts = {name.split("/")[1] for name in names if name.count("/") > 1}
        assert parts == {"frontend", "layer_numerics", "observe", "schemas"}
        assert "aorta_collectors/schemas/layer_numerics.spec.json" in names
        assert "aorta_collectors/frontend/site/sitecustomize.py" in names

    def test_whatever_its_modules_import_is_there_too(self, pyz: Path, alone: str, tmp_path: Path) -> None:
        names = [name for name in zipfile.ZipFile(pyz).namelist() if name.endswith(".py")]
        modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]
        skip = {"__main__", "aorta_collectors.frontend.site.sitecustomize"}
        code = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        assert ".pyz/" in importlib.import_module(name).__file__, name
    except ModuleNotFoundError as error:
        assert error.name == "triton", name  # comes with torch where there is a GPU
"""
        run([alone, "-c", code, str(pyz), *sorted(set(modules) - skip)], tmp_path).ok()


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            ([], 2, "Missing option '-o'"),
            (["-o", "there"], 1, "Error: there exists; --force replaces it [error]"),
            (["-o", "link"], 1, "Error: link exists; --force replaces it [error]"),
            (["-o", ".", "--force"], 1, "Error: . is a directory [error]"),
            (["-o", "gone/nanlog.pyz"], 1, "Error: cannot write gone/nanlog.pyz: No such file or directory [error]"),
            (["-o", "there/nanlog.pyz"], 1, "Error: cannot write there/nanlog.pyz: Not a directory [error]"),
        ],
    )
    def test_what_cannot_be_written_is_said_in_a_line(
        self, words: list[str], code: int, message: str, tmp_path: Path
    ) -> None:
        (tmp_path / "there").write_text("mine")
        (tmp_path / "link").symlink_to("nowhere")
        ran = run(["aorta-collectors", "pack", *words], tmp_path)
        assert ran.code == code
        assert message in ran.err
        assert "Traceback" not in ran.err
        assert sorted(os.listdir(tmp_path)) == ["link", "there"]
        assert (tmp_path / "there").read_text() == "mine"

    def test_force_replaces_the_file(self, tmp_path: Path, pyz: Path) -> None:
        (tmp_path / "there").write_text("mine")
        run(["aorta-collectors", "pack", "-o", "there", "--force"], tmp_path).ok()
        assert (tmp_path / "there").read_bytes() == pyz.read_bytes()
        assert (tmp_path / "there").stat().st_mode & 0o777 == 0o644


class TestTheProgramCannotTell:
    @pytest.mark.parametrize("flags", [(), ("-I",), ("-P",), ("-u", "-O", "-W", "error")], ids=" ".join)
    @pytest.mark.parametrize(
        "words",
        [["sub/probe.py", "a", "--config"], ["-m", "probe", "a b"], ["-c", PROBE, "-m"]],
        ids=lambda words: words[0],
    )
    def test_it_sees_what_python_would_show_it(
        self, words: list[str], flags: tuple[str, ...], pyz: Path, alone: str, tmp_path: Path
    ) -> None:
        if "-P" in flags and sys.version_info < (3, 11):
            pytest.skip("python -P is 3.11's")
        script(tmp_path / "sub" / "probe.py")
        script(tmp_path / "probe.py")
        bare = run([alone, *flags, *words], tmp_path)
        ran = run([alone, *flags, os.path.relpath(pyz, tmp_path), *words], tmp_path)
        shown, expected = ({} if not one.out else json.loads(one.out) for one in (ran, bare))
        for told in (shown, expected):
            told.pop("env", None)  # its children are to be armed
        assert (ran.code, shown, ran.err) == (bare.code, expected, bare.err)

    def test_a_file_that_is_not_there_and_wrong_words_are_reported_as_usual(
        self, pyz: Path, alone: str, home: Path
    ) -> None:
        same(packed(alone, pyz, ["missing.py"], home), run([alone, "missing.py"], home))
        ran = packed(alone, pyz, ["--confg", "x", "train.py"], home)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith("nan log.pyz': unknown option --confg\n")

    def test_an_exception_has_the_traceback_and_the_status_of_its_own(self, pyz: Path, alone: str, home: Path) -> None:
        words = ["train.py", "--mode", "raise"]
        ran, bare = packed(alone, pyz, words, home), run([alone, *words], home)
        same(ran, bare)
        assert ran.code == 1
        found = summary(home / "out")
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", "RuntimeError: boom", 3)


class TestEvidence:
    def test_it_leaves_what_the_installed_front_end_leaves(self, pyz: Path, alone: str, home: Path) -> None:
        """From another directory than the file's, and the program changes it once more before it imports torch."""
        code = "import os; os.mkdir('elsewhere'); os.chdir('elsewhere')\n" + TRAIN.replace("0.1)", "1e6)")
        words = ["--config", "spec.json", "-c", code, "--steps", "4"]
        ours = packed(alone, pyz, words, home).ok()
        os.rmdir(home / "elsewhere")
        installed = run([PYTHON, "-m", "aorta_collectors.layer_numerics", *words], home, {"NANLOG_DIR": "in"}).ok()
        assert ours.out == installed.out
        written, expected = (records(home / name / "layers_rank0.jsonl") for name in ("out", "in"))
        assert len(written) > 10
        assert [_lasting(record) for record in written] == [_lasting(record) for record in expected]
        found, other = summary(home / "out"), summary(home / "in")
        assert first_error("layer_numerics.summary", found) is None
        assert found["spec_applied"] is True
        assert found["first_bad"] is not None
        assert {key: value for key, value in found.items() if key not in OF_A_RUN} == {
            key: value for key, value in other.items() if key not in OF_A_RUN
        }

    def test_a_malformed_spec_warns_and_the_flat_variables_apply(self, pyz: Path, alone: str, home: Path) -> None:
        env = {"NANLOG_SPEC": '{"wach": []}', "NANLOG_WATCH_NAMES": "2"}
        ran = packed(alone, pyz, ["-m", "train", "--steps", "2"], home, **env).ok()
        assert "WARNING: NANLOG_SPEC: unknown key wach; did you mean watch?" in ran.err
        assert len(ran.out.splitlines()) == 2
        found = summary(home / "out")
        assert (found["spec_applied"], found["watched_names"], found["steps_seen"]) == (False, ["2"], 2)


class TestChildren:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["ranks.py", "spawn"], [(0, 3), (1, 4)]),
            (["ranks.py", "forkserver"], [(0, 3), (1, 4)]),
            (["-m", "torch.distributed.run", "--nproc-per-node", "2", "one_rank.py"], [(0, 2), (1, 3)]),
            (["starter.py"], [(0, 1)]),
        ],
        ids=["spawn", "forkserver", "torchrun", "subprocess elsewhere"],
    )
    def test_python_processes_below_it_are_observed_too(
        self, words: list[str], expected: list[tuple[int, int]], pyz: Path, alone: str, home: Path
    ) -> None:
        ran = packed(alone, pyz, words, home).ok()
        found = summaries(home / "out")
        assert [entry[:2] for entry in seen(found)] == expected
        assert len({content["run_id"] for content in found.values()}) == 1
        assert len(set(re.findall(r"PID=(\d+)", ran.err))) == len(expected)
        if words == ["starter.py"]:
            assert "nan log.pyz" not in ran.out, "a child sees no entry of ours in sys.path"


def _lasting(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("t", "pid")}
