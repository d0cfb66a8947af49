"""What torch.compile runs is observed with the names and invocations of eager, and computes what it does unobserved."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from aorta_collectors.tensors import observe, watch_grad
from tests.tensors.left import ALL_POINTS, Left, armed

Compile = Callable[[nn.Module], Callable[..., Any]]


@pytest.fixture(autouse=True)
def a_fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """Has what is awkward to observe: an in-place activation, keywords, a dict, names of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor, *, residual: Tensor) -> dict[str, Any]:
        hidden = observe(self.relu(self.linear(self.norm(x))), name="hidden")
        if hidden.requires_grad:
            watch_grad(hidden, name="hidden")
        return {"y": residual + hidden, "extra": (x,)}


class Model(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, residual=x)["y"]
        result: Tensor = self.head(x)
        return result


def whole(model: nn.Module) -> Callable[..., Any]:
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    return compiled  # type: ignore[no-any-return]


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="aot_eager", fullgraph=True)
    return model


def blocks(model: nn.Module) -> nn.Module:
    assert isinstance(model, Model)
    for block in model.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    return model


def in_a_function(model: nn.Module) -> Callable[..., Any]:
    compiled: Any = torch.compile(lambda x: model(x), backend="aot_eager", fullgraph=True)
    return compiled  # type: ignore[no-any-return]


def with_backend_eager(model: nn.Module) -> Callable[..., Any]:
    compiled: Any = torch.compile(model, backend="eager")
    return compiled  # type: ignore[no-any-return]


def train(model: nn.Module, call: Callable[..., Any]) -> list[float]:
    """Two steps and an evaluation; what they compute."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = call(torch.randn(4, 8)).sum()
        loss.backward()
        optimizer.step()
        told += [loss.item(), *(parameter.grad.sum().item() for parameter in model.parameters())]
    with torch.no_grad():
        told.append(call(torch.randn(4, 8)).sum().item())
    return told


def identified(left: Left) -> dict[tuple[str, int], Any]:
    told = ("digest", "step", "layer", "module_type", "kind", "tensor_path", "dtype", "shape")
    return {(line["name"], line["invocation"]): [line[key] for key in told] for line in left.lines}


def observed(
    directory: Path, make: Callable[[], nn.Module], compiled: Compile, run: Any = train, **options: Any
) -> tuple[Any, Left]:
    torch.manual_seed(0)
    model = make()
    given = {"points": ALL_POINTS, "scope": ("*",)} | options
    with armed(directory, **given) as left, warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*global hooks.*")
        return run(model, compiled(model)), left


@pytest.mark.parametrize("compiled", [whole, in_place, in_a_function, with_backend_eager])
def test_all_that_eager_tells_of_is_told_of_with_the_same_bits(tmp_path: Path, compiled: Compile) -> None:
    results, eager = observed(tmp_path / "eager", Model, lambda model: model)
    torch.manual_seed(0)
    bare = Model()
    assert train(bare, compiled(bare)) == results
    graphs = counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    counters.clear()
    again, left = observed(tmp_path / "compiled", Model, compiled)
    assert again == results
    assert counters["stats"]["unique_graphs"] == graphs
    assert identified(left) == identified(eager)
    inside = {line["name"] for line in left.lines if line["compiled"]}
    assert {
        "before_forward:blocks.1.norm.input[0]",
        "after_forward:blocks.1.relu.output",
        "after_backward:blocks.1.linear.output_grad",
        "user:hidden",
        "grad:hidden",
    } <= inside
    summary = left.summary
    assert summary["compiled_observed"] is True
    assert summary["not_seen"] == []
    assert not any(name.endswith(("norm", "linear", "relu")) for name in summary["opaque_names"])


def test_blocks_beyond_the_limit_of_recompilations_keep_their_own_names(tmp_path: Path) -> None:
    """All have the same code, and torch compiles it at most 8 times."""
    results, eager = observed(tmp_path / "eager", lambda: Model(9), lambda model: model)
    again, left = observed(tmp_path / "compiled", lambda: Model(9), blocks)
    assert again == results
    assert identified(left) == identified(eager)


def test_passes_of_blocks_that_share_code_are_told_apart_in_any_order(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branches = nn.ModuleList([Block() for _ in range(3)])

        def forward(self, x: Tensor) -> list[Tensor]:
            return [branch(x, residual=x)["y"].sum() for branch in self.branches]

    def run(model: nn.Module, call: Callable[..., Any]) -> None:
        for loss in call(torch.ones(4, 8)):  # the first branch first, where autograd alone would take the last
            loss.backward()

    def compiled(model: nn.Module) -> nn.Module:
        assert isinstance(model, Branches)
        for branch in model.branches:
            branch.compile(backend="aot_eager")
        return model

    _, eager = observed(tmp_path / "eager", Branches, lambda model: model, run)
    _, left = observed(tmp_path / "compiled", Branches, compiled, run)
    assert identified(left) == identified(eager)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Identity(), nn.Tanh())

    def forward(self, x: Tensor) -> Any:
        return self.second(checkpoint(self.first, x, use_reentrant=False))


class Broken(nn.Module):
    """Compiled in two regions, with the layer between them in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Inner(), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        x = self.before(x)
        torch._dynamo.graph_break()
        return self.after(x)


