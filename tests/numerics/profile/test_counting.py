"""Which steps are counted, and to whom what they compute is attributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.profile.brick_times import with_self_times
from aorta_collectors.numerics.profile.counting import OperationCount
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.observe.operations import OperationCounter
from tests.numerics import models
from tests.numerics.profiled import Steps, profiled
from tests.observe.watching import one_process_group

CONFIG = Config(profile="deferred")


def counted(run: Callable[[OperationCount], Any], config: Config = CONFIG) -> tuple[OperationCount, Steps]:
    timeline = Timeline(config, LamportClock())
    errors: list[Exception] = []
    part = OperationCount(timeline, errors.append)
    with profiled(config, [part], timeline) as steps:
        run(part)
    assert errors == []
    assert torch._C._len_torch_dispatch_stack() == 0
    return part, steps


def train(model: nn.Module, *batches: torch.Tensor) -> None:
    for batch in batches:
        loss = model(batch).square().mean()
        assert torch._C._len_torch_dispatch_stack() == 0  # what the program does between the two is its own
        loss.backward()
        assert torch._C._len_torch_dispatch_stack() == 0


class TestWhich:
    def test_the_second_step_of_each_kind_of_inputs(self) -> None:
        model = nn.Linear(4, 4)
        large, small = torch.ones(8, 4), torch.ones(2, 4)
        _, steps = counted(lambda _: train(model, large, large, large, small, small, large, small))
        assert steps.counted == [2, 5]

    def test_an_evaluation_is_a_kind_of_its_own(self) -> None:
        model, x = nn.Linear(4, 4), torch.ones(8, 4)

        def run(_: OperationCount) -> None:
            train(model, x, x, x)
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    model(x)

        _, steps = counted(run)
        assert steps.counted == [2, 5]

    def test_inputs_that_differ_in_every_step_are_counted_once_all_the_same(self) -> None:
        model = nn.Linear(4, 4)
        part, steps = counted(lambda _: train(model, *(torch.ones(rows, 4) for rows in range(1, 20))))
        assert steps.counted == [8]
        assert part.work_of("(root)", "forward") is not None

    def test_at_most_sixteen_kinds(self) -> None:
        model = nn.Linear(4, 4)
        _, steps = counted(lambda _: train(model, *(torch.ones(1 + step // 2, 4) for step in range(40))))
        assert steps.counted == list(range(2, 33, 2))

    def test_none_where_the_program_has_a_mode_of_its_own(self) -> None:
        class Theirs(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        def run(_: OperationCount) -> None:
            with Theirs():
                for _ in range(3):
                    nn.Linear(4, 4)(torch.ones(2, 4))

        part, steps = counted(run)
        assert steps.counted == []
        assert part.flops_of_step() is None

    def test_none_of_a_model_that_is_compiled(self) -> None:
        model = nn.Linear(4, 4)
        model.compile(backend="eager")
        _, steps = counted(lambda _: [model(torch.ones(2, 4)) for _ in range(3)])
        assert len(steps.traces) == 3
        assert steps.counted == []
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


class TestWhat:
    @pytest.mark.parametrize("name", ["mlp", "sequence_of_blocks", "gpt2"])
    def test_a_step_is_what_torchs_counter_sees_of_it(self, name: str) -> None:
        """gpt2 attends by products of its own, so that torch's counter misses none."""
        torch.manual_seed(0)
        sample: models.Sample = getattr(models, name)()
        if name == "gpt2":
            sample.model.set_attn_implementation("eager")
        if name == "sequence_of_blocks":
            pytest.importorskip("torch.nn.attention")
            context: Any = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        else:
            context = torch.enable_grad()
        with context:
            with FlopCounterMode(display=False) as theirs:
                sample.loss().backward()
            part, steps = counted(lambda _: [sample.loss().backward() for _ in range(2)])
        assert steps.counted == [2]
        assert part.flops_of_step() == theirs.get_total_flops()
        assert part.dtype_of_step() == "float32"

    def test_by_module_and_direction(self) -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2)))
        part, _ = counted(lambda _: train(model, *[torch.ones(16, 4)] * 3))
        product = 2 * 16 * 4 * 8
        first, first_backward = part.work_of("0", "forward"), part.work_of("0", "backward")
        assert first is not None
        assert first_backward is not None
        assert (first.flops, first.operations, first.dtype) == (product, 1, "float32")
        assert first.bytes == 4 * (16 * 4 + 4 * 8 + 8 + 16 * 8)
        assert first_backward.flops == product  # the input needs no gradient: that of the weight alone
        last = part.work_of("2.0", "backward")
        assert last is not None
        assert last.flops == 2 * 2 * 16 * 8 * 2
        relu, holder = part.work_of("1", "forward"), part.work_of("2", "forward")
        assert relu is not None
        assert (relu.flops, relu.operations) == (0, 1)
        assert holder is not None
        assert (holder.flops, holder.bytes, holder.operations) == (0, 0, 0)
        assert part.work_of("nowhere", "forward") is None

    def test_a_module_that_is_called_several_times_counts_by_call(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layer(self.layer(x))

        part, _ = counted(lambda _: train(Twice(), *[torch.ones(16, 4)] * 2))
        work = part.work_of("layer", "forward")
        assert work is not None
        assert work.flops == 2 * 16 * 4 * 4

    def test_the_time_of_operations_is_that_of_the_calls_that_were_counted(self) -> None:
        model = nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
        part, steps = counted(lambda _: train(model, *[torch.ones(512, 64)] * 3))
        times = list(with_self_times(steps.traces[1].timings))
        assert len(times) == 10
        for timing, _, self_seconds in times:
            work = part.work_of(timing.brick.layer, timing.direction)
            assert work is not None
            assert work.seconds is not None
            assert work.counted_s is not None
            assert work.seconds <= work.counted_s <= self_seconds
            if work.operations:  # counting them took time, which is left out
                assert 0 < work.seconds < work.counted_s < self_seconds

    def test_kinds_are_weighed_by_how_often_they_come(self) -> None:
        model = nn.Linear(4, 4)
        batches = [torch.ones(rows, 4) for rows in (8, 8, 2, 2, 8, 8)]
        part, _ = counted(lambda _: train(model, *batches))
        work = part.work_of("(root)", "forward")
        assert work is not None
        # Steps that came before a kind was counted are not among them.
        assert work.flops == pytest.approx(2 * 4 * 4 * (3 * 8 + 2) / 4)

    def test_the_flops_of_a_step_are_those_of_its_kind(self) -> None:
        model, told = nn.Linear(4, 4), []

        def run(part: OperationCount) -> None:
            for rows in (8, 8, 2, 8):
                train(model, torch.ones(rows, 4))
                told.append(part.flops_of_step())

        counted(run)
        assert told == [None, None, None, 2 * 2 * 8 * 4 * 4]

    def test_a_gradient_that_is_taken_within_the_model_does_not_end_it(self) -> None:
        class Penalty(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = x.clone().requires_grad_()
                (slope,) = torch.autograd.grad(self.layer(x).sum(), x, create_graph=True)
                return self.layer(slope)

        model, x = Penalty(), torch.ones(16, 4)
        whole = OperationCounter(lambda: None)
        whole.enter()
        model(x).sum().backward()
        whole.leave()
        part, _ = counted(lambda _: [model(x).sum().backward() for _ in range(2)])
        assert part.flops_of_step() == whole.counts[None].flops

    def test_what_is_recomputed_is_work_as_well(self) -> None:
        class Checkpointed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

            def forward(self, x: torch.Tensor) -> Any:
                return checkpoint(self.layers, x, use_reentrant=False)

        x = torch.ones(16, 4, requires_grad=True)
        product = 2 * 16 * 4 * 4
        part, _ = counted(lambda _: train(Checkpointed(), x, x))
        # Two forward, four backward, and one anew: the last layer need not be, since nothing wants its output.
        assert part.flops_of_step() == 7 * product
        work = part.work_of("layers.0", "forward")
        assert work is not None
        assert work.flops == product


class TestTheProgram:
    def test_an_exception_in_the_model_leaves_no_mode_behind(self) -> None:
        model, x = nn.Linear(4, 4), torch.ones(2, 4)

        def run(_: OperationCount) -> None:
            model(x)
            handle = model.register_forward_hook(lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model(x)
            handle.remove()
            assert torch._C._len_torch_dispatch_stack() == 0
            model(x)

        counted(run)

    def test_losses_are_the_same_bit_for_bit(self) -> None:
        def losses() -> list[float]:
            torch.manual_seed(0)
            sample = models.sequence_of_blocks()
            optimizer = torch.optim.AdamW(sample.model.parameters(), lr=0.01)
            found = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = sample.loss()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        bare = losses()
        ours: list[list[float]] = []
        _, steps = counted(lambda _: ours.append(losses()))
        assert steps.counted == [2]
        assert ours == [bare]

    def test_steps_alone_have_their_flops_too(self) -> None:
        model = nn.Linear(4, 4, dtype=torch.bfloat16)
        config = Config(trace="none")
        part, steps = counted(lambda _: train(model, *[torch.ones(8, 4, dtype=torch.bfloat16)] * 3), config)
        assert steps.counted == [2]
        assert part.flops_of_step() == 2 * 2 * 8 * 4 * 4
        assert part.dtype_of_step() == "bfloat16"

    def test_reducing_gradients_over_ranks_goes_on(self) -> None:
        with one_process_group():
            model, x = nn.parallel.DistributedDataParallel(nn.Linear(4, 4)), torch.ones(8, 4)

            def gradients() -> list[torch.Tensor]:
                found = []
                for _ in range(3):
                    model.zero_grad()
                    model(x).square().sum().backward()
                    found.append(model.module.weight.grad.clone())
                return found

            bare = gradients()
            ours: list[torch.Tensor] = []
            part, steps = counted(lambda _: ours.extend(gradients()))
            assert steps.counted == [2]
            assert part.flops_of_step() == 2 * 2 * 8 * 4 * 4
            assert all(torch.equal(one, other) for one, other in zip(bare, ours, strict=True))
