"""Tensors on a device: nothing waits within a step, and what was read is what was there at that moment."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import torch

from aorta_collectors.observe.host_copies import HostCopies
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.recorder import Recorder
from tests.observe.device.fakes import FakeDevice
from tests.tensors.left import Kept
from tests.tensors.test_recorder import sha256, taken


class OnDevice:
    """A recorder for which host memory is that of a device."""

    def __init__(self, **options: Any) -> None:
        self.kept = Kept()
        self.device = FakeDevice()
        copies = HostCopies(lambda device: self.device, host=())
        self.recorder = Recorder(Config(**options), self.kept, copies)

    def steps(self, count: int) -> None:
        for step in range(1, count + 1):
            with self.device.no_waiting():
                self.recorder.begin(step)
                taken(self.recorder, torch.full((3,), float(step)))
            self.recorder.end(step == count)


class TestOnADevice:
    def test_nothing_waits_and_steps_are_written_when_they_have_come_over(self) -> None:
        on = OnDevice()
        with on.device.no_waiting():
            on.recorder.begin(1)
            taken(on.recorder, torch.tensor([1.0, math.nan]))
            taken(on.recorder, torch.arange(6).view(2, 3).T)
            on.recorder.end(False)
        assert on.kept.observations == []
        assert on.recorder.tally.first_bad is None
        on.device.advance()
        on.recorder.begin(2)
        on.recorder.end(False)
        found = on.kept.observations
        assert [each.digest for each in found] == [
            sha256(torch.tensor([1.0, math.nan])),
            sha256(torch.arange(6).view(2, 3).T),
        ]
        assert found[0].values is None
        assert found[1].stats is not None
        assert found[1].stats.mean == 2.5
        assert on.recorder.tally.first_bad is not None

    def test_the_oldest_of_three_steps_is_waited_for_and_all_at_the_end(self) -> None:
        on = OnDevice(keep="values")
        for step in (1, 2, 3):
            on.recorder.begin(step)
            taken(on.recorder, torch.full((3,), float(step)))
            with on.device.no_waiting() if step < 3 else contextlib.nullcontext():
                on.recorder.end(False)
        assert [step for step, _ in on.kept.stretches] == [1]
        assert on.device.waits == 1
        on.device.advance()
        on.recorder.end(True)
        assert [step for step, _ in on.kept.stretches] == [1, 2, 3]
        values = [each.values for each in on.kept.observations]
        assert [None if value is None else value.tolist() for value in values] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]

    def test_so_much_on_its_way_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aorta_collectors.tensors.recorder._MOST_IN_FLIGHT_BYTES", 1000)
        on = OnDevice()
        on.recorder.begin(1)
        for _ in range(10):
            taken(on.recorder, torch.ones(100))
        assert on.device.waits == 3
        on.recorder.end(False)
        on.device.advance()
        on.recorder.end(True)
        assert [each.digest for each in on.kept.observations] == [sha256(torch.ones(100))] * 10

    def test_in_a_capture_that_has_begun_since_it_is_said_why_there_is_nothing(self) -> None:
        on = OnDevice(keep="values")
        on.recorder.begin(1)
        on.device.capturing = True
        taken(on.recorder, torch.ones(3))
        on.recorder.end(False)
        on.device.capturing = False
        on.recorder.end(True)
        (observation,) = on.kept.observations
        assert (observation.digest, observation.unread) == (None, "in the capture of a CUDA graph")

    def test_numbers_of_what_has_no_elements_of_its_own_come_over_too(self) -> None:
        on = OnDevice()
        on.recorder.begin(1)
        taken(on.recorder, (2 * torch.eye(3)).to_sparse())
        on.recorder.end(False)
        on.device.advance()
        on.recorder.end(True)
        (observation,) = on.kept.observations
        assert (observation.unread, observation.line()["max"]) == ("layout sparse_coo", 2.0)
