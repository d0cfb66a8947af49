"""The course of the loss while a run goes on: its smoothed value, its best, and a curve of bounded length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: The weight of what was before in the exponential moving average: ten steps or so count.
SMOOTHING = 0.9
_MOST_POINTS = 1000


class Curve:
    """(step, mean value) of as many steps each as keep the curve short: where it grows too long, pairs are joined."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._stride = 1
        self._last: list[tuple[int, float]] = []  # fewer than a point is of

    def add(self, step: int, value: float) -> None:
        self._last.append((step, value))
        if len(self._last) < self._stride:
            return
        self._points.append((step, sum(value for _, value in self._last) / len(self._last)))
        self._last = []
        if len(self._points) >= _MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(step, (first + second) / 2) for (_, first), (step, second) in pairs]
            self._stride *= 2

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """The newest value is always the last point."""
        return (*self._points, *self._last[-1:])


class Losses:
    """Of one process.

    Attributes:
        last: Of the last training step, as its line has it; None where there was none.
        ema: Of the finite ones: EMA = SMOOTHING x EMA + (1 - SMOOTHING) x loss, beginning with the first loss.
        best, best_step: The lowest finite one.
    """

    def __init__(self) -> None:
        self.last: float | str | None = None
        self.ema: float | None = None
        self.best: float | None = None
        self.best_step: int | None = None
        self.curve = Curve()
        self.ema_curve = Curve()

    def take(self, line: Mapping[str, Any]) -> None:
        """Take in the line of a step."""
        loss = line["loss"]
        if line["kind"] != "training" or loss is None:
            return
        self.last = loss
        if isinstance(loss, str) or not math.isfinite(loss):
            return
        self.ema = loss if self.ema is None else SMOOTHING * self.ema + (1 - SMOOTHING) * loss
        if self.best is None or loss < self.best:
            self.best, self.best_step = loss, line["step"]
        self.curve.add(line["step"], loss)
        self.ema_curve.add(line["step"], self.ema)
