"""`observe` and `watch_grad`: nothing where nobody is armed, one line wherever somebody is, and never a difference."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.api import Verdict
from aorta_collectors.tensors import observe, watch_grad
from aorta_collectors.tensors.digest import digest_of
from aorta_collectors.tensors.observing import Observers
from tests.numerics.forked import in_a_fork
from tests.tensors.left import armed

NO_NAMES: list[Any] = ["", " ", "a\nb", "n" * 201, 3]


class TestUnarmed:
    def test_what_is_given_comes_back_itself(self) -> None:
        tensor, pair = torch.randn(3, requires_grad=True), (torch.ones(1), {"a": torch.ones(2)})
        assert observe(tensor, name="t") is tensor
        assert observe(pair, name="pair") is pair
        assert watch_grad(tensor, name="t") is tensor
        assert tensor._backward_hooks is None  # type: ignore[attr-defined]

    @pytest.mark.parametrize("call", [observe, watch_grad])
    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_is_no_name_ends_no_program(self, call: Callable[..., object], name: Any) -> None:
        """One that is made from data may turn out so after hours."""
        tensor = torch.ones(1, requires_grad=True)
        assert call(tensor, name=name) is tensor


class TestObserve:
    @pytest.mark.parametrize("call", [observe, watch_grad])
    def test_what_is_no_name_is_passed_over_and_told(self, tmp_path: Path, call: Callable[..., object]) -> None:
        with armed(tmp_path, points=("after_forward",)) as left:
            nn.Linear(3, 3)(torch.ones(1, 3))
            for name in NO_NAMES * 2:
                call(torch.ones(1, requires_grad=True), name=name)
        summary = left.summary
        assert summary["tensors_passed_over"] == {"its name does not have 1 to 200 printable characters": 10}
        assert len([warning for warning in summary["warnings"] if "is not recorded: its name" in warning]) == 5
        assert summary["hook_errors"] == 0

    def test_what_a_signal_handler_observes_comes_in_order_and_once(self, tmp_path: Path) -> None:
        before = signal.signal(signal.SIGALRM, lambda number, frame: observe(torch.ones(2), name="alarm"))
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        try:
            with armed(tmp_path / "tensors", scope=("*",), keep="values") as left:
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
                for _ in range(30):
                    model(torch.randn(8, 4)).sum().backward()
                signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert len(left.named("user:alarm")) > 3
        assert left.told({"scope": "*", "keep": "values"})[0] is Verdict.CAPTURED

    def test_inside_a_model_beside_it_and_before_its_first_step(self, tmp_path: Path) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(3, 3)

            def forward(self, x: Tensor) -> Tensor:
                hidden = observe(self.linear(x), name="hidden")
                return hidden.relu_()  # what was observed is as it was

        had = []
        model = Model()
        model.linear.register_forward_hook(lambda module, args, output: had.append(digest_of(output.detach())))
        with armed(tmp_path, points=("after_forward",)) as left:
            observe(torch.ones(2), name="batch")
            for _ in range(2):
                result = model(torch.randn(2, 3))
                observe({"loss": result.mean(), "pair": (result, 3)}, name="out")
        assert [line["digest"] for line in left.named("user:hidden")] == had
        assert [(line["step"], line["invocation"]) for line in left.named("user:hidden")] == [(1, 0), (2, 1)]
        assert [line["step"] for line in left.named("user:batch")] == [0]
        assert [line["tensor_path"] for line in left.named("user:out['pair'][0]")] == ["['pair'][0]"] * 2
        line = left.named("user:out['loss']")[0]
        assert (line["point"], line["kind"], line["layer"], line["module_type"]) == ("user", "user", "", "")

    def test_a_program_without_a_model(self, tmp_path: Path) -> None:
        with armed(tmp_path, keep="values") as left:
            for number in range(3):
                observe(torch.full((2,), float(number)), name="x")
        assert [left.values(line).tolist() for line in left.lines] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        assert {line["file"] for line in left.lines} == {"values_rank0_step0.safetensors"}

    def test_what_has_no_tensor_is_told_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with armed(tmp_path) as left:
            observe("text", name="x")
            observe("text", name="x")
            observe(torch.ones(1), name="y")
        assert left.summary["warnings"] == ["observe('x'): there is no tensor in a str"]
        assert capsys.readouterr().err.count("there is no tensor in a str") == 1

    def test_a_fork_is_not_observed(self, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            observe(torch.ones(1), name="x")
            in_a_fork(lambda: os._exit(0 if Observers.find() is None else 1))
        assert len(left.lines) == 1

    def test_nothing_is_left_of_it(self, tmp_path: Path) -> None:
        parameter = nn.Parameter(torch.ones(2))
        with armed(tmp_path):
            watch_grad(parameter, name="p")
            assert parameter._backward_hooks  # type: ignore[attr-defined]
        assert not parameter._backward_hooks  # type: ignore[attr-defined]
        assert Observers.find() is None


class TestWatchGrad:
    def test_of_what_a_model_computes_from_all_its_uses(self, tmp_path: Path) -> None:
        weight = nn.Parameter(torch.tensor([2.0, 3.0]))
        with armed(tmp_path) as left:
            hidden = watch_grad(weight * 2, name="hidden")
            (hidden * 3 + hidden.square()).sum().backward()
        line = left.one("grad:hidden")
        assert line["digest"] == digest_of(3 + 2 * weight.detach() * 2)
        assert (line["point"], line["kind"]) == ("user", "user_gradient")

    def test_of_a_parameter_what_each_pass_adds(self, tmp_path: Path) -> None:
        weight = nn.Parameter(torch.ones(2))
        with armed(tmp_path) as left:
            for number in (1.0, 2.0):
                watch_grad(weight, name="weight")  # in each step, as a forward would: one hook all the same
                (weight * number).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [3.0, 3.0]
        expected = [digest_of(torch.full((2,), number)) for number in (1.0, 2.0)]
        assert [line["digest"] for line in left.named("grad:weight")] == expected

    def test_under_two_names(self, tmp_path: Path) -> None:
        weight = nn.Parameter(torch.ones(2))
        with armed(tmp_path) as left:
            watch_grad(watch_grad(weight, name="one"), name="two").sum().backward()
        assert sorted(left.names) == ["grad:one", "grad:two"]

    def test_a_gradient_that_there_will_not_be_is_told(self, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            watch_grad(torch.ones(2), name="x")
            observe(torch.ones(1), name="y")
        assert left.summary["warnings"] == ["watch_grad('x'): what it is given requires no gradient"]

    def test_when_observation_has_ended_a_tensor_that_lives_on_is_left_alone(self, tmp_path: Path) -> None:
        weight = nn.Parameter(torch.ones(2))
        with armed(tmp_path) as left:
            hidden = watch_grad(weight * 2, name="hidden")
            observe(hidden, name="y")
        hidden.sum().backward()
        assert left.names == ["user:y"]
