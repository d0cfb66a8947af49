"""The observer in a process: which roots it finds, what counts as a step, what it sees, and what it must not do."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import optimizer as torch_optimizer
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from tests.observe.watching import EVERYTHING, LINEARS, Seen, one_process_group, train, two_layers, watching


@pytest.fixture
def process_group() -> Iterator[None]:
    with one_process_group():
        yield


class Net(nn.Module):
    """A block with one embedding, two layers and a keyword-only input."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.body = two_layers()

    def forward(self, *, ids: torch.Tensor) -> torch.Tensor:
        return self.body(self.table(ids))


def hooks_below(module: nn.Module) -> int:
    return sum(
        len(part._forward_hooks) + len(part._forward_pre_hooks) + len(part._backward_hooks) for part in module.modules()
    )


class TestRoots:
    """The root is the outermost module of a training step; its calls are the steps."""

    def test_each_call_of_a_plain_model_is_a_step(self) -> None:
        with watching() as (observer, seen):
            train(two_layers(), steps=3)
        assert observer.step == 3
        assert seen.entered_steps == [1, 2, 3]
        assert sorted(seen.by_step) == [1, 2, 3]
        assert [root.watched_names for root in seen.roots] == [("0", "2")]

    def test_a_loss_module_beside_the_model_is_not_a_step(self) -> None:
        model, loss = two_layers(), nn.MSELoss()
        with watching() as (observer, seen):
            for _ in range(3):
                loss(model(torch.randn(2, 4)), torch.zeros(2, 1)).backward()
        assert observer.step == 3
        assert [root.label for root in seen.roots] == ["Sequential"]

    def test_a_loss_module_called_before_the_model_is_not_a_step(self) -> None:
        with watching() as (observer, _):
            nn.MSELoss()(torch.zeros(1), torch.ones(1))
            train(two_layers(), steps=2)
        assert observer.step == 2

    def test_a_generator_and_a_discriminator_step_together(self) -> None:
        generator, discriminator = nn.Sequential(nn.Linear(2, 4)), nn.Sequential(nn.Linear(4, 1))
        with watching() as (observer, seen):
            for _ in range(3):
                discriminator(generator(torch.randn(2, 2))).mean().backward()
        assert observer.step == 3
        assert [root.label for root in seen.roots] == ["Sequential", "Sequential#2"]
        layers = [layer for layer, role in seen.places(2) if role == "act"]
        assert layers == ["0", "Sequential#2.0"]

    def test_a_dry_run_of_a_part_does_not_stop_the_clock_of_the_whole(self) -> None:
        backbone = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        with watching() as (observer, seen):
            width = backbone(torch.zeros(1, 4)).shape[1]
            train(nn.Sequential(backbone, nn.Linear(width, 1)), steps=5)
        assert observer.step >= 5
        assert len(seen.by_step) >= 5

    def test_a_second_model_trained_after_the_first_is_reported_while_it_trains(self) -> None:
        first, second = two_layers(), two_layers()
        with watching() as (observer, seen):
            train(first, steps=2)
            train(second, steps=100)
            delivered = sum(len(step) for step in seen.by_step.values())
        # Seven channels of two layers; the first layer's input wants no gradient. What waits must stay bounded.
        assert delivered > 50 * (2 * 7 - 1)
        assert observer.step > 50

    def test_a_parametrized_layer_that_computes_its_weight_while_it_is_built_is_no_root(self) -> None:
        with watching(EVERYTHING) as (observer, seen):
            model = nn.Sequential(nn.Linear(4, 4), spectral_norm(nn.Linear(4, 1)))
            train(model, steps=3)
        assert observer.step == 3
        assert all(("0", "act") in seen.places(step) for step in (1, 2, 3))

    def test_a_call_of_a_part_between_two_steps_is_no_step(self) -> None:
        model = two_layers()
        with watching() as (observer, seen):
            for _ in range(3):
                model(torch.ones(1, 4)).sum().backward()
                model[0](torch.ones(1, 4))
        assert observer.step == 3
        assert len(seen.only(2, "0", "act")) == 2

    def test_a_model_with_lazy_layers_is_attached_once_and_counted_from_its_first_call(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(2), nn.Linear(2, 1))
        with watching(EVERYTHING) as (observer, seen):
            for _ in range(3):
                model(torch.ones(1, 4)).sum().backward()
        assert observer.step == 3
        assert sorted(seen.by_step) == [1, 2, 3]
        places = [(layer, role) for layer, role in seen.places(3) if role in ("input", "act", "igrad")]
        assert len(places) == len(set(places)), "a module was hooked twice"
        assert ("1", "act") in places

    def test_a_module_that_calls_itself_is_one_step(self) -> None:
        class Recursive(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
                return self.layer(x) if depth == 0 else self(x, depth - 1)

        with watching() as (observer, _):
            train(Recursive(), steps=2)
        assert observer.step == 2

    def test_a_watched_root_sees_its_own_first_call(self) -> None:
        with watching() as (_, seen):
            train(nn.Linear(4, 1), steps=2)
        places = [("(root)", role) for role in ("weight", "bias", "input", "act", "wgrad", "bgrad")]
        assert seen.places(1) == seen.places(2) == places

    def test_a_watched_root_sees_the_gradient_of_its_first_input(self) -> None:
        with watching() as (_, seen):
            nn.Linear(4, 1)(torch.ones(1, 4, requires_grad=True)).sum().backward()
        assert ("(root)", "igrad") in seen.places(1)

    def test_a_watched_root_sees_its_first_input_when_it_is_a_keyword(self) -> None:
        model = Net()
        with watching(EVERYTHING) as (_, seen):
            for _ in range(2):
                model(ids=torch.tensor([1]))
        assert ("(root)", "input") in seen.places(2)
        assert ("(root)", "input") in seen.places(1)


class TestWrappers:
    """Distributed wrappers are found at construction, before their first step."""

    def test_distributed_data_parallel_is_attached_when_it_is_built(self, process_group: None) -> None:
        with watching() as (observer, seen):
            model = nn.parallel.DistributedDataParallel(two_layers())
            assert [root.watched_names for root in seen.roots] == [("module.0", "module.2")]
            assert observer.step == 0
            train(model, steps=2)
        assert observer.step == 2
        assert ("module.2", "igrad") in seen.places(1)
        assert ("module.0", "wgrad") in seen.places(1)

    def test_a_container_around_a_wrapper_counts_the_steps(self, process_group: None) -> None:
        with watching() as (observer, seen):
            model = nn.Sequential(nn.parallel.DistributedDataParallel(two_layers()), nn.Linear(1, 1))
            train(model, steps=3)
        assert observer.step == 3
        places = seen.places(2)
        assert len(places) == len(set(places)), "a module inside both roots was read twice"
        assert ("module.0", "weight") in places

    @pytest.mark.filterwarnings("ignore")
    def test_distributed_model_parallel_is_attached_when_it_is_built(self, process_group: None) -> None:
        from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
        from torchrec.distributed.model_parallel import DistributedModelParallel

        class Ranker(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                table = EmbeddingBagConfig(name="t", embedding_dim=4, num_embeddings=8, feature_names=["f"])
                self.tables = EmbeddingBagCollection(device=torch.device("meta"), tables=[table])
                self.over = nn.Linear(4, 1)

            def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
                return self.over(self.tables(sparse).values())

        with watching(LINEARS, WatchGroup(names=("tables",), channels=CHANNELS)) as (observer, seen):
            model = DistributedModelParallel(Ranker(), device=torch.device("cpu"))
            assert len(seen.roots) == 1
            assert seen.roots[0].label == "DistributedModelParallel"
            assert any(name.endswith("over") for name in seen.roots[0].watched_names)
            for _ in range(2):
                lengths = torch.ones(2, dtype=torch.int32)
                sparse = KeyedJaggedTensor.from_lengths_sync(["f"], torch.tensor([1, 2]), lengths)
                model(sparse).sum().backward()
        assert observer.step == 2
        assert observer.errors == 0
        roles = {role for layer, role in seen.places(2) if layer.endswith("over")}
        assert roles == {"weight", "bias", "input", "act", "igrad"}

    def test_fully_sharded_modules_are_watched_under_their_own_class_names(self, process_group: None) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (1,))
        model = two_layers()
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        with watching() as (observer, seen):
            train(model, steps=2)
        assert observer.step == 2
        assert observer.errors == 0
        assert seen.roots[0].watched_names == ("0", "2")

    def test_a_parametrized_layer_is_watched_under_its_own_class_name(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), spectral_norm(nn.Linear(4, 1)))
        with watching() as (_, seen):
            train(model, steps=1)
        assert seen.roots[0].watched_names == ("0", "1")

    def test_sharded_parameters_and_gradients_are_read(self, process_group: None) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        model = two_layers()
        weight = model[2].weight.detach().clone()
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with watching(WatchGroup(names=("2",), channels=CHANNELS)) as (_, seen):
            train(model, steps=2)
        (first,) = seen.only(1, "2", "weight")
        assert (first.low, first.high) == (weight.min().item(), weight.max().item())
        assert {"wgrad", "bgrad", "bias"} <= {role for _, role in seen.places(2)}


