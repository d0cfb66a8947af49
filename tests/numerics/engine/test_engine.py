"""What the engine sees of real models: named steps, modules, backward passes, steps; and what it leaves as it was."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import statistics
import time
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.layer_numerics.config import Config as LayerConfig
from aorta_collectors.layer_numerics.session import Session as LayerSession
from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import LineStopped, Part, StepTrace
from tests.numerics.armed import armed, train
from tests.numerics.forked import in_a_fork
from tests.numerics.models import LAYERS, MODELS, Sample, gpt2, mlp, sequence_of_blocks
from tests.observe.watching import one_process_group

#: How often each named step comes in one training step, by name and direction.
NAMED = {
    "gpt2": {"EMBED": 2, "TRANSFORMER_BLOCK": LAYERS, "NORM": 1, "LM_HEAD": 1},
    "llama": {"EMBED": 1, "TRANSFORMER_BLOCK": LAYERS, "NORM": 1, "LM_HEAD": 1},
    "sequence_of_blocks": {"EMBED": 0, "TRANSFORMER_BLOCK": LAYERS, "NORM": 0, "LM_HEAD": 1},
    "mlp": {"EMBED": 0, "TRANSFORMER_BLOCK": 0, "NORM": 0, "LM_HEAD": 0},
    "dlrm": {"EMBED": 1, "TRANSFORMER_BLOCK": 0, "NORM": 0, "LM_HEAD": 0},
}


class Everything(Part):
    """Keeps what it is told, in order, and nothing alive."""

    def __init__(self, wanted: str = "") -> None:
        self.told: list[tuple[str, str]] = []
        self._wanted = wanted

    def wants(self, brick: Brick) -> bool:
        return self._wanted in brick.layer

    def start(self) -> None:
        self.told.append(("start", ""))

    def stop(self) -> None:
        self.told.append(("stop", ""))

    def step_began(self, step: int) -> None:
        self.told.append(("step_began", str(step)))

    def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        self.told.append(("entered", brick.layer))

    def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
        self.told.append(("left", brick.layer))

    def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
        self.told.append(("gradient", brick.layer))

    def backward_left(self, brick: Brick) -> None:
        self.told.append(("backward_left", brick.layer))

    def root_left(self, brick: Brick, result: Any) -> None:
        self.told.append(("root_left", brick.layer))

    def model_left(self) -> None:
        self.told.append(("model_left", ""))

    def backward_began(self, tensors: Any) -> None:
        self.told.append(("backward_began", str(len(tensors))))

    def backward_ended(self) -> None:
        self.told.append(("backward_ended", ""))

    def optimizer_began(self, optimizer: torch.optim.Optimizer) -> None:
        self.told.append(("optimizer_began", ""))

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        self.told.append(("optimizer_ended", ""))

    def step_ended(self, trace: StepTrace) -> None:
        self.told.append(("step_ended", str(trace.step)))


class TestNamedSteps:
    @pytest.mark.parametrize("name", list(MODELS))
    def test_each_comes_as_often_as_the_model_has_it_in_both_directions(self, name: str) -> None:
        sample = MODELS[name]()
        with armed() as seen:
            train(sample, 2)
        for named, count in NAMED[name].items():
            assert len(seen.named(named, "forward", 2)) == count, named
            assert len(seen.named(named, "backward", 2)) == count, named
        training = [span.name for span in seen.spans if span.step == 2 and span.direction != "backward"]
        assert [name for name in training if name in ("FORWARD", "LOSS", "OPTIMIZER", "STEP")] == [
            "FORWARD",
            "LOSS",
            "OPTIMIZER",
            "STEP",
        ]

    def test_they_nest_and_lie_in_their_step(self) -> None:
        with armed() as seen:
            train(gpt2(), 2)
        (step,) = seen.named("STEP", step=2)
        parents = {
            "FORWARD": "STEP",
            "BACKWARD": "STEP",
            "OPTIMIZER": "STEP",
            "LOSS": "STEP",
            "EMBED": {"forward": "FORWARD", "backward": "BACKWARD"},
            "TRANSFORMER_BLOCK": {"forward": "FORWARD", "backward": "BACKWARD"},
        }
        for span in (span for span in seen.spans if span.step == 2):
            assert step.start_ns <= span.start_ns <= span.end_ns <= step.end_ns
            expected = parents.get(span.name)
            if expected is not None:
                parent = seen.parent(span)
                assert parent is not None
                assert parent.name == (expected if isinstance(expected, str) else expected[span.direction])

    def test_blocks_go_backward_in_reverse_one_after_the_other(self) -> None:
        with armed() as seen:
            train(gpt2(), 1)
        backward = seen.named("TRANSFORMER_BLOCK", "backward", 1)
        assert [span.layer for span in backward] == [f"transformer.h.{number}" for number in reversed(range(LAYERS))]
        assert all(first.end_ns <= second.start_ns for first, second in itertools.pairwise(backward))

    def test_the_summary_has_their_durations(self) -> None:
        with armed() as seen:
            train(gpt2(), 3)
        (blocks,) = (
            told
            for told in seen.engine.fields()["trace_steps"]
            if (told["name"], told["direction"]) == ("TRANSFORMER_BLOCK", "backward")
        )
        spans = seen.named("TRANSFORMER_BLOCK", "backward")
        assert blocks["count"] == len(spans) == 3 * LAYERS
        assert blocks["total_us"] == pytest.approx(sum(span.own_ns for span in spans) / 1000, rel=1e-3)

    def test_generation_has_a_step_for_each_token(self) -> None:
        sample = gpt2()
        model: Any = sample.model.eval()
        with armed() as seen:
            model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, do_sample=False)
        assert {trace.kind for trace in seen.traces} == {"inference"}
        assert len(seen.named("LM_HEAD", "forward")) == len(seen.traces) == 4


class TestModules:
    def test_at_layer_every_leaf_has_a_span_and_no_container(self) -> None:
        with armed(trace="layer") as seen:
            train(sequence_of_blocks(), 2)
        leaves = {span.layer for span in seen.spans if span.kind == "layer" and span.direction == "forward"}
        parts = ("norm1", "norm2", "qkv", "out", "up", "down", "drop")
        assert leaves == {f"{block}.{part}" for block in range(LAYERS) for part in parts}
        assert leaves == {span.layer for span in seen.spans if span.kind == "layer" and span.direction == "backward"}

    def test_profiled_every_call_is_timed_whatever_is_written(self) -> None:
        with armed(trace="basic", profile="deferred", steps=("lm_head",)) as seen:
            train(sequence_of_blocks(), 2)
        layers = {(timing.brick.layer, timing.direction) for timing in seen.traces[1].timings}
        assert ("0.qkv", "forward") in layers
        assert ("2.down", "backward") in layers
        assert ("(root)", "backward") in layers
        assert {span.name for span in seen.traces[1].spans} == {"LM_HEAD", "STEP"}

    def test_a_part_that_is_added_later_is_found(self) -> None:
        sample = mlp()
        model: Any = sample.model
        with armed(trace="layer") as seen:
            train(sample, 1)
            model.append(nn.Linear(1, 1))
            train(sample, 1)
        assert [span.step for span in seen.spans if span.layer == "5" and span.direction == "forward"] == [2]

    def test_a_second_model_has_a_label_and_no_steps_of_its_own(self) -> None:
        generator, critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        noise = torch.randn(3, 4)
        with armed(trace="layer") as seen:
            train(Sample(generator, lambda: critic(generator(noise)).mean(), lambda: None), 3)
        assert seen.labels == ["Linear", "Sequential#2"]
        assert seen.engine.step == 3
        assert [span.layer for span in seen.named("FORWARD", step=2)] == ["(root)", "Sequential#2.(root)"]
        assert seen.of("Sequential#2.2", "backward", 2).end_ns <= seen.of("Sequential#2.0", "backward", 2).start_ns

    def test_a_model_that_was_called_before_is_a_part_of_the_one_around_it(self) -> None:
        sample, part = sequence_of_blocks(), Everything()
        inputs = torch.randn(2, 8, 32)
        with armed(part, profile="deferred") as seen:
            sample.call()
            outer = nn.Sequential(sample.model, nn.Linear(16, 1))
            train(Sample(outer, lambda: outer(inputs).mean(), lambda: outer(inputs)), 2)
        assert [span.layer for span in seen.named("FORWARD")] == ["(root)", *["Sequential#2.(root)"] * 2]
        assert [layer for told, layer in part.told if told == "root_left"] == ["(root)", *["Sequential#2.(root)"] * 2]
        assert len(seen.named("TRANSFORMER_BLOCK", "backward", 3)) == LAYERS

    def test_layers_of_a_wrapped_model_keep_their_names(self) -> None:
        with one_process_group(), armed(trace="layer") as seen:
            sample = sequence_of_blocks()
            wrapped = nn.parallel.DistributedDataParallel(sample.model)
            inputs = torch.randn(2, 8, 32)
            train(Sample(wrapped, lambda: wrapped(inputs).square().mean(), lambda: wrapped(inputs)), 2)
        assert seen.labels == ["DistributedDataParallel"]
        assert len(seen.named("TRANSFORMER_BLOCK", "backward", 2)) == LAYERS
        assert seen.engine.fields()["anatomy"]["heads"] == [f"module.{LAYERS}"]

    def test_a_loss_module_is_no_model(self) -> None:
        sample, criterion = mlp(), nn.MSELoss()
        with armed(profile="deferred") as seen:
            train(Sample(sample.model, lambda: criterion(sample.call(), torch.zeros(16, 1)), sample.call), 2)
        assert seen.engine.step == 2
        assert len(seen.named("FORWARD")) == 2
        assert seen.traces[1].phases_ns["loss"] > 0

    def test_what_is_handed_through_is_no_work(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
        inputs = torch.randn(2, 4)
        with armed(trace="layer") as seen:
            train(Sample(model, lambda: model(inputs).mean(), lambda: model(inputs)), 1)
        backward = [span.layer for span in seen.spans if span.kind == "layer" and span.direction == "backward"]
        assert backward == ["3", "0"]

    def test_a_word_that_matches_nothing_is_told(self) -> None:
        with armed(steps=("TRANSFORMER_block", "ln_f", "attenshun")) as seen:
            train(gpt2(), 1)
        assert {span.name for span in seen.spans} == {"STEP", "NORM", "TRANSFORMER_BLOCK"}
        assert seen.engine.unmatched_steps == ["attenshun"]
        assert "attenshun" in seen.said[0]


class Slow(torch.autograd.Function):
    """Sleeps both ways, and notes how long it did."""

    took: dict[str, int]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        began = time.perf_counter_ns()
        time.sleep(0.03)
        SLEPT.append(time.perf_counter_ns() - began)
        return grads[0] * 1.0


SLEPT: list[int] = []


class SlowBackward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Slow.apply(x)
        return found


class SlowForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        began = time.perf_counter_ns()
        time.sleep(0.03)
        SLEPT.append(time.perf_counter_ns() - began)
        return x + 1.0


class SlowProduct(nn.Module):
    """A matrix product, large beside all else, whose own duration is noted."""

    def forward(self, x: Tensor) -> Tensor:
        began = time.perf_counter_ns()
        large = torch.ones(700, 700)
        for _ in range(4):
            large = large @ large * 1e-3
        x = x + large[0, 0]
        del large
        SLEPT.append(time.perf_counter_ns() - began)
        return x


class TestDurations:
    @pytest.mark.parametrize(
        ("slow", "direction"), [(SlowForward, "forward"), (SlowProduct, "forward"), (SlowBackward, "backward")]
    )
    @pytest.mark.parametrize("options", [{"trace": "layer"}, {"trace": "layer", "profile": "immediate"}])
    def test_a_slow_module_is_the_one_that_takes_long(
        self, slow: type[nn.Module], direction: str, options: dict[str, str]
    ) -> None:
        SLEPT.clear()
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), slow(), nn.Linear(8, 8), nn.LayerNorm(8))
        inputs = torch.randn(4, 8)
        with armed(Everything(), **options) as seen:
            train(Sample(model, lambda: model(inputs).square().mean(), lambda: model(inputs)), 5)
        # The median, since a busy machine may take the processor away between two readings of the clock.
        told = [seen.of("2", direction, step).own_ns / slept for step, slept in enumerate(SLEPT, 1)]
        assert statistics.median(told) == pytest.approx(1.0, rel=0.05)
        others = [
            span for span in seen.spans if span.kind == "layer" and (span.layer, span.direction) != ("2", direction)
        ]
        assert min(SLEPT) > 5 * sorted(span.own_ns for span in others)[len(others) // 2]

    def test_in_a_block_it_is_that_block_and_that_phase(self) -> None:
        SLEPT.clear()
        sample = sequence_of_blocks()
        blocks: Any = sample.model
        blocks[1].drop = SlowBackward()
        with armed() as seen:
            train(sample, 8)
        assert seen.of("1", "backward", 2).own_ns >= SLEPT[1]
        # Others on the machine can hold up a few of them.
        assert min(seen.of("2", "backward", step).own_ns for step in range(1, 9)) < SLEPT[1] / 2
        assert seen.traces[1].phases_ns["blk_bwd"] >= SLEPT[1]

    def test_what_a_part_takes_is_no_modules_time(self) -> None:
        class Lingering(Part):
            def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
                self.linger(brick, "forward")

            def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
                self.linger(brick, "backward")

            def linger(self, brick: Brick, direction: str) -> None:
                time.sleep(0.005)
                told.append((seen.engine.step, brick.layer, direction))

        told: list[tuple[int, str, str]] = []
        sample = sequence_of_blocks()
        with armed(Lingering(), trace="layer", profile="deferred") as seen:
            train(sample, 2)
        for direction in ("forward", "backward"):
            inside = [entry for entry in told if entry[1].startswith("0.") and entry[::2] == (2, direction)]
            assert len(inside) > 2
            assert seen.of("0", direction, 2).overhead_ns >= 5_000_000 * (len(inside) - 1)
        trace = seen.traces[1]
        lingered_ns = 5_000_000 * len([entry for entry in told if entry[0] == 2])
        assert trace.overhead_ns >= lingered_ns
        assert sum(trace.phases_ns.values()) <= trace.end_ns - trace.start_ns - lingered_ns


class TestSteps:
    def test_kinds(self) -> None:
        sample = mlp()
        with armed() as seen:
            with torch.no_grad():
                sample.call()
            train(sample, 1)
            with torch.no_grad():
                sample.call()
            sample.call()
        assert [trace.kind for trace in seen.traces] == ["inference", "training", "evaluation", "inference"]
        assert [trace.is_last for trace in seen.traces] == [False, False, False, True]
        assert (seen.engine.step, seen.engine.evaluations, seen.engine.optimizer_steps) == (4, 2, 1)

    def test_one_begins_where_the_one_before_has_ended(self) -> None:
        with armed() as seen:
            train(gpt2(), 3)
        for before, after in itertools.pairwise(seen.traces):
            assert after.start_ns == before.end_ns
            assert seen.named("OPTIMIZER", step=before.step)[0].end_ns == before.end_ns

    def test_a_batch_belongs_to_the_step_that_uses_it(self) -> None:
        sample = mlp()
        with armed() as seen:
            for _ in range(3):
                opened = seen.timeline.begin("DATA", "phase")
                time.sleep(0.004)
                seen.timeline.end(opened)
                train(sample, 1)
        assert [span.step for span in seen.named("DATA")] == [1, 2, 3]
        assert all(trace.phases_ns["data"] >= 4_000_000 for trace in seen.traces)
        assert all(trace.start_ns <= seen.named("DATA", step=trace.step)[0].start_ns for trace in seen.traces)

    def test_micro_batches_are_steps_and_the_last_has_the_optimizer(self) -> None:
        sample = mlp()
        optimizer = torch.optim.SGD(sample.model.parameters(), lr=0.1)
        with armed() as seen:
            for _ in range(2):
                for _ in range(2):
                    sample.loss().backward()
                optimizer.step()
        assert ["opt" in trace.phases_ns for trace in seen.traces] == [False, True, False, True]

    @pytest.mark.parametrize("name", list(MODELS))
    def test_phases_are_those_it_has_and_come_to_no_more_than_the_step(self, name: str) -> None:
        sample = MODELS[name]()
        with armed() as seen:
            train(sample, 3)
        named = NAMED[name]
        expected = {"forward", "loss", "backward", "opt"}
        expected |= {"embed", "embed_bwd"} if named["EMBED"] else set()
        expected |= {"blk_bwd"} if named["TRANSFORMER_BLOCK"] else set()
        expected |= {"norm_bwd"} if named["NORM"] else set()
        expected |= {"norm_lm", "lm_bwd"} if named["LM_HEAD"] else set()
        for trace in seen.traces:
            assert set(trace.phases_ns) == expected
            assert sum(trace.phases_ns.values()) <= trace.end_ns - trace.start_ns


class TestParts:
    def test_they_are_told_of_all_in_order(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        inputs = torch.randn(2, 4)
        part = Everything()
        with armed(part) as seen:
            train(Sample(model, lambda: model(inputs).mean(), lambda: model(inputs)), 1)
        assert seen.entered_steps == [1]
        assert part.told == [
            ("start", ""),
            ("step_began", "1"),
            ("entered", "(root)"),
            ("entered", "0"),
            ("left", "0"),
            ("entered", "1"),
            ("left", "1"),
            ("left", "(root)"),
            ("root_left", "(root)"),
            ("model_left", ""),
            ("backward_began", "1"),
            ("gradient", "1"),
            ("gradient", "(root)"),
            ("backward_left", "1"),
            ("gradient", "0"),
            ("backward_left", "0"),
            ("backward_left", "(root)"),
            ("backward_ended", ""),
            ("optimizer_began", ""),
            ("optimizer_ended", ""),
            ("step_ended", "1"),
            ("stop", ""),
        ]

    def test_only_of_what_they_want(self) -> None:
        part = Everything("qkv")
        with armed(part):
            train(sequence_of_blocks(), 1)
        layers = {layer for told, layer in part.told if told in ("entered", "left", "gradient", "backward_left")}
        assert layers == {f"{block}.qkv" for block in range(LAYERS)}

    def test_what_they_raise_is_counted_and_the_program_goes_on(self) -> None:
        class Broken(Everything):
            def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
                raise ValueError("entered")

            def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
                raise ValueError("gradient")

            def step_ended(self, trace: StepTrace) -> None:
                raise ValueError("ended")

        torch.manual_seed(0)
        expected = train(mlp(), 2)
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match="entered"), armed(Broken(), trace="layer") as seen:
            losses = train(mlp(), 2)
        assert losses == expected
        assert seen.engine.errors > 10
        assert len(seen.named("FORWARD")) == 2

    def test_the_end_of_the_line_passes_and_is_raised_again(self) -> None:
        class Stop(Part):
            def left(self, brick: Brick, args: tuple[Any, ...], result: Any) -> None:
                if brick.layer == "0":
                    raise LineStopped(86)

        sample = mlp()
        with armed(Stop()) as seen:
            with pytest.raises(LineStopped):
                sample.call()
            with pytest.raises(LineStopped):
                sample.call()
        assert len(seen.traces) == 1


def state(sample: Sample, losses: list[Tensor]) -> list[Tensor]:
    return [*losses, *(param.detach() for param in sample.model.parameters()), torch.get_rng_state()]


class TestUnchanged:
    @pytest.mark.parametrize("name", list(MODELS))
    @pytest.mark.parametrize("options", [{}, {"trace": "payload", "profile": "immediate"}])
    def test_losses_parameters_and_random_numbers_are_the_same(self, name: str, options: dict[str, str]) -> None:
        results = []
        for is_armed in (False, True):
            torch.manual_seed(3)
            sample = MODELS[name]()
            if is_armed:
                with armed(Everything(), **options):
                    results.append(state(sample, train(sample, 3)))
            else:
                results.append(state(sample, train(sample, 3)))
        assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))

    def test_a_model_and_its_graph_are_freed_as_ever(self) -> None:
        sample = mlp()
        model = weakref.ref(sample.model)
        with armed(Everything(), trace="layer", profile="deferred"):
            out = sample.call()
            graph = weakref.ref(out)
            gc.disable()
            try:
                del out
                assert graph() is None
            finally:
                gc.enable()
            del sample
            gc.collect()
            assert model() is None

    def test_it_can_be_copied_and_pickled_while_it_is_watched(self) -> None:
        sample = mlp()
        with armed(trace="layer"):
            train(sample, 1)
            assert "hook" not in str(vars(copy.deepcopy(sample.model)[0])["_forward_hooks"])

    def test_nothing_is_set_where_nothing_is_asked_for(self) -> None:
        from torch.nn.modules import module as torch_module

        before = (torch.autograd.backward, len(torch_module._global_forward_hooks))
        with armed(trace="none", step_metrics="off") as seen:
            assert (torch.autograd.backward, len(torch_module._global_forward_hooks)) == before
            train(mlp(), 1)
        assert (seen.engine.step, seen.traces) == (0, [])

    def test_no_hook_is_left(self) -> None:
        from torch.nn.modules import module as torch_module

        tables = (torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks)
        before = (torch.autograd.backward, torch_module._has_any_global_hook, *(len(table) for table in tables))
        prompt = torch.randn(16, 32, requires_grad=True)
        sample = mlp()
        with armed(trace="layer", profile="deferred"):
            for _ in range(3):
                sample.model(prompt).sum().backward()
            assert len(prompt._backward_hooks or ()) == 1, "a leaf comes again and again"
        assert not prompt._backward_hooks
        assert (torch.autograd.backward, torch_module._has_any_global_hook, *(len(table) for table in tables)) == before


class TestAwkward:
    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_recomputed_calls_are_told_and_belong_to_backward(self, use_reentrant: bool) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in "ab"])

            def forward(self, x: Tensor) -> Tensor:
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=use_reentrant)
                return x

        model = Model()
        inputs = torch.randn(2, 8, requires_grad=True)
        with armed(trace="layer", profile="deferred") as seen:
            train(Sample(model, lambda: model(inputs).square().mean(), lambda: model(inputs)), 2)
        again = [span for span in seen.spans if (span.attributes or {}).get("recompute")]
        (backward,) = seen.named("BACKWARD", step=2)
        assert {"blocks.0.0", "blocks.1.0"} <= {span.layer for span in again}
        assert all(backward.start_ns <= span.start_ns < backward.end_ns for span in again if span.step == 2)
        for layer in ("blocks.0.0", "blocks.1.2"):
            assert seen.of(layer, "backward", 2).parent_id != 0

    def test_an_exception_inside_a_module_leaves_nothing_open(self) -> None:
        class Fragile(nn.Module):
            error: BaseException | None = None

            def forward(self, x: Tensor) -> Tensor:
                if self.error is not None:
                    raise self.error
                return x * 2

        fragile = Fragile()
        model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(fragile, nn.Linear(4, 4)))
        inputs = torch.randn(2, 4)
        sample = Sample(model, lambda: model(inputs).mean(), lambda: model(inputs))
        with armed(trace="layer", profile="deferred") as seen:
            for error in (ValueError(), KeyboardInterrupt()):
                fragile.error = error
                with pytest.raises(type(error)):
                    sample.loss()
                assert not (isinstance(error, ValueError) and seen.timeline.stack())
            fragile.error = None
            train(sample, 1)
            assert not seen.timeline.stack()
        last = [span for span in seen.spans if span.step == seen.engine.step]
        assert all(seen.parent(span) in last for span in last if span.name != "STEP")

    def test_a_second_pass_over_the_same_graph_is_timed_again(self) -> None:
        sample = sequence_of_blocks()
        with armed() as seen:
            loss = sample.loss()
            loss.backward(retain_graph=True)
            loss.backward()
        assert len(seen.named("TRANSFORMER_BLOCK", "backward")) == 2 * LAYERS
        assert len(seen.named("BACKWARD")) == 2

    def test_gradients_that_are_asked_for_are_a_backward_pass(self) -> None:
        sample = sequence_of_blocks()
        with armed() as seen:
            for _ in range(2):
                torch.autograd.grad(sample.loss(), list(sample.model.parameters()))
        assert [trace.kind for trace in seen.traces] == ["training"] * 2
        assert len(seen.named("TRANSFORMER_BLOCK", "backward", 2)) == LAYERS
        assert {"backward", "blk_bwd"} <= set(seen.traces[1].phases_ns)

    def test_gradients_inside_of_a_model_are_part_of_its_forward(self) -> None:
        class Force(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.energy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

            def forward(self, x: Tensor) -> Tensor:
                x = x.requires_grad_()
                (force,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
                return force

        model = Force()
        inputs = torch.randn(2, 4)
        with armed(trace="layer") as seen:
            train(Sample(model, lambda: model(inputs).square().mean(), lambda: model(inputs)), 2)
        assert len(seen.named("BACKWARD", step=2)) == 1
        inside = [
            span for span in seen.spans if span.layer == "energy.0" and (span.step, span.direction) == (2, "backward")
        ]
        (forward,) = seen.named("FORWARD", step=2)
        assert forward.start_ns <= inside[0].start_ns <= inside[0].end_ns <= forward.end_ns

    def test_it_can_be_armed_again(self) -> None:
        sample = mlp()
        with armed() as seen:
            train(sample, 2)
            seen.engine.disarm()
            train(sample, 1)
            seen.engine.arm()
            train(sample, 2)
        assert [trace.step for trace in seen.traces] == [1, 2, 3, 4]
        assert len(seen.named("FORWARD")) == 4

    def test_a_fork_is_nobodys(self) -> None:
        class Loud(Part):
            def entered(self, brick: Brick, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
                os.write(writer, b"x")

        reader, writer = os.pipe()
        sample = mlp()
        with armed(Loud(), trace="layer") as seen:
            sample.call()
            told = len(os.read(reader, 100))
            seen.on_fork = lambda: os.write(writer, b"!")
            assert in_a_fork(lambda: (sample.loss().backward(), sample.loss()))[1] == 0
            assert (told, os.read(reader, 100)) == (6, b"!")
            assert seen.engine.step == 1

    def test_the_end_of_the_line_passes_through_a_backward_pass(self) -> None:
        class Stop(Part):
            def gradient(self, brick: Brick, index: int, grad: Tensor) -> None:
                raise LineStopped(86)

        loss = mlp().loss
        with armed(Stop()) as seen, pytest.raises(LineStopped):
            loss().backward()
        assert len(seen.named("BACKWARD")) == 1

    def test_a_module_that_is_used_twice_has_a_span_for_each_use(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.shared, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = self.shared(self.other(self.shared(x)))
                return out

        model = Twice()
        inputs = torch.randn(2, 4)
        with armed(trace="layer") as seen:
            train(Sample(model, lambda: model(inputs).mean(), lambda: model(inputs)), 1)
        assert [(span.layer, span.direction) for span in seen.spans if span.kind == "layer"] == [
            *(("shared", "forward"), ("other", "forward"), ("shared", "forward")),
            *(("shared", "backward"), ("other", "backward"), ("shared", "backward")),
        ]

    def test_a_module_with_hooks_of_its_own_ends_after_them(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        inputs = torch.randn(2, 4)
        model[0].register_forward_hook(lambda module, args, output: time.sleep(0.01))
        with armed(trace="layer") as seen:
            train(Sample(model, lambda: model(inputs).mean(), lambda: model(inputs)), 2)
        assert seen.of("0", "forward", 2).own_ns > 9_000_000

    def test_compiled_parts_are_told(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.Linear(4, 4), backend="eager"))
        inputs = torch.randn(2, 4)
        with armed(trace="layer") as seen:
            train(Sample(model, lambda: model(inputs).mean(), lambda: model(inputs)), 2)
            assert seen.engine.opaque
        assert len(seen.named("FORWARD")) == 2


class TestBothCollectors:
    @pytest.mark.parametrize("first_out", ["numerics", "layer_numerics"])
    def test_they_see_the_same_steps_and_leave_nothing(self, first_out: str, tmp_path: Any) -> None:
        from torch.nn.modules import module as torch_module

        before = (torch_module._has_any_global_hook, torch.optim.Optimizer.__init__)
        torch.manual_seed(0)
        alone = mlp()
        expected = state(alone, train(alone, 3))
        torch.manual_seed(0)
        sample = mlp()
        session = LayerSession(LayerConfig.from_environment({"NANLOG_ORIGIN": "1"}), lambda: tmp_path)
        with armed(trace="layer", profile="deferred") as seen:
            session.arm()
            result = state(sample, train(sample, 3))
            assert not torch_module._has_any_global_hook(), "ours are nobody's concern"
            if first_out == "layer_numerics":
                session.close()
                sample.call()
        if first_out == "numerics":
            sample.call()
            session.close()
        assert all(torch.equal(first, second) for first, second in zip(expected, result, strict=True))
        assert session.observer.errors == 0
        assert {seen.engine.step, session.observer.step} == {3, 4}
        assert torch_module._has_any_global_hook is before[0]
        assert not torch_module._global_forward_hooks
        train(mlp(), 1)
