"""A program whose steps run on the threads that its argument names; prints why kernels were not told."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.engine import Engine
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.escalation.escalation import Escalation
from aorta_collectors.numerics.profile.escalation.helper_process import Helper
from aorta_collectors.numerics.spans.lamport import LamportClock
from tests.numerics.profile.escalation.loads import Steps

STEPS_TO_A_LOOK = 11


class Restless(nn.Module):
    """Takes 2 ms, or 30: so much that other processes, which make it longer, cannot make it even."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        time.sleep(0.002 if self.calls % 2 else 0.03)
        return x


def on_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def main() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Restless(), nn.Linear(8, 1))

    def steps(number: int = STEPS_TO_A_LOOK + 1) -> None:
        for _ in range(number):
            model(torch.randn(2, 8)).sum().backward()

    config = Config(profile="deferred")
    timeline, sink, table = Timeline(config, LamportClock(0)), Steps(), BrickTable(config)
    escalation = Escalation(config, table, timeline, Helper(()))
    engine = Engine(config, [escalation, table], timeline, sink)
    engine.arm()
    if sys.argv[1] == "worker":
        on_a_thread(steps)
    elif sys.argv[1] == "turns":
        steps(STEPS_TO_A_LOOK)
        on_a_thread(lambda: steps(1))  # ends the step after which there is a look, on a thread that ends, too
        steps(1)
    elif sys.argv[1] == "elsewhere":
        steps()
        assert torch.autograd._profiler_enabled()
        on_a_thread(engine.disarm)
    engine.disarm()
    assert engine.errors == 0, engine.first_error
    print(json.dumps([reason for trace in sink.traces for line in trace.escalations for reason in line["unavailable"]]))


if __name__ == "__main__":
    main()
