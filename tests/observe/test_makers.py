"""Whether -Inf was written into a tensor, as a mask's are, or computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aorta_collectors.observe.makers import computed_infinity

MASK = torch.tensor([True, False, True])
ADDITIVE = torch.tensor([0.0, -torch.inf, 0.0])


def _indexed(x: Tensor) -> Tensor:
    y = x * 2
    y[1] = -torch.inf
    return y


def _indexed_by_mask(x: Tensor) -> Tensor:
    y = x * 2
    y[MASK] = -torch.inf
    return y


def _sliced(x: Tensor) -> Tensor:
    y = x * 2
    y[:2].fill_(-torch.inf)
    return y


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "masked_fill": lambda x: x.masked_fill(MASK, -torch.inf),
    "masked_fill in place": lambda x: (x * 2).masked_fill_(MASK, -torch.inf),
    "where": lambda x: torch.where(MASK, x, -torch.inf),
    "an additive mask": lambda x: x + ADDITIVE,
    "an additive mask over scores": lambda x: torch.mm(x.expand(3, 3), x.expand(3, 3)) / 8 + ADDITIVE,
    "index": _indexed,
    "boolean index": _indexed_by_mask,
    "slice": _sliced,
    "scatter": lambda x: x.scatter(0, torch.tensor([1]), -torch.inf),
    "padding": lambda x: torch.nn.functional.pad(x, (0, 1), value=-torch.inf),
    "concatenation": lambda x: torch.cat([x, torch.full((1,), -torch.inf)]),
    "scaled and viewed since": lambda x: (x.masked_fill(MASK, -torch.inf) / 8).view(1, 3).transpose(0, 1),
    "normalised since": lambda x: torch.log_softmax(x.masked_fill(MASK, -torch.inf), 0),
    "written over a logarithm": lambda x: torch.log(x).masked_fill(MASK, -torch.inf),
}
COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": lambda x: torch.log1p(x - 1),
    "log of probabilities": lambda x: torch.log(torch.sigmoid(x - 1e4)),
    "scaled since": lambda x: (torch.log(x) * 3).reshape(3, 1),
    "logit": torch.logit,
    "a constant added before": lambda x: torch.log(x + 0.0),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name: str) -> None:
    out = WRITTEN[name](torch.zeros(3, requires_grad=True))
    assert computed_infinity(out) is False


@pytest.mark.parametrize("name", COMPUTED)
def test_computed(name: str) -> None:
    out = COMPUTED[name](torch.zeros(3, requires_grad=True))
    assert bool((out == -torch.inf).any())
    assert computed_infinity(out) is True


@pytest.mark.parametrize(
    "out",
    [
        torch.log(torch.zeros(3)),  # autograd has not looked
        torch.zeros(3, requires_grad=True),
        torch.zeros(3, requires_grad=True) * 2,
        -torch.exp(torch.full((3,), 100.0, requires_grad=True)),
        torch.nn.functional.linear(torch.ones(2, 3), torch.full((3, 3), -3e38, requires_grad=True), torch.ones(3)),
        -torch.exp(torch.full((3,), 100.0, requires_grad=True)) + torch.ones(3),
    ],
    ids=["no graph", "leaf", "neither", "overflow", "overflow of a product", "overflow with a constant added"],
)
def test_not_known(out: Tensor) -> None:
    assert computed_infinity(out) is None
