"""Stopping the line: a value that is planted is found at its layer, and its kind of cause is named."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.names import EXIT_STOPPED
from aorta_collectors.numerics.part import LineStopped, StepTrace
from tests.numerics.layer_hooks import Driven, small_model
from tests.support import PYTHON, run, summary

STOP = Config(trace="layer", on_bad="stop", stats_every=1)


def driven(model: nn.Module, named: dict[str, str] | None = None) -> Driven:
    return Driven(LayerStats(STOP, print), model, named)


def stopped(watched: Driven, program: Callable[[], Any]) -> dict[str, Any]:
    """What the line is stopped with, in a step of its own."""
    with pytest.raises(LineStopped) as ended, watched.step():
        program()
    assert ended.value.code == EXIT_STOPPED
    told: dict[str, Any] = watched.part.fields()["stopped"]
    return told


def kinds(told: dict[str, Any]) -> list[str]:
    return [cause["kind"] for cause in told["causes"]]


class Planted(nn.Module):
    """Gives out NaN in its n-th call."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.calls = 0
        self._call = call

    def forward(self, given: Tensor) -> Tensor:
        self.calls += 1
        return given * math.nan if self.calls == self._call else given * 1.0


class _BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * math.nan


class BadBackward(nn.Module):
    def forward(self, given: Tensor) -> Tensor:
        result: Tensor = _BadBackward.apply(given)  # type: ignore[no-untyped-call]
        return result


class Rms(nn.Module):
    def forward(self, given: Tensor) -> Tensor:
        return given.square().mean(-1, keepdim=True).sqrt() + given


