"""A mode of the program sees what the program does, and nothing of ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aorta_collectors.observe.modes import in_any_mode, out_of_modes
from tests.observe.watching import EVERYTHING, two_layers, watching


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Functions, Operations])
@pytest.mark.parametrize("origin", [False, True])
def test_it_sees_a_training_as_if_nothing_watched(kind: Any, origin: bool) -> None:
    def seen() -> list[str]:
        torch.manual_seed(0)
        model = two_layers()
        optimizer = torch.optim.Adam(model.parameters())
        with kind() as mode:
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(2, 4)).square().mean().backward()
                optimizer.step()
        return list(mode.seen)

    bare = seen()
    with watching(EVERYTHING, origin=origin) as (observer, found):
        assert seen() == bare
    assert observer.errors == 0, observer.first_error
    assert len(found.by_step[3]) > 10


@pytest.mark.parametrize("kind", [Functions, Operations])
def test_it_is_on_again_afterwards_also_after_an_exception(kind: Any) -> None:
    with kind() as mode:
        assert in_any_mode()
        out_of_modes(torch.ones, 1)
        assert mode.seen == []
        with pytest.raises(ZeroDivisionError):
            out_of_modes(lambda: 1 / 0)
        torch.ones(1)
        assert len(mode.seen) == 1
    assert not in_any_mode()
