"""`python -m aorta_collectors.layer_numerics program`: the program as it is without it, and evidence beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.layer_numerics.programs import DDP, DMP
from tests.support import PYTHON, TRAIN, Ran, records, run, summary

STARTUP = re.compile(r"nanlog: attached layer hooks to (\d+) module\(s\) \(types=\[.*\], names=\[.*\]\); channels=\[")
EVERY_STEP = {"NANLOG_SAMPLE_EVERY": "1"}


def armed(words: list[str], cwd: Path, env: dict[str, str] | None = None) -> Ran:
    return run([PYTHON, "-m", "aorta_collectors.layer_numerics", *words], cwd, {"NANLOG_DIR": "out", **(env or {})})


def own_lines(err: str) -> str:
    """The program's own part of stderr."""
    return "".join(line for line in err.splitlines(keepends=True) if " nanlog: " not in line)


def attached_to(ran: Ran) -> list[int]:
    return [int(number) for number in STARTUP.findall(ran.err)]


@pytest.fixture(scope="module")
def bare_losses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the plain script prints without us, step by step: a shorter run prints the first of these lines."""
    directory = tmp_path_factory.mktemp("bare")
    (directory / "train.py").write_text(TRAIN)
    done = run([PYTHON, "train.py", "--steps", "60"], directory).ok()
    assert done.err == ""
    return done.out.splitlines(keepends=True)


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(TRAIN)
    return "train.py"


class TestAProgramIsWhatItIsWithoutUs:
    def test_a_plain_script_prints_the_same_and_leaves_every_step(
        self, script: str, tmp_path: Path, bare_losses: list[str]
    ) -> None:
        ran = armed([script, "--steps", "4"], tmp_path, EVERY_STEP).ok()
        assert ran.out == "".join(bare_losses[:4])
        assert own_lines(ran.err) == ""
        assert attached_to(ran) == [2]
        found = summary(tmp_path / "out")
        lines = records(tmp_path / "out" / "layers_rank0.jsonl")
        assert (found["status"], found["ended_by"], found["steps_seen"]) == ("complete", "exit", 4)
        assert found["records_written"] == len(lines)
        assert {line["step"] for line in lines} == {1, 2, 3, 4}
        assert found["watched_names"] == ["0", "2"]
        assert (found["hook_errors"], found["write_error"], found["first_bad"]) == (0, None, None)

    def test_an_exception_of_the_program_ends_it_as_it_would_have(self, script: str, tmp_path: Path) -> None:
        words = [script, "--mode", "raise"]
        bare = run([PYTHON, *words], tmp_path)
        ran = armed(words, tmp_path)
        assert (ran.code, ran.out, own_lines(ran.err)) == (bare.code, bare.out, bare.err)
        assert ran.code == 1
        found = summary(tmp_path / "out")
        assert (found["status"], found["ended_by"]) == ("complete", "RuntimeError: boom")
        assert found["steps_seen"] == 3

    def test_a_module_runs_as_python_m_would_run_it(self, script: str, tmp_path: Path, bare_losses: list[str]) -> None:
        ran = armed(["-m", "train", "--steps", "2"], tmp_path).ok()
        assert ran.out == "".join(bare_losses[:2])
        assert own_lines(ran.err) == ""
        assert attached_to(ran) == [2]
        assert summary(tmp_path / "out")["steps_seen"] == 2

    def test_a_script_that_does_not_exist_is_reported_as_python_does(self, tmp_path: Path) -> None:
        bare = run([PYTHON, "missing.py"], tmp_path)
        ran = armed(["missing.py"], tmp_path)
        assert (ran.code, ran.out, ran.err) == (bare.code, bare.out, bare.err)

    def test_a_program_without_torch_leaves_nothing(self, tmp_path: Path) -> None:
        ran = armed(["-c", "import sys; print(sys.argv)", "--config", "mine"], tmp_path).ok()
        assert ran.out == "['-c', '--config', 'mine']\n"
        assert ran.err == ""
        assert list(tmp_path.iterdir()) == []

    def test_switched_off_it_leaves_nothing(self, script: str, tmp_path: Path) -> None:
        ran = armed([script, "--steps", "1"], tmp_path, {"AORTA_COLLECTORS": "off"}).ok()
        assert ran.err == ""
        assert not (tmp_path / "out").exists()


class TestWrappedModels:
    """Hooks stand as soon as the wrapper has been built, before the first step."""

    @pytest.mark.parametrize(("source", "modules"), [(DDP, 2), (DMP, 4)], ids=["DDP", "DMP"])
    def test_a_wrapped_model_is_attached_when_it_is_built(self, source: str, modules: int, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(source)
        ran = armed(["train.py"], tmp_path, EVERY_STEP).ok()
        assert attached_to(ran) == [modules]
        assert ran.err.index("attached layer hooks") < ran.err.index("model built")
        found = summary(tmp_path / "out")
        assert found["steps_seen"] == len(ran.out.splitlines())
        assert found["watched_count"] == modules
        assert found["hook_errors"] == 0
        assert found["records_written"] == len(records(tmp_path / "out" / "layers_rank0.jsonl")) > 0


class TestConfiguration:
    def test_config_wins_and_never_reaches_the_program(self, tmp_path: Path) -> None:
        spec = {"watch": [{"scope": {"names": ["2"]}, "tensors": ["output"]}], "sample_every": 1}
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        code = "import sys; print(sys.argv)\n" + TRAIN
        env = {"NANLOG_SPEC": '{"sample_every": 7}', "NANLOG_SPEC_FILE": "none.json", "NANLOG_CHANNELS": "igrad"}
        ran = armed(["--config", "spec.json", "-c", code, "--steps", "2"], tmp_path, env).ok()
        assert ran.out.splitlines()[0] == "['-c', '--steps', '2']"
        found = summary(tmp_path / "out")
        assert found["spec_source"] == "--config=spec.json"
        assert (found["spec_present"], found["spec_applied"], found["spec_error"]) == (True, True, None)
        assert found["watched_names"] == ["2"]
        lines = records(tmp_path / "out" / "layers_rank0.jsonl")
        assert [(line["step"], line["layer_name"], line["role"]) for line in lines] == [
            (1, "2", "act"),
            (2, "2", "act"),
        ]

    def test_relative_paths_are_those_of_the_directory_the_program_was_started_in(self, tmp_path: Path) -> None:
        (tmp_path / "spec.json").write_text('{"sample_every": 1}')
        code = "import os; os.mkdir('elsewhere'); os.chdir('elsewhere')\n" + TRAIN
        armed(["-c", code, "--steps", "1"], tmp_path, {"NANLOG_SPEC_FILE": "spec.json"}).ok()
        assert (tmp_path / "out" / "summary_rank0.json").exists()
        assert not (tmp_path / "elsewhere" / "out").exists()
        found = summary(tmp_path / "out")
        assert found["spec_applied"] is True
        assert found["records_written"] > 0

    def test_a_malformed_spec_warns_and_the_flat_variables_apply(self, script: str, tmp_path: Path) -> None:
        env = {"NANLOG_SPEC": "{oops", "NANLOG_WATCH_NAMES": "2", "NANLOG_PRE_CONTEXT": "x"}
        ran = armed([script, "--steps", "1"], tmp_path, env).ok()
        assert "WARNING: NANLOG_SPEC: " in ran.err
        assert "WARNING: NANLOG_PRE_CONTEXT: must be an integer >= 0" in ran.err
        found = summary(tmp_path / "out")
        assert (found["spec_source"], found["spec_applied"]) == ("NANLOG_SPEC", False)
        assert found["spec_error"]
        assert found["watched_names"] == ["2"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--confg", "x", "train.py"], "unknown option --confg"),
            (["--config"], "--config needs a file"),
            (["--config=", "train.py"], "--config needs a file"),
            ([], "usage: python -m aorta_collectors.layer_numerics"),
        ],
    )
    def test_a_wrong_command_line_is_refused(self, words: list[str], message: str, tmp_path: Path) -> None:
        ran = armed(words, tmp_path)
        assert ran.code == 2
        assert message in ran.err


class TestEvidenceSurvives:
    """A crash loses at most one step, and what goes wrong with the files never stops the training."""

    def test_a_kill_leaves_a_readable_summary_at_most_one_step_behind(self, script: str, tmp_path: Path) -> None:
        ran = armed([script, "--mode", "kill"], tmp_path, EVERY_STEP)
        assert ran.code == -9
        found = summary(tmp_path / "out")
        assert (found["status"], found["ended_by"]) == ("running", None)
        # Killed in step 3, between forward and backward.
        assert found["steps_seen"] in (2, 3)
        lines = records(tmp_path / "out" / "layers_rank0.jsonl")
        assert {line["step"] for line in lines} == {1, 2}

    def test_the_first_bad_record_is_in_the_summary_before_the_program_ends(self, tmp_path: Path) -> None:
        code = (
            "import os, signal, torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
            "for value in (1.0, float('nan'), 1.0):\n    model(torch.full((1, 2), value))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        assert armed(["-c", code], tmp_path).code == -9
        found = summary(tmp_path / "out")
        assert found["status"] == "running"
        assert found["first_bad"]["step"] == 2
        assert found["first_bad"]["kind"] == "nan"

    def test_a_directory_that_cannot_be_written_falls_back_to_a_temporary_one(
        self, script: str, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        env = {"NANLOG_DIR": "file/out", "TMPDIR": str(temporary), **EVERY_STEP}
        ran = armed([script, "--steps", "2"], tmp_path, env).ok()
        assert len(ran.out.splitlines()) == 2
        assert "WARNING: cannot write to NANLOG_DIR=" in ran.err
        (fallback,) = temporary.glob("nan_logger_out_*")
        assert str(fallback) in ran.err
        assert summary(fallback)["steps_seen"] == 2
        assert summary(fallback)["jsonl"] == str(fallback / "layers_rank0.jsonl")

    def test_training_goes_on_when_the_disk_is_full(self, tmp_path: Path, bare_losses: list[str]) -> None:
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16000, 16000))\n"
        (tmp_path / "train.py").write_text(limit + TRAIN)
        ran = armed(["train.py", "--steps", "60"], tmp_path, EVERY_STEP).ok()
        assert ran.out == "".join(bare_losses)
        found = summary(tmp_path / "out")
        lines = records(tmp_path / "out" / "layers_rank0.jsonl")
        assert (found["status"], found["steps_seen"]) == ("complete", 60)
        assert found["write_error"].endswith("layers_rank0.jsonl: File too large")
        assert found["records_written"] == len(lines) > 0
        assert found["hook_errors"] == 0

    def test_training_goes_on_when_its_directory_is_removed(
        self, script: str, tmp_path: Path, bare_losses: list[str]
    ) -> None:
        ran = armed([script, "--mode", "delete"], tmp_path, {"NANLOG_DIR": str(tmp_path / "out"), **EVERY_STEP}).ok()
        assert ran.out == "".join(bare_losses[:5])
        assert own_lines(ran.err) == ""