class TestChannels:
    """Seven channels: when each is read, and what is read."""

    def test_a_step_passes_the_channels_in_their_order(self) -> None:
        with watching(WatchGroup(names=("2",), channels=CHANNELS)) as (_, seen):
            train(two_layers(), steps=1)
        assert seen.places(1) == [("2", role) for role in CHANNELS]

    @pytest.mark.parametrize("channel", CHANNELS)
    def test_a_channel_alone_reads_nothing_else(self, channel: str) -> None:
        with watching(WatchGroup(names=("2",), channels=(channel,))) as (_, seen):
            train(two_layers(), steps=2)
        assert seen.places(1) == seen.places(2) == [("2", channel)]

    def test_values_are_those_the_previous_step_left_and_gradients_those_of_this_step(self) -> None:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        weights, gradients = [], []
        with watching(WatchGroup(names=("2",), channels=CHANNELS)) as (_, seen):
            for _ in range(3):
                weights.append(model[2].weight.max().item())
                model(torch.randn(2, 4)).sum().backward()
                assert model[2].weight.grad is not None
                gradients.append(model[2].weight.grad.max().item())
                optimizer.step()
                optimizer.zero_grad()
        for step in (1, 2, 3):
            (weight,), (gradient,) = seen.only(step, "2", "weight"), seen.only(step, "2", "wgrad")
            assert weight.high == weights[step - 1]
            assert gradient.high == gradients[step - 1]
            assert weight.site.from_prev_step
            assert not gradient.site.from_prev_step
            assert weight.site.param == gradient.site.param == "weight"
        flags = {seen_one.site.role: seen_one.site.from_prev_step for seen_one in seen.by_step[1]}
        assert flags == {role: role in ("weight", "bias") for role in CHANNELS}

    def test_only_activations_and_input_gradients_advance_the_call_counter(self) -> None:
        with watching(WatchGroup(names=("2",), channels=CHANNELS)) as (observer, seen):
            train(two_layers(), steps=2)
        assert [one.calls for one in seen.by_step[1]] == [0, 0, 0, 1, 2, 2, 2]
        assert observer.reader.calls == 4

    def test_an_input_given_by_keyword_alone_is_read(self) -> None:
        class Caller(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 1)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layer(input=x)

        with watching() as (_, seen):
            Caller()(torch.full((1, 4), 7.0, requires_grad=True)).sum().backward()
        (given,) = seen.only(1, "layer", "input")
        assert (given.low, given.high) == (7.0, 7.0)
        assert len(seen.only(1, "layer", "igrad")) == 1

    def test_an_output_is_found_in_a_dict_a_dataclass_or_a_nested_tuple(self) -> None:
        @dataclasses.dataclass
        class Output:
            name: str
            logits: torch.Tensor

        class Giver(nn.Module):
            def __init__(self, wrap: Any) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))
                self.wrap = wrap

            def forward(self, x: torch.Tensor) -> Any:
                return self.wrap(x * self.scale)

        wraps = [lambda t: {"loss": None, "logits": t}, lambda t: Output("a", t), lambda t: (None, [0, (t,)])]
        for wrap in wraps:
            with watching(WatchGroup(types=("Giver",), channels=("act",))) as (_, seen):
                Giver(wrap)(torch.tensor([2.0]))
            (act,) = seen.only(1, "(root)", "act")
            assert act.high == 2.0

    def test_an_output_without_a_tensor_is_passed_over(self) -> None:
        class Silent(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(1, 1)
                self.loop: list[Any] = []
                self.loop.append(self.loop)

            def forward(self, x: torch.Tensor) -> Any:
                return {"number": 3, "text": "x", "nothing": None, "loop": self.loop}

        with watching(WatchGroup(types=("Silent",), channels=("act",))) as (observer, seen):
            Silent()(torch.ones(1))
        assert observer.errors == 0
        assert seen.by_step == {}

    def test_empty_and_sparse_tensors_are_counted_as_unreadable(self) -> None:
        with watching() as (observer, seen):
            nn.Linear(4, 1)(torch.empty(0, 4))
        assert observer.reader.num_skipped == 2
        assert [role for _, role in seen.places(1)] == ["weight", "bias"]

    def test_parameters_of_embeddings_are_skipped_and_listed(self) -> None:
        with watching(EVERYTHING) as (_, seen):
            Net()(ids=torch.tensor([1, 2])).sum().backward()
        assert seen.roots[0].skipped_params == (
            {"layer_name": "table", "param_name": "weight", "reason": "embedding_type", "numel": 40, "ndim": 2},
        )
        assert {role for layer, role in seen.places(1) if layer == "table"} == {"input", "act"}

    def test_parameters_over_the_guard_are_skipped_and_listed(self) -> None:
        with watching(LINEARS, max_param_numel=4) as (_, seen):
            train(two_layers(), steps=1)
        skipped = [
            (entry["layer_name"], entry["param_name"], entry["reason"]) for entry in seen.roots[0].skipped_params
        ]
        assert skipped == [("0", "weight", "numel_over_guard")]
        assert ("0", "bias") in seen.places(1)
        assert not {("0", "weight"), ("0", "wgrad")} & set(seen.places(1))

    def test_a_parameter_replaced_by_another_is_still_read(self) -> None:
        model = two_layers()
        with watching() as (_, seen):
            train(model, steps=1)
            threes = {name: torch.full_like(value, 3.0) for name, value in model.state_dict().items()}
            model.load_state_dict(threes, assign=True)
            train(model, steps=1)
        (weight,) = seen.only(2, "2", "weight")
        assert (weight.low, weight.high) == (3.0, 3.0)
        assert ("2", "wgrad") in seen.places(2)

    def test_an_input_kept_over_many_steps_reports_one_gradient_a_step(self) -> None:
        class Reuse(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(2))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.scale + x

        model = Reuse()
        for kept in (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 2):
            with watching(WatchGroup(names=("",), channels=("igrad",))) as (_, seen):
                for _ in range(4):
                    model(kept).sum().backward(retain_graph=True)
            assert [len(seen.by_step[step]) for step in (1, 2, 3, 4)] == [1] * 4

    def test_a_checkpointed_module_reports_one_input_gradient_a_step(self) -> None:
        class Checkpointed(nn.Module):
            def __init__(self, reentrant: bool) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)
                self.reentrant = reentrant

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return checkpoint(self.second, self.first(x), use_reentrant=self.reentrant)

        for reentrant in (True, False):
            with watching() as (_, seen):
                train(Checkpointed(reentrant), steps=2)
            assert len(seen.only(2, "second", "igrad")) == 1


