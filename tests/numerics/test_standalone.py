"""`python -m aorta_collectors.numerics`: options, the program as it would be, and evidence whatever ends it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.names import EXIT_STOPPED, PREFIX
from aorta_collectors.numerics.standalone import standalone
from aorta_collectors.schema_check import load_schema
from tests.numerics.left import TRAIN, Left, train
from tests.support import PYTHON, run

TEXTS = {
    "trace": ("--trace-level", "payload"),
    "steps": ("--trace-steps", "attention, sample"),
    "stats_every": ("--stats-every", "3"),
    "on_bad": ("--on-bad", "stop"),
    "profile": ("--profile", "deferred"),
    "otlp_endpoint": ("--otlp-endpoint", "http://localhost:4318"),
    "payload_max_bytes": ("--payload-max-bytes", "1000"),
    "escalate": ("--escalate", "off"),
    "cv_threshold": ("--cv-threshold", "0.5"),
    "efficiency_threshold": ("--efficiency-threshold", "0.5"),
    "rate_limit": ("--rate-limit", "7"),
    "step_metrics": ("--step-metrics", "off"),
    "interval": ("--interval", "5"),
}


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    """Programs start as from a terminal, also where the tests run below nohup, which has SIGHUP ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of words for which the program is not run."""
    with pytest.raises(SystemExit) as caught:
        standalone().run([*words, "-c", "raise AssertionError('it runs')"], "COMMAND")
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("COMMAND: ")
    return text.removeprefix("COMMAND: ").rstrip("\n")


class TestOptions:
    def test_there_is_one_for_each_of_the_schema_that_is_not_for_a_sweep_alone(self) -> None:
        assert set(TEXTS) == set(load_schema("numerics.options")["properties"]) - {"on_missing"}
        own = {option for option, _ in TEXTS.values()} | {"--dir", "--trace-output"}
        assert set(standalone().options) == own
        assert [option for option in own if option not in standalone().help] == []

    @pytest.mark.parametrize("name", TEXTS)
    def test_each_sets_its_variable_as_text(self, name: str) -> None:
        option, text = TEXTS[name]
        standalone().options[option](text)
        assert os.environ[PREFIX + name.upper()] == text
        assert Config.from_environment(os.environ).describe()[name] != Config().describe()[name]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--trace-level", "full"], '--trace-level must be one of none, basic, layer, payload, got "full"'),
            (["--trace", "layer"], "unknown option --trace"),
            (["--on-missing", "warn"], "unknown option --on-missing"),
            (["--interval", "0"], "--interval must be an integer >= 1, got 0"),
            (["--interval=1.5"], '--interval must be an integer >= 1, got "1.5"'),
            (["--stats-every", "0"], "--stats-every must be an integer >= 1, got 0"),
            (
                ["--stats-every", "5"],
                "--stats-every: has no effect without trace: layer or payload; trace is basic",
            ),
            (["--dir="], "--dir needs a directory"),
            (
                ["--trace-level=none", "--trace-output=t.json"],
                "--trace-output: has no effect with trace: none; spans are what it is written from",
            ),
            (
                ["--trace-output", __file__],
                f"--trace-output: {__file__} is there and is no timeline; it is not replaced",
            ),
            (["--profile", " "], "--profile needs a value"),
            (
                ["--on-bad", "stop"],
                "--on-bad: stop needs the statistics of layers: set trace: layer or payload, not basic",
            ),
            (
                ["--cv-threshold=0.1"],
                "--cv-threshold: has no effect while profile is off; it decides which timed bricks are escalated",
            ),
        ],
    )
    def test_what_cannot_be_taken_is_refused(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert refusal(words, capsys) == message

    def test_what_a_variable_asks_for_in_vain_is_no_reason_to_stop_a_program(self, tmp_path: Path) -> None:
        ran = train(tmp_path, NUMERICS_ON_BAD="stop", NUMERICS_INTERVAL="often").ok()
        warnings = Left(tmp_path / "out").summary["warnings"]
        assert warnings == [
            'NUMERICS_INTERVAL: must be an integer >= 1, got "often"; the default is used',
            "NUMERICS_ON_BAD stop needs the statistics of layers: set trace: layer or payload, not basic",
        ]
        assert all(f"WARNING: {warning}" in ran.err for warning in warnings)


class TestTheProgram:
    def test_it_is_as_it_would_be_and_its_timeline_is_written(self, tmp_path: Path) -> None:
        code = "import sys\nprint(sys.argv, sys.path[0])\n" + TRAIN
        options = ["--trace-level", "layer", "--trace-output", "trace.json"]
        ran = train(tmp_path, "os.mkdir('elsewhere'); os.chdir('elsewhere')", *options, code=code).ok()
        assert ran.out == f"['train.py'] {tmp_path}\n1\n2\n3\n4\n5\n"
        left = Left(tmp_path / "out")
        assert (left.summary["steps_seen"], left.summary["config"]["trace"]) == (5, "layer")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert len([event for event in events if event["ph"] == "X"]) == len(left.lines("spans"))
        assert "trace.json has the spans of 1 process(es)" in ran.err

    @pytest.mark.parametrize("how", ["switched off", "nothing asked for"])
    def test_unobserved_it_leaves_nothing(self, tmp_path: Path, how: str) -> None:
        if how == "switched off":
            ran = train(tmp_path, "", "--trace-output", "t.json", AORTA_COLLECTORS="off").ok()
        else:
            ran = train(tmp_path, "", "--trace-level", "none", "--step-metrics", "off").ok()
        assert ran.out == "1\n2\n3\n4\n5\n"
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "t.json").exists()

    def test_its_timeline_has_this_launch_alone_and_replaces_that_of_another(self, tmp_path: Path) -> None:
        own = tmp_path / "out"
        train(tmp_path, "", "--trace-output", "t.json").ok()
        for path in list(own.iterdir()):  # as of a rank that the second launch does not have
            path.rename(own / path.name.replace("rank0", "rank1"))
        ran = train(tmp_path, "", "--trace-output", "t.json").ok()
        assert f"t.json has the spans of 1 process(es) in {own}" in ran.err
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["rank 0"]

    def test_where_no_program_is_named_nothing_is_written(self, tmp_path: Path) -> None:
        train(tmp_path).ok()
        program = (tmp_path / "train.py").read_text()
        argv = [PYTHON, "-m", "aorta_collectors.numerics", "--dir", "out", "--trace-output", "train.py"]
        assert run(argv, tmp_path).code == 2
        assert (tmp_path / "train.py").read_text() == program

    def test_its_timeline_is_found_where_its_spans_have_gone(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "tmp").mkdir()
        (tmp_path / "train.py").write_text(TRAIN)
        argv = [PYTHON, "-m", "aorta_collectors.numerics", "--dir", "file", "--trace-output", "t.json", "train.py"]
        ran = run(argv, tmp_path, {"TMPDIR": str(tmp_path / "tmp")}).ok()
        assert f"t.json has the spans of 1 process(es) in {tmp_path}/tmp/numerics_out_" in ran.err

    def test_ranks_of_torchrun_are_armed_and_share_a_trace(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(TRAIN)
        argv = [PYTHON, "-m", "aorta_collectors.numerics", "--dir", "out", "--trace-output", "t.json"]
        argv += ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "train.py"]
        ran = run(argv, tmp_path).ok()
        ranks = [Left(tmp_path / "out", stem) for stem in ("rank0", "rank1")]
        summaries = [left.summary for left in ranks]
        assert [summary["rank"] for summary in summaries] == [0, 1]
        assert len({summary["trace_id"] for summary in summaries}) == len({s["run_id"] for s in summaries}) == 1
        assert len(list((tmp_path / "out").glob("summary_*.json"))) == 2
        assert "t.json has the spans of 2 process(es)" in ran.err


NAN = "model[0].weight.data.fill_(float('nan'))\n"
SWALLOWED = """
try:
    model(torch.ones(1, 4))
