"""The tensors and memory collectors on the same transformer, beside what their evidence cannot be had without.

For a digest SHA-256 goes over all bits of a tensor once, and to be kept they are copied and written. This is measured
on tensors of the same shapes, right after the alternation.
"""

from __future__ import annotations

import contextlib
import hashlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import orjson
import torch
from torch import Tensor

from aorta_collectors.memory.config import Config as MemoryConfig
from aorta_collectors.memory.session import Session as MemorySession
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.tensors.config import Config as TensorsConfig
from aorta_collectors.tensors.session import Session as TensorsSession
from benchmarks.alternate import BARE, Variant, alternate
from benchmarks.estimate import Samples
from benchmarks.models import transformer
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes

DIGEST, VALUES, MEMORY = "tensors-digest", "tensors-values", "memory-points"
KEYS = (DIGEST, VALUES, MEMORY)
_WHAT = {
    DIGEST: "tensors, default options",
    VALUES: "tensors, keep: values",
    MEMORY: "memory, default options",
}
_ROUNDS = 10


class Armed:
    """A session, a new one for each block, as a program has it that is started armed.

    Args:
        make: Makes it.
        counted: Fields of its summary none of which may be 0.

    Attributes:
        summary: Of the last one.
    """

    def __init__(self, directory: Path, make: Callable[[Path], ProcessSession], counted: Sequence[str]) -> None:
        self._directory = directory
        self._make = make
        self._counted = counted
        self.summary: Mapping[str, Any] = {}

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        session = self._make(self._directory)
        session.arm()
        try:
            yield
        finally:
            session.close()
        self.summary = orjson.loads((self._directory / "summary_rank0.json").read_bytes())
        told = {name: self.summary[name] for name in ("hook_errors", "first_hook_error", "write_error", *self._counted)}
        if told["hook_errors"] or told["write_error"] or not all(told[name] for name in self._counted):
            raise RuntimeError(f"the collector did not do its work: {told}")


def capturing_rows(wanted: Set[str], sizes: Sizes, directory: Path) -> list[Row]:
    """A row for each variant, all from one alternation; of tensors a second one, for which the bytes are read again."""
    trained = transformer(sizes.width, sizes.layers)
    armed = {key: _armed(key, directory / key) for key in KEYS if key in wanted}
    variants: dict[str, Variant] = dict(armed)
    samples = alternate(trained.step, variants, seconds=sizes.transformer_seconds, clock=sizes.clock, timed=sizes.timed)
    rows: list[Row] = []
    for key in armed:
        rows.append(_row(key, sizes, samples, armed[key].summary))
        if key != MEMORY:
            rows.append(_physical(key, sizes, samples, directory / key))
    return rows


def _armed(key: str, directory: Path) -> Armed:
    if key == MEMORY:
        return Armed(directory, lambda place: MemorySession(MemoryConfig(), lambda: place), ("steps_seen",))
    keep = "values" if key == VALUES else "digest"
    config = TensorsConfig(keep=keep, max_bytes=1 << 40)
    return Armed(directory, lambda place: TensorsSession(config, lambda: place), ("watched_count", "lines_written"))


def _row(key: str, sizes: Sizes, samples: Samples, summary: Mapping[str, Any]) -> Row:
    numbers: dict[str, float | str] = {
        "bare ms": 1e3 * samples.median(BARE),
        "armed ms": 1e3 * samples.median(key),
        "added ms": 1e3 * samples.added(key, BARE).value,
        "median of the rounds' ratios": samples.paired(key, BARE),
    }
    if key == MEMORY:
        numbers["us a look"] = summary["overhead"]["look_us_p50"]
    numbers["from"] = samples.told
    return Row(key, f"transformer {sizes.width}, {_WHAT[key]}: armed / bare", samples.ratio(key, BARE), None, numbers)


def _physical(key: str, sizes: Sizes, samples: Samples, directory: Path) -> Row:
    tensors = _observed(directory)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    passes: dict[str, Callable[[Tensor], object]] = {
        "SHA-256": lambda tensor: hashlib.sha256(tensor.numpy().data).digest()
    }
    with (directory / "written").open("wb", buffering=0) as file:

        def write(tensor: Tensor) -> None:
            if file.tell() == size:  # a further file of a step
                file.seek(0)
                file.truncate()
            file.write(tensor.numpy().data)

        if key == VALUES:
            passes |= {"copying": Tensor.clone, "writing": write}
        found = {name: _seconds(function, tensors, sizes.clock) for name, function in passes.items()}
    numbers: dict[str, float | str] = {"tensors": len(tensors), "MB": size / 1e6}
    for name, seconds in found.items():
        numbers |= {f"{name} ms": 1e3 * seconds, f"{name} GB/s": size / seconds / 1e9}
    value = samples.added(key, BARE).scaled(1 / sum(found.values()))
    what = f"transformer {sizes.width}, {_WHAT[key]}: added / {', '.join(found)}"
    return Row(key, what, value, Bar(1.75) if key == DIGEST else None, numbers)


def _observed(directory: Path) -> list[Tensor]:
    """Tensors of the shapes that the last session observed in a step."""
    lines = [orjson.loads(line) for line in (directory / "tensors_rank0.jsonl").read_bytes().splitlines()]
    last = max(line["step"] for line in lines)
    return [torch.randn(line["shape"]).to(getattr(torch, line["dtype"])) for line in lines if line["step"] == last]


def _seconds(function: Callable[[Tensor], object], tensors: Sequence[Tensor], clock: Callable[[], float]) -> float:
    """Median of some rounds over all tensors, one after the other."""
    times = []
    for _ in range(_ROUNDS):
        start = clock()
        for tensor in tensors:
            function(tensor)
        times.append(clock() - start)
    return statistics.median(times)
