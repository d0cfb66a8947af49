"""Noticing where backward passes begin and where a GradScaler skips; torch's functions do as they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.backward import BackwardWatch
from aorta_collectors.observe.optimizers import OptimizerWatch
from aorta_collectors.observe.trace import in_backward


class Noted:
    """What a watch told."""

    def __init__(self) -> None:
        self.began: list[Sequence[Tensor]] = []
        self.asked: list[Sequence[Tensor]] = []
        self.derived: list[Sequence[Tensor]] = []
        self.scaled: list[Any] = []
        self.skipped: list[Sequence[Tensor]] = []
        self.ended: list[bool] = []
        self.optimizers = OptimizerWatch(None, None)
        self.watch = BackwardWatch(
            self.began.append,
            self.asked.append,
            self.derived.append,
            self.scaled.append,
            lambda optimizer, found: self.skipped.append(found),
            lambda: self.optimizers.num_steps,
            ended=lambda: self.ended.append(in_backward()),
        )


@pytest.fixture
def noted() -> Iterator[Noted]:
    noted = Noted()
    noted.optimizers.start()
    noted.watch.start()
    yield noted
    noted.watch.stop()
    noted.optimizers.stop()


def leaf() -> Tensor:
    return torch.ones(2, requires_grad=True)


def backward(tensor: Tensor, **options: Any) -> None:
    tensor.backward(**options)  # type: ignore[no-untyped-call]


class TestBackwardPasses:
    def test_its_end_is_told_however_it_ends(self, noted: Noted) -> None:
        def refuse(grad: Tensor) -> None:
            raise ValueError("refused")

        backward(leaf().sum())
        torch.autograd.grad(leaf().sum(), leaf(), allow_unused=True)
        x = leaf()
        x.register_hook(refuse)  # type: ignore[no-untyped-call]
        with pytest.raises(ValueError, match="refused"):
            backward(x.sum())
        assert noted.ended == [False] * 3

    def test_the_tensors_it_is_called_on_are_told_before_anything_is_computed(self, noted: Noted) -> None:
        x = leaf()
        order: list[str] = []
        x.register_hook(lambda grad: order.append(f"gradient after {len(noted.began)}"))  # type: ignore[no-untyped-call]
        loss = x.sum()
        backward(loss)
        assert order == ["gradient after 1"]
        ((told,),) = noted.began
        assert told is loss

    def test_several_tensors_at_once(self, noted: Noted) -> None:
        first, second = leaf().sum(), leaf().sum()
        torch.autograd.backward([first, second])
        torch.autograd.backward((first.detach().requires_grad_(),))
        assert [len(tensors) for tensors in noted.began] == [2, 1]
        assert noted.began[0][1] is second

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_one_inside_another_is_part_of_it(self, reentrant: bool, noted: Noted) -> None:
        layer = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        loss = checkpoint(layer, leaf(), use_reentrant=reentrant).sum()
        backward(loss)
        assert len(noted.began) == 1
        assert noted.began[0][0] is loss

    def test_arguments_and_results_pass_through(self, noted: Noted) -> None:
        x = leaf()
        loss = (x * 2).sum()
        backward(loss, gradient=torch.tensor(3.0), retain_graph=True)
        assert x.grad is not None
        assert x.grad.tolist() == [6.0, 6.0]
        torch.autograd.backward(loss, inputs=[x])
        assert x.grad.tolist() == [8.0, 8.0]
        assert len(noted.began) == 2

    def test_tensors_that_can_be_walked_through_once_only_still_get_their_gradients(self, noted: Noted) -> None:
        first, second = leaf(), leaf()
        torch.autograd.backward(x.sum() for x in (first, second))  # type: ignore[arg-type]
        assert first.grad is not None
        assert second.grad is not None
        (gradient,) = torch.autograd.grad((x.sum() for x in (first,)), [first])  # type: ignore[arg-type]
        assert gradient.tolist() == [1.0, 1.0]

    def test_it_can_begin_at_an_edge_of_the_graph(self, noted: Noted) -> None:
        x = leaf()
        edge = torch.autograd.graph.get_gradient_edge(x * 2)
        torch.autograd.backward(edge, torch.ones(2))
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 2.0]
        assert len(noted.began) == 1

    def test_an_error_passes_through(self, noted: Noted) -> None:
        with pytest.raises(RuntimeError, match="does not require grad"):
            backward(torch.ones(1))
        assert len(noted.began) == 1

    def test_gradients_taken_for_the_program_begin_none(self, noted: Noted) -> None:
        x = leaf()
        outputs = x.sum()
        (gradient,) = torch.autograd.grad(outputs, x)
        assert gradient.tolist() == [1.0, 1.0]
        ((asked,),) = noted.asked
        assert asked is outputs
        assert noted.began == []
        assert noted.derived == []

    def test_gradients_that_have_gradients_in_turn_are_told(self, noted: Noted) -> None:
        x, unused = leaf(), leaf()
        found = torch.autograd.grad(x.square().sum(), [x, unused], create_graph=True, allow_unused=True)
        assert found[1] is None
        ((told,),) = noted.derived
        assert told is found[0]
        backward(told.sum())
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 2.0]
        assert len(noted.began) == 1

    def test_its_name_and_documentation_stay(self, noted: Noted) -> None:
        assert torch.autograd.backward.__name__ == "backward"
        assert "Compute the sum of gradients" in (torch.autograd.backward.__doc__ or "")


class TestScaler:
    @staticmethod
    def step(scale: float, loss_of: Any = torch.sum, **options: Any) -> torch.amp.GradScaler:
        x = leaf()
        optimizer = torch.optim.SGD([x], lr=0.1, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        backward(scaler.scale(loss_of(x)))
        scaler.step(optimizer)
        scaler.update()
        return scaler

    def test_what_it_scales_is_told_as_it_was(self, noted: Noted) -> None:
        self.step(4.0)
        assert [scaled.item() for scaled in noted.scaled] == [2.0]
        assert noted.began[0][0].item() == 8.0
        assert noted.skipped == []

    def test_a_list_that_it_scales_is_told_as_a_list(self, noted: Noted) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaled = scaler.scale([torch.ones(1), torch.ones(2)])
        assert [len(tensor) for tensor in scaled] == [1, 2]
        assert [len(given) for given in noted.scaled] == [2]

    def test_a_step_that_it_skips_is_told(self, noted: Noted) -> None:
        self.step(4.0, lambda x: x.sum() * 1e38 * 10)
        assert noted.skipped == [()]

    @pytest.mark.parametrize(("factor", "found"), [(1.0, 0.0), (1e38 * 10, 1.0)])
    def test_of_an_optimizer_that_skips_by_itself_the_device_knows(
        self, factor: float, found: float, noted: Noted
    ) -> None:
        self.step(4.0, lambda x: x.sum() * factor, fused=True)
        ((told,),) = noted.skipped
        assert told.item() == found

    def test_one_that_is_off_skips_nothing(self, noted: Noted) -> None:
        x = leaf()
        optimizer = torch.optim.SGD([x], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        backward(scaler.scale(x.sum()))
        scaler.step(optimizer)
        assert noted.skipped == []
        assert noted.optimizers.num_steps == 1

    def test_it_returns_what_the_optimizer_returns(self, noted: Noted) -> None:
        x = leaf()
        optimizer = torch.optim.SGD([x], lr=0.1)
        optimizer.step = lambda *args, **kwargs: 2.5  # type: ignore[method-assign]
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        backward(scaler.scale(x.sum()))
        assert scaler.step(optimizer) == 2.5


class TestStopping:
    def test_it_can_be_started_and_stopped_many_times(self) -> None:
        scaler = torch.amp.grad_scaler.GradScaler

        def functions() -> list[Any]:
            return [torch.autograd.backward, torch.autograd.grad, vars(scaler)["scale"], vars(scaler)["step"]]

        before = functions()
        noted = Noted()
        for _ in range(3):
            noted.watch.start()
            backward(leaf().sum())
            noted.watch.stop()
            backward(leaf().sum())
        assert len(noted.began) == 3
        assert functions() == before

    def test_two_watches_each_see_every_pass_and_leave_in_any_order(self) -> None:
        first, second = Noted(), Noted()
        before = (torch.autograd.backward, torch.autograd.grad)
        scaler = torch.amp.grad_scaler.GradScaler
        methods = (vars(scaler)["scale"], vars(scaler)["step"])
        first.watch.start()
        second.watch.start()
        backward(leaf().sum())
        try:
            first.watch.stop()
            backward(leaf().sum())
            second.watch.stop()
            backward(leaf().sum())
            assert (len(first.began), len(second.began)) == (1, 2)
        finally:
            torch.autograd.backward, torch.autograd.grad = before
            scaler.scale, scaler.step = methods  # type: ignore[method-assign]
