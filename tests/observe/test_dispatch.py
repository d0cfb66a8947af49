"""Watching leaves nothing on a model: it may grow, be copied, scripted, compiled and recomputed while it is watched."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.watch import WatchGroup
from tests.observe.watching import EVERYTHING, Seen, two_layers, watching

ACTIVATIONS = WatchGroup(types=("Linear",), channels=("act",))


def linears(count: int = 4) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))


def step(model: nn.Module) -> None:
    model(torch.ones(1, 4)).sum().backward()


def activations(seen: Seen, number: int) -> dict[str, int]:
    """How often each layer's output was seen in one step."""
    return dict(Counter(layer for layer, role in seen.places(number) if role == "act"))


def own_hooks(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.layer(x))


class Lazy(nn.Module):
    """Builds its head in its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head: nn.Module | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.head is None:
            self.head = nn.Linear(4, 1)
        return self.head(self.body(x))


def _replace(model: nn.Sequential) -> None:
    model[1] = nn.Linear(4, 4)


def _replace_in_the_dictionary(model: nn.Sequential) -> None:
    model._modules["1"] = nn.Linear(4, 4)


def _append(model: nn.Sequential) -> None:
    model.append(nn.Linear(4, 4))


def _insert(model: nn.Sequential) -> None:
    model.insert(1, nn.Linear(4, 4))


def _wrap(model: nn.Sequential) -> None:
    model[1] = nn.Sequential(model[1], nn.Linear(4, 4))


class TestChangesAfterTheFirstCall:
    """What is added or replaced is watched from the root's next call on, and everything else as before."""

    @pytest.mark.parametrize(
        ("change", "layers"),
        [
            (_replace, {"0", "1"}),
            (_replace_in_the_dictionary, {"0", "1"}),
            (_append, {"0", "1", "2"}),
            (_insert, {"0", "1", "2"}),
        ],
    )
    def test_a_new_layer_is_seen_from_the_next_call_on(
        self, change: Callable[[nn.Sequential], None], layers: set[str]
    ) -> None:
        model = linears(2)
        with watching() as (observer, seen):
            step(model)
            change(model)
            step(model)
            step(model)
        assert activations(seen, 1) == {"0": 1, "1": 1}
        assert sum(activations(seen, 2).values()) == sum(activations(seen, 3).values()) == len(model)
        if change is not _insert:  # which layer has which name then is open
            assert activations(seen, 2) == activations(seen, 3) == dict.fromkeys(layers, 1)
        assert observer.step == 3
        assert observer.errors == 0

    def test_a_replaced_layer_is_the_one_that_is_read(self) -> None:
        model = linears(2)
        with watching() as (_, seen):
            step(model)
            model[1] = nn.Linear(4, 4)
            step(model)
            with torch.no_grad():
                model[1].weight.fill_(float("nan"))
            step(model)
        for role in ("weight", "act"):
            assert [one.stats.bad for number in (1, 2, 3) for one in seen.only(number, "1", role)] == [False] * 2 + [
                True
            ]

    def test_its_parameters_and_gradients_are_read_too(self) -> None:
        model = linears(2)
        with watching(EVERYTHING) as (_, seen):
            step(model)
            model[1] = nn.Linear(4, 4)
            for _ in range(2):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                step(model)
                optimizer.step()
        roles = [role for layer, role in seen.places(3) if layer == "1"]
        assert sorted(roles) == sorted(["weight", "bias", "input", "act", "igrad", "wgrad", "bgrad"])

    def test_the_names_of_new_layers_are_reported(self) -> None:
        model = linears(2)
        with watching() as (_, seen):
            step(model)
            model.append(nn.Linear(4, 4))
            step(model)
        assert "2" in {name for root in seen.roots for name in root.watched_names}
        assert {root.label for root in seen.roots} == {"Sequential"}

    def test_a_layer_built_in_the_first_forward_is_seen_from_the_second_call_on(self) -> None:
        model = Lazy()
        with watching() as (observer, seen):
            for _ in range(3):
                step(model)
        assert activations(seen, 2) == activations(seen, 3) == {"body": 1, "head": 1}
        assert observer.step == 3

    def test_a_layer_that_moves_into_an_adapter_is_not_seen_twice(self) -> None:
        model = linears(2)
        with watching() as (_, seen):
            step(model)
            _wrap(model)
            step(model)
        assert sum(activations(seen, 2).values()) == 3
        assert set(activations(seen, 2)) >= {"0", "1.1"}

    def test_the_inside_of_a_watched_submodule_counts_as_well(self) -> None:
        model = nn.Sequential(linears(1), nn.Linear(4, 1))
        with watching() as (_, seen):
            step(model)
            model[0].append(nn.Linear(4, 4))
            step(model)
        assert activations(seen, 2) == {"0.0": 1, "0.1": 1, "1": 1}

    def test_a_stride_goes_on_counting(self) -> None:
        model = linears(4)
        with watching(WatchGroup(types=("Linear",), channels=("act",), stride=2)) as (_, seen):
            step(model)
            model.append(nn.Linear(4, 4))
            model.append(nn.Linear(4, 4))
            step(model)
            model[1] = nn.Linear(4, 4)  # between two that are watched
            step(model)
            model[2] = nn.Linear(4, 4)
            step(model)
        assert activations(seen, 1) == {"0": 1, "2": 1}
        assert activations(seen, 2) == activations(seen, 3) == activations(seen, 4) == {"0": 1, "2": 1, "4": 1}

    def test_adding_a_module_touches_no_other(self) -> None:
        model = linears(3)
        with watching(EVERYTHING) as (observer, seen):
            for _ in range(6):
                step(model)
                model.append(nn.Linear(4, 4))
        for number in range(1, 7):
            assert activations(seen, number) == {"(root)": 1, **{str(index): 1 for index in range(number + 2)}}
            assert len(seen.only(number, "1", "igrad")) == 1
        assert observer.errors == 0


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "copied": copy.deepcopy,
    "pickled": lambda model: pickle.loads(pickle.dumps(model)),
    "saved": lambda model: _saved_and_loaded(model),
}


