"""Steps of optimizers of any class are counted, and told before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

from aorta_collectors.observe.optimizers import OptimizerWatch
from tests.observe.watching import one_process_group


class Heavy(torch.optim.Optimizer):
    """Somebody's own."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for param in group["params"]:
                param.data.mul_(2.0)


class Watched:
    """What a watch told of: the value of a parameter before and after each step."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []
        self.watch = OptimizerWatch(
            lambda optimizer: self.told.append(("before", self._value(optimizer))),
            lambda optimizer: self.told.append(("after", self._value(optimizer))),
        )

    @staticmethod
    def _value(optimizer: torch.optim.Optimizer) -> float:
        return float(optimizer.param_groups[0]["params"][0].detach().sum())


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    watched.watch.start()
    yield watched
    watched.watch.stop()


def parameter() -> nn.Parameter:
    param = nn.Parameter(torch.ones(1))
    param.grad = torch.ones(1)
    return param


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.SGD(params, lr=0.5),
        lambda params: torch.optim.AdamW(params, lr=0.5),
        lambda params: torch.optim.Adam(params, lr=0.5, fused=True),
        lambda params: torch.optim.Adam(params, lr=0.5, foreach=True),
        Heavy,
    ],
)
def test_each_step_is_told_before_and_after(make: Callable[[Any], torch.optim.Optimizer], watched: Watched) -> None:
    param = parameter()
    optimizer = make([param])
    for number in (1, 2):
        was = param.item()
        optimizer.step()
        assert watched.told[-2:] == [("before", was), ("after", param.item())]
        assert param.item() != was
        assert watched.watch.num_steps == number


def test_one_that_was_made_before_counts_too() -> None:
    optimizer = Heavy([parameter()])
    optimizer.step()
    watched = Watched()
    watched.watch.start()
    optimizer.step()
    watched.watch.stop()
    optimizer.step()
    assert watched.watch.num_steps == 1
    assert len(watched.told) == 2


def test_a_scheduler_around_it_changes_nothing(watched: Watched) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    assert watched.watch.num_steps == 3


def test_a_closure_runs_between_before_and_after(watched: Watched) -> None:
    param = parameter()
    optimizer = torch.optim.LBFGS([param], max_iter=2)

    def closure() -> Tensor:
        watched.told.append(("closure", param.item()))
        optimizer.zero_grad()
        loss = param.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.as_tensor(loss)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    kinds = [kind for kind, _ in watched.told]
    assert kinds[0] == "before"
    assert kinds[-1] == "after"
    assert set(kinds[1:-1]) == {"closure"}
    assert watched.watch.num_steps == 1


def test_a_step_that_raises_is_none(watched: Watched) -> None:
    class Raising(Heavy):
        def step(self, closure: Any = None) -> Any:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Raising([parameter()]).step()
    assert watched.watch.num_steps == 0


def test_the_sharded_optimizer_of_torch_counts_once(watched: Watched) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    with one_process_group():
        optimizer = ZeroRedundancyOptimizer([parameter()], torch.optim.SGD, lr=0.5)
        optimizer.step()
    assert watched.watch.num_steps == 1


@pytest.mark.filterwarnings("ignore")
def test_the_keyed_optimizer_of_torchrec_counts_once(watched: Watched) -> None:
    from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper

    wrapped = KeyedOptimizerWrapper({"p": parameter()}, lambda params: torch.optim.SGD(params, lr=0.5))
    wrapped.step()
    assert watched.watch.num_steps == 1
    CombinedOptimizer([("a", wrapped)]).step()
    assert watched.watch.num_steps == 2


def test_without_callbacks_steps_are_counted_alone() -> None:
    watch = OptimizerWatch(None, None)
    watch.start()
    Heavy([parameter()]).step()
    watch.stop()
    assert watch.num_steps == 1


def test_nothing_of_it_stays_in_torch() -> None:
    before = (len(torch_optimizer._global_optimizer_pre_hooks), len(torch_optimizer._global_optimizer_post_hooks))
    for _ in range(3):
        watched = Watched()
        watched.watch.start()
        watched.watch.stop()
        watched.watch.stop()
    after = (len(torch_optimizer._global_optimizer_pre_hooks), len(torch_optimizer._global_optimizer_post_hooks))
    assert after == before
