"""What of numerics' evidence reaches the sweep's matrix, and the durations of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.numerics.verify.metrics import step_times_ms, summarize
from tests.numerics.synthetic import escalation, span, stat, step_line, write


def of(directory: Path) -> dict[str, float | int | str]:
    with Anchor(directory.parent).open(directory) as artifacts:
        return dict(summarize(artifacts))


def times(directory: Path) -> list[float]:
    with Anchor(directory.parent).open(directory) as artifacts:
        return list(step_times_ms(artifacts))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "numerics"


def test_a_run_of_two_ranks(place: Path) -> None:
    write(
        place,
        ranks=2,
        config={"trace": "layer", "profile": "deferred"},
        escalations=[escalation("h.0.attn")],
        by_rank={0: {"overhead": {"share_of_step": 0.01}}, 1: {"overhead": {"share_of_step": 0.03}}},
    )
    assert of(place) == {
        "numerics_steps": 4,
        "numerics_ranks": 2,
        "numerics_modules": 9,
        "numerics_tensors_read": 2 * 4 * 18,
        "numerics_spans": 2 * 41,
        "numerics_escalations": 2,
        "numerics_step_ms_p50": pytest.approx(10.0),
        "numerics_step_ms_p95": pytest.approx(10.0),
        "numerics_step_ms_p99": pytest.approx(10.0),
        "numerics_tokens_per_s": 6400.0,
        "numerics_samples_per_s": 400.0,
        "numerics_mfu": 0.2,
        "numerics_best_loss": 0.25,
        "numerics_hook_share": 0.03,
    }


def test_what_is_not_known_is_left_out(place: Path) -> None:
    write(place, config={"step_metrics": "off"}, summary={"step_metrics": ..., "overhead": {"share_of_step": "x"}})
    found = of(place)
    assert sorted(found) == [
        *("numerics_escalations", "numerics_modules", "numerics_ranks", "numerics_spans", "numerics_steps"),
        "numerics_tensors_read",
    ]


def test_the_stage_that_has_a_loss_tells_of_it_and_the_one_with_most_steps_of_its_time(place: Path) -> None:
    nothing = {"best_loss": None, "tokens_per_s": 5.0}
    write(place, ranks=2, by_rank={0: {"step_metrics": nothing, "steps_seen": 9}, 1: {"steps_seen": 4}})
    found = of(place)
    assert (found["numerics_best_loss"], found["numerics_tokens_per_s"]) == (0.25, 5.0)
    assert found["numerics_steps"] == 9


def test_percentiles_of_steps_are_those_of_their_lines_where_these_are_all_there(place: Path) -> None:
    """A histogram in the summary is a few percent off, and the same for runs that differ by less."""
    lines = [{**step_line(step), "step_ms": 10.0 + step, "kind": "training"} for step in range(1, 12)]
    lines.append({**step_line(12), "step_ms": 999.0, "kind": "evaluation"})
    phases = {"step": {"count": 11, "total_ms": 200.0, "p50_ms": 15.4, "p95_ms": 20.0, "p99_ms": 21.0}}
    write(place, steps=12, step_lines=lines, summary={"phases": phases})
    found = of(place)
    assert (found["numerics_step_ms_p50"], found["numerics_step_ms_p95"]) == (16.0, pytest.approx(20.5))
    write(place, steps=12, step_lines=lines[1:], summary={"phases": phases})
    assert of(place)["numerics_step_ms_p50"] == 15.4


class TestFirstBad:
    def test_the_earliest_of_the_ranks(self, place: Path) -> None:
        config = {"trace": "layer"}
        bad = [
            {**stat(3, "h.0.mlp", 4, inf_count=1), "direction": "forward"},
            {**stat(3, "h.1.attn", 2, nan_count=1), "direction": "backward"},
            {**stat(4, "wte", 0, nan_count=1), "direction": "forward"},
        ]
        write(place, ranks=3, config=config, by_rank={rank: {"first_bad": bad[2 - rank]} for rank in range(3)})
        found = of(place)
        for name in ("first_bad", "first_nonfinite"):
            assert {key: found[f"numerics_{name}_{key}"] for key in ("step", "layer", "direction", "kind", "rank")} == {
                "step": 3,
                "layer": "h.0.mlp",
                "direction": "forward",
                "kind": "inf",
                "rank": 2,
            }
        assert "numerics_first_bad_attempt" not in found

    def test_steps_of_training_are_compared(self, place: Path) -> None:
        """Rank 0 has evaluated three times before: its step 5 is the second of its training."""
        first, other = stat(5, "wte", nan_count=1), stat(3, "lm_head", nan_count=1)
        write(
            place,
            ranks=2,
            config={"trace": "layer"},
            by_rank={0: {"first_bad": first, "evaluation_steps": 3}, 1: {"first_bad": other}},
        )
        assert of(place)["numerics_first_bad_layer"] == "wte"

    @pytest.mark.parametrize(
        ("step", "last_loss", "came_to_nothing"),
        [(3, 0.5, True), (4, 0.5, False), (3, "nan", False), (3, None, False)],
    )
    def test_a_loss_that_is_finite_in_a_later_step(
        self, place: Path, step: int, last_loss: float | str | None, came_to_nothing: bool
    ) -> None:
        summary = {"first_bad": stat(step, "wte", inf_count=1), "step_metrics": {"last_loss": last_loss}}
        write(place, config={"trace": "layer"}, summary=summary)
        assert ("numerics_first_nonfinite_by_design" in of(place)) is came_to_nothing

    def test_none(self, place: Path) -> None:
        write(place, config={"trace": "layer"})
        assert not [name for name in of(place) if "first" in name]


class TestStepTimes:
    def test_of_the_process_with_most_steps_without_those_that_were_counted(self, place: Path) -> None:
        lines = [step_line(step, step_ms=float(step), is_counted=step == 2) for step in range(1, 5)]
        write(place, ranks=2, step_lines=lines, by_rank={0: {"steps_seen": 3}})
        path = place / "steps_rank1.jsonl"
        text = path.read_text()
        path.write_text(text + '{"torn')
        (place / "steps_rank0.jsonl").write_text("")
        assert times(place) == [1.0, 3.0, 4.0]

    def test_many_are_averaged_pairwise(self, place: Path) -> None:
        lines = [step_line(step, step_ms=float(step)) for step in range(1, 2051)]
        write(place, steps=2050, config={"trace": "none"}, step_lines=lines)
        assert times(place) == [(4 * index + 2.5) for index in range(512)]

    def test_none_without_lines(self, place: Path) -> None:
        write(place, config={"step_metrics": "off"}, spans=[span("STEP", "step", 1, step=1)])
        assert times(place) == []


@pytest.mark.parametrize("text", [None, "7\n", "{}\n", "x\n", '{"step_ms": "a", "is_counted": false}\n'])
def test_lines_that_are_none_have_no_times(place: Path, text: str | None) -> None:
    """Of evidence that is incomplete, verification may not have come as far as these."""
    write(place)
    if text is None:
        (place / "steps_rank0.jsonl").unlink()
    else:
        (place / "steps_rank0.jsonl").write_text(text)
    assert times(place) == []


def test_an_empty_directory_has_no_times(place: Path) -> None:
    place.mkdir()
    assert times(place) == []
