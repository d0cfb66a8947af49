"""Armed with every channel on every module, a program computes what it computes bare: the same bits."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.observe.watching import EVERYTHING, one_process_group, watching

WIDTH = 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class RMSNorm(nn.Module):
    """Uses its input three times, so that an alias of it would reorder the sums of its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class Block(nn.Module):
    """Residuals, self attention with one tensor as query, key and value, and an in-place ReLU behind a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer_norm = RMSNorm(), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)
        self.up, self.act, self.down = nn.Linear(WIDTH, 32), nn.ReLU(inplace=True), nn.Linear(32, WIDTH)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x) + x
        h = h + self.attention(h, h, h, need_weights=False)[0]
        h = h + self.layer_norm(h) + self.drop(h)
        return h + self.down(self.act(self.up(h)))


class ManyUses(nn.Module):
    """One tensor into several Linear layers and a residual, one Linear called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.soft = nn.Sigmoid(), nn.Softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x) * 3
        mixed = self.soft(self.q(x) * self.k(x)) * self.v(x) + x.sin() + x * self.gate(x)
        return self.out(self.out(mixed) + x) + x


class Positional(nn.Module):
    """Two inputs, the first of them optional: the tensor comes second."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, mask: Any, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        y = F.gelu(self.layer(input=x))
        return y, {"y": y}


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(5, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Conv1d(4, 5, 1), nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + x


class Network(nn.Module):
    """All of them, some behind activation checkpointing of either kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Block(), Block(), Block()
        self.many, self.positional, self.convolutions = ManyUses(), Positional(), Convolutions()
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Embedding(7, WIDTH)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.shared(x) + self.table(ids)
        x = self.first(x)
        x = checkpoint(self.second, x, use_reentrant=False)
        x = checkpoint(self.third, x, use_reentrant=True)
        x = checkpoint(self.many, x, use_reentrant=False)
        x, parts = self.positional(None, x)
        x = self.convolutions(x) + parts["y"]
        return self.shared(x)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def outcome(make: Callable[[], nn.Module], armed: bool, steps: int = 4) -> dict[str, Any]:
    """The bits of all losses, gradients and parameters of a short training, and the generators after it."""
    torch.manual_seed(7)
    random.seed(7)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    with contextlib.ExitStack() as stack:
        if armed:
            observer, seen = stack.enter_context(watching(EVERYTHING))
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(3, 5, WIDTH), torch.randint(0, 7, (3, 5))).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
    if armed:
        assert observer.errors == 0, observer.first_error
        assert observer.step == steps
        roles = {role for step in seen.by_step for _, role in seen.places(step)}
        assert roles == {"weight", "bias", "input", "act", "igrad", "wgrad", "bgrad"}
    return {
        "losses": losses,
        "gradients": [bits(p.grad) for p in model.parameters() if p.grad is not None],
        "parameters": [bits(p) for p in model.parameters()],
        "buffers": [bits(b) for b in model.buffers()],
        "torch generator": bits(torch.get_rng_state()),
        "random": random.getstate(),
    }


def test_a_training_run_has_the_same_bits_armed_and_bare() -> None:
    bare, armed = outcome(Network, armed=False), outcome(Network, armed=True)
    assert len(set(bare["losses"])) == 4
    for key, value in bare.items():
        assert armed[key] == value, key


def test_a_wrapped_model_has_the_same_bits_armed_and_bare() -> None:
    def make() -> nn.Module:
        return nn.parallel.DistributedDataParallel(Plain(), find_unused_parameters=False)

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.many, self.table = Block(), ManyUses(), nn.Embedding(7, WIDTH)

        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return self.many(self.block(x + self.table(ids)))

    with one_process_group():
        bare, armed = outcome(make, armed=False), outcome(make, armed=True)
    for key, value in bare.items():
        assert armed[key] == value, key


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_an_evaluation_has_the_same_bits_armed_and_bare() -> None:
    torch.manual_seed(0)
    model = Network().eval()
    x, ids = torch.randn(3, 5, WIDTH), torch.randint(0, 7, (3, 5))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            bare = model(x, ids)
            with watching(EVERYTHING) as (observer, _):
                armed = model(x, ids)
            assert observer.errors == 0
            assert bits(bare) == bits(armed)


def test_a_half_precision_run_has_the_same_bits_armed_and_bare() -> None:
    def loss_sequence(armed: bool) -> list[str]:
        torch.manual_seed(3)
        model = ManyUses()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        with contextlib.ExitStack() as stack:
            if armed:
                stack.enter_context(watching(EVERYTHING))
            for _ in range(3):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = model(torch.randn(4, WIDTH)).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item().hex())
        return losses

    assert loss_sequence(armed=True) == loss_sequence(armed=False)


def test_a_second_derivative_has_the_same_bits_armed_and_bare() -> None:
    def penalty(armed: bool) -> list[bytes]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        x = torch.randn(4, WIDTH, requires_grad=True)
        with contextlib.ExitStack() as stack:
            if armed:
                stack.enter_context(watching(EVERYTHING))
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            slope.square().sum().backward()
        return [bits(p.grad) for p in (*model.parameters(), x) if p.grad is not None]

    assert penalty(armed=True) == penalty(armed=False)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")
def test_function_transforms_have_the_same_bits_armed_and_bare() -> None:
    def results(armed: bool) -> list[bytes]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        parameters, x = dict(model.named_parameters()), torch.randn(2, 4)
        with contextlib.ExitStack() as stack:
            if armed:
                stack.enter_context(watching(EVERYTHING))
            slopes = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(parameters)
            _, tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))
            jacobian = torch.autograd.functional.jacobian(model, x)
        return [bits(value) for value in (*slopes.values(), tangent, jacobian)]

    assert results(armed=True) == results(armed=False)


@pytest.mark.parametrize(
    "last",
    [nn.ReLU(inplace=True), nn.Identity(), nn.Dropout(0.0, inplace=True), nn.SiLU(inplace=True)],
    ids=["ReLU(inplace)", "Identity", "Dropout(inplace)", "SiLU(inplace)"],
)
def test_an_output_can_be_detached_in_place_as_in_a_bare_run(last: nn.Module) -> None:
    """What truncated back-propagation through time does with a hidden state; torch refuses it for a view."""
    with watching(EVERYTHING):
        state = nn.Sequential(nn.Linear(4, 4), last)(torch.ones(1, 4))
        state.detach_()
    assert not state.requires_grad


def test_a_module_that_returns_its_input_still_returns_that_very_tensor() -> None:
    x = torch.ones(2, requires_grad=True) * 2
    with watching(EVERYTHING):
        assert nn.Identity()(x) is x


def test_an_in_place_activation_still_changes_the_tensor_it_was_given() -> None:
    results = []
    for armed in (False, True):
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        h = x * 3
        with contextlib.ExitStack() as stack:
            if armed:
                stack.enter_context(watching(EVERYTHING))
            y = nn.ReLU(inplace=True)(h)
            (y.sum() + h.square().sum()).backward()
        assert x.grad is not None
        results.append((h.tolist(), y.tolist(), x.grad.tolist()))
    assert results[0] == results[1]
