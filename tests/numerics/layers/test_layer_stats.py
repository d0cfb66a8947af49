"""Lines of statistics of a real model's outputs and gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.layers.saturation import ends_of_module
from aorta_collectors.schema_check import validator
from tests.numerics.layer_hooks import Driven, bricks_of, small_model
from tests.observe.device.fakes import FakeDevice

LAYER = Config(trace="layer", stats_every=1)


def no_warning(text: str) -> None:
    raise AssertionError(text)


def driven(model: nn.Module, config: Config = LAYER, named: dict[str, str] | None = None, **given: Any) -> Driven:
    return Driven(LayerStats(config, no_warning, **given), model, named)


def equals_numpy(line: dict[str, Any], tensor: Tensor) -> bool:
    values = tensor.detach().double().numpy()
    scale = float(np.sqrt(np.mean(values**2)))
    return (
        line["shape"] == list(tensor.shape)
        and line["numel"] == tensor.numel()
        and (line["min"], line["max"]) == (values.min(), values.max())
        and line["mean"] == pytest.approx(values.mean(), abs=1e-6 * scale)
        and line["std"] == pytest.approx(values.std(), rel=1e-6)
        and line["zero_fraction"] == float((values == 0).mean())
        and (line["nan_count"], line["inf_count"]) == (0, 0)
    )


class TestLines:
    def test_are_of_outputs_and_their_gradients_in_order(self) -> None:
        model = small_model()
        watched = driven(model)
        kept: dict[str, Tensor] = {}
        inputs = torch.randn(16, 4)
        with watched.step():
            hidden = model[0](inputs)
            kept["0"] = hidden
            kept["1"] = model[1](hidden)
            kept["2"] = model[2](kept["1"])
            for tensor in kept.values():
                tensor.retain_grad()
            kept["2"].square().mean().backward()  # type: ignore[no-untyped-call]
        lines = watched.lines()
        assert [(line["layer"], line["direction"]) for line in lines] == [
            *(("0", "forward"), ("1", "forward"), ("2", "forward")),
            *(("2", "backward"), ("1", "backward"), ("0", "backward")),
        ]
        assert [line["seq"] for line in lines] == list(range(6))
        for layer, tensor in kept.items():
            assert equals_numpy(watched.line(layer), tensor)
            assert tensor.grad is not None
            assert equals_numpy(watched.line(layer, "backward"), tensor.grad)

    def test_are_as_the_schema_has_them(self) -> None:
        model = small_model()
        watched = driven(model)
        with watched.step():
            model(torch.randn(3, 4)).sum().backward()
        with watched.step():
            model(torch.full((3, 4), math.nan))
        checker = validator("numerics.stats")
        assert [list(checker.iter_errors({"rank": 0, "pid": 1, **line})) for line in watched.lines()] == [[]] * 12
        assert watched.line("2", step=2)["mean"] is None
        first = watched.part.fields()["first_bad"]
        assert (first["layer"], first["step"], first["nan_count"]) == ("0", 2, 24)
        assert watched.part.fields()["tensors_read"] == len(watched.lines())

    def test_tell_leaves_named_steps_and_roots(self) -> None:
        model = nn.Sequential(small_model(), small_model())
        bricks = bricks_of(model, {"1": "TRANSFORMER_BLOCK"})
        part = LayerStats(LAYER, no_warning)
        wanted = {brick.layer for brick in bricks.values() if part.wants(brick)}
        assert wanted == {"(root)", "1", *(f"{block}.{part}" for block in range(2) for part in range(3))}
        for brick in bricks.values():
            brick.selected = False
            assert not part.wants(brick)

    def test_of_a_tensor_that_is_changed_in_place_are_read_anew(self) -> None:
        class Doubled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = nn.Identity()

            def forward(self, given: Tensor) -> Tensor:
                result: Tensor = self.part(given.clone())
                return result.mul_(2)

        watched = driven(Doubled())
        with watched.step():
            watched.model(torch.ones(3))
        assert [line["mean"] for line in watched.lines()] == [1.0, 2.0]

    def test_of_structured_outputs_have_paths_and_gradients_the_same_ones(self) -> None:
        class Two(nn.Module):
            def forward(self, given: Tensor) -> dict[str, Any]:
                return {"indices": given.argmax(-1), "scores": (given * 2, given * 3), "none": given[:0]}

        model = Two()
        watched = driven(model)
        with watched.step():
            result = model(torch.randn(5, 3, requires_grad=True))
            (result["scores"][0].sum() + 5 * result["scores"][1].sum()).backward()
        paths = {line["tensor_path"]: line for line in watched.lines() if line["direction"] == "forward"}
        assert list(paths) == ["['indices']", "['scores'][0]", "['scores'][1]", "['none']"]
        assert paths["['indices']"]["dtype"] == "int64"
        assert (paths["['none']"]["numel"], paths["['none']"]["zero_fraction"]) == (0, None)
        assert watched.line("(root)", "backward", path="['scores'][1]")["mean"] == 5.0

    def test_are_not_of_what_a_model_remembers(self) -> None:
        class Remembering(nn.Module):
            def forward(self, given: Tensor) -> dict[str, Any]:
                return {"logits": given * 2, "past_key_values": ((given * 3, given * 4),)}

        watched = driven(Remembering())
        with watched.step():
            result = watched.model(torch.ones(2, requires_grad=True))
            (result["logits"].sum() + result["past_key_values"][0][0].sum()).backward()
        assert [line["tensor_path"] for line in watched.lines()] == ["['logits']"] * 2
        assert watched.part.fields()["tensors_skipped"] == {"key-value cache": {"count": 2, "layers": ["(root)"]}}

    def test_are_told_of_what_cannot_be_read(self) -> None:
        model = nn.Identity()
        watched = driven(model)
        with watched.step():
            model(torch.empty(3, 2, device="meta"))
        assert watched.lines() == []
        assert watched.part.fields()["tensors_skipped"] == {"meta": {"count": 1, "layers": ["(root)"]}}

    def test_are_the_same_within_modes_of_the_program(self) -> None:
        model = small_model()
        watched = driven(model)
        inputs = torch.randn(3, 4)
        with torch.device("meta"), watched.step():
            model(inputs)
        with torch.inference_mode(), watched.step():
            model(inputs)
        first, second = watched.traces
        assert [{**line, "step": 0} for line in first.stats] == [{**line, "step": 0} for line in second.stats]

    def test_the_model_computes_the_same(self) -> None:
        def trained(watch: bool) -> list[Tensor]:
            model = small_model()
            watched = driven(model) if watch else None
            losses = []
            for _ in range(3):
                with watched.step() if watched is not None else torch.enable_grad():
                    loss = torch.nn.functional.dropout(model(torch.randn(8, 4))).square().mean()
                    loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.detach())
            return losses

        assert trained(True) == trained(False)


class TestSaturation:
    @pytest.mark.parametrize(
        ("module", "expected"),
        [
            (nn.Sigmoid(), 2 / 5),
            (nn.Tanh(), 2 / 5),
            (nn.Softsign(), 2 / 5),
            (nn.Hardtanh(), 3 / 5),
            (nn.ReLU6(), 1 / 5),
            (nn.Hardsigmoid(), 2 / 5),
            (nn.Softmax(0), 1 / 5),
            (nn.ReLU(), 0.0),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_of_activations(self, module: nn.Module, expected: float) -> None:
        watched = driven(module)
        with watched.step():
            module(torch.tensor([-30.0, -0.5, 0.5, 1.5, 30.0]))
        assert watched.line("(root)")["saturated_fraction"] == pytest.approx(expected)

    def test_where_the_slope_is_a_hundredth(self) -> None:
        for module, inputs in ((nn.Sigmoid(), 5.98), (nn.Tanh(), 2.99), (nn.Softsign(), 9.0)):
            ends = ends_of_module(module)
            assert ends is not None
            point = torch.tensor([0.0, inputs], requires_grad=True)
            output = module(point)
            output.sum().backward()
            assert point.grad is not None
            assert point.grad[1].item() == pytest.approx(point.grad[0].item() * 0.01, rel=0.02)
            assert output[1].item() == pytest.approx(ends.high, abs=1e-3)


class _Masking(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)


class _Log(nn.Module):
    def forward(self, given: Tensor) -> Tensor:
        return given.log()


class TestMasks:
    def test_are_counted_and_not_bad(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), _Masking(), nn.Softmax(-1))
        watched = driven(model)
        with watched.step():
            model(torch.randn(4, 4)).sum().backward()
        assert watched.line("1")["inf_count"] == 6
        assert watched.part.fields()["first_bad"] is None

    def test_a_mask_at_hand_explains_them_where_autograd_does_not_tell(self) -> None:
        class Masked(nn.Module):
            def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
                return scores + mask

        model = Masked()
        scores, mask = torch.randn(2, 2), torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
        watched = driven(model)
        with torch.no_grad(), watched.step():
            model(scores, mask)
            model(scores, mask=mask)
        assert [line["inf_count"] for line in watched.lines()] == [1, 1]
        assert watched.part.fields()["first_bad"] is None

    @pytest.mark.parametrize("grad", [True, False])
    def test_the_log_of_zero_is_none(self, grad: bool) -> None:
        model = _Log()
        watched = driven(model)
        with watched.step():
            model(torch.tensor([0.0, 2.0], requires_grad=grad))
        assert watched.part.fields()["first_bad"]["inf_count"] == 1


class TestOnADevice:
    """The way of tensors on a device, on one whose memory is the host's."""

    def test_lines_come_with_the_next_step_and_are_the_same(self) -> None:
        inputs = torch.randn(6, 4)
        with (at_once := driven(small_model())).step():
            self.train(at_once, inputs)
        device = FakeDevice()
        later = driven(small_model(), device_of=lambda _: device, host=())
        with device.no_waiting():
            for _ in range(3):
                with later.step():
                    self.train(later, inputs)
                device.advance()
        assert [len(trace.stats) for trace in later.traces] == [0, 8, 8]
        device.advance()
        with later.step(last=True):
            pass
        assert [line["step"] for line in later.lines()] == [step for step in (1, 2, 3) for _ in range(8)]
        for line, expected in zip(later.traces[1].stats, at_once.lines(), strict=True):
            numbers = {name: value for name, value in expected.items() if isinstance(value, float)}
            assert {name: line[name] for name in numbers} == pytest.approx(numbers, rel=1e-6, abs=1e-9)
            assert {**line, **numbers} == expected

    def train(self, watched: Driven, inputs: Tensor) -> None:
        model = watched.model
        model(inputs).sum().backward()

    def test_what_is_bad_is_known_once_it_has_arrived(self) -> None:
        device = FakeDevice()
        model = nn.Sequential(_Masking(), _Log())
        watched = driven(model, device_of=lambda _: device, host=())
        with watched.step():
            model(torch.zeros(2, 2, requires_grad=True))
        assert watched.part.fields()["first_bad"] is None
        with watched.step(last=True):
            device.advance()
        first = watched.part.fields()["first_bad"]
        assert (first["layer"], first["step"]) == ("1", 1)
