"""CUDA graphs: each replay is seen as a step of its own would have been."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.gpu.models import DEFAULT, LINEARS, armed, places, stack


def run(report: Any, options: Any) -> None:
    report.check("graph of a whole training step", _training)
    report.check("graph of an inference", _inference)
    report.check("make_graphed_callables", _graphed_callables)
    report.check("torch.compile(mode='reduce-overhead') around watched layers", _compiled)
    report.check("replays while another stream is read", _beside)


def _inference() -> str:
    model, static = stack(2, 256).eval(), torch.randn(2, 32, 256, device="cuda", dtype=torch.bfloat16)
    with armed(LINEARS) as sink, torch.no_grad():
        _warm_up(lambda: model(static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(static)
        inputs = [torch.randn_like(static) * (number + 1) for number in range(6)]
        inputs[3][0, 1, 2] = torch.inf
        for given in inputs:
            static.copy_(given)
            graph.replay()
        torch.cuda.synchronize()
    steps = sorted(sink.seen)
    assert len(steps) == 3 + len(inputs), steps
    for number in steps[3:]:
        assert places(sink.seen[number]) == places(sink.seen[steps[0]])
    firsts = [next(each for each in sink.seen[number] if each.site.role == "act") for number in steps[3:]]
    assert [each.is_bad for each in firsts] == [False, False, False, True, False, False], firsts
    # What a replay says is what the same call says without a graph.
    with armed(LINEARS) as eager_sink, torch.no_grad():
        for given in inputs:
            model(given)
    for number, (_, expected) in zip(steps[3:], sorted(eager_sink.seen.items()), strict=True):
        found = sink.seen[number]
        for one, other in zip(found, expected, strict=True):
            # In a graph a matrix product may run with another kernel, which rounds otherwise.
            assert one.stats[:5] == other.stats[:5], (number, one, other)
            assert math.isclose(one.stats.finite_max or 0.0, other.stats.finite_max or 0.0, rel_tol=0.02, abs_tol=0.02)
    return f"{len(inputs)} replays of {len(found)} tensors"


def _training() -> str:
    model, static = stack(2, 256), torch.randn(2, 32, 256, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(static).float().square().mean().backward()
        optimizer.step()

    with armed(LINEARS) as sink:
        _warm_up(step)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for number in range(6):
                if number == 4:
                    static[0, 0, 0] = 1e30
                graph.replay()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    steps = sorted(sink.seen)
    replays = steps[3:]
    assert len(replays) == 6, steps
    bad = [any(each.is_bad for each in sink.seen[number]) for number in replays]
    assert bad[:4] == [False] * 4, bad
    assert bad[4], bad
    assert sorted(places(sink.seen[replays[1]])) == sorted(places(sink.seen[steps[1]]))
    return f"6 replays of {len(sink.seen[replays[1]])} tensors"


def _graphed_callables() -> str:
    model, given = stack(2, 256), torch.randn(2, 32, 256, device="cuda", dtype=torch.bfloat16)
    with armed(DEFAULT) as sink:
        given.requires_grad_()
        part = torch.cuda.make_graphed_callables(model[0], (given,))
        before = len(sink.seen)
        for number in range(4):
            data = torch.randn_like(given) if number != 2 else torch.full_like(given, torch.nan)
            data.requires_grad_()
            model[1](part(data)).float().sum().backward()
        torch.cuda.synchronize()
    assert len(sink.seen) > before
    assert any(each.is_bad for seen in sink.seen.values() for each in seen)
    return f"{len(sink.seen)} steps"


def _compiled() -> str:
    model, given = stack(2, 256).eval(), torch.randn(2, 32, 256, device="cuda", dtype=torch.bfloat16)
    inner = torch.compile(model[0], mode="reduce-overhead")
    with armed(LINEARS) as sink, torch.no_grad():
        for _ in range(6):
            model[1](inner(given).clone())
        torch.cuda.synchronize()
    assert sink.seen
    return f"{len(sink.seen)} steps"


def _beside() -> str:
    model, static = stack(2, 256).eval(), torch.randn(2, 32, 256, device="cuda", dtype=torch.bfloat16)
    other = stack(1, 256).eval()
    with armed(LINEARS) as sink, torch.no_grad():
        _warm_up(lambda: model(static))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(static)
        streams = [torch.cuda.Stream() for _ in range(3)]
        for number in range(30):
            with torch.cuda.stream(streams[number % 3]):
                graph.replay()
                other(static.clone())
        torch.cuda.synchronize()
    clean = [each for seen in sink.seen.values() for each in seen]
    assert not any(each.is_bad for each in clean)
    return f"{len(clean)} tensors"


def _warm_up(step: Any) -> None:
    """As graphs want it, on a stream beside: three steps."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
