"""The loss of a step."""

from __future__ import annotations

import math

import pytest
import torch

from aorta_collectors.numerics.arriving import as_json
from aorta_collectors.numerics.metrics.losses import Losses


def test_a_scalar_is_the_loss_and_any_other_start_is_none() -> None:
    losses = Losses()
    losses.began([torch.tensor(0.5, requires_grad=True)])
    assert losses.take().value == 0.5
    losses.began([torch.ones(3)])
    assert losses.take().value is None
    assert losses.take().value is None


def test_several_scalars_of_one_pass_are_summed_and_several_passes_averaged() -> None:
    losses = Losses()
    losses.began([torch.tensor(1.0), torch.tensor([2.0])])
    losses.began([torch.tensor(5.0)])
    assert losses.take().value == 4.0


def test_what_the_program_does_to_its_loss_afterwards_is_not_seen() -> None:
    losses = Losses()
    loss = torch.tensor(3.0)
    losses.began([loss])
    loss.zero_()
    assert losses.take().value == 3.0


def test_of_a_scaled_loss_the_unscaled_one_is_told() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = Losses()
    for value in (0.25, 0.75):
        loss = torch.tensor(value, requires_grad=True)
        losses.scaled(loss)
        scaled = scaler.scale(loss)
        losses.began([scaled])
    assert losses.take().value == 0.5
    losses.scaled([torch.tensor(1.0), torch.tensor(2.0)])
    losses.forget()
    losses.began([torch.tensor(7.0)])
    assert losses.take().value == 7.0


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (1.5, 1.5), (None, None)]
)
def test_what_json_cannot_have_is_text(value: float | None, text: float | str | None) -> None:
    assert as_json(value) == text


def test_nothing_is_read_where_there_are_no_values() -> None:
    losses = Losses()
    losses.began([torch.empty((), device="meta")])
    losses.began([torch.tensor(3)])
    assert losses.take().value is None
    with torch.device("meta"):  # a mode of the program's is none of ours
        losses.began([torch.tensor(2.0, device="cpu")])
    assert losses.take().value == 2.0


def test_those_that_nobody_asks_for_are_forgotten() -> None:
    losses = Losses()
    for number in range(25_000):
        losses.began([torch.tensor(float(number >= 20_000))])
    assert losses.take().value == 1.0
