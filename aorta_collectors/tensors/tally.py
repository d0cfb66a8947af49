"""Counts of what a recorder has seen, and the first tensor among it that is not finite."""

from __future__ import annotations

from typing import Any

from aorta_collectors.tensors.observation import Observation

_REASONS = 20


class Tally:
    """
    Attributes:
        observed: Observations so far.
        lines_dropped: Tensors for which there was no line.
        left_out: Tensors whose values were asked for and are not kept.
        first_bad: The first observation with NaN, or with Inf that nobody put there.
    """

    def __init__(self) -> None:
        self.observed = 0
        self.lines_dropped = 0
        self.left_out = 0
        self.first_bad: dict[str, Any] | None = None
        self._points: dict[str, int] = {}
        self._bad = 0
        self._last_bad_step: int | None = None
        self._last_step: int | None = None
        self._passed_over: dict[str, int] = {}

    def came_by(self, point: str) -> None:
        """A tensor, in a step that is observed."""
        self._points[point] = self._points.get(point, 0) + 1

    def took(self, observation: Observation) -> None:
        self.observed += 1
        self.left_out += observation.left_out is not None
        self._last_step = observation.step

    def found_bad(self, observation: Observation) -> None:
        self._bad += 1
        self._last_bad_step = max(observation.step, self._last_bad_step or 0)
        # What comes from a device is known later, and may have been earlier.
        if self.first_bad is None or observation.order < self.first_bad["order"]:
            line = observation.line()
            told = ("step", "order", "name", "invocation", "layer", "kind", "nan_count", "inf_count")
            self.first_bad = {key: line[key] for key in told}

    def passed_over(self, reason: str) -> None:
        """A tensor that is not recorded."""
        if reason in self._passed_over or len(self._passed_over) < _REASONS:
            self._passed_over[reason] = self._passed_over.get(reason, 0) + 1

    def fields(self) -> dict[str, Any]:
        """Of the summary."""
        return {
            "tensors_observed": self.observed,
            "points": dict(self._points),
            "tensors_nonfinite": self._bad,
            "first_nonfinite": self.first_bad,
            "last_nonfinite_step": self._last_bad_step,
            "last_observed_step": self._last_step,
            "tensors_left_out": self.left_out,
            "lines_dropped": self.lines_dropped,
            "tensors_passed_over": dict(self._passed_over),
        }
