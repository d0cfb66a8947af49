"""With the origin wanted, everything is looked at; the program computes the same bits, and nothing stays behind."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.observation import RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.origin import OriginFinder
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.hunting import Apply, fit, hunting
from tests.observe.test_exactness import WIDTH, Network, bits
from tests.observe.watching import EVERYTHING, LINEARS, Seen, two_layers, watching

GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Finding:
    """A sink that keeps nothing but the origin, as a session does."""

    def __init__(self) -> None:
        self.finder = OriginFinder(0, 1)

    def attached(self, root: RootInfo) -> None: ...

    def ranges_wanted(self, step: int) -> bool:
        return True

    def entered(self, step: int) -> None: ...

    def forked(self) -> None: ...

    def observed(self, trace: StepTrace) -> None:
        self.finder.step(trace)


@contextlib.contextmanager
def finding() -> Iterator[Observer]:
    observer = Observer(Request((LINEARS,), origin=True), Finding())
    observer.arm()
    try:
        yield observer
    finally:
        observer.disarm()
    assert observer.errors == 0, observer.first_error


class Prompted(nn.Module):
    """Layers, a buffer that is edited in place, a residual, a learned tensor passed in as an input, a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.zeros(4))
        self.take = Apply(lambda x, prompt: x + prompt)
        self.block, self.last = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.take(x, self.prompt)
        x = x + self.act(checkpoint(self.block, x, use_reentrant=False))
        out: Tensor = self.last(x)
        return out


