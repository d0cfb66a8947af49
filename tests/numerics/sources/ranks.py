"""What each of two ranks runs for the tests of collectives, and what it has seen of them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import all_reduce as bound_before
from torch.nn.parallel import DistributedDataParallel

from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.sources.collective_calls import OPERATIONS
from aorta_collectors.numerics.sources.collectives import CollectiveSource
from tests.numerics.driving import Steps, backward, forward, timeline

_SLOW_S = 0.2


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=int(sys.argv[2]), world_size=2)
    rank = dist.get_rank()
    spans = timeline()
    warned: list[str] = []
    source = CollectiveSource(spans, warned.append)
    before = functions()
    source.start()
    told: dict[str, Any] = {
        "calls": calls(spans),
        "async": asynchronous(spans, rank),
        "group": group(spans),
        "missed": missed(spans),
        "ddp": reduced(source, spans),
    }
    told["hidden"] = hidden(source, spans)
    source.stop()
    told["loss"] = trained(None, None)
    told["undone"] = functions() == before
    told["collectives"] = source.fields()["collectives"]
    told["warned"] = warned
    (out / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def functions() -> list[Any]:
    """All that may be replaced."""
    return [dist.Work.wait, *[getattr(owner, name) for owner in (dist, dist.distributed_c10d) for name in OPERATIONS]]


def seen(spans: Timeline) -> list[list[Any]]:
    return [[span.name, span.kind, span.own_ns / 1e9, dict(span.attributes or {})] for span in spans.take()]


def calls(spans: Timeline) -> list[list[Any]]:
    """Each function once."""
    two = torch.ones(2)
    parts = [torch.zeros(2), torch.zeros(2)]
    dist.all_reduce(two)
    dist.broadcast(two, 0)
    dist.all_gather(parts, two)
    dist.all_gather_into_tensor(torch.zeros(4), input_tensor=two)
    dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(4))
    dist.all_to_all_single(torch.zeros(4), torch.ones(4))
    dist.reduce(two, 0)
    dist.gather(two, parts if dist.get_rank() == 0 else None, 0)
    dist.scatter(two, parts if dist.get_rank() == 0 else None, 0)
    dist.barrier()
    found: list[Any] = [None, None]
    dist.all_gather_object(found, "something")  # by way of the others
    return seen(spans)


def asynchronous(spans: Timeline, rank: int) -> list[list[Any]]:
    dist.barrier()
    spans.take()
    if rank == 1:
        time.sleep(_SLOW_S)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert isinstance(work, dist.Work)
    assert work is not None
    assert spans.take() == []
    assert work.wait()
    assert work.is_completed()
    work.wait()  # once more is no more
    forgotten = dist.all_reduce(torch.ones(8), async_op=True)
    assert forgotten is not None
    while not forgotten.is_completed():
        time.sleep(0.001)
    del forgotten
    return seen(spans)


def group(spans: Timeline) -> list[list[Any]]:
    both = dist.new_group([0, 1])
    spans.take()
    dist.all_reduce(torch.ones(1), group=both)
    dist.all_reduce(torch.ones(1), group=both)
    dist.all_reduce(torch.ones(1), group=dist.group.WORLD)
    return seen(spans)


def missed(spans: Timeline) -> list[list[Any]]:
    bound_before(torch.ones(1))
    return seen(spans)


def reduced(source: CollectiveSource, spans: Timeline) -> dict[str, Any]:
    loss = trained(source, spans)
    return {"loss": loss, "spans": seen(spans), "total": reduced_so_far(source)}


def reduced_so_far(source: CollectiveSource) -> dict[str, Any]:
    (total,) = [one for one in source.fields()["collectives"] if one["source"] == "ddp"]
    return dict(total)


class Hiding(nn.Module):
    """Keeps one of its two DistributedDataParallel where no module shows it, as torchrec does."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = DistributedDataParallel(nn.Linear(4, 4))
        self._lists = [DistributedDataParallel(nn.Linear(4, 8))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._lists[0](self.shown(x)).square().mean()


def hidden(source: CollectiveSource, spans: Timeline) -> dict[str, Any]:
    """What becomes known of it, and in which step: of four, in two of which another root is called as well."""
    before = reduced_so_far(source)
    model, other = Hiding(), DistributedDataParallel(nn.Linear(4, 2))
    spans.take()
    for number in range(1, 5):
        spans.begin_step(number, time.perf_counter_ns(), 0.0, number)
        if number > 2:
            backward(source, forward(source, other, torch.ones(1, 4), number=2).sum())
        backward(source, forward(source, model, torch.ones(1, 4), number=1))
    found = [[span.step, dict(span.attributes or {})["bytes"]] for span in spans.take() if span.name == "all_reduce"]
    total = reduced_so_far(source)
    return {"spans": found, "bytes": total["bytes"] - before["bytes"], "us": total["total_us"] - before["total_us"]}


def trained(source: CollectiveSource | None, spans: Timeline | None) -> str:
    """The last loss of some steps of a model whose gradients DistributedDataParallel reduces."""
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    inputs = torch.randn(16, 64)
    steps = Steps([source], spans) if source is not None and spans is not None else None
    loss = torch.zeros(())
    for number in range(4):
        if number == 1:  # gradients are accumulated, and not reduced
            with model.no_sync():
                (forward(source, model, inputs) if source is not None else model(inputs)).sum().backward()
            model.zero_grad()
        if steps is not None:
            steps.began()
        loss = (forward(source, model, inputs) if source is not None else model(inputs)).square().mean()
        if source is not None:
            backward(source, loss)
        else:
            loss.backward()
        with torch.no_grad():  # by hand: an optimizer of torch loads torch's compiler, which takes seconds
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
        model.zero_grad()
    return loss.item().hex()


if __name__ == "__main__":
    main()
