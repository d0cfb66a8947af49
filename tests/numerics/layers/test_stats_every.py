"""Statistics in one step of several: in which there are lines, and that nothing bad is missed in the others."""

from __future__ import annotations

import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.layers.payload import Payload
from aorta_collectors.numerics.part import LineStopped
from tests.numerics.layer_hooks import Driven, small_model
from tests.numerics.layers.test_payload import files
from tests.observe.device.fakes import FakeDevice

STEPS, EVERY = 7, 3
SAMPLED = (1, 4, 7)


class Spoiling(nn.Module):
    """Hands on what it gets, but for one element of its output, or of the gradient of its input, in one step."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.at: tuple[int, str, float] = (0, "", 0.0)

    def forward(self, given: Tensor) -> Tensor:
        self.step += 1
        step, direction, value = self.at
        if self.step != step:
            return given * 1
        if direction == "forward":
            return _spoilt(given, value)
        within = given * 1
        if within.requires_grad:
            within.register_hook(lambda grad: _spoilt(grad, value))
        return within * 1


class Squaring(Spoiling):
    """One whose backward needs what it was given."""

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given) * given


def _spoilt(tensor: Tensor, value: float) -> Tensor:
    result = tensor.clone()
    result.view(-1)[1] = value
    return result


def model_of(number: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(number):
        layers += [nn.Linear(6, 6), Spoiling()]
    return nn.Sequential(*layers, nn.Linear(6, 2))


def trained(
    every: int, at: tuple[int, int, str, float] | None = None, dtype: torch.dtype = torch.float32, **given: Any
) -> tuple[Driven, list[Tensor]]:
    """Lines and losses of a few steps.

    Args:
        at: Step, number of the layer that spoils, direction and value.
    """
    model = model_of(3).to(dtype)
    if at is not None:
        step, number, direction, value = at
        model.get_submodule(str(2 * number + 1)).at = (step, direction, value)  # type: ignore[assignment]
    config = Config(trace="layer", stats_every=every)
    watched = Driven(LayerStats(config, pytest.fail, **given), model)
    device = given["device_of"](None) if given else None
    losses = []
    for step in range(1, STEPS + 1):
        inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(step)).to(dtype)
        with watched.step():
            loss = nn.functional.dropout(model(inputs)).float().square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            if device is not None:
                device.advance()
        losses.append(loss.detach())
    if device is not None:
        device.advance()
        with watched.step(last=True):
            pass
    watched.release()
    return watched, losses


def on_a_device() -> dict[str, Any]:
    device = FakeDevice()
    return {"device_of": lambda _: device, "host": ()}


def is_bad(line: dict[str, Any]) -> bool:
    return bool(line["nan_count"] or line["inf_count"])


class TestSteps:
    @pytest.mark.parametrize("device", [False, True])
    def test_there_are_lines_in_the_first_step_and_every_so_many(self, device: bool) -> None:
        given = on_a_device() if device else {}
        watched, _ = trained(EVERY, **given)
        assert {line["step"] for line in watched.lines()} == set(SAMPLED)
        every, _ = trained(1, **(on_a_device() if device else {}))
        assert watched.lines() == [line for line in every.lines() if line["step"] in SAMPLED]
        fields = watched.part.fields()
        a_step = len(every.lines()) // STEPS
        assert fields["tensors_read"] == a_step * len(SAMPLED) == len(watched.lines())
        assert fields["tensors_checked"] == a_step * (STEPS - len(SAMPLED))
        assert every.part.fields()["tensors_checked"] == 0

    def test_losses_are_bit_for_bit_the_same(self) -> None:
        _, sampled = trained(EVERY)
        _, all_read = trained(1)
        assert sampled == all_read

    def test_full_tensors_are_of_those_steps_and_of_what_is_bad(self, tmp_path: Path) -> None:
        config = Config(trace="payload", stats_every=EVERY)
        kept = Payload(config, lambda: (tmp_path, "rank0"), pytest.fail)
        model = nn.Sequential(nn.Linear(4, 4), Spoiling())
        model.get_submodule("1").at = (2, "forward", math.nan)  # type: ignore[assignment]
        watched = Driven(LayerStats(config, pytest.fail, payload=kept), model)
        for step in range(1, 6):
            with watched.step(last=step == 5), torch.no_grad():
                model(torch.ones(2, 4))
            kept.step_ended(watched.traces[-1])
        assert files(tmp_path) == [f"payload_rank0_step{step}.safetensors" for step in (1, 2, 4)]
        assert kept.fields()["payload"]["tensors"] == 2 * 3 + 2


@pytest.mark.parametrize("device", [False, True])
@given(
    step=st.integers(1, STEPS),
    number=st.integers(0, 2),
    direction=st.sampled_from(("forward", "backward")),
    value=st.sampled_from((math.nan, math.inf)),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float64)),
)
@settings(max_examples=15, deadline=None)
def test_what_is_bad_is_found_in_its_step_with_the_same_numbers(
    device: bool, step: int, number: int, direction: str, value: float, dtype: torch.dtype
) -> None:
    # From a device -Inf alone may be those of a mask, and the product of Inf with a weight is one.
    at = (step, number, direction, math.nan if device else value)
    sampled, losses = trained(EVERY, at, dtype, **(on_a_device() if device else {}))
    all_read, expected = trained(1, at, dtype, **(on_a_device() if device else {}))
    bad = [line for line in all_read.lines() if is_bad(line)]
    assert bad[0]["step"] == step
    assert [line for line in sampled.lines() if is_bad(line)] == bad
    clean = [line for line in sampled.lines() if not is_bad(line)]
    assert clean == [line for line in all_read.lines() if not is_bad(line) and line["step"] in SAMPLED]
    assert sampled.part.fields()["first_bad"] == all_read.part.fields()["first_bad"] == bad[0]
    assert [trace.bad_steps for trace in sampled.traces] == [trace.bad_steps for trace in all_read.traces]
    assert torch.equal(torch.stack(losses).nan_to_num(7.0), torch.stack(expected).nan_to_num(7.0))


class TestBetween:
    """A tensor given out in a step whose statistics are not taken."""

    def second(self, tensor: Tensor, module: nn.Module | None = None) -> list[dict[str, Any]]:
        model = module or nn.Identity()
        watched = Driven(LayerStats(Config(trace="layer"), pytest.fail), model)
        for _ in range(2):
            with watched.step():
                model(tensor)
        assert watched.part.fields()["tensors_checked"] == 2 - len(watched.lines())
        return watched.traces[1].stats

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.full((300, 3), 3e38),
            torch.full((300, 3), 6e4).half(),
            torch.full((300, 3), -3e38).bfloat16(),
            torch.full((300, 3), 1e308, dtype=torch.float64),
            torch.arange(5),
            torch.ones(4, dtype=torch.bool),
            torch.empty(0, 3),
            torch.ones(3, dtype=torch.complex64),
            torch.ones(3).expand(4, 3),
            torch.ones(4, 6).t()[::2],
        ],
        ids=lambda tensor: str(tensor.dtype),
    )
    def test_is_not_bad_for_being_large_or_of_a_kind_of_its_own(self, tensor: Tensor) -> None:
        assert self.second(tensor) == []

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.float64])
    def test_is_read_whole_where_it_is_bad(self, dtype: torch.dtype) -> None:
        tensor = torch.ones(3, 5).to(dtype)
        tensor[2, 1] = math.inf
        [line] = self.second(tensor)
        numbers = 2 if dtype.is_complex else 1
        assert (line["step"], line["numel"], line["inf_count"], line["max"]) == (2, 15 * numbers, 1, 1.0)

    def test_the_log_of_zero_is_bad(self) -> None:
        class Log(nn.Module):
            def forward(self, given: Tensor) -> Tensor:
                return given.log()

        [line] = self.second(torch.tensor([0.0, 2.0], requires_grad=True), Log())
        assert line["inf_count"] == 1

    def test_a_mask_is_none(self) -> None:
        class Masking(nn.Module):
            def forward(self, scores: Tensor) -> Tensor:
                return scores.masked_fill(scores > 0, -math.inf)

        assert self.second(torch.tensor([1.0, -1.0], requires_grad=True), Masking()) == []

    def test_is_looked_at_again_when_it_was_changed_in_place(self) -> None:
        class Spoilt(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = nn.Identity()

            def forward(self, given: Tensor) -> Tensor:
                result: Tensor = self.part(given.clone())
                return result.fill_(math.nan) if self.training else result

        model = Spoilt().eval()
        watched = Driven(LayerStats(Config(trace="layer"), pytest.fail), model)
        with watched.step():
            model(torch.ones(3))
        model.train()
        with watched.step():
            model(torch.ones(3))
        assert [(line["layer"], line["seq"]) for line in watched.traces[1].stats] == [("(root)", 1)]

    def test_the_same_tensor_is_looked_at_once(self) -> None:
        """Told by what torch was asked to do."""
        model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
        watched = Driven(LayerStats(Config(trace="layer"), pytest.fail), model, {"0": "TRANSFORMER_BLOCK"})
        with watched.step():
            model(torch.ones(2, 4))
        with torch.profiler.profile() as seen, watched.step():
            model(torch.ones(2, 4))
        assert [event.count for event in seen.key_averages() if event.key == "aten::sum"] == [1]
        assert watched.part.fields()["tensors_checked"] == 3


def backward(watched: Driven, loss: Tensor) -> None:
    watched.part.backward_began([loss])
    loss.backward()  # type: ignore[no-untyped-call]
    watched.part.backward_ended()


class TestStop:
    """`on_bad: stop` in a step whose statistics are not taken, with the diagnosis of one whose are."""

    def told(self, every: int, direction: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), Squaring(), nn.Linear(6, 2))
        model.get_submodule("2").at = (3, direction, math.inf)  # type: ignore[assignment]
        watched = Driven(LayerStats(Config(trace="layer", on_bad="stop", stats_every=every), print), model)
        for step in range(1, 4):
            inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
            if step < 3:
                with watched.step():
                    backward(watched, model(inputs).square().sum())
            else:
                with pytest.raises(LineStopped), watched.step():
                    backward(watched, model(inputs).square().sum())
        stopped: dict[str, Any] = watched.part.fields()["stopped"]
        return stopped, capsys.readouterr().err

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_says_the_same(self, direction: str, capsys: pytest.CaptureFixture[str]) -> None:
        sampled = self.told(50, direction, capsys)
        assert sampled == self.told(1, direction, capsys)
        assert (sampled[0]["step"], sampled[0]["direction"]) == (3, direction)
        rows = ("gradient in, 2", "output of 1", "output of 2") if direction == "backward" else ("input [0]",)
        assert all(told in sampled[1] for told in rows)

    def test_what_exploded(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4, bias=False))
        with torch.no_grad():
            model.get_parameter("0.weight").fill_(1.0)
        watched = Driven(LayerStats(Config(trace="layer", on_bad="stop"), print), model)
        for size in (1e10, 1e20, 1e30, 1e37):
            with watched.step():
                model(torch.full((1, 4), size))
        with pytest.raises(LineStopped), watched.step():
            model(torch.full((1, 4), 3e38))
        causes = watched.part.fields()["stopped"]["causes"]
        assert "from 4e+10 in step 1 to 4e+37 in step 4" in causes[1]["evidence"]

    def test_a_root_at_zero(self) -> None:
        class Rms(nn.Module):
            def forward(self, given: Tensor) -> Tensor:
                return given.square().mean(-1, keepdim=True).sqrt() + given

        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Rms(), nn.Linear(4, 2))
        with torch.no_grad():
            model.get_parameter("0.weight").zero_()
            model.get_parameter("0.bias").fill_(1.0)
        watched = Driven(LayerStats(Config(trace="layer", on_bad="stop"), print), model)
        with watched.step():
            model(torch.randn(2, 5, 4)).sum().backward()
        with torch.no_grad():
            model.get_parameter("0.bias").fill_(-1.0)
        with pytest.raises(LineStopped), watched.step():
            backward(watched, model(torch.randn(2, 5, 4)).sum())
        assert watched.part.fields()["stopped"]["causes"][0]["kind"] == "derivative_at_zero"

    def test_what_is_held_on_to_goes_with_the_backward_pass(self) -> None:
        model = small_model()
        part = LayerStats(Config(trace="layer", on_bad="stop"), print)
        watched = Driven(part, model)
        with watched.step():
            pass
        grads: list[weakref.ref[Tensor]] = []
        outputs: list[weakref.ref[Tensor]] = []
        with watched.step():
            hidden = model[0](torch.randn(3, 4))
            hidden.register_hook(lambda grad: grads.append(weakref.ref(grad)))
            outputs.append(weakref.ref(hidden))
            last = model[2](model[1](hidden).sigmoid())
            del hidden
            outputs.append(weakref.ref(last))
            loss = last.exp().sum()
            del last
            part.backward_began([loss])
            loss.backward()
            assert [held() is not None for held in (*grads, *outputs)] == [True, False, False]
            part.backward_ended()
            assert grads[0]() is None