class TestForward:
    def test_a_layer_that_makes_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        model = nn.Sequential(nn.Linear(4, 8), Planted(3), nn.Linear(8, 2))
        watched = driven(model)
        for _ in range(2):
            with watched.step():
                model(torch.randn(5, 4)).sum().backward()
        told = stopped(watched, lambda: model(torch.randn(5, 4)))
        assert (told["layer"], told["module_type"], told["step"], told["direction"]) == ("1", "Planted", 3, "forward")
        assert (told["kind"], kinds(told)) == ("nan", ["operation"])
        text = capsys.readouterr().err
        assert "stopped at 1 (Planted), step 3, forward" in text
        assert "last clean layer before: 0" in text
        assert "(step 1)" in text
        assert max(map(len, text.splitlines())) <= 100
        assert 10 < len(text.splitlines()) < 30

    def test_a_bad_parameter(self, capsys: pytest.CaptureFixture[str]) -> None:
        model = small_model()
        watched = driven(model)
        with watched.step():
            model(torch.randn(3, 4)).sum().backward()
        with torch.no_grad():
            model.get_parameter("2.weight")[1, 3] = math.nan
        told = stopped(watched, lambda: model(torch.randn(3, 4)))
        assert (told["layer"], kinds(told)[0]) == ("2", "parameters")
        assert "1 NaN: from an earlier optimizer step" in told["causes"][0]["evidence"]
        assert "parameter weight" in capsys.readouterr().err

    def test_bad_data(self) -> None:
        model = small_model()
        told = stopped(driven(model), lambda: model(torch.tensor([[1.0, math.inf, 0.0, 0.0]])))
        assert (told["layer"], kinds(told)) == ("0", ["data"])

    def test_code_between_layers(self, capsys: pytest.CaptureFixture[str]) -> None:
        class Between(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, given: Tensor) -> Tensor:
                result: Tensor = self.second(self.first(given) / 0.0)
                return result

        model = Between()
        told = stopped(driven(model), lambda: model(torch.randn(2, 4)))
        assert (told["layer"], kinds(told)) == ("second", ["outside"])
        assert "between first and second" in told["causes"][0]["evidence"]
        assert "came from outside of the layers" in capsys.readouterr().err

    def test_code_of_a_block_after_its_parts(self) -> None:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = nn.Linear(4, 4)

            def forward(self, given: Tensor) -> Tensor:
                result: Tensor = (self.part(given) * 0).log() * 0
                return result

        model = nn.Sequential(Block())
        told = stopped(driven(model, {"0": "TRANSFORMER_BLOCK"}), lambda: model(torch.randn(2, 4)))
        assert (told["layer"], told["direction"]) == ("0", "forward")

    def test_an_overflow_in_half_precision(self) -> None:
        model = nn.Sequential(nn.Linear(64, 4, bias=False)).half()
        with torch.no_grad():
            model.get_parameter("0.weight").fill_(200.0)
        told = stopped(driven(model), lambda: model(torch.full((2, 64), 6000.0).half()))
        assert (told["layer"], told["kind"], kinds(told)[0]) == ("0", "inf", "overflow")
        assert "float16 ends at 6.55e+04" in told["causes"][0]["evidence"]

    def test_the_log_of_zero(self) -> None:
        class Log(nn.Module):
            def forward(self, given: Tensor) -> Tensor:
                return given.log()

        model = nn.Sequential(nn.ReLU(), Log())
        told = stopped(driven(model), lambda: model(torch.tensor([-1.0, 2.0], requires_grad=True)))
        assert (told["layer"], told["kind"], kinds(told)[0]) == ("1", "inf", "log")

    def test_a_row_that_is_masked_throughout(self) -> None:
        model = nn.Sequential(nn.Softmax(-1))
        scores = torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]])
        told = stopped(driven(model), lambda: model(scores))
        assert (told["layer"], kinds(told)[0]) == ("0", "masked_row")

    def test_no_variance_and_no_eps(self) -> None:
        model = nn.Sequential(nn.LayerNorm(4, eps=0.0))
        told = stopped(driven(model), lambda: model(torch.ones(2, 4)))
        assert (told["layer"], kinds(told)[0]) == ("0", "zero_variance")

    def test_rows_of_an_embedding(self) -> None:
        model = nn.Sequential(nn.Embedding(10, 3))
        with torch.no_grad():
            model.get_parameter("0.weight")[7] = math.nan
        watched = driven(model)
        with watched.step():
            model(torch.tensor([1, 2]))
        told = stopped(watched, lambda: model(torch.tensor([1, 7])))
        assert kinds(told)[:2] == ["embedding_rows", "parameters"]
        assert told["causes"][0]["evidence"].endswith(": 7")

    def test_what_exploded(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4, bias=False))
        with torch.no_grad():
            model.get_parameter("0.weight").fill_(1.0)
        watched = driven(model)
        for size in (1e10, 1e20, 1e30, 1e37):
            with watched.step():
                model(torch.full((1, 4), size))
        told = stopped(watched, lambda: model(torch.full((1, 4), 3e38)))
        assert kinds(told) == ["overflow", "exploding"]
        assert "from 4e+10 in step 1 to 4e+37 in step 4" in told["causes"][1]["evidence"]

    def test_a_mask_is_no_reason(self) -> None:
        class Masking(nn.Module):
            def forward(self, scores: Tensor) -> Tensor:
                return scores.masked_fill(scores > 0, -math.inf)

        model = nn.Sequential(Masking(), nn.Softmax(-1))
        watched = driven(model)
        with watched.step():
            model(torch.tensor([[1.0, -1.0]], requires_grad=True)).sum().backward()
        assert watched.part.fields()["stopped"] is None