def _saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def _in_another_process(_index: int, model: nn.Module, directory: str) -> None:
    result = model(torch.ones(1, 4))
    Path(directory, "hooks").write_text(str(own_hooks(model)))
    torch.save(result, Path(directory, "result.pt"))


class TestNothingStandsOnTheModel:
    """A program may do with a watched model whatever it may do with any model."""

    @pytest.mark.parametrize("how", COPIES)
    def test_a_copy_has_no_hooks_and_works(self, how: str) -> None:
        model = two_layers()
        x = torch.ones(1, 4)
        with watching(EVERYTHING) as (observer, _):
            step(model)
            made = COPIES[how](model)
            assert torch.equal(made(x), model(x))
            assert own_hooks(made) == 0
            assert all(not part._backward_hooks and not part._backward_pre_hooks for part in made.modules())
        assert observer.errors == 0
        assert own_hooks(model) == 0

    def test_a_saved_model_is_byte_for_byte_what_it_would_have_been(self) -> None:
        model = two_layers()
        bare = pickle.dumps(model)
        with watching(EVERYTHING):
            with torch.no_grad():
                model(torch.ones(1, 4))
            assert pickle.dumps(model) == bare

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("script", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(1, 4))])
    def test_a_watched_model_can_be_scripted_and_traced(self, script: Callable[[nn.Module], Any]) -> None:
        model = two_layers()
        x = torch.ones(2, 4)
        with watching(EVERYTHING) as (observer, _):
            step(model)
            scripted = script(model)
            assert torch.equal(scripted(x), model(x))
        assert torch.equal(scripted(x), model(x))
        assert observer.errors == 0

    def test_a_watched_model_can_be_given_to_another_process(self, tmp_path: Path) -> None:
        model = two_layers()
        with watching(EVERYTHING):
            step(model)
            mp.spawn(_in_another_process, args=(model, str(tmp_path)))
            expected = model(torch.ones(1, 4))
        assert (tmp_path / "hooks").read_text() == "0"
        assert torch.equal(torch.load(tmp_path / "result.pt"), expected)


