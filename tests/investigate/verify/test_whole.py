"""`investigate verify`: nothing is wrong with what was left alone, and each fault has its place and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.cli.printed import printed
from aorta_collectors.investigate.verify.fault import Fault
from tests.investigate.made import Made, layers
from tests.investigate.support import declared, investigate
from tests.investigate.test_report import report_of
from tests.investigate.verify.support import edited, faults, places


class TestRuns:
    def test_what_was_left_alone_has_no_fault(self, made: Made) -> None:
        assert faults(made.root) == []

    def test_a_changed_artifact(self, made: Made) -> None:
        (path,) = made.directory(3).rglob("tensors_rank0.jsonl")
        path.write_text(path.read_text().replace('"mean": 2.0', '"mean": 2.1'))
        found = faults(made.root)
        inside = path.relative_to(made.root).as_posix()
        assert found[0] == Fault(
            str(path),
            "it was changed since the run",
            "It was edited since, or its disk is damaged; what rests on it is void, so declare a new investigation",
        )
        assert any(fault.place.endswith("trial_d0_m0_t0.json") and "tensors: invalid" in fault.what for fault in found)
        assert any(fault.place == str(path) and fault.what.startswith("the report cites it") for fault in found)
        assert inside in [fault.place.removeprefix(f"{made.root}/") for fault in found]

    def test_a_digest_edited_to_fit_does_not_get_past_the_receipt(self, made: Made) -> None:
        (path,) = made.directory(1).rglob("tensors_rank0.jsonl")
        path.write_text(path.read_text().replace('"mean": 2.0', '"mean": 2.1'))
        name = path.relative_to(made.directory(1)).as_posix()
        from aorta_collectors.investigate.digests import sha256_below

        digest = sha256_below(made.directory(1))[name]
        edited(made.directory(1) / "run.json", lambda content: content["sha256"].update({name: digest}))
        assert any("is not the file that was verified" in fault.what for fault in faults(made.root))

    def test_evidence_that_lacked_something_from_the_first_was_not_edited(self, made: Made) -> None:
        """However well that of another collector of the same run held."""

        def change(content: dict[str, Any]) -> None:
            content["receipts"].append({**content["receipts"][0], "collector": "memory", "path": "elsewhere"})
            content["receipts"][0]["verdict"] = "incomplete"

        edited(made.directory(1) / "run.json", change)
        (path,) = made.directory(1).rglob("tensors_rank0.jsonl")
        path.write_text(path.read_text().replace('"mean": 2.0', '"mean": 2.1'))
        (found,) = [fault for fault in faults(made.root) if fault.what.startswith("tensors: invalid")]
        assert found.to_do.startswith("It stands as it is")

    @pytest.mark.parametrize(
        ("damage", "what"),
        [
            (lambda path: (path / "stdout.log").unlink(), "it is not there since the run"),
            (lambda path: (path / "extra").write_text("x"), "it was added since the run"),
            (lambda path: (path / "stdout.log").write_text("better"), "it was changed since the run"),
        ],
    )
    def test_files_that_went_came_or_changed(self, made: Made, damage: Callable[[Path], object], what: str) -> None:
        damage(made.directory(2))
        assert [fault.what for fault in faults(made.root)] == [what]

    @pytest.mark.parametrize("name", ["tensors_rank0.jsonl", "summary_rank0.json", "*_step1.safetensors", "receipt_*"])
    @pytest.mark.parametrize("content", [b'{"rank": 0}\n', None])
    def test_whatever_lies_in_a_files_place_is_a_fault_and_a_report_can_be_made(
        self, made: Made, name: str, content: bytes | None
    ) -> None:
        (path,) = made.directory(1).rglob(name)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert path.relative_to(made.root).as_posix() in places(made.root)
        report_of(made)
        assert "cannot be made again" not in "".join(fault.what for fault in faults(made.root))

    def test_a_run_that_was_removed(self, made: Made) -> None:
        shutil.rmtree(made.directory(4))
        found = faults(made.root)
        assert found[0].line == (
            f"{made.directory(4)}: run 4 of the schedule is not there. `aorta-collectors investigate run {made.root}` "
            "makes what is missing."
        )

    def test_a_run_whose_record_cannot_be_read(self, made: Made) -> None:
        (made.directory(2) / "run.json").write_text("{")
        assert "runs/002-candidate-1/run.json" in places(made.root)

    def test_runs_in_another_order_than_declared(self, made: Made) -> None:
        times = {"started_at": "2026-11-29T10:00:01+00:00", "ended_at": "2026-11-29T10:00:02+00:00"}
        edited(made.directory(2) / "run.json", lambda content: content.update(times))
        found = [fault.what for fault in faults(made.root) if fault.place == f"{made.directory(2)}/run.json"]
        assert found[:-1] == [
            "it was started at 2026-11-29T10:00:01+00:00, before 001-baseline-1, which the declared order has first"
        ]
        assert "when the run had ended" in found[-1]

    def test_a_failed_run_that_another_one_replaces(self, made: Made) -> None:
        first, again = made.directory(3), made.directory(3).with_name(f"{made.directory(3).name}-attempt2")
        shutil.copytree(first, again)
        times = {"attempt": 2, "started_at": "2026-11-29T10:00:36+00:00", "ended_at": "2026-11-29T10:00:37+00:00"}
        edited(again / "run.json", lambda content: content.update(times))
        edited(first / "run.json", lambda content: content.update(state="failed", reason="x"))
        found = [fault for fault in faults(made.root) if fault.place == str(first)]
        assert [fault.what for fault in found] == ["it failed, and another attempt replaces it"]

    def test_a_run_that_took_the_place_of_another(self, made: Made) -> None:
        edited(made.directory(1) / "run.json", lambda content: content.update(variant="candidate", seed=3))
        found = [fault.what for fault in faults(made.root) if fault.place == f"{made.directory(1)}/run.json"]
        assert found[:-1] == [
            "variant is 'candidate', and the schedule has 'baseline'",
            "seed is 3, and the schedule has None",
        ]

    def test_a_schedule_that_is_not_that_of_the_design(self, made: Made) -> None:
        edited(made.root / "metadata.json", lambda content: content["design"].update(repetitions=3))
        assert "metadata.json: schedule" in places(made.root)

    def test_a_point_that_was_not_collected(self, tmp_path: Path) -> None:
        made = Made(tmp_path, points=("after_forward", "user:logits"))
        made.all({"baseline": layers(1), "candidate": layers(1)}, state="failed", reason="nothing at user:logits")
        report_of(made)
        found = faults(made.root)
        assert [fault.what for fault in found] == ["nothing was observed at user:logits, which was asked for"] * 2
        assert "nothing replaces it" in found[0].to_do


class TestCommands:
    def test_a_changed_script(self, made: Made) -> None:
        script = made.root.parent / "train.py"
        script.write_text(script.read_text() + "# more\n")
        found = [fault for fault in faults(made.root) if fault.place == str(script)]
        assert len(found) == 1
        assert "when the first run was started" in found[0].what
        assert found[0].to_do.startswith("Put it back")

    def test_a_script_that_is_gone(self, made: Made) -> None:
        (made.root.parent / "train.py").unlink()
        assert "metadata.json: baseline" in places(made.root)

    def test_a_command_line_that_is_not_the_recorded_one(self, made: Made) -> None:
        path = made.directory(1) / "command.txt"
        path.write_text(path.read_text().replace("sweep run", "sweep walk"))
        found = [fault.what for fault in faults(made.root) if fault.place == str(path)]
        assert found == ["it was changed since the run", "it does not have the command that is in run.json"]


class TestDeclaration:
    @pytest.mark.parametrize(
        "change",
        [
            {"criterion": "it is roughly so"},
            {"question": "Is something so?"},
            {"collect": {"tensors": {"keep": "values", "points": "after_forward", "steps": "1"}}},
            {"points": []},
            {"cwd": "/"},
            {"seed": 1},
        ],
    )
    def test_what_is_edited_after_the_answer_is_seen_with_a_new_report_too(
        self, made: Made, change: dict[str, Any]
    ) -> None:
        edited(made.root / "metadata.json", lambda content: content.update(change))
        report_of(made)
        found = [fault.what for fault in faults(made.root) if fault.place == f"{made.root}/metadata.json"]
        assert "what was declared is not what the journal has" in found

    def test_another_command_of_a_variant_and_another_machine(self, made: Made) -> None:
        def change(content: dict[str, Any]) -> None:
            content["variants"][1]["command"][-1] = "3"
            content["environment"]["torch"]["version"] = "2.12"

        edited(made.root / "metadata.json", change)
        report_of(made)
        found = [fault.what for fault in faults(made.root) if fault.place == f"{made.root}/metadata.json"]
        assert found == [
            "what was declared is not what the journal has",
            "what was recorded at the first start is not what the journal has",
        ]


class TestCommandLine:
    def test_one_line_a_fault_and_exit_codes(self, made: Made, tmp_path: Path) -> None:
        left_alone = printed(["investigate", "verify", str(made.root)])
        assert (left_alone.text, left_alone.code) == ("4 runs: all is as it was recorded\n", 0)
        (made.directory(1) / "stderr.log").write_text("x")
        ran = investigate(tmp_path, "verify", "root")
        assert (ran.code, ran.out.count("\n")) == (1, 2)
        assert ran.out.startswith(f"{made.directory(1)}/stderr.log: it was changed since the run. It was edited")
        assert ran.out.endswith("4 runs: 1 fault\n")


def test_what_is_no_investigation_is_said_so(tmp_path: Path) -> None:
    ran = investigate(tmp_path, "verify", ".")
    assert (ran.code, "it is no investigation" in ran.err) == (1, True)


def test_of_a_design_without_runs_all_are_missing(tmp_path: Path) -> None:
    root = declared(tmp_path / "root", tmp_path).investigation.root
    assert [fault.what for fault in faults(root)][:2] == [
        "run 1 of the schedule is not there",
        "run 2 of the schedule is not there",
    ]
