"""What compiled regions report, which operation a bad value is traced to, and that the program does not notice."""

from __future__ import annotations

import contextlib
import copy
import pickle
import pickletools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.compiling.located import Located, is_bad
from aorta_collectors.observe.compiling.own_code import leave_own_code_alone
from aorta_collectors.observe.compiling.region import Inputs, Region
from aorta_collectors.observe.compiling.regions import CompiledRegions, watch_compiled_call
from tests.observe.watching import one_process_group
from tests.support import PYTHON, run

INF = float("inf")


class Runs:
    """Every run of a region; asks where a bad output comes from, or always."""

    def __init__(self, always: bool = False) -> None:
        self.regions: list[Region] = []
        self.inputs: list[tuple[Any, ...]] = []
        self.owners: list[nn.Module | None] = []
        self.places: list[nn.Module | None] = []
        self.located: list[Located | None] = []
        self.always = always

    def __call__(self, region: Region, inputs: Inputs, outputs: Any) -> None:
        self.regions.append(region)
        self.inputs.append(inputs.values)
        self.owners.append(region.scope().own.module)
        if self.always or (is_bad(outputs) and not is_bad(inputs.values)):
            self.located.append(region.locate(inputs))

    @property
    def only(self) -> Located:
        (found,) = self.located
        assert found is not None, [region.failure for region in self.regions]
        return found


@contextlib.contextmanager
def regions(always: bool = False, **options: Any) -> Iterator[Runs]:
    runs = Runs(always)
    watch = CompiledRegions(runs, **options)
    torch._dynamo.reset()
    watch.start()
    try:
        yield runs
        assert watch.first_error is None
        assert watch.supported
    finally:
        watch.stop()


