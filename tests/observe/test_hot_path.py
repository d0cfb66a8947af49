"""Where most calls take a shorter way than the others: what is seen must not depend on which one it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.precision import squares_are_exact
from aorta_collectors.observe.reduce import CleanRange, reduce_now
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.watching import Seen, train, two_layers, watching

DEFAULT = WatchGroup(types=("Linear",))
WITH_INPUTS = WatchGroup(types=("Linear",), channels=("act", "input", "igrad"))


def facts(seen: Seen, *roles: str) -> list[Any]:
    return [
        (trace.step, each.site.layer, each.site.role, each.site.tensor_path, each.moment.invocation, each.stats)
        for trace in seen.traces
        for each in trace.observations
        if each.site.role in roles
    ]


def on_both_ways(program: Callable[[], None], *roles: str) -> list[Any]:
    """What is seen of `roles`, which must be the same whether inputs are looked at, before each call, or not."""
    with watching(DEFAULT) as (observer, short):
        program()
    with watching(WITH_INPUTS) as (other, long):
        program()
    assert (observer.errors, other.errors) == (0, 0), (observer.first_error, other.first_error)
    assert facts(short, *roles) == facts(long, *roles)
    return facts(short, *roles)


def _seeded_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


class TestOwnHooks:
    """Hooks of the module that change what goes in and what comes out."""

    def test_a_replaced_input_has_its_gradient_read_where_it_came_in(self) -> None:
        def program() -> None:
            model = _seeded_model()
            model[1].register_forward_pre_hook(lambda module, args: (args[0] * 3,))
            model(torch.ones(2, 4)).sum().backward()

        assert {entry[1:4] for entry in on_both_ways(program, "act", "igrad")} == {
            ("0", "act", ""),
            ("1", "act", ""),
            ("1", "igrad", "[0]"),
        }

    def test_an_input_that_is_moved_to_keywords_loses_no_record(self) -> None:
        def program() -> None:
            model = _seeded_model()
            model[1].register_forward_pre_hook(lambda m, args, kwargs: ((), {"input": args[0]}), with_kwargs=True)
            model(torch.ones(2, 4)).sum().backward()

        assert len(on_both_ways(program, "act", "igrad")) == 3

    def test_a_replaced_output_is_what_is_read(self) -> None:
        def program() -> None:
            model = _seeded_model()
            model[0].register_forward_hook(lambda module, args, output: output * 0 + 7)
            model(torch.ones(2, 4)).sum().backward()

        first = on_both_ways(program, "act")[0]
        assert (first[1], first[5].finite_max) == ("0", 7.0)

    def test_an_interrupted_call_leaves_nothing_behind(self) -> None:
        """KeyboardInterrupt passes torch's hooks by; the program catches it and goes on."""
        interrupts = [True]

        def interrupt(module: nn.Module, args: Any, output: Tensor) -> None:
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt

        def program() -> None:
            interrupts[:] = [True]
            model = _seeded_model()
            model[0].register_forward_hook(interrupt)
            for _ in range(4):
                try:
                    model(torch.ones(2, 4)).sum().backward()
                except KeyboardInterrupt:
                    pass

        seen = on_both_ways(program, "act")
        for step in (2, 3, 4):
            assert [(entry[1], entry[4]) for entry in seen if entry[0] == step] == [("0", 1), ("1", 1)]

    def test_a_call_that_raises_is_one_that_was_seen(self) -> None:
        with watching(DEFAULT) as (observer, _):
            model = _seeded_model()
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 5))
            assert observer.roots.unobserved() == ["1"]


class TestCalls:
    def test_calls_within_calls_are_numbered_as_they_begin(self) -> None:
        class Nested(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x: Tensor, depth: int = 1) -> Tensor:
                return self(x * 10, depth - 1) + 1 if depth else x * self.scale

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = Nested()

            def forward(self, x: Tensor) -> Tensor:
                return self.part(x)  # type: ignore[no-any-return]

        with watching(WatchGroup(types=("Nested",), channels=("act",))) as (_, seen):
            Model()(torch.ones(1))
        found = {each.moment.invocation: each.stats.finite_max for each in seen.by_step[1]}
        assert found == {1: 11.0, 2: 10.0}

    @pytest.mark.parametrize("channels", [("act", "igrad"), ("act", "input", "igrad"), CHANNELS])
    @pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Linear(4, 4)), lambda: nn.Linear(4, 4)])
    def test_a_part_that_is_compiled_in_place_is_seen_once_a_call(
        self, channels: tuple[str, ...], make: Callable[[], nn.Module]
    ) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.part = nn.Linear(4, 4), make()

            def forward(self, x: Tensor) -> Tensor:
                return self.part(self.first(x))  # type: ignore[no-any-return]

        with watching(WatchGroup(names=("part",), channels=channels)) as (observer, seen):
            model = Model()
            model.part.compile(backend="eager")
            for _ in range(2):
                model(torch.ones(2, 4)).sum().backward()
        assert observer.errors == 0, observer.first_error
        for step in (1, 2):
            acts = seen.only(step, "part", "act")
            assert [each.moment.invocation for each in acts] == [1]
            assert {each.moment.invocation for each in seen.only(step, "part", "igrad")} == {1}