except BaseException as error:
    print("survived", type(error).__name__)
END
"""
ENDS = {
    "uncaught": NAN + "model(torch.ones(1, 4))",
    "swallowed, another error": NAN + SWALLOWED.replace("END", "raise ValueError('mine')"),
    "swallowed, os._exit": NAN + SWALLOWED.replace("END", "sys.stdout.flush(); os._exit(0)"),
    "in a thread": NAN
    + "t = threading.Thread(target=model, args=(torch.ones(1, 4),)); t.start(); t.join(); sys.exit(0)",
}


class TestStopped:
    @pytest.mark.parametrize("end", ENDS)
    def test_the_status_is_that_of_a_stop_however_the_program_takes_it(self, tmp_path: Path, end: str) -> None:
        ran = train(tmp_path, ENDS[end], "--trace-level", "layer", "--on-bad", "stop")
        assert ran.code == EXIT_STOPPED, ran.err
        assert ran.out == "1\n2\n" + ("survived LineStopped\n" if "swallowed" in end else "")
        assert ("ValueError: mine" in ran.err) == ("another" in end)
        left = Left(tmp_path / "out")
        summary = left.summary
        ended_by = {"swallowed, another error": "ValueError: mine", "swallowed, os._exit": "os._exit 0"}
        assert summary["status"] == "complete"
        assert summary["ended_by"] == ended_by.get(end, "LineStopped (exit status 86)")
        assert (summary["stopped"]["layer"], summary["stopped"]["step"]) == ("0", summary["steps_seen"])
        assert left.lines("stats")[-1]["nan_count"] > 0
        assert {span["step"] for span in left.lines("spans")} >= {1, 2, 3}


class TestEnds:
    @pytest.mark.parametrize(
        ("at_3", "code", "ended_by"),
        [
            ("raise ValueError('no')", 1, "ValueError: no"),
            ("os._exit(3)", 3, "os._exit 3"),
            ("os.execv(sys.executable, [sys.executable, '-c', ''])", 0, "os.execv python"),
        ],
    )
    def test_an_end_that_is_told_is_complete(self, tmp_path: Path, at_3: str, code: int, ended_by: str) -> None:
        assert train(tmp_path, at_3).code == code
        left = Left(tmp_path / "out")
        summary = left.summary
        assert (summary["status"], summary["ended_by"], summary["steps_seen"]) == ("complete", ended_by, 3)
        assert {span["step"] for span in left.lines("spans")} == {0, 1, 2, 3}
        assert len(left.lines("steps")) == summary["files"]["steps"]["written"] == 3
        assert left.names == {"summary_rank0.json", "spans_rank0.jsonl", "steps_rank0.jsonl"}

    def test_what_was_going_on_at_the_end_is_told_of(self, tmp_path: Path) -> None:
        inside = "def leave(*_):\n    raise KeyboardInterrupt\n"
        inside += "model[1].register_forward_hook(leave)\nmodel(torch.ones(1, 4))\n"
        train(tmp_path, inside, "--trace-level", "layer")
        left = Left(tmp_path / "out")
        assert left.summary["ended_by"] == "KeyboardInterrupt"
        spans = {span["span_id"]: span for span in left.lines("spans")}
        unfinished = [span for span in spans.values() if span["attributes"].get("unfinished")]
        assert [span["name"] for span in unfinished] == ["ReLU", "FORWARD"]
        for span in spans.values():
            parent = spans.get(span["parent_span_id"])
            assert (parent is None) == (span["kind"] == "process")
            if parent is not None:
                end, parents = (each["start_ns"] + each["duration_ns"] for each in (span, parent))
                assert parent["start_ns"] <= span["start_ns"] <= end <= parents

    @pytest.mark.parametrize(
        ("at_3", "code"),
        [
            ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
            ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ],
    )
    def test_a_sudden_end_loses_one_step_at_most(self, tmp_path: Path, at_3: str, code: int) -> None:
        assert train(tmp_path, at_3).code == code
        left = Left(tmp_path / "out")
        summary = left.summary
        assert (summary["status"], summary["ended_by"], summary["steps_seen"]) == ("running", None, 3)
        assert [line["step"] for line in left.lines("steps")] == [1, 2]
        assert {span["step"] for span in left.lines("spans")} == {1, 2}
        note = (tmp_path / "out" / "sigterm_rank0.txt").read_text()
        assert bool(note) == (code == -signal.SIGTERM)