class TestBackward:
    def test_a_layer_whose_backward_makes_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        model = nn.Sequential(nn.Linear(4, 8), BadBackward(), nn.Linear(8, 2))
        told = stopped(driven(model), lambda: model(torch.randn(5, 4)).sum().backward())
        assert (told["layer"], told["direction"], told["seen_at"]) == ("1", "backward", "0")
        assert kinds(told) == ["own_function"]
        assert "_BadBackward" in told["causes"][0]["evidence"]
        assert "gradient in, 1" in capsys.readouterr().err

    def test_the_one_of_several_that_took_the_output(self) -> None:
        class Forked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.source, self.bad = nn.Linear(4, 4), BadBackward()
                self.other, self.end = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, given: Tensor) -> Tensor:
                source = self.source(given)
                beside = self.end(given)
                result: Tensor = self.bad(source) + beside
                return result

        model = Forked()
        told = stopped(driven(model), lambda: model(torch.randn(2, 4)).sum().backward())
        assert (told["layer"], told["seen_at"]) == ("bad", "source")

    def test_a_root_at_zero(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Rms(), nn.Linear(4, 2))
        with torch.no_grad():
            model.get_parameter("0.weight").zero_()
            model.get_parameter("0.bias").fill_(-1.0)
        told = stopped(driven(model), lambda: model(torch.randn(5, 4)).sum().backward())
        assert (told["layer"], told["direction"], kinds(told)[0]) == ("2", "backward", "derivative_at_zero")

    def test_a_loss_that_makes_it(self) -> None:
        model = small_model()
        told = stopped(driven(model), lambda: (model(torch.randn(5, 4)) * 0).sqrt().sum().backward())
        assert (told["direction"], kinds(told)) == ("backward", ["loss"])

    def test_a_scaler_is_given_time(self) -> None:
        model = small_model()
        watched = driven(model)

        def step() -> None:
            loss = model(torch.randn(5, 4)).sum()
            watched.part.loss_scaled(loss)
            (loss * math.inf).backward()

        for _ in range(20):
            with watched.step():
                step()
        assert watched.part.fields()["first_bad"]["direction"] == "backward"
        assert stopped(watched, step)["step"] == 21


class TestAfterwards:
    def test_the_step_that_was_stopped_is_written_and_nothing_is_said_twice(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = nn.Sequential(nn.Linear(2, 2), Planted(1))
        watched = driven(model)
        stopped(watched, lambda: model(torch.ones(1, 2)))
        assert [line["layer"] for line in watched.lines()] == ["0", "1"]
        assert "the line is stopped" in capsys.readouterr().err
        stopped(watched, lambda: model(torch.full((1, 2), math.nan)))
        assert capsys.readouterr().err == ""


SCRIPT = """
import torch
from torch import nn
class Planted(nn.Module):
    calls = 0
    def forward(self, given):
        Planted.calls += 1
        return given / (0.0 if Planted.calls == 3 else 1.0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), Planted(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    try:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    except Exception as error:
        print("survived", error)
    print("step", step, flush=True)
"""


class TestThroughTheEngine:
    def test_the_program_ends_with_its_own_status(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(SCRIPT)
        argv = [PYTHON, "-m", "aorta_collectors.numerics", "--trace-level", "layer", "--on-bad", "stop"]
        ran = run([*argv, "--dir", "found", "train.py"], tmp_path)
        assert ran.code == EXIT_STOPPED, ran.err
        assert ran.out.split() == ["step", "0", "step", "1"]
        assert "the line is stopped at 1 (Planted), step 3, forward" in ran.err
        told = summary(tmp_path / "found")
        assert (told["stopped"]["layer"], told["stopped"]["step"]) == ("1", 3)
        assert kinds(told["stopped"]) == ["division"]
        assert told["first_bad"]["layer"] == "1"
        assert told["hook_errors"] == 0, told["first_hook_error"]


def test_of_ever_new_models_only_those_are_remembered_that_live() -> None:
    part = LayerStats(STOP, print)
    outputs = []
    for step in range(1, 60):
        module = nn.Linear(2, 2)
        for number in range(50):
            brick = Brick(
                weakref.ref(module), f"{step}.{number}", "Linear", "", None, True, False, None, step * 50 + number
            )
            part.entered(brick, (), None)
            part.left(brick, (), torch.ones(2))
            outputs.append(weakref.ref(brick))
        del brick, module
        part.step_ended(StepTrace(step))
    gc.collect()
    assert sum(output() is not None for output in outputs) <= 1100
