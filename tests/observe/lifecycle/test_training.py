"""Backward passes and optimizers' steps: what counts as one, and whose parameters are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.observe.lifecycle.told import FORWARD, STEP, listening, train, two_layers

X = torch.ones(3, 4)
PARAMETERS = ["0.weight", "0.bias", "2.weight", "2.bias"]


class TestBackward:
    def test_what_fills_in_no_gradients_is_no_pass(self) -> None:
        model = two_layers()
        x = X.clone().requires_grad_()
        with listening() as (told, _):
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            assert told.outside_so_far() == FORWARD
            slope.square().sum().backward()
        assert told.outside(1) == STEP[:3]

    def test_one_that_raises_is_not_told_also_inside_of_a_handler(self) -> None:
        model = two_layers()

        def refuses(grad: Tensor) -> None:
            raise ValueError("no gradient")

        with listening() as (told, _):
            result = model(X)
            result.register_hook(refuses)
            try:
                result.sum().backward()
            except ValueError:
                model(X).sum().backward()
        assert [told.outside(step) for step in (1, 2)] == [FORWARD, STEP[:3]]

    def test_one_for_a_tensor_that_is_given_its_gradient(self) -> None:
        model = two_layers()
        with listening() as (told, _):
            result = model(X)
            result.backward(torch.full_like(result, 2.0))
        assert torch.equal(told.gradients["(root)", ""][0], torch.full((3, 1), 2.0))
        assert told.outside(1) == STEP[:3]


class TestThreads:
    def test_one_that_ends_within_another_threads_is_told_with_the_models_of_its_own(self) -> None:
        """Gradients of the others are being written: whoever reads them then may end the process."""
        outer, inner = two_layers(), nn.Linear(4, 1)
        seen: list[list[str]] = []

        def train_inner(_: Tensor) -> None:
            thread = threading.Thread(target=lambda: inner(X).sum().backward())
            thread.start()
            thread.join()
            seen.append(told.held.pop("after_backward"))

        with listening() as (told, _):
            inner(X)
            for _ in range(2):
                result = outer(X)
                result.register_hook(train_inner)
                result.sum().backward()
                seen.append(told.held.pop("after_backward"))
        of_inner = [f"(root).{name}" for name in ("weight", "bias")]
        of_outer = [f"Sequential#2.{name}" for name in PARAMETERS]
        assert seen == [of_inner, of_outer, of_inner, of_outer]

    def test_one_in_another_thread_than_its_models_call_has_their_parameters(self) -> None:
        model = two_layers()
        with listening() as (told, _):
            for _ in range(2):
                thread = threading.Thread(target=model(X).sum().backward)
                thread.start()
                thread.join()
        assert told.held["after_backward"] == PARAMETERS


class TestOptimizers:
    @pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
    def test_parameters_are_those_after_it(self, options: dict[str, bool]) -> None:
        model = two_layers()
        with listening() as (told, _):
            train(model, 2, torch.optim.Adam(model.parameters(), **options))
        assert told.held["after_step"] == PARAMETERS
        assert all(torch.equal(told.values[-1][name], parameter) for name, parameter in model.named_parameters())
        assert not torch.equal(told.values[0]["0.weight"], told.values[1]["0.weight"])

    @pytest.mark.parametrize("fused", [False, True])
    def test_one_that_a_scaler_keeps_from_stepping_has_not_stepped(self, fused: bool) -> None:
        model = two_layers()
        optimizer = torch.optim.Adam(model.parameters(), fused=fused)
        scaler = torch.amp.GradScaler("cpu")
        with listening() as (told, lifecycle):
            for factor in (1.0, float("inf"), 1.0):
                optimizer.zero_grad()
                scaler.scale(model(X).sum() * factor).backward()  # type: ignore[no-untyped-call]
                scaler.step(optimizer)
                scaler.update()
        assert [told.outside(step) for step in (1, 2, 3)] == [STEP, STEP[:3], STEP]
        assert lifecycle.fields()["optimizer_steps"] == 2

    def test_those_that_step_within_a_backward_pass_take_one_step_behind_it(self) -> None:
        model = two_layers()
        optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

        def step(parameter: Tensor) -> None:
            optimizers[parameter].step()  # type: ignore[index]
            optimizers[parameter].zero_grad()  # type: ignore[index]

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        with listening() as (told, lifecycle):
            for _ in range(2):
                model(X).sum().backward()
        assert told.outside(2) == STEP
        assert told.held["after_step"] == PARAMETERS
        assert lifecycle.fields()["optimizer_steps"] == 2

    def test_of_one_that_steps_copies_all_are_told(self) -> None:
        model = two_layers().bfloat16()
        copies = [nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
        optimizer = torch.optim.SGD(copies, lr=0.1)
        with listening() as (told, _):
            model(X.bfloat16()).sum().backward()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                assert parameter.grad is not None
                copy.grad = parameter.grad.float()
            optimizer.step()
        assert told.held["after_step"] == PARAMETERS

    def test_one_that_raises_has_not_stepped(self) -> None:
        model = two_layers()

        def closure() -> float:
            raise ValueError("no loss")

        with listening() as (told, _):
            model(X).sum().backward()
            with pytest.raises(ValueError, match="no loss"):
                torch.optim.SGD(model.parameters(), lr=0.1).step(closure)
            train(model, 1)
        assert [told.outside(step) for step in (1, 2)] == [STEP[:3], STEP]


class TestParameters:
    def test_those_of_modules_that_are_wanted_are_told_as_they_are_now(self) -> None:
        model: Any = two_layers()
        with listening(wants_parameters=lambda path, module: path == "2") as (told, _):
            train(model, 1)
            model[2].weight = nn.Parameter(torch.ones(1, 4))
            train(model, 1)
        assert told.held["after_step"] == ["2.weight", "2.bias"]
        assert torch.equal(told.values[-1]["2.weight"], model[2].weight)

    def test_one_that_two_modules_share_is_told_once(self) -> None:
        model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        with listening() as (told, _):
            train(model, 1)
        assert told.held["after_backward"] == ["0.weight", "0.bias", "1.bias"]

    def test_a_part_that_is_added_later_has_its_own(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4))
        with listening() as (told, _):
            train(model, 1)
            model.append(nn.Linear(4, 1))
            train(model, 1)
        assert told.held["after_step"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert "entered 1" in told.of(2)
