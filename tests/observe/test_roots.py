"""The models of a program: how they are told apart, how they grow, and how they go."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.watching import LINEARS, one_process_group, two_layers, watching

GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
ACTS = WatchGroup(types=("Linear",), channels=("act",))


@pytest.fixture
def process_group() -> Iterator[None]:
    with one_process_group():
        yield


def acts(seen: Any, step: int) -> list[str]:
    return [layer for layer, role in seen.places(step) if role == "act"]


class TestNames:
    def test_a_further_root_carries_its_class_and_number(self) -> None:
        with watching(ACTS) as (_, seen):
            for model in (two_layers(), two_layers(), nn.Linear(4, 1)):
                model(GOOD)
        assert [root.label for root in seen.roots] == ["Sequential", "Sequential#2", "Linear#3"]
        assert [root.watched_names for root in seen.roots] == [
            ("0", "2"),
            ("Sequential#2.0", "Sequential#2.2"),
            ("Linear#3.(root)",),
        ]

    def test_no_two_layers_share_a_name(self) -> None:
        models = [two_layers() for _ in range(5)]
        with watching(ACTS) as (_, seen):
            for model in (*models, *models):
                model(GOOD)
        names = [name for root in seen.roots for name in root.watched_names]
        assert len(set(names)) == len(names) == 10

    def test_a_module_in_two_models_belongs_to_the_first(self) -> None:
        shared = nn.Linear(4, 4)
        first, second = nn.Sequential(shared), nn.Sequential(nn.ReLU(), shared, nn.Linear(4, 1))
        with watching(ACTS) as (_, seen):
            first(GOOD)
            second(GOOD)
        assert acts(seen, 1) + acts(seen, 2) == ["0", "0", "Sequential#2.2"]

    def test_a_model_put_around_one_that_was_called_before_covers_it(self) -> None:
        inner = two_layers()
        with watching(ACTS) as (observer, seen):
            inner(GOOD)
            outer = nn.Sequential(inner, nn.Linear(1, 1))
            for _ in range(2):
                outer(GOOD)
        assert observer.step == 3
        assert sorted(acts(seen, 3)) == ["0", "2", "Sequential#2.1"]

    def test_loss_modules_get_no_number(self) -> None:
        with watching(ACTS) as (_, seen):
            for _ in range(3):
                nn.MSELoss()(two_layers()(GOOD), torch.zeros(3, 1))
        assert [root.label for root in seen.roots] == ["Sequential", "Sequential#2", "Sequential#3"]


class TestGrowth:
    def test_a_part_that_is_added_is_watched_from_the_next_step(self) -> None:
        model = two_layers()
        with watching(LINEARS) as (observer, seen):
            model(GOOD)
            model.append(nn.Linear(1, 1))
            model(GOOD)
        assert acts(seen, 1) == ["0", "2"]
        assert acts(seen, 2) == ["0", "2", "3"]
        assert seen.roots[-1].watched_names == ("0", "2", "3")
        assert observer.step == 2

    def test_a_part_that_is_made_inside_the_forward_is_watched(self) -> None:
        class Late(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.head: nn.Module | None = None

            def forward(self, x: Tensor) -> Tensor:
                x = self.first(x)
                if self.head is None:
                    self.head = nn.Linear(4, 1)
                out: Tensor = self.head(x)
                return out

        model = Late()
        with watching(ACTS) as (_, seen):
            for _ in range(2):
                model(GOOD)
        assert acts(seen, 2) == ["first", "head"]
        assert "head" in acts(seen, 1)

    def test_a_part_that_is_replaced_takes_its_name_over(self) -> None:
        model = two_layers()
        with watching(ACTS) as (_, seen):
            model(GOOD)
            model[2] = nn.Linear(4, 1)
            model(GOOD)
        assert acts(seen, 2) == ["0", "2"]
        assert seen.roots[-1].watched_names == ("0", "2")

    def test_a_part_that_is_removed_and_called_alone_keeps_its_name(self) -> None:
        model = two_layers()
        head = model[2]
        with watching(ACTS) as (observer, seen):
            model(GOOD)
            del model[2]
            head(model(GOOD))
        assert observer.step == 2
        assert acts(seen, 2) == ["0", "2"]


class TestGoing:
    def test_models_made_anew_in_each_step_are_not_kept(self) -> None:
        with watching(LINEARS, origin=True) as (observer, _):
            for _ in range(50):
                two_layers()(GOOD).sum().backward()
            gc.collect()
            two_layers()(GOOD)
            assert len(list(observer.roots)) < 5
        assert observer.errors == 0

    def test_a_layer_that_is_never_called_is_named(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = self.used(x)
                return out

        with watching(LINEARS) as (observer, _):
            Net()(GOOD)
        assert observer.roots.unobserved() == ["unused"]

    def test_one_of_a_model_that_is_gone_is_named_as_well(self) -> None:
        with watching(LINEARS) as (observer, _):
            model = nn.Module()
            model.unused, model.forward = nn.Linear(4, 1), lambda x: x
            model(GOOD)
            del model
            gc.collect()
            two_layers()(GOOD)
            assert observer.roots.unobserved() == ["unused"]

    def test_where_parameters_alone_are_asked_for_no_call_is_missed(self) -> None:
        with watching(WatchGroup(types=("Linear",), channels=("weight", "wgrad"))) as (observer, _):
            model = nn.Module()
            model.unused, model.forward = nn.Linear(4, 1), lambda x: x
            model(GOOD)
        assert observer.roots.unobserved() == []


class TestCounting:
    def test_groups_that_match_nothing_are_known(self) -> None:
        nothing = WatchGroup(types=("Conv2d",), channels=CHANNELS)
        with watching(nothing, LINEARS, WatchGroup(names=("absent",), channels=CHANNELS)) as (observer, _):
            two_layers()(GOOD)
        assert observer.roots.groups_matched == {1}

    def test_modules_that_are_built_are_counted(self) -> None:
        with watching(LINEARS) as (observer, _):
            assert observer.roots.modules_built == 0
            two_layers()
        assert observer.roots.modules_built == 3, "the ReLU has neither parts nor parameters"

    def test_parameters_too_large_for_the_origin_are_named(self) -> None:
        model = nn.Sequential(nn.Linear(4, 100), nn.Linear(100, 1))
        with watching(WatchGroup(names=("none",), channels=("act",)), origin=True, max_param_numel=150) as (
            observer,
            _,
        ):
            model(GOOD)
        assert observer.roots.unscanned == ["0.weight"]

    def test_without_an_origin_none_is(self) -> None:
        with watching(ACTS, max_param_numel=1) as (observer, _):
            two_layers()(GOOD)
        assert observer.roots.unscanned == []

    def test_values_and_gradients_planned_are_counted_once_each(self) -> None:
        watch = WatchGroup(names=("2",), channels=("weight", "bias", "wgrad"))
        with watching(watch, origin=True) as (_, seen):
            two_layers()(GOOD)
        assert seen.roots[-1].params_scanned == 2
        assert seen.roots[-1].grad_params_planned == 1


class TestUnseen:
    """What runs where hooks are not called."""

    @pytest.mark.filterwarnings("ignore")
    def test_a_scripted_model_is_named(self) -> None:
        scripted = torch.jit.script(two_layers())
        with watching(LINEARS) as (observer, _):
            scripted(GOOD)
        assert list(observer.roots.opaque)

    @pytest.mark.filterwarnings("ignore")
    def test_a_watched_part_that_is_scripted_is_named(self) -> None:
        part = torch.jit.script(nn.Sequential(nn.Linear(4, 4)))
        model = nn.Sequential(part, nn.Linear(4, 1))
        with watching(WatchGroup(names=("0",), channels=("act",))) as (observer, _):
            model(GOOD)
        assert "0" in observer.roots.opaque or "0.0" in observer.roots.opaque

    def test_an_ordinary_model_has_none(self, process_group: None) -> None:
        with watching(LINEARS) as (observer, _):
            nn.parallel.DistributedDataParallel(two_layers())(GOOD)
        assert list(observer.roots.opaque) == []