class TestWatching:
    """Class names, path substrings and strides: exactly what was asked for."""

    @pytest.mark.parametrize(
        ("groups", "expected"),
        [
            pytest.param([WatchGroup(types=("ReLU",))], {"body.1": "act igrad"}, id="by class"),
            pytest.param([WatchGroup(names=("dy.2",))], {"body.2": "act igrad"}, id="by substring of the path"),
            pytest.param([WatchGroup(types=("Lin",))], {}, id="a class name is matched whole"),
            pytest.param([WatchGroup(types=("Module",))], {}, id="a base class does not match"),
            pytest.param(
                [WatchGroup(types=("Linear",), names=("body.1",), channels=("act",))],
                {"body.0": "act", "body.1": "act", "body.2": "act"},
                id="the union of classes and substrings",
            ),
            pytest.param([WatchGroup(types=("Linear",), stride=2)], {"body.0": "act igrad"}, id="every second"),
            pytest.param(
                [
                    WatchGroup(types=("Linear",), channels=("act",), stride=2),
                    WatchGroup(names=("body.",), channels=("weight",), stride=2),
                    WatchGroup(types=("Linear",), channels=("bias",)),
                ],
                {"body.0": "act bias weight", "body.2": "bias weight"},
                id="each group has its own scope, channels and stride",
            ),
            pytest.param([WatchGroup(names=("body",), channels=())], {}, id="no channels"),
        ],
    )
    def test_exactly_the_modules_and_channels_asked_for_are_read(
        self, groups: list[WatchGroup], expected: dict[str, str]
    ) -> None:
        model = Net()
        with watching(*groups) as (_, seen):
            model(ids=torch.tensor([1, 2])).sum().backward()
        found: dict[str, set[str]] = {}
        for layer, role in seen.places(1):
            found.setdefault(layer, set()).add(role)
        assert {layer: " ".join(sorted(roles)) for layer, roles in found.items()} == expected


