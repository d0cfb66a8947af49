"""Which records are written, in which order, and what the first bad one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.reduce import Stats
from aorta_collectors.observe.step_trace import StepTrace
from tests.support import records

IDENTITY = {"rank": 3, "gpu": 3, "host": "node", "pid": 42}
NAN = Stats(6, 1, 0, 0, 5, -1.0, 2.0)
INF = Stats(6, 0, 2, 1, 4, -1.0, 3e11)
HUGE = Stats(6, 0, 0, 1, 6, -3e11, 2.0)
ALL_NAN = Stats(6, 6, 0, 0, 0, None, None)


def clean(layer: str, calls: int = 1, role: str = "act") -> Observation:
    direction = {"act": "fwd", "igrad": "bwd", "weight": "param"}[role]
    site = Site(layer, direction, role, "weight" if role == "weight" else "")
    return Observation(site, torch.Size([2, 3]), torch.float32, calls, 12.5, 6, -4.0, 2.0, None, Moment())


def bad(layer: str, stats: Stats, calls: int = 1, role: str = "act") -> Observation:
    return clean(layer, calls, role)._replace(low=0.0, high=0.0, reduced=stats)


class Desk:
    """A recorder over a real file, and what it left there."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.file = RecordFile(directory / "layers.jsonl")
        self.messages: list[str] = []
        self.recorder = Recorder(Config(**config), IDENTITY, self.file, self.messages.append)

    def step(self, number: int, *observations: Observation) -> bool:
        return self.recorder.step(StepTrace(number, list(observations)))

    @property
    def written(self) -> list[str]:
        return [f"{record['step']}{record['layer_name']}" for record in records(self.file.path)]


class TestSampling:
    def test_clean_records_are_written_in_one_step_of_n(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=3)
        for step in range(1, 8):
            assert not desk.step(step, clean("a"), clean("b"))
        assert desk.written == ["3a", "3b", "6a", "6b"]
        assert desk.recorder.records_written == 4

    def test_bad_records_are_written_in_every_step(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=3)
        for step in range(1, 4):
            desk.step(step, clean("a"), bad("b", NAN), clean("c"))
        assert desk.written == ["1b", "2b", "3a", "3b", "3c"]

    def test_a_step_without_observations_writes_nothing(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=1)
        assert not desk.step(1)
        assert desk.written == []