class TestSameBits:
    @staticmethod
    def trained(guard: Callable[[], contextlib.AbstractContextManager[Any]]) -> list[Any]:
        torch.manual_seed(7)
        model = Network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        results: list[Any] = []
        with guard():
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(torch.randn(3, 5, WIDTH), torch.randint(0, 7, (3, 5))).square().mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                results.append(loss.item().hex())
        results += [bits(parameter) for parameter in model.parameters()]
        results += [bits(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
        results.append(bits(torch.get_rng_state()))
        return results

    def test_of_a_training(self) -> None:
        assert self.trained(finding) == self.trained(contextlib.nullcontext)

    def test_of_a_training_with_a_scaler_and_accumulated_gradients(self) -> None:
        def trained() -> list[Any]:
            torch.manual_seed(3)
            model = Prompted()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=2)
            results: list[Any] = []
            for step in range(6):
                loss = model(torch.randn(3, 4)).square().sum()
                scaler.scale(loss).backward()
                results.append(loss.item().hex())
                if step % 2:
                    scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
            return [*results, scaler.get_scale(), *map(bits, model.state_dict().values())]

        bare = trained()
        with finding():
            assert trained() == bare

    def test_of_second_derivatives_and_a_closure(self) -> None:
        def trained() -> list[Any]:
            torch.manual_seed(3)
            model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
            optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
            x = torch.randn(5, 4, requires_grad=True)
            results: list[Any] = []

            def closure() -> Tensor:
                optimizer.zero_grad()
                out = model(x)
                (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
                loss = out.square().mean() + slope.square().mean()
                loss.backward()
                results.append(loss.item().hex())
                return torch.as_tensor(loss)

            for _ in range(2):
                optimizer.step(closure)  # type: ignore[no-untyped-call]
            return [*results, *map(bits, model.parameters())]

        bare = trained()
        with finding():
            assert trained() == bare


class TestNoTrace:
    """After disarming, and on copies made while armed."""

    def test_functions_of_torch_are_what_they_were(self) -> None:
        scaler = torch.amp.grad_scaler.GradScaler
        before = (torch.autograd.backward, vars(scaler)["scale"], vars(scaler)["step"])
        with finding():
            assert torch.autograd.backward is not before[0]
        assert (torch.autograd.backward, vars(scaler)["scale"], vars(scaler)["step"]) == before

    def test_without_an_origin_they_are_never_touched(self) -> None:
        before = torch.autograd.backward
        with watching():
            assert torch.autograd.backward is before

    def test_a_wrapper_that_somebody_put_around_ours_stays_and_goes_on_working(self) -> None:
        original = torch.autograd.backward
        calls = []
        try:
            with finding():
                ours = torch.autograd.backward

                def theirs(*args: Any, **kwargs: Any) -> Any:
                    calls.append(1)
                    return ours(*args, **kwargs)

                torch.autograd.backward = theirs
            assert torch.autograd.backward is theirs
            torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
            assert calls == [1]
        finally:
            torch.autograd.backward = original

    def test_parameters_and_leaf_inputs_carry_no_hook(self) -> None:
        model, leaf = Prompted(), torch.randn(3, 4, requires_grad=True)
        with finding():
            for _ in range(3):
                model(leaf).sum().backward()
            assert all(parameter._backward_hooks for parameter in model.parameters())
        for tensor in (leaf, *model.parameters()):
            assert not tensor._backward_hooks
            assert not tensor._post_accumulate_grad_hooks
        for module in model.modules():
            assert not any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks))

    def test_a_leaf_that_is_passed_in_again_and_again_carries_a_bounded_number_of_hooks(self) -> None:
        model, leaf = Prompted(), torch.randn(3, 4, requires_grad=True)
        with finding():
            for step in range(20):
                model(leaf).sum().backward()
                if step % 3 == 2:
                    with torch.no_grad():
                        leaf.mul_(0.5)
            assert len(leaf._backward_hooks or {}) <= 2
            assert len(model.prompt._backward_hooks or {}) <= 2

    def test_a_parameter_that_is_replaced_carries_none_either(self) -> None:
        model = two_layers()
        first = model[0].weight
        with finding():
            model(GOOD).sum().backward()
            model[0].weight = nn.Parameter(torch.ones(4, 4))
            model(GOOD).sum().backward()
            assert model[0].weight._backward_hooks
            assert not first._backward_hooks
        assert not model[0].weight._backward_hooks

    def test_copies_and_pickles_are_made_without_warning_and_carry_none(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        leaf = torch.randn(3, 4, requires_grad=True)
        with finding(), warnings.catch_warnings():
            warnings.simplefilter("error")
            model(leaf).sum().backward()
            copied = copy.deepcopy(model)
            restored = pickle.loads(pickle.dumps(model))
            buffer = io.BytesIO()
            torch.save({"model": model.state_dict(), "leaf": leaf}, buffer)
            torch.save(model, io.BytesIO())
        for other in (copied, restored):
            assert [bits(p) for p in other.parameters()] == [bits(p) for p in model.parameters()]
            assert not any(parameter._backward_hooks for parameter in other.parameters())
            other(GOOD).sum().backward()

    def test_a_model_and_its_graph_are_freed_while_armed(self) -> None:
        model = Prompted()
        alive, parameter = weakref.ref(model), weakref.ref(model.last.weight)
        with finding():
            for _ in range(2):
                model(GOOD).sum().backward()
            del model
            gc.collect()
            assert alive() is None
            assert parameter() is None

    def test_arming_again_finds_the_origin_again(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(torch.log))
        for _ in range(2):
            with hunting() as hunt:
                model(GOOD).sum().backward()
            assert hunt.place == ("forward", "1", 1)


class TestMemory:
    @pytest.mark.parametrize("kind", ["training", "evaluation", "failing forward"])
    def test_thousands_of_steps_do_not_grow(self, kind: str) -> None:
        model, leaf = Prompted(), torch.randn(3, 4, requires_grad=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def run(steps: int) -> None:
            for _ in range(steps):
                if kind == "evaluation":
                    with torch.no_grad():
                        model(GOOD)
                elif kind == "failing forward":
                    with contextlib.suppress(RuntimeError):
                        model(torch.ones(3, 5))
                else:
                    optimizer.zero_grad()
                    model(leaf).square().mean().backward()
                    optimizer.step()

        def size() -> tuple[int, int]:
            gc.collect()
            return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]

        with finding():
            run(100)
            tracemalloc.start()
            try:
                run(100)
                objects, allocated = size()
                run(800)
                more_objects, more_allocated = size()
            finally:
                tracemalloc.stop()
        # Less than one object, and less than 60 bytes, for each of the steps.
        assert more_objects - objects < 130
        assert more_allocated - allocated < 45_000


class TestRecordsAreTheSame:
    """Looking at everything adds no record but that of the loss."""

    @pytest.mark.parametrize("group", [LINEARS, EVERYTHING, WatchGroup(names=("last",), channels=CHANNELS)])
    def test_with_and_without_an_origin(self, group: WatchGroup) -> None:
        def places(guard: Callable[..., contextlib.AbstractContextManager[Any]]) -> list[tuple[Any, ...]]:
            torch.manual_seed(0)
            model = Prompted()
            with guard(group) as given:
                fit(model, [GOOD] * 3)
            seen: Seen = given[1] if isinstance(given, tuple) else given
            return [
                (
                    step,
                    one.site.layer,
                    one.site.role,
                    one.site.param,
                    one.site.tensor_path,
                    one.calls,
                    one.low,
                    one.high,
                )
                for step, observations in seen.by_step.items()
                for one in observations
                if one.site.recorded and one.site.role != "loss"
            ]

        assert places(hunting) == places(watching)

    def test_the_loss_has_one_record_a_step(self) -> None:
        with hunting() as hunt:
            losses = fit(two_layers(), [GOOD] * 3)
        for step, loss in enumerate(losses, 1):
            (seen,) = hunt.only(step, "(loss)", "loss")
            assert seen.site.recorded
            assert seen.low == seen.high == float.fromhex(loss)
