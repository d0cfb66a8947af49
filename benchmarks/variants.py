"""What can be in force during a block: our engine, and the least that any observer would have to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import torch
from torch import Tensor, nn

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.session import Session


class Ours:
    """A session of the native engine, a new one for each block, as a program has it that is started armed.

    Args:
        directory: Where it writes. Each session replaces the files of the one before.
        variables: NANLOG_* variables.

    Attributes:
        shares: What each session said of itself: the part of a step that hooks and drains took, if it said so.
        told_ms: The same in milliseconds, medians of a session's steps.
        counted: Records in the file of the last session.
    """

    def __init__(self, directory: Path, variables: dict[str, str] | None = None, *, counts: bool = False) -> None:
        self._directory = directory
        self._config = Config.from_environment(variables or {})
        self._counts = counts
        self.shares: list[float] = []
        self.told_ms: list[float] = []
        self.counted = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        session = Session(self._config, lambda: self._directory)
        session.arm()
        try:
            yield
        finally:
            session.close()
        summary: dict[str, Any] = orjson.loads((self._directory / "summary_rank0.json").read_bytes())
        if summary["hook_errors"] or summary["write_error"] or not summary["watched_count"]:
            told = {name: summary[name] for name in ("hook_errors", "first_hook_error", "write_error", "watched_count")}
            raise RuntimeError(f"the engine did not do its work: {told}")
        overhead = summary["overhead"]
        if overhead["share_of_step"] is not None:
            self.shares.append(overhead["share_of_step"])
            self.told_ms.append(overhead["hook_ms_p50"] + overhead["drain_ms_p50"])
        if self._counts:
            with (self._directory / "layers_rank0.jsonl").open("rb") as lines:
                self.counted = sum(1 for _ in lines)


class Limit:
    """One `torch.aminmax` over each Linear's output and the gradient of its input, in place, and nothing else.

    Reads a tensor when the engine does, so that it is in the caches or not, as it is for the engine.

    Attributes:
        seconds: What the calls of aminmax alone took, step by step.
        looked_at: Shape and dtype of each tensor of the last step.
    """

    def __init__(self, model: nn.Module, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._taken = 0.0
        self.seconds: list[float] = []
        self.looked_at: list[tuple[torch.Size, torch.dtype]] = []

    def _look(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        start = self._clock()
        torch.aminmax(tensor)
        self._taken += self._clock() - start
        self.looked_at.append((tensor.shape, tensor.dtype))

    def _begin(self, _module: nn.Module, _args: Any) -> None:
        if self._taken:
            self.seconds.append(self._taken)
        self._taken = 0.0
        self.looked_at = []

    def _after(self, _module: nn.Module, args: Any, output: Tensor) -> None:
        self._look(output)
        if args[0].requires_grad:
            args[0].register_hook(self._look)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        handles: list[Any] = [self._model.register_forward_pre_hook(self._begin)]
        handles += [
            module.register_forward_hook(self._after)
            for module in self._model.modules()
            if isinstance(module, nn.Linear)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
