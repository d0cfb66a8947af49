"""Gradients of what layers return: those that autograd itself has, with training left as it is to the last bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.observe.lifecycle.told import listening, two_layers
from tests.observe.test_exactness import WIDTH, Network, bits


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Kept(nn.Module):
    """Keeps what its layers return, with the gradients that autograd leaves there."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.pair = nn.Linear(4, 4), nn.Tanh(), Pair()
        self.drop = nn.Dropout(0.5)
        self.kept: dict[tuple[str, str], Tensor] = {}

    def keep(self, layer: str, path: str, tensor: Tensor) -> Tensor:
        tensor.retain_grad()
        self.kept[layer, path] = tensor
        return tensor

    def forward(self, x: Tensor) -> Tensor:
        x = self.keep("fc", "", self.fc(x))
        x = self.keep("act", "", self.act(x)) + x
        found = self.pair(x)
        first, second = (self.keep("pair", path, found[path[2:-2]]) for path in ("['first']", "['second']"))
        return self.keep("(root)", "", self.keep("drop", "", self.drop(first * second)))


class Pair(nn.Module):
    """Returns two tensors, and one that needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"first": self.fc(x), "second": x.exp(), "mask": x > 0}


@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_outputs_are_those_of_autograd(training: bool) -> None:
    torch.manual_seed(0)
    model = Kept().train(training)
    with listening() as (told, _):
        model(torch.randn(3, 4)).square().sum().backward()
    assert set(model.kept) < set(told.gradients)
    for place, tensor in model.kept.items():
        (gradient,) = told.gradients[place]
        assert tensor.grad is not None
        assert torch.equal(gradient, tensor.grad), place


def test_a_gradient_is_that_of_the_output_as_it_was_before_somebody_changed_it_in_place() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with listening() as (told, _):
        result = model(torch.randn(3, 4))
        result.sum().backward()
    assert torch.equal(told.gradients["0", ""][0], (result > 0).float())
    assert torch.equal(told.gradients["1", ""][0], torch.ones(3, 4))


def test_an_output_that_is_a_leaf_collects_no_hooks() -> None:
    prompt = torch.ones(2, 4, requires_grad=True)
    model = nn.Identity()
    with listening() as (told, _):
        outer = nn.Sequential(model, nn.Linear(4, 1))
        for _ in range(5):
            outer(prompt).sum().backward()
        assert len(told.gradients["0", ""]) == 5
    assert not prompt._backward_hooks


def test_a_model_can_be_copied_while_it_is_listened_to() -> None:
    model = two_layers()
    with listening():
        model(torch.ones(1, 4)).sum().backward()
        again = copy.deepcopy(model)
    assert not again[0]._forward_hooks


def test_no_gradients_where_none_are_wanted() -> None:
    with listening(gradients=False) as (told, _):
        two_layers()(torch.ones(1, 4)).sum().backward()
    assert told.gradients == {}


def outcome(*, armed: bool, gradients: bool = True) -> dict[str, Any]:
    """The bits of all losses, gradients and parameters of a short training, and the generators after it."""
    torch.manual_seed(7)
    random.seed(7)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []

    def steps() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(3, 5, WIDTH), torch.randint(0, 7, (3, 5))).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())

    if armed:
        with listening(gradients=gradients) as (told, _):
            steps()
        assert bool(told.gradients) == gradients
        assert len(told.held["after_step"]) == len(list(model.parameters()))
    else:
        steps()
    return {
        "losses": losses,
        "gradients": [bits(p.grad) for p in model.parameters() if p.grad is not None],
        "parameters": [bits(p) for p in model.parameters()],
        "buffers": [bits(b) for b in model.buffers()],
        "torch generator": bits(torch.get_rng_state()),
        "random": random.getstate(),
    }


@pytest.mark.parametrize("gradients", [True, False])
def test_a_training_run_has_the_same_bits_armed_and_bare(gradients: bool) -> None:
    bare, armed = outcome(armed=False), outcome(armed=True, gradients=gradients)
    for key, value in bare.items():
        assert armed[key] == value, key


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
def test_function_transforms_have_the_same_bits_armed_and_bare() -> None:
    def results() -> list[bytes]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        parameters, x = dict(model.named_parameters()), torch.randn(2, 4)
        slopes = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(parameters)
        per_sample = torch.func.vmap(model)(x)
        jacobian: Any = torch.autograd.functional.jacobian(model, x)  # type: ignore[no-untyped-call]
        return [bits(value) for value in (*slopes.values(), per_sample, jacobian)]

    bare = results()
    with listening():
        armed = results()
    assert armed == bare