class TestFirstBad:
    @pytest.mark.parametrize(("stats", "kind"), [(NAN, "nan"), (INF, "inf"), (HUGE, "huge"), (ALL_NAN, "nan")])
    def test_its_kind_is_the_worst_of_nan_inf_and_huge(self, tmp_path: Path, stats: Stats, kind: str) -> None:
        desk = Desk(tmp_path)
        assert desk.step(1, bad("a", stats))
        assert desk.recorder.first_bad is not None
        assert desk.recorder.first_bad["kind"] == kind

    def test_it_is_the_first_in_order_of_step_and_observation_and_stays(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        assert not desk.step(1, clean("a"))
        assert desk.step(2, clean("a", 3), bad("b", HUGE, 4, "igrad"), bad("c", NAN, 5))
        assert not desk.step(3, bad("a", NAN, 6))
        assert desk.recorder.first_bad == {
            "step": 2,
            "layer": "b",
            "direction": "bwd",
            "kind": "huge",
            "matmul_calls_so_far": 4,
            "role": "igrad",
            "param_name": "",
            "module_path": "b",
            "tensor_path": "",
            "phase": "forward",
            "batch_id": None,
            "checkpoint": None,
            "invocation": 0,
            "optimizer_step": 0,
            "seq": 1,
        }
        assert (
            sum(message.startswith("FIRST BAD: step=2 layer=b dir=bwd kind=huge call#~4") for message in desk.messages)
            == 1
        )

    def test_it_names_the_parameter(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.step(1, bad("a", NAN, role="weight"))
        assert desk.recorder.first_bad is not None
        assert desk.recorder.first_bad["param_name"] == "weight"

    def test_full_statistics_without_a_fault_are_not_bad(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=1)
        assert not desk.step(1, bad("a", Stats.clean(6, -1.0, 2.0)))
        assert desk.recorder.first_bad is None
        assert [record["bad"] for record in records(desk.file.path)] == [False]


class TestRunUp:
    """With pre_context the unwritten steps before the first bad record come out, oldest first."""

    def test_the_last_k_steps_are_written_before_the_bad_one_and_everything_after_it(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=2)
        for step in range(1, 5):
            desk.step(step, clean("a"), clean("b"))
        assert desk.written == []
        desk.step(5, clean("a"), bad("b", NAN))
        desk.step(6, clean("a"), clean("b"))
        assert desk.written == ["3a", "3b", "4a", "4b", "5a", "5b", "6a", "6b"]
        assert desk.recorder.pre_context_flushed

    def test_a_sampled_step_is_not_written_twice_and_takes_no_room(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=2, sample_every=4)
        for step in range(1, 6):
            desk.step(step, clean("a"))
        desk.step(6, bad("a", NAN))
        assert desk.written == ["4a", "3a", "5a", "6a"]

    def test_fewer_steps_than_k_are_all_written(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=10)
        desk.step(1, clean("a"))
        desk.step(2, bad("a", NAN))
        assert desk.written == ["1a", "2a"]

    def test_a_bad_first_step_has_no_run_up(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=3)
        desk.step(1, bad("a", NAN), clean("b"))
        assert desk.written == ["1a", "1b"]

    def test_the_run_up_comes_out_once(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=1)
        for step, seen in ((1, clean("a")), (2, bad("a", NAN)), (3, clean("a")), (4, bad("a", INF))):
            desk.step(step, seen)
        assert desk.written == ["1a", "2a", "3a", "4a"]
        assert sum(message.startswith("pre-context") for message in desk.messages) == 1

    def test_without_pre_context_there_is_no_run_up(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        for step in range(1, 4):
            desk.step(step, clean("a"))
        desk.step(4, clean("a"), bad("b", NAN))
        desk.step(5, clean("a"))
        assert desk.written == ["4b"]
        assert not desk.recorder.pre_context_flushed


class TestStopOnFirst:
    def test_after_the_first_bad_record_only_bad_ones_are_written(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=1, stop_on_first=True)
        desk.step(1, clean("a"), clean("b"))
        desk.step(2, clean("a"), bad("b", NAN))
        desk.step(3, clean("a"), bad("b", NAN))
        desk.step(4, clean("a"), clean("b"))
        assert desk.written == ["1a", "1b", "2b", "3b"]

    def test_the_run_up_is_written_all_the_same(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, pre_context=1, stop_on_first=True)
        desk.step(1, clean("a"))
        desk.step(2, clean("a"), bad("b", NAN))
        desk.step(3, clean("a"))
        assert desk.written == ["1a", "2b"]


class TestLimit:
    def test_what_exceeds_max_records_is_counted_and_not_written(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=1, max_records=3)
        for step in range(1, 4):
            desk.step(step, clean("a"), clean("b"))
        assert desk.written == ["1a", "1b", "2a"]
        assert desk.recorder.records_cut == 3
        assert desk.recorder.records_written == 3

    def test_a_limit_of_none_at_all_still_finds_the_first_bad(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, max_records=0)
        assert desk.step(1, bad("a", NAN))
        assert desk.written == []
        assert desk.recorder.records_cut == 1

    def test_records_that_were_not_wanted_are_not_counted_as_cut(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=10, max_records=0)
        desk.step(1, clean("a"))
        assert desk.recorder.records_cut == 0


class TestRecord:
    def test_a_clean_record_has_every_field(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, sample_every=1)
        desk.step(2, clean("a", 7, "weight"))
        (record,) = records(desk.file.path)
        assert record == {
            "type": "layer_step",
            "step": 2,
            "phase": "forward",
            "batch_id": None,
            **IDENTITY,
            "layer_name": "a",
            "module_path": "a",
            "direction": "param",
            "role": "weight",
            "param_name": "weight",
            "tensor_path": "",
            "seq": 0,
            "invocation": 0,
            "optimizer_step": 0,
            "value_is_from_prev_step": True,
            "shape": [2, 3],
            "dtype": "torch.float32",
            "tf32_path": False,
            "matmul_calls_so_far": 7,
            "t": 12.5,
            "nan_count": 0,
            "inf_count": 0,
            "finite_count": 6,
            "huge_count": 0,
            "finite_abs_max": 4.0,
            "finite_max": 2.0,
            "finite_min": -4.0,
            "numel": 6,
            "bad": False,
        }

    def test_where_nothing_is_finite_the_magnitudes_are_null(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.step(1, bad("a", ALL_NAN))
        (record,) = records(desk.file.path)
        assert (record["finite_abs_max"], record["finite_max"], record["finite_min"]) == (None, None, None)
        assert (record["nan_count"], record["finite_count"], record["bad"]) == (6, 0, True)

    def test_an_observation_still_on_its_device_cannot_be_read(self) -> None:
        pending = clean("a")._replace(reduced=0)
        with pytest.raises(TypeError, match="not arrived yet"):
            _ = pending.stats

    def test_verbose_names_the_worst_layer_of_a_bad_step(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, verbose=True)
        desk.step(1, bad("a", NAN), bad("b", HUGE), bad("c", ALL_NAN))
        assert "step=1 worst_bad=b abs_max=3.000e+11 dir=fwd" in desk.messages