class Checkpointed(nn.Module):
    def __init__(self, blocks: int, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class TestCheckpointing:
    """Blocks that run again in the backward pass begin no step."""

    @pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
    @pytest.mark.parametrize("blocks", [2, 40])
    def test_a_step_is_an_iteration(self, blocks: int, reentrant: bool) -> None:
        model = Checkpointed(blocks, reentrant)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with watching(ACTIVATIONS) as (observer, seen):
            for _ in range(10):
                optimizer.zero_grad()
                model(torch.randn(2, 4, requires_grad=True)).square().mean().backward()
                optimizer.step()
        assert observer.step == 10
        assert seen.entered_steps == list(range(1, 11))
        assert set(activations(seen, 10)) == {f"blocks.{index}.layer" for index in range(blocks)}
        assert observer.errors == 0

    @pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
    def test_a_whole_model_that_is_checkpointed_steps_once_an_iteration(self, reentrant: bool) -> None:
        model = two_layers()
        with watching(ACTIVATIONS) as (observer, _):
            for _ in range(5):
                checkpoint(model, torch.randn(2, 4, requires_grad=True), use_reentrant=reentrant).sum().backward()
        assert observer.step == 5

    @pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
    def test_a_bad_value_has_the_number_of_its_iteration(self, reentrant: bool) -> None:
        model = Checkpointed(20, reentrant)
        with watching(ACTIVATIONS) as (_, seen):
            for iteration in range(1, 9):
                x = torch.full((2, 4), float("nan") if iteration == 6 else 1.0, requires_grad=True)
                model(x).sum().backward()
        bad = {number for number, found in seen.by_step.items() if any(one.stats.bad for one in found)}
        assert bad == {6}


class Mixed(nn.Module):
    """An eager layer, and a block that the caller makes invisible."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.block = Block()
        self.spare = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.stem(x))


class TestUnobserved:
    """Layers that were watched and never seen are known, and so is whether the compiler has taken them."""

    def test_a_layer_that_is_never_called_is_named(self) -> None:
        model = Mixed()
        with watching() as (observer, _):
            step(model)
        assert (observer.roots.unobserved(), list(observer.roots.opaque)) == (["spare"], [])

    def test_a_layer_that_was_called_once_is_not(self) -> None:
        model = Mixed()
        with watching() as (observer, _):
            step(model)
            model.block = nn.Sequential(model.block, model.spare)  # type: ignore[assignment]
            step(model)
        assert (observer.roots.unobserved(), list(observer.roots.opaque)) == ([], [])

    def test_a_model_that_is_gone_before_the_program_ends_is_not_forgotten(self) -> None:
        """As one that is made in a function main() is, before the program's exit handlers run."""
        with watching() as (observer, _):
            step(Mixed())
            gc.collect()
        assert (observer.roots.unobserved(), list(observer.roots.opaque)) == (["spare"], [])

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("in_place", [True, False], ids=["block.compile()", "torch.compile(block)"])
    def test_a_compiled_block_beside_an_eager_layer_is_named(self, in_place: bool) -> None:
        torch._dynamo.reset()
        model = Mixed()
        if in_place:
            model.block.compile(backend="aot_eager")
        else:
            model.block = torch.compile(model.block, backend="aot_eager")  # type: ignore[assignment]
        with watching() as (observer, seen):
            for _ in range(2):
                step(model)
        torch._dynamo.reset()
        unseen, compiled = observer.roots.unobserved(), list(observer.roots.opaque)
        (name,) = compiled
        assert name.startswith("block.")
        assert name.endswith("layer")
        assert sorted(unseen) == sorted([name, "spare"])
        assert activations(seen, 2) == {"stem": 1}
