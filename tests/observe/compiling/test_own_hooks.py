"""torch.export of a model that is observed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from aorta_collectors.layer_numerics.config import Config as LayerNumerics
from aorta_collectors.layer_numerics.session import Session as LayerNumericsSession
from aorta_collectors.memory.config import Config as Memory
from aorta_collectors.memory.session import Session as MemorySession
from aorta_collectors.numerics.config import Config as Numerics
from aorta_collectors.numerics.session import Session as NumericsSession
from aorta_collectors.tensors.config import Config as Tensors
from aorta_collectors.tensors.session import Session as TensorsSession

SESSIONS: dict[str, Any] = {
    "layer_numerics": lambda directory: LayerNumericsSession(LayerNumerics(), directory),
    "numerics": lambda directory: NumericsSession(Numerics(trace="layer"), directory),
    "tensors": lambda directory: TensorsSession(Tensors(), directory),
    "memory": lambda directory: MemorySession(Memory(), directory),
}


@pytest.fixture(params=sorted(SESSIONS))
def armed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    session = SESSIONS[request.param](lambda: tmp_path)
    session.arm()
    yield session
    session.close()


def exported(strict: bool) -> list[str]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model(torch.ones(2, 4))
    program = torch.export.export(model, (torch.ones(2, 4),), strict=strict)
    return [str(node.target) for node in program.graph.nodes]


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_is_what_it_is_unobserved(armed: Any, strict: bool) -> None:
    tables = [dict(torch_module._global_forward_pre_hooks), dict(torch_module._global_forward_hooks)]
    observed = exported(strict)
    assert tables == [dict(torch_module._global_forward_pre_hooks), dict(torch_module._global_forward_hooks)]
    armed.close()
    assert observed == exported(strict)


def test_a_hook_of_the_programs_is_in_the_way_of_a_strict_export_as_ever(tmp_path: Path) -> None:
    def outcome() -> str:
        try:
            return " ".join(exported(strict=True))
        except Exception as error:
            return type(error).__name__

    handle = torch_module.register_module_forward_hook(lambda module, args, result: None)
    try:
        unobserved = outcome()
        session = SESSIONS["memory"](lambda: tmp_path)
        session.arm()
        assert outcome() == unobserved
        session.close()
    finally:
        handle.remove()