class TestLeavingNoTrace:
    """After disarm the program is as it was, and a model is freed when it would have been."""

    def test_arming_and_disarming_many_times_leaves_no_hook_and_frees_the_model(self) -> None:
        seen = Seen()
        observer = Observer(Request((EVERYTHING,)), seen)
        freed = []
        originals = (nn.parallel.DistributedDataParallel.__init__,)
        for _ in range(20):
            observer.arm()
            observer.arm()
            model = two_layers()
            train(model, steps=1)
            observer.disarm()
            observer.disarm()
            assert hooks_below(model) == 0
            freed.append(weakref.ref(model))
            del model
        gc.collect()
        assert [ref() for ref in freed] == [None] * 20
        assert observer.step == 20
        assert not torch_module._global_forward_pre_hooks
        assert not torch_module._global_forward_hooks_always_called
        assert not torch_optimizer._global_optimizer_pre_hooks
        assert (nn.parallel.DistributedDataParallel.__init__,) == originals

    def test_a_backward_after_disarming_is_not_reported(self) -> None:
        model = two_layers()
        seen = Seen()
        observer = Observer(Request((LINEARS,)), seen)
        observer.arm()
        loss = model(torch.ones(1, 4)).sum()
        observer.disarm()
        calls = observer.reader.calls
        loss.backward()
        assert observer.reader.calls == calls
        observer.arm()
        model(torch.ones(1, 4))
        observer.disarm()
        assert "igrad" not in {role for step in seen.by_step for _, role in seen.places(step)}

    def test_a_model_is_freed_while_the_observer_is_armed(self) -> None:
        with watching(EVERYTHING):
            model = two_layers()
            train(model)
            ref = weakref.ref(model)
            del model
            gc.collect()
            assert ref() is None

    def test_a_leaf_input_passed_in_at_every_step_does_not_collect_hooks(self) -> None:
        prompt = torch.ones(1, 4, requires_grad=True)
        model = nn.Sequential(nn.MultiheadAttention(4, 1))
        block = WatchGroup(types=("MultiheadAttention",), channels=("igrad",))

        class Caller(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = model[0]

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.attention(x, x, x)[0]

        caller = Caller()
        with watching(block) as (_, seen):
            for _ in range(5):
                caller(prompt).sum().backward()
        assert [len(seen.by_step[step]) for step in range(1, 6)] == [1] * 5
        assert not prompt._backward_hooks

    def test_no_hook_stays_on_a_copy_of_the_model(self) -> None:
        with watching(EVERYTHING) as (observer, _):
            model = two_layers()
            train(model, steps=1)
            average = copy.deepcopy(model)
        calls = observer.reader.calls
        average(torch.ones(1, 4))
        assert observer.reader.calls == calls

    def test_an_armed_model_can_be_saved_whole_and_loaded(self) -> None:
        model = two_layers()
        x = torch.ones(1, 4)
        with watching(EVERYTHING):
            model(x)
            file = io.BytesIO()
            torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        assert torch.equal(loaded(x), model(x))

    def test_a_forked_child_reports_nothing(self) -> None:
        model = two_layers()
        with watching() as (observer, seen):
            train(model, steps=2)
            before = (observer.step, observer.reader.calls, len(seen.entered_steps), len(seen.by_step))
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for _ in range(3):
                        model(torch.ones(1, 4)).sum().backward()
                    same = (observer.step, observer.reader.calls, len(seen.entered_steps), len(seen.by_step)) == before
                    status = 0 if observer.in_forked_child and same else 2
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert not observer.in_forked_child


class Exploding(nn.Module):
    """Raises in its n-th forward."""

    def __init__(self, error: type[BaseException], at: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.error, self.at, self.calls = error, at, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.layer(x)
        if self.calls == self.at:
            raise self.error("stop")
        return y


class Guarded(torch.Tensor):
    """A tensor that works in a model, and raises when the observer looks for its local part."""

    @property
    def _local_tensor(self) -> torch.Tensor:
        raise RuntimeError("do not look at me")


class Shy(nn.Module):
    """Gives out a mapping that raises when it is walked."""

    class Output(Mapping[str, torch.Tensor]):
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def __getitem__(self, key: str) -> torch.Tensor:
            return self.x

        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("do not look at me")

    def forward(self, x: torch.Tensor) -> Output:
        return self.Output(x)


class TestFailingSoftly:
    """No exception leaves a hook, and the program's own exceptions do not confuse the clock."""

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_steps_go_on_being_counted_after_a_forward_that_raised(self, error: type[BaseException]) -> None:
        model = Exploding(error, at=2)
        with watching() as (observer, seen):
            for call in range(1, 5):
                try:
                    model(torch.ones(1, 4))
                except (RuntimeError, KeyboardInterrupt):
                    assert call == 2
        assert observer.step == 4
        assert [("layer", "act") in seen.places(step) for step in (1, 2, 3, 4)] == [True] * 4

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_another_model_is_found_after_a_forward_that_raised(self, error: type[BaseException]) -> None:
        with watching() as (_, seen):
            with pytest.raises(error):
                Exploding(error, at=1)(torch.ones(1, 4))
            train(two_layers(), steps=3)
        assert [name.rsplit(".", 1)[-1] for name in seen.roots[-1].watched_names] == ["0", "2"]
        assert sum(role == "wgrad" for step in seen.by_step for _, role in seen.places(step)) == 6

    def test_an_interrupt_inside_a_part_does_not_end_the_counting(self) -> None:
        model = nn.Sequential(Exploding(KeyboardInterrupt, at=2), nn.Linear(1, 1))
        with watching() as (observer, _):
            for _ in range(4):
                try:
                    model(torch.ones(1, 4))
                except KeyboardInterrupt:
                    pass
        assert observer.step == 4

    def test_a_structure_that_raises_when_it_is_looked_into_is_counted_and_the_model_runs_on(self) -> None:
        class Caller(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Shy()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.inner(x).x

        with watching(EVERYTHING) as (observer, seen):
            assert torch.equal(Caller()(torch.ones(1, 4)), torch.ones(1, 4))
        assert observer.errors == 1
        assert (observer.first_error or "").startswith("RuntimeError: do not look at me (test_observer.py:")
        assert ("inner", "input") in seen.places(1)

    def test_a_parameter_that_cannot_be_read_is_named_and_hides_no_other(self) -> None:
        model = two_layers()
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Guarded))
        with watching() as (observer, seen):
            train(model, steps=1)
        assert observer.errors == 0
        (reason,) = observer.reader.skipped
        assert reason == "unreadable (RuntimeError)"
        found = set(seen.places(1))
        assert ("0", "weight") not in found
        assert {("2", "weight"), ("2", "bias"), ("0", "bias")} <= found
        assert {("2", "wgrad"), ("2", "bgrad"), ("0", "bgrad")} <= found
        assert {("2", "weight"), ("2", "bias"), ("0", "bias")} <= found
        assert {("2", "wgrad"), ("2", "bgrad"), ("0", "bgrad")} <= found

    def test_what_the_sink_raises_is_counted(self) -> None:
        class Full(Seen):
            def observed(self, trace: StepTrace) -> None:
                raise OSError("disk full")

        observer = Observer(Request((LINEARS,)), Full())
        observer.arm()
        try:
            train(two_layers(), steps=2)
        finally:
            observer.disarm()
        assert observer.step == 2
        assert observer.errors == 2
        assert (observer.first_error or "").startswith("OSError: disk full (test_observer.py:")

    def test_a_scripted_module_does_not_stop_the_program(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), _scripted())
        with watching(EVERYTHING) as (_, seen):
            train(model, steps=1)
        assert ("0", "act") in seen.places(1)

    @pytest.mark.filterwarnings("ignore")
    def test_a_model_can_be_traced_while_armed(self) -> None:
        model, x = two_layers(), torch.ones(1, 4)
        with watching(EVERYTHING):
            traced = torch.jit.trace(model, x)
        assert torch.equal(traced(x), model(x))

    def test_function_transforms_work_on_an_armed_model(self) -> None:
        model, x = two_layers(), torch.ones(3, 4)
        with watching(EVERYTHING):
            batched = torch.func.vmap(model)(x)
            exported = torch.export.export(model, (x,)).module()(x)
        assert torch.allclose(batched, model(x))
        assert torch.allclose(exported, model(x))

    def test_several_threads_train_at_once(self) -> None:
        def bare_result(seed: int) -> float:
            generator = torch.Generator().manual_seed(seed)
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            x = torch.randn(3, 4, generator=generator)
            for _ in range(20):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            return loss.item()

        expected = [bare_result(seed) for seed in range(4)]
        found: dict[int, float] = {}

        def work(seed: int) -> None:
            found[seed] = bare_result(seed)

        with watching(EVERYTHING) as (observer, _):
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [found[seed] for seed in range(4)] == expected
        assert observer.step > 0


def _scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.ReLU())


class TestCompiledModels:
    """torch.compile: the same results as without an observer, and no exception."""

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("when", ["compiled while armed", "run before arming"])
    def test_a_compiled_model_gives_the_same_results_while_armed(self, when: str) -> None:
        def losses(model: nn.Module, callee: Any) -> list[str]:
            torch.manual_seed(0)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            found = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = callee(torch.randn(3, 4)).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.item().hex())
            return found

        torch._dynamo.reset()
        torch.manual_seed(1)
        first = two_layers()
        second = copy.deepcopy(first)
        expected = losses(first, torch.compile(first, backend="aot_eager"))
        torch._dynamo.reset()
        compiled = torch.compile(second, backend="aot_eager")
        if when == "run before arming":
            compiled(torch.ones(3, 4))
        with watching(EVERYTHING) as (observer, _):
            assert losses(second, compiled) == expected
        assert observer.step == 3
        assert observer.errors == 0
        compiled(torch.ones(3, 4))
        torch._dynamo.reset()
