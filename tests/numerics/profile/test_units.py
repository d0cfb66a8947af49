"""Dead and saturated units, beside a reference that looks at all outputs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.units import UnitWatch
from aorta_collectors.numerics.spans.lamport import LamportClock
from tests.numerics.profiled import profiled

CONFIG = Config(profile="deferred")


class Seen(TorchDispatchMode):
    """Keeps the names of operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def watched(model: nn.Module, batches: list[Tensor]) -> UnitWatch:
    units = UnitWatch()
    with profiled(CONFIG, [units], Timeline(CONFIG, LamportClock())):
        for batch in batches:
            model(batch)
    return units


def dead_layer(width: int, dead: list[int]) -> nn.Linear:
    """A layer of which some outputs are below zero, whatever it is given."""
    layer = nn.Linear(4, width)
    with torch.no_grad():
        layer.weight[dead] = 0.0
        layer.bias[dead] = -1.0
        layer.bias[[unit for unit in range(width) if unit not in dead]] = 1.0
    return layer


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, lambda: nn.Threshold(0.0, 0.0), lambda: nn.Softshrink(1.5)])
def test_dead_units_are_those_that_were_zero_in_every_call(activation: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(dead_layer(6, [1, 4]), activation(), nn.Linear(6, 2))
    batches = [torch.randn(3, 5, 4) for _ in range(11)]
    units = watched(model, batches)
    seen = torch.cat([model[:2](batches[step]).reshape(-1, 6) for step in (0, 10)])
    expected = int((seen == 0).all(dim=0).sum())
    assert expected >= 2
    found = units.of("1")
    assert (found["units"], found["dead_units"]) == (6, expected)
    assert units.of("0") == {}
    assert units.of("nowhere") == {}


def test_only_every_tenth_step_is_looked_at() -> None:
    """A unit that lives in the second step alone is dead in all that was looked at; in the eleventh it is not."""
    model = nn.Sequential(nn.ReLU(), nn.PReLU())  # a model has parameters
    off, on = torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 1.0]])
    assert watched(model, [off, on, off]).of("0")["dead_units"] == 1
    assert watched(model, [off] * 10 + [on]).of("0")["dead_units"] == 0


def test_of_images_a_unit_is_a_channel() -> None:
    layer = nn.Conv2d(1, 3, 1)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([1.0, -1.0, 1.0]))
    found = watched(nn.Sequential(layer, nn.ReLU()), [torch.ones(2, 1, 5, 7)]).of("1")
    assert found == {"units": 3, "dead_units": 1}


def test_of_sequences_it_is_a_channel_beside_a_convolution_alone() -> None:
    x = torch.ones(2, 3, 5)
    convolved = watched(nn.Sequential(nn.Conv1d(3, 4, 1), nn.ReLU()), [x]).of("1")
    mixed = watched(nn.Sequential(nn.Linear(5, 6), nn.ReLU()), [x]).of("1")
    assert (convolved["units"], mixed["units"]) == (4, 6)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [(nn.Sigmoid(), 2), (nn.Tanh(), 2), (nn.Hardtanh(), 2), (nn.Hardsigmoid(), 2), (nn.ReLU6(), 1)],
)
def test_saturated_units_are_those_at_an_end_in_every_call(activation: nn.Module, expected: int) -> None:
    x = torch.tensor([[50.0, -50.0, 0.1, 50.0], [50.0, -50.0, 0.1, 0.1]])
    found = watched(nn.Sequential(activation, nn.PReLU()), [x]).of("0")
    assert found["saturated_units"] == expected
    assert found["units"] == 4


def test_they_are_fields_of_the_forward_row() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    units = UnitWatch()
    table = BrickTable(CONFIG, units=units.of)
    with profiled(CONFIG, [units, table], Timeline(CONFIG, LamportClock())):
        model(torch.ones(2, 4)).sum().backward()
    rows = {(row["layer"], row["direction"]): row for row in table.rows()}
    assert rows["1", "forward"]["units"] == 4
    assert "units" not in rows["1", "backward"]
    assert "units" not in rows["0", "forward"]


def test_a_model_in_and_out_of_inference_mode_with_inputs_of_any_kind() -> None:
    model = nn.Sequential(nn.ReLU(), nn.PReLU())
    units = UnitWatch()
    with profiled(CONFIG, [units], Timeline(CONFIG, LamportClock())):
        with torch.inference_mode():
            model(torch.ones(2, 4))
        for step in range(10):
            model(torch.ones(2, 4 if step == 9 else 3))
        model(torch.ones(()))
        model(torch.ones(0, 4))
    assert units.of("0") == {"units": 4, "dead_units": 0}


def test_modes_of_the_program_see_nothing_of_it() -> None:
    model = nn.Sequential(nn.ReLU6(), nn.PReLU())
    units = UnitWatch()

    def seen(*parts: Part) -> list[str]:
        with profiled(CONFIG, parts, Timeline(CONFIG, LamportClock())), Seen() as mode:
            for _ in range(2):
                model(torch.ones(2, 4))
        return mode.names

    assert seen(units) == seen()
    assert units.of("0")["units"] == 4
