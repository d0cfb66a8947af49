"""What the lines of all steps come to, for the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aorta_collectors.observe.cost import Histogram


class MetricsTotal:
    """Takes in lines to schemas/numerics.step.json."""

    def __init__(self) -> None:
        self._last_loss: float | str | None = None
        self._best_loss: float | None = None
        self._best_step: int | None = None
        self._flops: float | None = None
        # Seconds for one of them: a histogram holds durations.
        self._per_token = Histogram()
        self._per_sample = Histogram()
        self._mfu = Histogram()

    def add(self, line: Mapping[str, Any], *, counts: bool) -> None:
        """A step is known in full.

        Args:
            counts: Whether its durations do.
        """
        loss = line["loss"]
        if loss is not None:
            self._last_loss = loss
            if isinstance(loss, float) and (self._best_loss is None or loss < self._best_loss):
                self._best_loss, self._best_step = loss, line["step"]
        if line["flops"] is not None:
            self._flops = line["flops"]
        if not counts:
            return
        for histogram, name in ((self._per_token, "tokens_per_s"), (self._per_sample, "samples_per_s")):
            if line[name]:
                histogram.add(1.0 / line[name])
        if line["mfu"] is not None:
            self._mfu.add(line["mfu"])

    def fields(self) -> dict[str, Any]:
        return {
            "last_loss": self._last_loss,
            "best_loss": self._best_loss,
            "best_loss_step": self._best_step,
            "tokens_per_s": _rate(self._per_token),
            "samples_per_s": _rate(self._per_sample),
            "mfu": self._mfu.quantile(0.5),
            "flops_per_step": self._flops,
        }


def _rate(durations: Histogram) -> float | None:
    median = durations.quantile(0.5)
    return 1.0 / median if median else None