class Log(nn.Module):
    """Its own code makes the NaN, behind a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.linear(x) - 1e3)


class Net(nn.Module):
    """Two layers around `middle`, which is given the net too."""

    def __init__(self, middle: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.logs = nn.ModuleList([Log()])
        self.after = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.after(self.middle(self, self.before(x)))


def _view_written(_: Net, x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[0] = INF
    return x * 1


def _harmless_before(_: Net, x: Tensor) -> Tensor:
    x = torch.where(x > 1e9, 1 / (x * 0), x).nan_to_num(0, 0, 0)
    return torch.where(x.abs() < 1e9, x, x / 0) / (x * 0)


def _masked_row(_: Net, x: Tensor) -> Tensor:
    scores = x.masked_fill(torch.ones_like(x, dtype=torch.bool), -INF)
    return torch.softmax(scores, -1)


def _broken(net: Net, x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return net.logs[0](x)


def _autocast(net: Net, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = net.logs[0](x)
    return x.float()


def _without_grad(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net.logs[0](x)


MIDDLES: dict[str, tuple[Callable[[Net, Tensor], Tensor], tuple[str, str, str]]] = {
    "in a part": (lambda net, x: net.logs[0](x), ("logs.0", "log", "nan")),
    "own code": (lambda net, x: x / (x * 0), ("", "truediv", "inf")),
    "checkpointed": (lambda net, x: checkpoint(net.logs[0], x, use_reentrant=False), ("logs.0", "log", "nan")),
    "through a view": (_view_written, ("", "setitem", "inf")),
    "in place": (lambda net, x: x.clone().mul_(INF), ("", "mul_", "inf")),
    "not the earlier one that vanished": (_harmless_before, ("", "truediv", "inf")),
    "a mask over everything": (_masked_row, ("", "softmax", "nan")),
    "log(0) times 0": (lambda net, x: torch.log(x * 0) * 0, ("", "log", "-inf")),
    "after a graph break": (_broken, ("logs.0", "log", "nan")),
    "under autocast": (_autocast, ("logs.0", "log", "nan")),
    "under no_grad": (_without_grad, ("logs.0", "log", "nan")),
    "under vmap": (lambda net, x: torch.func.vmap(lambda row: (row - 1e3).log())(x), ("", "_remove_batch_dim", "nan")),
}


@pytest.mark.parametrize("name", MIDDLES)
@pytest.mark.filterwarnings("ignore:.*lazily:UserWarning")
def test_names_operation_and_module(name: str) -> None:
    middle, expected = MIDDLES[name]
    net = Net(middle)
    with regions() as runs:
        torch.compile(net, backend="eager")(torch.randn(3, 4))
    found = runs.only
    assert (found.module_path, found.op, found.kind) == expected
    assert found.module is net.get_submodule(found.module_path)
    # torch writes down the line of whoever undid the vmap.
    assert "test_regions.py" in found.where or name == "under vmap"
    assert not found.by_design


def test_evidence_of_the_operation() -> None:
    with regions() as runs:
        torch.compile(lambda x: torch.log(x), backend="eager")(torch.tensor([[1.0, 4.0, -2.0], [0.0, 1.0, 1.0]]))
    found = runs.only
    assert (found.shape, found.dtype, found.input_abs_max) == ((2, 3), torch.float32, 4.0)
    assert (found.stats.nan_count, found.stats.inf_count, found.kind) == (1, 1, "nan")
    assert (found.module_path, found.module) == ("", None)
    assert found.where.endswith('torch.log(x), backend="eager")(torch.tensor([[1.0, 4.0, -2.0], [0.0, 1.0, 1.0]]))')


def test_a_mask_that_is_handed_out_is_by_design() -> None:
    with regions() as runs:
        torch.compile(lambda x: x.masked_fill(x > 0, -INF), backend="eager")(torch.ones(3))
    assert (runs.only.op, runs.only.kind, runs.only.by_design) == ("masked_fill", "-inf", True)


def test_a_bad_parameter_is_an_input() -> None:
    net = nn.Linear(4, 4)
    with torch.no_grad():
        net.weight[0, 0] = float("nan")
    with regions(always=True) as runs:
        torch.compile(net, backend="eager")(torch.randn(3, 4))
    assert (runs.only.op, runs.only.kind) == ("input", "nan")
    assert "weight" in runs.only.where


GLOBAL = Log()


@torch.no_grad()
def test_modules_that_a_compiled_function_uses() -> None:
    local = Log()
    with regions() as runs:
        torch.compile(lambda x: GLOBAL(x), backend="eager")(torch.randn(3, 4))
        torch.compile(lambda x: local(x), backend="eager")(torch.randn(3, 4))
        torch.compile(local.forward, backend="eager")(torch.randn(3, 4))
        inplace = nn.Sequential(nn.Identity(), Log())
        inplace.compile(backend="eager")
        inplace(torch.randn(3, 4))
    assert [found.module for found in runs.located if found] == [GLOBAL, local, local, inplace[1]]
    assert [found.module_path for found in runs.located if found] == ["", "", "", ""]


def test_a_region_belongs_to_the_module_whose_method_it_is() -> None:
    net = Everything()
    with regions() as runs:
        torch.compile(net, backend="eager")(torch.randn(3, 6), torch.zeros(2))
        torch.compile(lambda x, net: x + 1, backend="eager")(torch.randn(3, 4), net)
    assert runs.owners == [net, net, None]
    assert runs.regions[0].label.startswith("forward (test_regions.py:")


def _by_hooks(model: nn.Module, x: Tensor) -> nn.Module | None:
    """The first module to return something bad when all it was given was clean, in an eager run."""
    found: list[nn.Module] = []

    def look(module: nn.Module, args: Any, output: Any) -> None:
        if is_bad(output) and not is_bad(args) and not found:
            found.append(module)

    handles = [module.register_forward_hook(look) for module in model.modules()]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


class Residual(nn.Module):
    def __init__(self, body: nn.Module, scale: float) -> None:
        super().__init__()
        self.body, self.scale = body, scale

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        out = out + x if self.scale > 0 else out.clone().add_(x)
        return out * self.scale


class Power(nn.Module):
    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[1:].pow_(self.exponent)
        return x


LAYERS = st.recursive(
    st.one_of(
        st.just(0).map(lambda _: nn.Linear(4, 4)),
        st.sampled_from([nn.ReLU(inplace=True), nn.Tanh(), nn.Dropout(0.5), nn.LayerNorm(4)]).map(copy.deepcopy),
        st.sampled_from([1.0, 0.5, 0.3, 400.0]).map(Power),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: nn.Sequential(*parts)),
        st.builds(Residual, inner, st.sampled_from([1.0, -1.0, 3e38])),
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(LAYERS, st.integers(0, 2**16))
def test_names_the_module_that_hooks_name_in_an_eager_run(body: nn.Module, seed: int) -> None:
    model = nn.Sequential(nn.Linear(4, 4), body, nn.Linear(4, 4)).eval()
    torch.manual_seed(seed)
    x = torch.randn(3, 4)
    expected = _by_hooks(model, x)
    with regions() as runs, torch.no_grad():
        torch.compile(model, backend="eager")(x)
    named = [found.module if found else None for found in runs.located]
    # What went bad and was healed again before the end is not looked for.
    assert named == ([expected] if is_bad(model(x)) else [])


class Everything(nn.Module):
    """Randomness, running statistics, a written buffer and input, views, a graph break and changing sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.second = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = self.norm(checkpoint(self.first, x, use_reentrant=False))
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        keep[1:].add_(x.detach().sum())
        torch._dynamo.graph_break()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.second(x - self.mean)
        return torch.rand_like(x) * x.float()


