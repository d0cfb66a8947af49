"""What would help a brick that is far from what the roofline allows: rules, each with what it saw.

| rule | what it sees | what it says |
|---|---|---|
| host | the time is not in operations; what closer looks found the process doing | look there |
| attention | batched products and a softmax among a brick's kernels | scaled_dot_product_attention |
| batch | several calls a step, each of small operations | one call of a batch |
| fuse | many small operations in a call | torch.compile |
| chain | few operations a byte, bound by memory, several operations | fuse the chain |
| varies | the same call takes very different times | look for what else runs, and for changing shapes |
| products | bound by arithmetic, and steadily far from the peak | larger matrices |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.numerics.bricks import Brick
from aorta_collectors.analysis.numerics.escalations import Escalated
from aorta_collectors.analysis.numerics.roofline import Roofline

# Operations that take no longer than this many times the smallest one are small.
_SMALL = 10.0
_MANY_OPERATIONS = 4
_MANY_CALLS = 4.0
# Operations a byte below which reading and writing is all that matters: elementwise ones of float32 have less than 1.
_ELEMENTWISE = 2.0
# A system call's time explains a brick's if it is this part of it at least.
_EXPLAINS = 0.5
# Coefficient of variation from which a mean says little.
_WILD = 0.3
# Peak of a narrower dtype over that of float32 from which it is worth changing.
_MUCH_FASTER = 1.5
_NARROW = ("bfloat16", "float16", "tf32")
_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::matmul", "aten::einsum")
_FUSED = ("scaled_dot_product", "flash", "efficient_attention", "fused_attention")
_WAITING = {
    "read": "it waits for reads: fetch in workers of the DataLoader (num_workers, prefetch_factor), or keep it in RAM",
    "write": "it waits for writes: log and save less often, or in another thread",
    "futex": "threads wait for one another: fewer of them (torch.set_num_threads, OMP_NUM_THREADS), or less locking",
    "mmap": "memory is taken and given back: reuse buffers, or use an allocator that keeps them",
    "ioctl": "it waits for the driver: fewer and larger launches (CUDA graphs, torch.compile)",
    "other": "it sleeps, polls or waits for the network",
    "compute": "the processor is busy outside of torch's operations, in Python code: use operations on tensors",
}


@dataclass(frozen=True)
class Advice:
    """Attributes:
    rule: Its short name, as in the table above.
    saw: The evidence.
    do: What would help.
    """

    rule: str
    saw: str
    do: str


@dataclass(frozen=True)
class Precision:
    """Products in float32, of all bricks.

    Attributes:
        dtype: The fastest narrower one that was measured.
        times: Its peak over that of float32.
        bricks: How many are bound by such products.
        saved_ms: In a step, if their products took as much less; None where no step was measured.
        saved_share: The same as a part of the step.
        do: What would help.
    """

    dtype: str
    times: float
    bricks: int
    saved_ms: float | None
    saved_share: float | None
    do: str


@dataclass(frozen=True)
class Seen:
    """What rules look at.

    Attributes:
        samples: In a step of one rank; None where it is not known.
        attends: Whether its kernels are those of attention by separate operations.
    """

    brick: Brick
    looks: Escalated | None
    roofline: Roofline | None
    samples: float | None
    attends: bool


def advice_of(seen: Seen) -> tuple[Advice, ...]:
    """What rules say of a brick; empty where none applies."""
    return tuple(found for rule in _RULES if (found := rule(seen)) is not None)


def _is_small(seen: Seen) -> bool:
    """Whether its operations need, by the roofline, about as long as launching them, or less."""
    brick = seen.brick
    if brick.bound == "launch" or seen.roofline is None or not brick.operations or brick.allowed_us is None:
        return brick.bound == "launch"
    return brick.allowed_us / brick.operations <= _SMALL * seen.roofline.launch_us


def _host(seen: Seen) -> Advice | None:
    if seen.brick.bound != "host":
        return None
    looks, own_us = seen.looks, seen.brick.self_us_per_call or 0.0
    if looks is None or not looks.dominant:
        do = "look at its Python code, and at what it waits for"
        return Advice("host", "its time is not in operations of torch", do)
    category = _where_the_time_was(looks, own_us)
    spent_ms = looks.mean_us.get(category, 0.0) / 1000
    saw = f"{category} took {spent_ms:.3g} ms of a step that was looked at, all threads together"
    return Advice("host", saw, _WAITING.get(category, "look at what it waits for"))


def _where_the_time_was(looks: Escalated, own_us: float) -> str:
    """The category that explains a brick's time: a look is at a whole step, of which the brick may be a small part.

    Threads that wait for work are in futex all the time, so that it says something only where it dominates.
    """
    if looks.dominant != "compute":
        return looks.dominant
    enough = {
        category: us
        for category, us in looks.mean_us.items()
        if category not in ("compute", "futex") and us >= _EXPLAINS * own_us
    }
    return max(enough, key=enough.__getitem__, default="compute")


def _attention(seen: Seen) -> Advice | None:
    if not seen.attends:
        return None
    saw = "batched products and a softmax as operations of their own"
    return Advice("attention", saw, "torch.nn.functional.scaled_dot_product_attention does them in one")


def _batch(seen: Seen) -> Advice | None:
    brick = seen.brick
    if brick.per_step is None or brick.per_step < _MANY_CALLS or not _is_small(seen):
        return None
    saw = f"{brick.per_step:.4g} calls a step, each of small operations"
    if seen.samples and abs(brick.per_step - seen.samples) < 0.1 * seen.samples:
        saw += ": as many as there are samples"
    return Advice("batch", saw, "call it once with all of them as one batch, in place of a loop")


def _fuse(seen: Seen) -> Advice | None:
    brick = seen.brick
    if (brick.operations or 0) < _MANY_OPERATIONS or not _is_small(seen) or brick.bound == "host":
        return None
    each = (brick.self_us_per_call or 0.0) / (brick.operations or 1)
    launch = f"; the smallest takes {seen.roofline.launch_us:.3g}" if seen.roofline is not None else ""
    saw = f"{brick.operations} operations of {each:.3g} us each in a call{launch}"
    return Advice("fuse", saw, "fuse them: torch.compile, or one operation that does the whole")


def _chain(seen: Seen) -> Advice | None:
    brick = seen.brick
    if brick.bound != "memory" or (brick.operations or 0) < 2 or not brick.bytes or _is_small(seen):
        return None
    intensity = (brick.flops or 0.0) / brick.bytes
    if intensity > _ELEMENTWISE:
        return None
    saw = f"{brick.operations} operations that move {brick.bytes:.3g} bytes, {intensity:.2g} FLOP a byte"
    return Advice("chain", saw, "fuse the chain, so that what is between them never goes to memory: torch.compile")


def _varies(seen: Seen) -> Advice | None:
    brick = seen.brick
    if brick.cv is None or brick.cv < _WILD or not brick.p50_us or not brick.p99_us:
        return None
    saw = f"the median call takes {brick.p50_us / 1000:.3g} ms, one in a hundred {brick.p99_us / 1000:.3g} ms or more"
    return Advice("varies", saw, "look for other work on the machine, changing clocks, and changing shapes")


def _products(seen: Seen) -> Advice | None:
    brick = seen.brick
    steady = brick.cv is not None and brick.cv < _WILD
    if brick.bound != "compute" or not steady or not brick.flops or brick.efficiency is None or _is_small(seen):
        return None
    saw = f"{brick.flops:.3g} FLOP a call at {brick.efficiency:.0%} of what a large matrix product reaches"
    return Advice("products", saw, "larger matrices: a larger batch, or several products in one; sizes of whole tiles")


_RULES: tuple[Callable[[Seen], Advice | None], ...] = (
    *(_host, _attention, _batch, _fuse, _chain),
    *(_varies, _products),
)


def attention(escalated: Sequence[Escalated]) -> set[tuple[str, str]]:
    """Bricks whose kernels are those of attention by separate operations; of bricks inside one another, the inner."""
    found = {each.key for each in escalated if _attends(each)}
    return {
        (layer, direction)
        for layer, direction in found
        if not any(other.startswith(f"{layer}.") and way == direction for other, way in found)
    }


def _attends(looks: Escalated) -> bool:
    names: Mapping[str, int] = {kernel.name: kernel.calls for kernel in looks.kernels}
    if any(mark in name for name in names for mark in _FUSED):
        return False
    softmax = any("softmax" in name and "log_softmax" not in name for name in names)
    products = max((calls for name, calls in names.items() if name in _PRODUCTS), default=0)
    return softmax and products >= 2


def precision_of(bricks: Sequence[Brick], roofline: Roofline | None) -> Precision | None:
    """What a narrower dtype would save of the bricks that float32 products bound; None where that is nothing."""
    own = roofline.flops_per_s.get("float32") if roofline is not None else None
    if roofline is None or own is None:
        return None
    peaks = {name: roofline.flops_per_s[name] for name in _NARROW if name in roofline.flops_per_s}
    best = max(peaks, key=peaks.__getitem__, default=None)
    bound = [brick for brick in bricks if brick.dtype == "float32" and brick.bound == "compute" and brick.flops]
    if best is None or peaks[best] < _MUCH_FASTER * own or not bound:
        return None
    times = [brick.self_ms_per_step for brick in bound if brick.self_ms_per_step is not None]
    shares = [brick.share for brick in bound if brick.share is not None]
    part = 1 - own / peaks[best]
    do = "torch.set_float32_matmul_precision('high')" if best == "tf32" else f"torch.autocast, dtype=torch.{best}"
    return Precision(
        best,
        peaks[best] / own,
        len(bound),
        sum(times) * part if times else None,
        sum(shares) * part if shares else None,
        do,
    )
