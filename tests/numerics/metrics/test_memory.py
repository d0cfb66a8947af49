"""Memory of the process."""

from __future__ import annotations

import os
import resource

import pytest
import torch

from aorta_collectors.numerics.metrics.memory import MemoryMeter


def test_of_a_model_on_the_host_it_is_what_is_resident() -> None:
    meter = MemoryMeter(torch.device("cpu"))
    before, peak = meter.read().used, meter.peak()
    assert before is not None
    assert peak == pytest.approx(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, rel=0.05)
    held = torch.ones(32 << 20)
    after = meter.read()
    assert after.used is not None
    assert after.used - before == pytest.approx(held.numel() * 4, rel=0.25)
    assert after.total == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_of_an_unknown_device_nothing_is_told() -> None:
    meter = MemoryMeter(torch.device("meta"))
    assert (*meter.read(), meter.peak()) == (None, None, None)
