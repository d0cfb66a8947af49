"""Awkward programs under both tensors and memory: they compute the same, and the evidence is there."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aorta_collectors.api import Collector, Expected, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.memory.collector import Memory
from aorta_collectors.memory.config import Config as MemoryConfig
from aorta_collectors.memory.session import Session as MemorySession
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.tensors.collector import Tensors
from aorta_collectors.tensors.config import Config as TensorsConfig
from aorta_collectors.tensors.session import Session as TensorsSession
from tests.tensors.left import ALL_POINTS
from tests.torch_collector.awkward.programs import ALL, LACKS
from tests.torch_collector.awkward.shared import Program, trained, two_layers

RUN_ID = "the trial"


def computed(program: Program) -> list[Any]:
    """What a program gives, to the bit, and which random numbers come next."""
    torch.manual_seed(0)
    return [*map(_told, program()), torch.rand(1).item()]


def _told(given: Any) -> Any:
    if isinstance(given, Tensor):
        return given.dtype, given.shape, given.detach().double().flatten().tolist()
    return given


def functions_of_torch() -> Iterator[Any]:
    """Where observers put something, or something of theirs in its place."""
    for place in (torch.nn.modules.module, sys.modules["torch.optim.optimizer"]):
        yield from ((name, len(hooks)) for name, hooks in vars(place).items() if name.startswith("_global_") and hooks)
    for owner in (torch, torch.Tensor, torch.autograd, torch.nn.Module, torch.optim.Optimizer, torch.cuda.CUDAGraph):
        yield from ((owner, name, value) for name, value in vars(owner).items() if callable(value))


def verified(collector: Collector, directory: Path, raw: dict[str, str]) -> Verification:
    expected = Expected(collector.validate(raw), frozenset({RUN_ID}))
    with Anchor(directory.parent).open(directory) as artifacts:
        return collector.verify(artifacts, expected)


@contextlib.contextmanager
def armed(directory: Path, points: tuple[str, ...]) -> Iterator[tuple[ProcessSession, ...]]:
    """Both collectors, on every module and with all values."""
    tensors = TensorsConfig(points=points, scope=("*",), keep="values")
    sessions = (
        TensorsSession(tensors, lambda: directory / "tensors", lambda: RUN_ID),
        MemorySession(MemoryConfig(scope=("*",)), lambda: directory / "memory", lambda: RUN_ID),
    )
    for session in sessions:
        session.arm()
    try:
        yield sessions
    finally:
        for session in reversed(sessions):
            session.close()


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
def test_the_program_computes_the_same_and_is_captured(program: Program, tmp_path: Path) -> None:
    bare = computed(program)
    before = list(functions_of_torch())
    points = tuple(point for point in ALL_POINTS if point not in LACKS.get(program, ()))
    with armed(tmp_path, points) as sessions:
        assert computed(program) == bare
    assert list(functions_of_torch()) == before
    for session in sessions:
        assert session.fields()["first_hook_error"] is None
    found = verified(Tensors(), tmp_path / "tensors", {"points": ",".join(points), "scope": "*", "keep": "values"})
    assert found.verdict is Verdict.CAPTURED, found.reason
    found = verified(Memory(), tmp_path / "memory", {"scope": "*"})
    assert found.verdict is Verdict.CAPTURED, found.reason


def test_a_process_does_not_grow_with_its_steps(tmp_path: Path) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with armed(tmp_path, ALL_POINTS):
        held = []
        for _ in range(4):
            for _ in trained(model, optimizer, steps=50):
                pass
            gc.collect()
            held.append(sys.getallocatedblocks())
    assert held[-1] - held[1] < 200  # of 100 steps, each of which has 26 tensors and 10 looks
