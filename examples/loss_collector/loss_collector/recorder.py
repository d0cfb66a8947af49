"""What runs in the observed program: it must change nothing there, and never raise into it."""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

#: Where a process writes, and what each line of it carries.
Place = Callable[[], tuple[Path, str]]


def arm(started_in: str) -> None:
    """Begin in this process; called once it has imported torch.

    Args:
        started_in: The directory in which the process was started. Ours is named absolutely.
    """
    directory, run_id = Path(os.environ["LOSSES_DIR"]), os.environ["LOSSES_RUN_ID"]
    recorder = Recorder(lambda: (directory, run_id), int(os.environ["LOSSES_EVERY"]))
    recorder.start()
    atexit.register(recorder.stop)


class Recorder:
    """Reads the tensor that `backward()` is called on.

    A process that never calls it, such as a data loader's worker, writes nothing.

    Args:
        place: Asked when something is first written.
        every: Read the loss in one step of so many.
    """

    def __init__(self, place: Place, every: int) -> None:
        self._place = place
        self._every = every
        self._steps = 0
        self._original = torch.autograd.backward

    def start(self) -> None:
        @functools.wraps(self._original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._seen(tensors)
            return self._original(tensors, *args, **kwargs)

        torch.autograd.backward = backward  # Tensor.backward() calls it by this name

    def stop(self) -> None:
        torch.autograd.backward = self._original
        if self._steps:
            self._write({"ended_after": self._steps})

    def _seen(self, tensors: Any) -> None:
        self._steps += 1
        if (self._steps - 1) % self._every == 0 and isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
            loss = float(tensors.detach())
            self._write({"step": self._steps, "loss": loss if math.isfinite(loss) else str(loss)})

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            directory, run_id = self._place()
            with (directory / f"losses_{os.getpid()}.jsonl").open("a") as stream:
                stream.write(json.dumps({"run_id": run_id, **entry}) + "\n")
        except OSError:
            pass  # what is lacking then is verification's to say
