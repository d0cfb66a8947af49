"""Without an origin wanted: what the watched tensors alone decide, and what is named where they don't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.observe.glimpse import Glimpse
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.hunting import INF, NAN, Apply, at_step, fit
from tests.observe.watching import EVERYTHING, two_layers, watching

GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


def glimpsed(program: Callable[[], Any], *groups: WatchGroup) -> Glimpse:
    glimpse = Glimpse(0)
    with watching(*groups) as (observer, seen):
        program()
    for trace in seen.traces:
        glimpse.step(trace)
    assert observer.errors == 0
    return glimpse


def origin(glimpse: Glimpse) -> dict[str, Any]:
    assert glimpse.origin is not None
    return glimpse.origin


def broken() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Apply(lambda x: x * INF), nn.Linear(4, 1))


class TestDecided:
    """By luck: what went into the value was watched."""

    def test_a_parameter_that_is_bad_in_the_first_step(self) -> None:
        model = two_layers()
        with torch.no_grad():
            model[2].bias.fill_(NAN)
        found = origin(glimpsed(lambda: fit(model, [GOOD] * 2), WatchGroup(types=("Linear",), channels=("bias",))))
        assert (found["stage"], found["module"], found["step"]) == ("parameter", "2", 1)
        assert found["param_name"] == "bias"
        assert found["not_captured"] == []

    def test_an_output_whose_inputs_and_parameters_were_watched(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        with torch.no_grad():
            model[1].weight.fill_(3e38)
            model[0].bias.fill_(1e3)
        watch = WatchGroup(types=("Linear",), channels=("input", "act", "weight", "bias"))
        found = origin(glimpsed(lambda: fit(model, [GOOD]), watch))
        assert (found["stage"], found["module"], found["kind"]) == ("forward", "1", "inf")
        assert found["not_captured"] == []


class TestUndecided:
    """Unknown, with what would have had to be looked at."""

    @pytest.mark.parametrize(
        ("channels", "missing"),
        [
            (("act",), ["the inputs of 2", "all parameters and buffers of 2"]),
            (("act", "weight", "bias"), ["the inputs of 2"]),
            (("act", "weight"), ["the inputs of 2", "all parameters and buffers of 2"]),
        ],
    )
    def test_an_output_without_what_went_into_it(self, channels: tuple[str, ...], missing: list[str]) -> None:
        watch = WatchGroup(types=("Linear",), channels=channels)
        found = origin(glimpsed(lambda: fit(broken(), [GOOD]), watch))
        assert (found["stage"], found["module"], found["role"], found["step"]) == ("unknown", "2", "act", 1)
        assert found["not_captured"] == missing
        assert "NANLOG_ORIGIN=1" in found["reason"]

    @pytest.mark.parametrize("channel", CHANNELS)
    def test_every_channel_alone(self, channel: str) -> None:
        batches = at_step(2, GOOD * NAN, GOOD)
        found = origin(glimpsed(lambda: fit(two_layers(), batches), WatchGroup(types=("Linear",), channels=(channel,))))
        assert found["stage"] == "unknown"
        assert found["not_captured"]
        assert found["role"] == channel
        assert found["step"] == (3 if channel in ("weight", "bias") else 2)

    def test_a_parameter_after_the_first_step(self) -> None:
        def program() -> None:
            fit(two_layers(), [GOOD] * 3, optimizer=lambda params: torch.optim.SGD(params, lr=INF))

        found = origin(glimpsed(program, WatchGroup(types=("Linear",), channels=("weight",))))
        assert (found["stage"], found["step"]) == ("unknown", 2)
        assert found["not_captured"] == ["the parameter before the step", "its gradient"]

    def test_an_output_of_a_module_with_clean_inputs_but_unwatched_parts(self) -> None:
        """A container's output may come from any of its parts: what was made where is not known."""
        watch = WatchGroup(names=("1",), channels=("input", "act", "weight", "bias"))
        inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model = nn.Sequential(nn.Linear(4, 4), inner)
        with torch.no_grad():
            inner[0].weight.fill_(NAN)
        group = WatchGroup(types=("Sequential",), channels=watch.channels)
        found = origin(glimpsed(lambda: fit(model, [GOOD]), group))
        assert found["stage"] == "unknown"


class TestNothingToSay:
    def test_a_clean_run(self) -> None:
        assert glimpsed(lambda: fit(two_layers(), [GOOD] * 3), EVERYTHING).origin is None

    def test_huge_values_are_not_bad_in_this_sense(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(lambda x: x * 1e20))
        assert glimpsed(lambda: fit(model, [GOOD], lambda out: out.mean()), EVERYTHING).origin is None

    def test_negative_infinity_alone_may_be_a_mask(self) -> None:
        def mask(x: Tensor) -> Tensor:
            return x.masked_fill(torch.tensor([True, False, False, False]), -INF)

        model = nn.Sequential(nn.Linear(4, 4), Apply(mask), nn.Softmax(-1))
        assert glimpsed(lambda: fit(model, [GOOD]), EVERYTHING).origin is None

    def test_the_first_stays(self) -> None:
        watch = WatchGroup(types=("Linear",), channels=("act",))
        batches = [GOOD, GOOD * NAN, GOOD * INF]
        glimpse = Glimpse(3)
        with watching(watch) as (_, seen):
            for batch in batches:
                two_layers()(batch)
        told = [glimpse.step(trace) for trace in seen.traces]
        assert told == [False, True, False]
        assert origin(glimpse)["step"] == 2
        assert origin(glimpse)["rank"] == 3
        assert glimpse.expected == {}
