"""The profile of a trial: numbers of several ranks taken together, and what is said of what is not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aorta_collectors.analysis.captures import LAYER_NUMERICS, NUMERICS
from aorta_collectors.analysis.numerics.groups import groups_of, pattern_of
from aorta_collectors.analysis.numerics.roofline import points_of
from aorta_collectors.analysis.search import captures_below
from aorta_collectors.errors import ArtifactError
from tests.analysis.profiled import PROFILE, profile_below, profile_with
from tests.captured import synthetic as of_layers
from tests.captured.sweeps import trial
from tests.numerics.synthetic import brick, escalation, write


class TestFinding:
    @pytest.fixture
    def both(self, tmp_path: Path) -> Path:
        """A trial in which both collectors left something."""
        folder = trial(tmp_path / "run", "none-local", {0: [of_layers.record(1)]})
        write(folder / "trial_d0_m0_t0" / "numerics", ranks=2)
        return tmp_path / "run"

    def test_each_collectors_processes_are_its_own(self, both: Path) -> None:
        (of_layers_,) = captures_below(both).trials
        (of_numerics,) = captures_below(both, NUMERICS).trials
        assert [process.stem for process in of_layers_.processes] == ["rank0"]
        assert [process.stem for process in of_numerics.processes] == ["rank0", "rank1"]
        assert set(of_numerics.processes[0].files) == {"spans", "steps"}
        assert of_layers_.key == of_numerics.key == (".", "none-local", "d0_m0_t0")
        assert of_layers_.receipt is not None
        assert of_numerics.receipt is None

    def test_a_trial_is_meant_by_any_of_its_directories(self, both: Path) -> None:
        folder = both / "none-local" / "training"
        for place in ("trial_d0_m0_t0.json", "trial_d0_m0_t0", "trial_d0_m0_t0/numerics"):
            for source in (LAYER_NUMERICS, NUMERICS):
                (found,) = captures_below(folder / place, source).trials
                assert found.artifacts == folder / "trial_d0_m0_t0" / source.collector

    def test_a_trial_without_numerics_is_no_capture_of_it(self, both: Path) -> None:
        shutil.rmtree(both / "none-local" / "training" / "trial_d0_m0_t0" / "numerics")
        assert captures_below(both, NUMERICS).captured == ()

    def test_one_collectors_directory_is_not_the_others(self, tmp_path: Path) -> None:
        write(tmp_path / "numerics_out")
        (found,) = captures_below(tmp_path / "numerics_out", NUMERICS).trials
        assert found.label == str(tmp_path / "numerics_out")
        with pytest.raises(ArtifactError, match="is no summary of layer_numerics"):
            captures_below(tmp_path / "numerics_out")
        of_layers.write(tmp_path / "nanlog", {0: [of_layers.record(1)]})
        with pytest.raises(ArtifactError, match="what NUMERICS_DIR named"):
            captures_below(tmp_path / "nanlog", NUMERICS)


class TestBricks:
    def test_are_in_the_order_of_their_own_time(self, tmp_path: Path) -> None:
        found = profile_with(tmp_path, [brick("wte"), brick("h.0"), brick("h.0.attn")])
        assert [each.layer for each in found.bricks] == ["h.0.attn", "wte", "h.0"]
        first = found.bricks[0]
        assert (first.per_step, first.self_ms_per_step, first.share) == (1, 0.7, pytest.approx(0.07))
        assert (first.self_us_per_call, first.allowed_us) == (700, 350)

    def test_of_several_ranks_are_taken_together(self, tmp_path: Path) -> None:
        quick = brick("a", calls=4, total_us=400, self_us=400, mean_us=100, p99_us=110, efficiency=0.8, dead_units=3)
        slow = {**quick, "total_us": 1600, "self_us": 1600, "mean_us": 400, "p99_us": 900, "efficiency": 0.2}
        slow |= {"dead_units": 1, "bound": "host", "cv": 0.9}
        by_rank = {0: {"bricks": [quick]}, 1: {"bricks": [slow]}, 2: {"bricks": [quick]}}
        (found,) = profile_with(tmp_path, ranks=3, by_rank=by_rank).bricks
        assert (found.calls, found.total_us, found.mean_us, found.p99_us, found.cv) == (12, 2400, 200, 900, 0.9)
        assert (found.slowest, found.spread, found.dead_units, found.bound) == ("rank 1", 4, 1, "host")
        # 0.8 x 800 + 0.2 x 1600 of 2400 microseconds
        assert found.efficiency == pytest.approx(0.4)
        assert (found.per_step, found.self_ms_per_step) == (1, pytest.approx(0.2))

    def test_that_were_never_called_have_no_times(self, tmp_path: Path) -> None:
        none = dict.fromkeys(("mean_us", "p50_us", "p95_us", "p99_us", "cv", "efficiency", "bound", "flops", "bytes"))
        (found,) = profile_with(tmp_path, [brick("a", calls=0, total_us=0, self_us=0, **none)]).bricks
        assert (found.mean_us, found.self_us_per_call, found.efficiency, found.allowed_us) == (None,) * 4

    def test_without_measured_steps_are_parts_of_all_bricks(self, tmp_path: Path) -> None:
        found = profile_with(tmp_path, [brick("wte"), brick("lm_head")], summary={"phases": {}})
        assert [each.share for each in found.bricks] == [0.75, 0.25]

    def test_in_focus_are_those_with_a_word_in_path_or_class(self, tmp_path: Path) -> None:
        found = profile_with(
            tmp_path, [brick("h.0.attn"), brick("wte"), brick("lm_head")], escalations=[escalation("wte")]
        )
        assert [each.layer for each in found.on(["ATTENTION"]).bricks] == ["h.0.attn"]
        assert [each.layer for each in found.on(["attn", "wt"]).bricks] == ["h.0.attn", "wte"]
        assert found.on(["attn"]).escalated == ()
        assert found.on([]) is found
        with pytest.raises(ArtifactError, match=r"no brick has 'embeding' .*near it: Embedding"):
            found.on(["embeding"])
        with pytest.raises(ArtifactError, match=r"'\?'.*there is: .*lm_head"):
            found.on(["?"])

    def test_of_repeated_layers_are_a_group(self, tmp_path: Path) -> None:
        found = profile_with(
            tmp_path, [brick("h.0.attn"), brick("h.1.attn"), brick("wte"), brick("h.1.attn", direction="backward")]
        )
        assert [pattern_of(layer) for layer in ("h.0", "h.3.mlp.2", "e.1.w.2.x", "wte", "7")] == [
            *("h.*", "h.*.mlp.2", "e.*.w.*.x", "wte", "*")
        ]
        groups = [
            (group.pattern, group.direction, group.count, group.self_ms_per_step) for group in groups_of(found.bricks)
        ]
        assert groups == [
            ("h.*.attn", "forward", 2, 1.4),
            ("h.1.attn", "backward", 1, 0.7),
            ("wte", "forward", 1, 0.1),
        ]


class TestProcesses:
    def test_of_earlier_attempts_and_without_steps_are_left_out(self, tmp_path: Path) -> None:
        again = {"launcher": "l", "restart": 1}
        by_rank = {0: {"launcher": "l", "restart": 0}, 1: {**again, "rank": 0}, 2: {**again, "steps_seen": 0}}
        found = profile_below(write(tmp_path, ranks=3, by_rank=by_rank))
        assert [(rank.rank, rank.pid) for rank in found.ranks] == [(0, 1001)]
        assert found.gaps == (
            "1 process(es) of attempts before the last are left out",
            "1 process(es) ran no step and are left out",
        )

    def test_of_one_rank_are_told_apart(self, tmp_path: Path) -> None:
        found = profile_below(write(tmp_path, ranks=2, by_rank={1: {"rank": 0}}))
        assert [rank.label for rank in found.ranks] == ["rank 0, pid 1000", "rank 0, pid 1001"]

    def test_without_any_step_are_shown_all_the_same(self, tmp_path: Path) -> None:
        found = profile_below(write(tmp_path, steps=0))
        assert (found.steps, len(found.ranks), found.phases, found.bricks) == (0, 1, (), ())


class TestRanks:
    def test_that_wait_least_in_collectives_are_the_slow_ones(self, tmp_path: Path) -> None:
        def waited(us: float) -> dict[str, object]:
            return {
                "collectives": [{"operation": "all_reduce", "calls": 4, "bytes": 4000, "total_us": us, "source": "ddp"}]
            }

        found = profile_below(write(tmp_path, ranks=4, by_rank={0: waited(8000), 1: waited(400), 2: waited(8000)}))
        (collective,) = found.collectives
        assert (collective.calls, collective.bytes, collective.total_us) == (12, 12000, 16400)
        assert (collective.least_us, collective.most_us) == (0, 8000)
        assert found.imbalance is not None
        assert (found.imbalance.slowest, found.imbalance.waits_most) == ("rank 3", "rank 0")
        assert (found.imbalance.busiest_ms, found.imbalance.median_busy_ms) == (10, 8)
        # The others are busy for 8, 9.9 and 8 of 10 ms.
        assert found.imbalance.lost == pytest.approx((10 - 25.9 / 3) / 10)

    def test_alone_or_without_collectives_have_no_imbalance(self, tmp_path: Path) -> None:
        assert profile_below(write(tmp_path / "a")).imbalance is None
        assert profile_below(write(tmp_path / "b", ranks=2)).imbalance is None

    def test_throughput_is_added_up_and_utilization_is_not(self, tmp_path: Path) -> None:
        found = profile_below(write(tmp_path, ranks=3)).throughput
        assert (found.tokens_per_s, found.samples_per_s, found.mfu, found.steps_per_s) == (
            19200,
            1200,
            pytest.approx(0.2),
            100,
        )


class TestEscalations:
    def test_are_taken_together_by_brick(self, tmp_path: Path) -> None:
        worse = escalation(
            "h.0.attn", 5, value=0.9, kernels=[{"name": "aten::mm", "calls": 3, "self_us": 100.0, "device_us": 900.0}]
        )
        other = escalation(
            "wte", reason="inefficient", value=0.1, threshold=0.25, breakdown=None, unavailable=["no strace"]
        )
        found = profile_with(tmp_path, escalations=[escalation("h.0.attn"), other, worse]).escalated
        assert [(each.layer, each.looks, each.steps) for each in found] == [("h.0.attn", 2, (3, 5)), ("wte", 1, (3,))]
        first, second = found
        assert (first.reasons, first.dominant, first.sources) == ({"unstable": (0.9, 0.15)}, "futex", ("strace",))
        assert sum(first.shares.values()) == pytest.approx(1)
        (kernel,) = first.kernels
        assert (kernel.calls, kernel.self_us, kernel.device_us) == (5, 400, 900)
        assert (second.dominant, second.shares, second.unavailable) == ("", {}, ("no strace",))
        assert second.reasons == {"inefficient": (0.1, 0.25)}

    def test_one_look_for_two_reasons_is_one_look(self, tmp_path: Path) -> None:
        lines = [
            escalation("h.0.attn", 3),
            escalation("h.0.attn", 3, reason="inefficient", value=0.1, threshold=0.25),
            escalation("h.0.attn", 9),
        ]
        (found,) = profile_with(tmp_path, escalations=lines).escalated
        assert (found.looks, found.steps) == (2, (3, 9))
        assert set(found.reasons) == {"unstable", "inefficient"}
        assert [(kernel.name, kernel.calls) for kernel in found.kernels] == [("aten::mm", 4)]

    def test_of_a_torn_file_are_those_that_are_whole(self, tmp_path: Path) -> None:
        write(tmp_path, config=PROFILE, escalations=[escalation("wte"), escalation("h.0")])
        path = tmp_path / "escalations_rank0.jsonl"
        path.write_bytes(path.read_bytes()[:-30])
        assert [each.layer for each in profile_below(tmp_path).escalated] == ["wte"]


class TestEnergy:
    def test_of_one_machine_counts_once_and_of_each_device_by_itself(self, tmp_path: Path) -> None:
        def read(joules: float, source: str, device: str) -> dict[str, object]:
            return {"device": device, "energy": {"joules": joules, "source": source, "unavailable": ["x: none"]}}

        of_machine = {rank: read(80 + rank, "rapl", f"cuda:{rank}") for rank in range(2)}
        found = profile_below(write(tmp_path / "a", ranks=2, by_rank=of_machine)).energy
        assert (found.joules, len(found.meters), found.unavailable) == (81, 1, (("x: none", 2),))
        # 4 steps of 10 ms, of 64 tokens and 4 samples on each of two ranks
        assert found.watts == pytest.approx(81 / 0.04)
        assert (found.joules_per_step, found.joules_per_token, found.joules_per_sample) == (81 / 4, 81 / 512, 81 / 32)
        of_devices = {rank: read(80, "nvml", f"cuda:{rank}") for rank in range(2)}
        assert profile_below(write(tmp_path / "b", ranks=2, by_rank=of_devices)).energy.joules == 160

    def test_that_was_not_readable_is_not_known(self, tmp_path: Path) -> None:
        found = profile_below(write(tmp_path)).energy
        assert (found.joules, found.watts, found.joules_per_step) == (None, None, None)
        assert found.unavailable == (("rapl: no such file", 1),)


def test_points_lie_under_the_roof_of_their_dtype(tmp_path: Path) -> None:
    slow = brick("a", flops=1e6, bytes=1e6, self_us=4000, dtype="float32")
    other = brick("b", flops=1e8, bytes=1e6, self_us=4000, dtype="bfloat16")
    unknown = brick("c", flops=None, bytes=1e6, self_us=4000)
    found = profile_with(tmp_path, [slow, other, unknown])
    points = {point.brick.layer: point for point in points_of(found.bricks, found.roofline)}
    assert (points["a"].intensity, points["a"].flops_per_s, points["a"].roof_flops_per_s) == (1, 1e9, 2e10)
    assert (points["b"].intensity, points["b"].roof_flops_per_s, points["b"].roof_dtype) == (100, 2e11, "bfloat16")
    assert (points["c"].intensity, points["c"].flops_per_s, points["c"].roof_flops_per_s) == (None, None, None)
    assert points["c"].bytes_per_s == 1e9


def test_what_is_not_shown_is_told(tmp_path: Path) -> None:
    told = {
        "profile_excluded": "a CUDA graph was replayed",
        "hook_errors": 2,
        "first_hook_error": "KeyError: 1",
        "status": "running",
        "opaque_names": [f"l{index}" for index in range(7)],
        "unmatched_steps": ["atention"],
        "files": {"spans": {"written": 3, "dropped": 9}},
        "escalations": {"taken": 1, "suppressed": 4, "unavailable": []},
        "warnings": ["as it was asked for"],
    }
    found = profile_with(tmp_path, ranks=2, summary=told, by_rank={1: {"warnings": []}}).gaps
    assert found == (
        "bricks were not timed, or no longer: a CUDA graph was replayed (all ranks)",
        "2 error(s) in hooks, the first: KeyError: 1 (all ranks)",
        "had not ended when its summary was last written (all ranks)",
        "9 lines of spans dropped: the file was full (all ranks)",
        "not seen, since torch.compile or TorchScript runs them: l0, l1, l2, l3, l4 and 2 more (all ranks)",
        "`steps` names what did not run: atention (all ranks)",
        "4 closer looks suppressed by rate_limit (all ranks)",
        "as it was asked for (rank 0)",
    )


def test_json_is_plain(tmp_path: Path) -> None:
    found = profile_with(tmp_path, [brick("wte")], escalations=[escalation("wte")]).as_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found | json.loads(json.dumps(found))
    assert found["escalated"][0]["reasons"] == {"unstable": {"value": 0.4, "threshold": 0.15}}
    assert found["bricks"][0]["layer"] == found["groups"][0]["pattern"] == "wte"
    assert found["energy"]["unavailable"] == [{"reason": "rapl: no such file", "ranks": 1}]