class Batched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return torch.vmap(self.second)(self.first(x))


def dynamic(model: nn.Module) -> Callable[..., Any]:
    compiled: Any = torch.compile(model, backend="aot_eager", dynamic=True)
    return compiled  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [Checkpointed, Broken, Batched])
def test_the_same_of_checkpointing_graph_breaks_and_vmap_with_dynamic_shapes(
    tmp_path: Path, make: Callable[[], nn.Module]
) -> None:
    results, eager = observed(tmp_path / "eager", make, lambda model: model)
    again, left = observed(tmp_path / "compiled", make, dynamic)
    assert again == results
    assert identified(left) == identified(eager)
    assert any(line["compiled"] for line in left.lines)


def test_what_is_not_seen_is_listed(tmp_path: Path) -> None:
    """The hook replaces what the layer returns after any global hook."""

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        model[0].register_forward_hook(lambda module, args, output: output * 2)
        return model

    _, left = observed(tmp_path, make, dynamic)
    (line,) = left.summary["not_seen"]
    assert line["layer"] == "0"
    assert "hooks of its own" in line["reason"]
    assert left.named("after_forward:0.output") == []
    assert len(left.named("after_forward:1.output")) == 3


def test_a_compiler_that_does_not_take_our_operation_compiles_without_it(tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        if "aorta_collectors" in str(gm.graph):
            raise RuntimeError("what is this?")
        return gm.forward

    results, left = observed(tmp_path, Broken, lambda model: torch.compile(model, backend=backend))
    torch.manual_seed(0)
    bare = Broken()
    assert train(bare, bare) == results
    summary = left.summary
    assert summary["compiled_observed"] is False
    assert {line["layer"] for line in summary["not_seen"]} >= {"first.before", "first.after"}
    assert "RuntimeError: what is this?" in summary["not_seen"][0]["reason"]


def test_only_layers_in_scope_are_handed_out(tmp_path: Path) -> None:
    graphs: list[str] = []

    def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(str(gm.graph))
        return gm.forward

    options = {"points": ("after_forward",), "scope": ("blocks.1.linear",)}
    _, left = observed(
        tmp_path,
        Model,
        lambda model: torch.compile(model, backend=backend),
        lambda m, call: call(torch.ones(4, 8)),
        **options,
    )
    assert left.names == ["user:hidden", "after_forward:blocks.1.linear.output"]
    (graph,) = graphs
    assert graph.count("aorta_collectors.tensor") == 1 + 2 * 2  # a block's own names are always handed out


def test_nothing_is_hung_on_the_model_and_nothing_is_left_in_what_is_compiled_afterwards(tmp_path: Path) -> None:
    model, twin = Model(1), Model(1)
    torch.compile(twin, backend="eager")(torch.ones(4, 8))  # torch hangs something on them itself
    state = {key: set(vars(part)) for key, part in twin.named_modules()}
    graphs: list[str] = []

    def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(str(gm.graph))
        return gm.forward

    compiled: Any = torch.compile(model, backend=backend)
    with armed(tmp_path, points=ALL_POINTS, scope=("*",)) as left:
        compiled(torch.ones(4, 8))
        assert {key: set(vars(part)) for key, part in model.named_modules()} == state
        assert copy.deepcopy(model).state_dict().keys() == model.state_dict().keys()
        torch.save(model.state_dict(), io.BytesIO())
    seen = len(left.lines)
    compiled(torch.ones(4, 8))
    assert len(left.lines) == seen
    assert "aorta_collectors" in graphs[0]
    assert "aorta_collectors" not in graphs[-1]
    assert not torch.nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]


def test_programs_that_are_captured_for_others_are_left_alone(tmp_path: Path) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    x = torch.ones(4, 8)
    with armed(tmp_path, points=ALL_POINTS):
        model(x)
        graphs = [
            torch.export.export(model, (x,), strict=False).graph,
            make_fx(lambda x: model(x))(x).graph,
            torch.jit.trace(model, x).graph,
        ]
    assert [str(graph) for graph in graphs if "aorta" in str(graph)] == []


def test_graphs_in_the_compilers_cache_are_those_of_programs_that_are_not_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def run() -> tuple[Tensor, int]:
        torch._dynamo.reset()
        counters.clear()
        with torch.no_grad():
            result: Tensor = torch.compile(model)(torch.ones(2, 4))
        return result, counters["inductor"]["fxgraph_cache_hit"]

    bare, hits = run()
    assert hits == 0
    for again in range(2):
        with armed(tmp_path / str(again), points=("after_forward",)) as left:
            result, hits = run()
        assert hits == 0
        torch.testing.assert_close(result, bare)
        assert left.one("after_forward:0.output")["compiled"]
    result, hits = run()
    assert hits == 1
    assert torch.equal(result, bare)