def _train(backend: str, sizes: tuple[int, ...]) -> list[Any]:
    """All that a training run yields, how often torch compiled, and what it warned of."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model, keep, trail = Everything(), torch.zeros(5), []
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for size in sizes:
            optimizer.zero_grad()
            loss = compiled(torch.randn(size, 6), keep).square().mean()
            loss.backward()
            trail += [loss.item(), *(p.grad.clone() for p in model.parameters() if p.grad is not None), torch.rand(1)]
            optimizer.step()
    compiles = {name: dict(torch._dynamo.utils.counters[name]) for name in ("stats", "frames", "graph_break")}
    messages = sorted({str(warning.message) for warning in warned})
    return [*trail, keep, *model.state_dict().values(), compiles, messages]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_training_is_the_same_bit_for_bit_though_each_run_is_replayed(backend: str) -> None:
    sizes = (4, 4) if backend == "inductor" else (4, 4, 7, 5)  # it takes a while
    bare = _train(backend, sizes)
    with regions(always=True) as runs:
        watched = _train(backend, sizes)
    assert [region.failure for region in runs.regions] == [None] * 2 * len(sizes)
    assert len(bare) == len(watched)
    for one, other in zip(bare, watched, strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_replay_draws_the_numbers_that_the_run_drew(backend: str) -> None:
    made: list[Tensor] = []

    def one_in_eight(x: Tensor) -> Tensor:
        return x / (torch.rand(8) > 0.125)

    def ran(region: Region, inputs: Inputs, outputs: Any) -> None:
        found = region.locate(inputs)
        made.append(torch.tensor([torch.isinf(outputs[0]).sum(), found.stats.inf_count if found else 0]))

    torch._dynamo.reset()
    watch = CompiledRegions(ran)
    watch.start()
    compiled = torch.compile(one_in_eight, backend=backend)
    for _ in range(20):
        compiled(torch.ones(8))
    watch.stop()
    assert len({int(run) for run, _ in made}) > 2
    assert all(run == replay for run, replay in made)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_what_inductor_compiled_is_traced_too(mode: str) -> None:
    net = Log()
    with regions() as runs, torch.no_grad():
        torch.compile(net, mode=mode)(torch.randn(3, 4))
    assert (runs.only.module, runs.only.op) == (net, "log")


def test_layers_that_share_compiled_code_are_told_apart() -> None:
    layers = nn.ModuleList([Log(), Log(), Log()])
    for layer in layers:
        layer.compile(backend="eager")
    with regions() as runs, torch.no_grad():
        for layer in layers:
            layer(torch.randn(3, 4))
    assert len(set(runs.regions)) == 1
    assert [found.module for found in runs.located if found] == list(layers)


def test_inputs_are_those_before_the_run() -> None:
    base = torch.ones(6)

    def write(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y.add_(1)
        return torch.log(x - 3)

    with regions() as runs:
        torch.compile(write, backend="eager")(base[:4], base[2:])
    assert base.tolist() == [2, 2, 3, 3, 2, 2]
    assert all(bool((value == 1).all()) for value in runs.inputs[0])
    assert runs.only.stats.nan_count == 2  # 2 - 3: the replay wrote to memory that both shared, as the program did


def test_what_is_written_and_large_is_not_copied() -> None:
    with regions(always=True, copy_limit=100) as runs:
        torch.compile(lambda x: x.mul_(INF), backend="eager")(torch.ones(26))
    assert runs.located == [None]
    assert runs.regions[0].failure == "the region writes to inputs too large to copy"


def test_a_collective_is_not_run_twice() -> None:
    from torch.distributed._functional_collectives import all_reduce

    with one_process_group(), regions() as runs:
        torch.compile(lambda x: all_reduce(x, "sum", [0]) / 0, backend="eager")(torch.ones(3))
    assert runs.located == [None]
    assert "cannot be run twice" in str(runs.regions[0].failure)


def test_a_replay_that_fails_leaves_nothing_switched_on() -> None:
    ran: list[int] = []

    @torch.library.custom_op("aorta_test::once", mutates_args=())
    def once(x: Tensor) -> Tensor:
        ran.append(1)
        if len(ran) > 1:
            raise RuntimeError("not again")
        return x * INF

    once.register_fake(torch.empty_like)

    def fails(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autocast("cpu", dtype=torch.float16):
                x = x + 1
            return once(x) + torch.func.vmap(torch.sin)(x)

    with regions() as runs:
        torch.compile(fails, backend="eager")(torch.ones(3, requires_grad=True))
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16
        assert torch.func.vmap(torch.sin)(torch.zeros(2)).tolist() == [0, 0]
    assert runs.located == [None]
    assert runs.regions[0].failure == "RuntimeError: not again"


def test_sizes_and_recompilations_are_regions_of_their_own() -> None:
    with regions() as runs:
        compiled = torch.compile(lambda x: torch.log(x.sum(0) - x.shape[0] * 10), backend="eager", dynamic=True)
        for size in (2, 5, 9):
            compiled(torch.ones(size, 3))
        compiled(torch.ones(4, 3, dtype=torch.float64))
    assert len(set(runs.regions)) == 2
    assert [(found.op, found.dtype) for found in runs.located if found] == [("log", torch.float32)] * 3 + [
        ("log", torch.float64)
    ]


def test_first_bad_gradient() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sqrt(torch.relu(x) * 0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.root, self.outer = nn.Linear(4, 4), Root(), nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += x.detach().sum(0)
            return self.outer(checkpoint(self.root, self.inner(x), use_reentrant=False))

    model = Model()
    found: list[Located | None] = []

    def ran(region: Region, inputs: Inputs, outputs: Any) -> None:
        grads = [torch.ones_like(output) if output.requires_grad else None for output in outputs]
        found.append(region.locate_backward(inputs, grads))
        found.append(region.locate_backward(inputs, [grad * INF if grad is not None else None for grad in grads]))
        assert region.failure is None

    torch._dynamo.reset()
    watch = CompiledRegions(ran)
    watch.start()
    out = torch.compile(model, backend="aot_eager")(torch.randn(3, 4))
    watch.stop()
    bad, _ = found
    assert bad is not None
    assert (bad.module_path, bad.op, bad.kind, bad.module) == ("root", "sqrt", "inf", model.root)
    assert all(param.grad is None for param in model.parameters())
    out.sum().backward()
    assert model.outer.weight.grad is not None


def test_gradients_where_inputs_that_want_them_are_written_to() -> None:
    found: list[Located | None] = []
    watch = CompiledRegions(lambda region, inputs, outputs: found.append(region.locate_backward(inputs, [outputs[0]])))
    torch._dynamo.reset()
    watch.start()
    x = torch.tensor([4.0, 0.0], requires_grad=True)

    def forward(x: Tensor) -> Tensor:
        x.mul_(0.5)
        return x.sqrt() + 1

    torch.compile(forward, backend="aot_eager")(x * 1).sum().backward()
    watch.stop()
    (bad,) = found
    assert bad is not None
    assert (bad.op, bad.stats.inf_count) == ("sqrt", 1)


def test_modules_in_a_graph_as_torch_2_4_captures_them() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Log())
    traced = fx.symbolic_trace(net)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    hooked: list[nn.Module] = []
    handle = register_module_forward_hook(lambda module, args, output: hooked.append(module))
    region = Region(traced, None)
    found = region.locate(region.before((torch.randn(3, 4),), 1000))
    handle.remove()
    assert found is not None
    assert (found.op, found.kind, region.failure) == ("log", "nan", None)
    assert hooked == []
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_stopped_it_is_silent_and_leaves_no_patch() -> None:
    from torch._dynamo.output_graph import OutputGraph

    original = OutputGraph.call_user_compiler
    torch._dynamo.reset()
    heard: list[str] = []
    first = CompiledRegions(lambda *_: heard.append("first"))
    second = CompiledRegions(lambda *_: heard.append("second"))
    first.start()
    second.start()
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    first.stop()  # below the other's
    compiled(torch.ones(2))
    second.stop()
    compiled(torch.ones(2))
    assert heard == ["first", "second", "second"]
    first.start()
    compiled(torch.ones(2))
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
    first.stop()
    assert heard[3:] == ["first", "first"]
    assert OutputGraph.call_user_compiler is original


@pytest.mark.parametrize("other", [lambda self, graph_module: None, None, 3])
def test_another_torch_is_left_alone(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.output_graph import OutputGraph

    with monkeypatch.context() as patch:
        patch.setattr(OutputGraph, "call_user_compiler", other)
        watch = CompiledRegions(lambda *_: None)
        watch.start()
        assert not watch.supported
        assert vars(OutputGraph)["call_user_compiler"] is other
        watch.stop()


def test_an_error_of_the_caller_is_kept_and_the_program_goes_on() -> None:
    def ran(*_: Any) -> None:
        raise ValueError("no")

    torch._dynamo.reset()
    watch = CompiledRegions(ran)
    watch.start()
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
    watch.stop()
    assert watch.first_error == "ValueError: no"


def test_exports_are_not_touched() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with regions() as runs:
        exported = torch.export.export(net, (torch.randn(3, 4),), strict=True)
        assert exported.module()(torch.zeros(3, 4)).shape == (3, 4)
    assert runs.regions == []


def test_the_model_is_copied_and_pickled_as_before() -> None:
    def compiled() -> nn.Module:
        torch.manual_seed(0)
        net = Log()
        net.compile(backend="eager")
        net(torch.randn(3, 4))
        return net

    def shape(net: nn.Module) -> list[str]:
        return [operation.name for operation, *_ in pickletools.genops(pickle.dumps(net))]

    bare = shape(compiled())
    with regions() as runs:
        net = compiled()
        assert shape(net) == bare
        assert copy.deepcopy(net)(torch.randn(3, 4)).shape == (3, 4)
    assert len(runs.regions) == 1  # a copy of the model is not compiled


def test_a_program_that_watches_operations_itself_sees_its_own_only() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    def flops() -> int:
        torch._dynamo.reset()
        compiled = torch.compile(nn.Linear(4, 4), backend="eager")
        with FlopCounterMode(display=False) as counter:
            compiled(torch.randn(3, 4))
        return int(counter.get_total_flops())

    bare = flops()
    with regions(always=True):
        assert flops() == bare


class _Around(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return self.net(x) * 2


def test_the_outermost_call_of_a_module_compiled_in_place() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert watch_compiled_call(net, lambda *_: None, lambda *_: None) is None
    net.compile(backend="eager")
    seen: list[Any] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        seen.append((module, len(args), sorted(kwargs)))

    undo = watch_compiled_call(net, before, lambda module, output: seen.append(output))
    assert undo is not None
    out = net(input=torch.randn(3, 4))
    assert seen[0] == (net, 0, ["input"])
    assert seen[1] is out
    seen.clear()
    with pytest.raises(TypeError):
        net(1, 2, 3)
    assert seen == [(net, 3, []), None]
    seen.clear()
    copied = copy.deepcopy(net)
    pickle.loads(pickle.dumps(net))(torch.randn(3, 4))
    copied(torch.randn(3, 4))
    leave_own_code_alone()  # as it is while anything is armed
    torch.compile(_Around(net), backend="eager", fullgraph=True)(torch.randn(3, 4))
    assert seen == []
    undo()
    net(torch.randn(3, 4))
    assert seen == []


def test_arming_does_not_import_the_compiler(tmp_path: Path) -> None:
    program = """
import sys, torch
from aorta_collectors.observe.compiling.regions import CompiledRegions
seen = []
watch = CompiledRegions(lambda region, inputs, outputs: seen.append(region.label))
watch.start()
assert "torch._dynamo" not in sys.modules
torch.compile(torch.sin, backend="eager")(torch.ones(1))
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
watch.stop()
print(len(seen), watch.supported, watch.first_error)
"""
    assert run([PYTHON, "-W", "error", "-c", program], cwd=tmp_path).ok().out.split() == ["2", "True", "None"]