class TestOthersHooks:
    """Tables of torch's that other tools use as well, and may empty."""

    def test_tables_that_somebody_has_emptied(self) -> None:
        with watching() as (observer, _):
            kept = [dict(table) for table in _tables()]
            for table in _tables():
                table.clear()
            handle = torch_module.register_module_forward_pre_hook(lambda module, args: None)
            two_layers()(torch.ones(2, 4))
            handle.remove()
            for table, before in zip(_tables(), kept, strict=True):
                table.update(before)
        assert observer.errors == 0

    def test_a_hook_that_disarms(self) -> None:
        with watching() as (observer, _):
            handle = torch_module.register_module_forward_pre_hook(lambda module, args: observer.disarm())
            _tables()[0].move_to_end(handle.id, last=False)
            assert two_layers()(torch.ones(2, 4)).shape == (2, 1)
            handle.remove()

    def test_arming_while_another_thread_calls_a_model(self) -> None:
        model, is_over, errors = two_layers(), threading.Event(), []

        def work() -> None:
            while not is_over.is_set():
                try:
                    model(torch.ones(2, 4))
                except Exception as error:
                    errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(60):
                with watching() as (observer, _):
                    pass
        finally:
            is_over.set()
            thread.join()
        assert errors == []
        assert observer.errors == 0, observer.first_error


def _tables() -> tuple[Any, Any]:
    return torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks


class TestModes:
    def test_a_kept_copy_of_a_wrapper_tensor_while_a_mode_is_on(self) -> None:
        """The copy is made by the wrapper's own class; without it there would be no memory to copy."""
        from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

        from tests.observe.watching import one_process_group

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        with one_process_group():
            mesh = init_device_mesh("cpu", (1,))
            with watching(WatchGroup(names=("",), channels=CHANNELS), keep_bad=True) as (observer, seen):
                model = nn.Linear(4, 4)
                given = DTensor.from_local(torch.full((2, 4), float("nan")), mesh, [Replicate()])
                for name, parameter in list(model.named_parameters()):
                    shared = DTensor.from_local(parameter.detach(), mesh, [Replicate()])
                    setattr(model, name, nn.Parameter(shared))
                with Mode():
                    model(given.requires_grad_()).sum().backward()
        assert observer.errors == 0, observer.first_error
        assert any(trace.tensors for trace in seen.traces)

    def test_addresses_of_zeros_that_lie_nowhere(self) -> None:
        class Zeros(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x: Tensor) -> Tensor:
                return torch._efficientzerotensor((2, 2))

        with watching(WatchGroup(names=("",), channels=("act",)), addresses=True) as (observer, seen):
            Zeros()(torch.ones(2))
        assert observer.errors == 0, observer.first_error
        (only,) = seen.by_step[1]
        assert only.stats.finite_max == 0.0


class TestSquares:
    def test_limits_whose_square_float32_does_not_hold(self) -> None:
        tensor = torch.full((200, 200), 1e-24)
        limits = Limits(1e-25)
        assert CleanRange.of(limits).squares == 0.0
        stats = reduce_now(tensor, limits, ranged=False)[2]
        assert stats is not None
        assert stats.huge_count == 40_000

    def test_a_program_that_allows_less_precise_products_has_its_ranges_read(self) -> None:
        seen = Seen()
        seen.ranges_wanted = lambda step: False  # type: ignore[method-assign]
        with watching(DEFAULT) as (observer, _):
            observer._steps._sink = seen
            assert squares_are_exact()
            train(two_layers(), steps=1)
            assert not observer.reader.ranged
            try:
                torch.set_float32_matmul_precision("medium")
                assert not squares_are_exact()
                train(two_layers(), steps=1)
                assert observer.reader.ranged
            finally:
                torch.set_float32_matmul_precision("highest")


class TestCost:
    def test_reading_gradients_counts(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with watching(WatchGroup(types=("Linear",), channels=("wgrad",))) as (observer, _):
            model(torch.ones(1, 4)).sum().backward()
            before = observer.cost.hook_s
            optimizer.step()
            assert observer.cost.hook_s > before

    def test_the_time_between_two_armings_is_nobodys(self) -> None:
        model = two_layers()
        with watching() as (observer, _):
            train(model, steps=2)
            observer.disarm()
            observer.arm()
            train(model, steps=2)
        assert observer.cost.fields()["steps_measured"] == 4
