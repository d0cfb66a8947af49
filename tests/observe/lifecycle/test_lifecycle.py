"""Points of real programs: in which order they come, in loops of every kind, and what is left as it was."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from tests.numerics.forked import in_a_fork
from tests.observe.lifecycle.told import CALLS, FORWARD, STEP, Told, everything, listening, train, two_layers
from tests.observe.watching import one_process_group

X = torch.ones(3, 4)
WORDS = ("began", "ended")


class TestSteps:
    def test_the_points_of_a_training_step(self) -> None:
        with listening() as (told, lifecycle):
            train(two_layers(), 3)
        for step in (1, 2, 3):
            expected = [f"before_forward {step}", *CALLS, f"after_forward {step}"]
            assert told.of(step) == [*expected, f"after_backward {step}", f"after_step {step}"]
        began, ended = ([point for point in told.points if point.startswith(f"step_{word}")] for word in WORDS)
        assert began == [f"step_began {step}" for step in (1, 2, 3)]
        assert ended == ["step_ended 1", "step_ended 2", "step_ended 3 last"]
        assert told.labels == lifecycle.roots == ["Sequential"]
        found = lifecycle.fields()
        assert (found["steps_seen"], found["optimizer_steps"], found["evaluation_steps"]) == (3, 3, 0)
        assert (found["watched_count"], found["called_count"], found["opaque_names"]) == (4, 4, [])
        assert lifecycle.unseen == []
        assert found["overhead"]["steps_measured"] == 3

    def test_gradients_are_accumulated_over_passes_and_an_evaluation_is_a_step_of_its_own(self) -> None:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with listening() as (told, lifecycle):
            (model(X).sum() / 2).backward()
            (model(X).sum() / 2).backward()
            optimizer.step()
            with torch.no_grad():
                model(X)
        assert [told.outside(step) for step in (1, 2, 3)] == [STEP[:3], STEP, FORWARD]
        assert lifecycle.fields()["evaluation_steps"] == 1

    def test_one_step_has_the_calls_of_two_models_and_the_steps_of_two_optimizers(self) -> None:
        generator, critic = nn.Linear(4, 4), two_layers()
        ours, theirs = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic))
        with listening() as (told, _):
            for _ in range(2):
                made = generator(X)
                critic(made.detach()).sum().backward()
                theirs.step()
                (-critic(made).sum()).backward()
                ours.step()
        assert told.outside(2) == [*FORWARD, *STEP, *STEP]
        calls = [point for point in told.of(2) if point.startswith("entered")]
        assert calls[:3] == ["entered (root)", "entered Sequential#2.(root)", "entered Sequential#2.0"]
        assert told.held["after_step"] == ["(root).weight", "(root).bias"]
        assert len(told.held["after_backward"]) == 6

    def test_a_loss_module_is_told_as_a_layer_and_is_no_model(self) -> None:
        model, criterion = two_layers(), nn.MSELoss()
        with listening() as (told, lifecycle):
            for _ in range(2):
                criterion(model(X), torch.zeros(3, 1)).backward()
        assert told.of(2)[-3:-1] == ["entered MSELoss#2.(root)", "left MSELoss#2.(root)"]
        assert told.outside(2) == STEP[:3]
        assert lifecycle.watched_count == 4
        assert told.labels == ["Sequential"]

    def test_what_comes_before_the_first_step_is_not_told(self) -> None:
        model = two_layers()
        loss = model(X).sum()
        with listening() as (told, _):
            nn.Softmax(-1)(X)
            loss.backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert told.points == []

    def test_a_model_that_is_built_anew_in_each_step(self) -> None:
        with listening() as (told, lifecycle):
            for _ in range(3):
                model = two_layers()
                model(X).sum().backward()
        assert [point.split()[0] for point in told.points].count("after_forward") == 3
        assert all(name.startswith("Sequential#3.") for name in told.held["after_backward"])
        assert len(told.held["after_backward"]) == 4
        assert lifecycle.roots == ["Sequential", "Sequential#2", "Sequential#3"]

    def test_armed_again_it_goes_on_counting(self) -> None:
        model = two_layers()
        with listening() as (told, lifecycle):
            train(model, 1)
            lifecycle.disarm()
            train(model, 1)
            lifecycle.arm()
            train(model, 1)
        assert [point for point in told.points if point.startswith("step_")] == [
            "step_began 1",
            "step_ended 1 last",
            "step_began 2",
            "step_ended 2 last",
        ]


class TestCalls:
    def test_only_what_is_wanted_is_told(self) -> None:
        asked = []

        def wants(path: str, module: nn.Module) -> bool:
            asked.append((path, type(module).__name__))
            return path == "2"

        with listening(wants) as (told, lifecycle):
            train(two_layers(), 2)
        assert asked == [("", "Sequential"), ("0", "Linear"), ("1", "ReLU"), ("2", "Linear")]
        assert told.of(2)[1:3] == ["entered 2", "left 2"]
        assert (told.outside(2), lifecycle.watched_count, set(told.gradients)) == (STEP, 1, {("2", "")})

    def test_a_module_that_is_called_twice_is_told_twice(self) -> None:
        shared = nn.Linear(4, 4)
        with listening() as (told, _):
            nn.Sequential(shared, nn.Tanh(), shared)(X).sum().backward()
        assert [point for point in told.of(1) if point.endswith(" 0")] == ["entered 0", "left 0"] * 2
        assert len(told.gradients["0", ""]) == 2

    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_what_checkpointing_runs_again_is_not_told(self, use_reentrant: bool) -> None:
        class Checkpointed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = two_layers()

            def forward(self, x: torch.Tensor) -> Any:
                return checkpoint(self.inner, x, use_reentrant=use_reentrant)

        with listening() as (told, _):
            Checkpointed()(X.clone().requires_grad_()).sum().backward()
        assert [point for point in told.of(1) if point.endswith("inner.0")] == ["entered inner.0", "left inner.0"]
        assert told.outside(1) == STEP[:3]

    def test_an_exception_ends_a_call_without_a_result(self) -> None:
        class Fails(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                raise ValueError("not today")

        model = nn.Sequential(nn.Linear(4, 4), Fails())
        with listening() as (told, _):
            for _ in range(2):
                with pytest.raises(ValueError, match="not today"):
                    model(X)
        calls = ["entered (root)", "entered 0", "left 0", "entered 1"]
        assert told.of(2) == ["before_forward 2", *calls, "after_forward 2"]

    def test_what_torch_tells_of_no_end_is_over_when_the_next_call_begins(self) -> None:
        class Interrupted(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                raise KeyboardInterrupt

        model, other = nn.Sequential(nn.Linear(4, 4), Interrupted()), nn.Linear(4, 1)
        with listening() as (told, _):
            with pytest.raises(KeyboardInterrupt):
                model(X)
            other(X)
        assert told.of(1)[-3:] == ["entered Linear#2.(root)", "left Linear#2.(root)", "after_forward 1"]

    def test_what_a_hook_of_the_modules_own_returns_is_the_result(self) -> None:
        model = two_layers()
        model.register_forward_hook(lambda module, args, result: {"logits": result * 2})
        with listening() as (told, _):
            kept: list[Any] = []
            told.at_left = lambda layer, result: kept.append((layer, type(result).__name__))
            model(X)["logits"].sum().backward()
        assert kept[-1] == ("(root)", "dict")
        assert told.of(1)[-3:] == ["left (root)", "after_forward 1", "after_backward 1"]
        assert torch.equal(told.gradients["(root)", "['logits']"][0], torch.ones(3, 1))

    def test_calls_in_another_thread(self) -> None:
        model = two_layers()
        with listening() as (told, _):
            thread = threading.Thread(target=train, args=(model, 2))
            thread.start()
            thread.join()
        assert told.outside(2) == STEP

    def test_errors_of_the_listener_are_counted_and_change_nothing(self) -> None:
        def fails(layer: str, result: Any) -> None:
            raise ZeroDivisionError("in the listener")

        model, bare = two_layers(), two_layers()
        train(bare, 2)
        told = Told()
        told.at_left = fails
        lifecycle = Lifecycle(told, everything, gradients=True)
        lifecycle.arm()
        train(model, 2)
        lifecycle.disarm()
        assert lifecycle.errors == 8
        assert str(lifecycle.first_error).startswith("ZeroDivisionError: in the listener (test_lifecycle.py:")
        assert all(map(torch.equal, model.parameters(), bare.parameters()))


class TestWrappers:
    @pytest.fixture(autouse=True)
    def _compiled_anew(self) -> None:
        """torch gives up compiling code that many tests before have had compiled."""
        torch.compiler.reset()

    def test_a_wrapped_model_has_the_names_of_a_bare_one(self) -> None:
        with one_process_group(), listening() as (told, lifecycle):
            train(nn.parallel.DistributedDataParallel(two_layers()), 2)
            assert told.labels == ["DistributedDataParallel"]
        assert [point for point in told.of(2) if point.startswith(("entered", "left"))] == CALLS
        assert told.modules["(root)"] == "Sequential"
        assert told.held["after_backward"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
        assert lifecycle.unseen == []

    def test_of_a_compiled_model_the_call_of_the_whole_is_told(self) -> None:
        model = two_layers()
        with listening() as (told, lifecycle):
            train(torch.compile(model, backend="aot_eager"), 2)  # type: ignore[arg-type]
        assert told.outside(2) == STEP
        assert told.of(2)[:4] == ["before_forward 2", "entered (root)", "left (root)", "after_forward 2"]
        assert set(told.gradients) == {("(root)", "")}
        assert told.held["after_step"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
        assert lifecycle.opaque == lifecycle.unseen == ["0", "1", "2"]

    def test_a_part_that_is_compiled_is_told_as_itself(self) -> None:
        model = two_layers()
        model[0].compile(backend="aot_eager")
        model[2] = torch.compile(model[2], backend="aot_eager")  # type: ignore[assignment]
        with listening() as (told, lifecycle):
            train(model, 2)
        assert [point for point in told.of(2) if point.startswith(("entered", "left"))] == CALLS
        assert told.modules["2"] == "Linear"
        assert (lifecycle.opaque, lifecycle.unseen) == ([], [])

    def test_a_model_that_is_compiled_after_it_has_run_keeps_its_name(self) -> None:
        model = two_layers()
        with listening() as (told, _):
            train(model, 1)
            train(torch.compile(model, backend="aot_eager"), 1)  # type: ignore[arg-type]
        assert told.of(2)[:4] == ["before_forward 2", "entered (root)", "left (root)", "after_forward 2"]

    @pytest.mark.parametrize("holds_backward", [False, True])
    def test_a_compiled_function_calls_its_model(self, holds_backward: bool) -> None:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend="aot_eager")
        def loss_of(x: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = model(x).square().mean()
            if holds_backward:
                loss.backward()  # type: ignore[no-untyped-call]
            return loss

        with listening() as (told, lifecycle):
            for _ in range(2):
                optimizer.zero_grad()
                loss = loss_of(X)
                if not holds_backward:
                    loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        assert [point.split()[0] for point in told.of(2)] == STEP
        assert (lifecycle.step, lifecycle.opaque) == (2, ["(root)", "0", "1", "2"])


class TestLeftAsItWas:
    def test_a_fork_tells_nothing_and_says_so_where_it_trains(self, tmp_path: Path) -> None:
        model = two_layers()
        note = tmp_path / "forked"
        with listening(forked=lambda: note.write_text("trains")) as (told, lifecycle):
            train(model, 1)
            count = len(told.points)

            def child() -> None:
                train(model, 2)
                assert lifecycle.in_forked_child
                lifecycle.disarm()
                assert len(told.points) == count

            assert in_a_fork(child)[1] == 0
            assert not lifecycle.in_forked_child
        assert note.read_text() == "trains"
        assert lifecycle.step == 1

    def test_no_tensor_and_no_model_lives_longer(self) -> None:
        model = two_layers()
        kept: list[weakref.ref[Any]] = []
        with listening() as (told, _):
            told.at_left = lambda layer, result: kept.append(weakref.ref(result))
            train(model, 1)
            gc.disable()
            try:
                train(model, 1)
                assert [reference() for reference in kept] == [None] * 8
            finally:
                gc.enable()
            reference = weakref.ref(model)
            del model
            gc.collect()
            assert reference() is None
