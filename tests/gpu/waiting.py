"""An armed training step waits for nothing, and computes the same bits as a bare one."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.models import LINEARS, Sink, armed, stack, training_step


def run(report: Any, options: Any) -> None:
    for name, settings in {
        "the Linear layers, all channels": {},
        "with places of bad elements": {"locate": True},
        "looking for the origin": {"origin": True},
    }.items():
        report.check(f"no synchronisation in a step, {name}", lambda settings=settings: _no_sync(settings))
    report.check("the same bits as without", _same_bits)
    report.check("a NaN is found in its step and layer", _found)


def _no_sync(settings: dict[str, Any]) -> str:
    step = training_step(stack(2, 512), torch.randn(2, 64, 512, device="cuda", dtype=torch.bfloat16))
    with armed(LINEARS, **settings) as sink:
        for _ in range(3):  # kernels are compiled, memory is pinned
            step()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(10):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return _told(sink, 13)


def _told(sink: Sink, steps: int) -> str:
    assert sorted(sink.seen) == list(range(1, steps + 1)), sorted(sink.seen)
    # The first step has no gradients from before, and with the last come the values that it left.
    counts = {len(seen) for number, seen in sink.seen.items() if 1 < number < steps}
    assert len(counts) == 1, counts
    return f"{counts.pop()} tensors a step"


def _same_bits() -> str:
    def losses() -> list[bytes]:
        torch.manual_seed(1)
        step = training_step(stack(2, 512), torch.randn(2, 64, 512, device="cuda", dtype=torch.bfloat16))
        return [bytes(step().cpu().numpy()) for _ in range(8)]

    bare = losses()
    with armed(LINEARS, origin=True, locate=True):
        assert losses() == bare
    return "8 losses"


def _found() -> str:
    model = stack(3, 256)
    inputs = torch.randn(2, 64, 256, device="cuda", dtype=torch.bfloat16)
    step = training_step(model, inputs)
    with armed(LINEARS) as sink:
        for number in range(1, 6):
            if number == 4:
                inputs[1, 5, 7] = torch.nan
            step()
    bad = [(number, each) for number, seen in sorted(sink.seen.items()) for each in seen if each.is_bad]
    number, first = bad[0]
    assert number == 4, number
    assert (first.site.layer, first.site.role) == ("0.qkv", "input"), first
    assert first.stats.kind == "nan"
    return f"step {number}, {first.site.layer} {first.site.role}"
