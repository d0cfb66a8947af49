"""What the points of a process come to, in numbers that do not grow with its length: for the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LAYERS = "layers"


class Course:
    """Counts points, and keeps the first and the last of each kind, and the peaks."""

    def __init__(self) -> None:
        self._points: dict[str, dict[str, Any]] = {}
        self._devices: dict[str, dict[str, int]] = {}
        self._peak_rss: int | None = None

    def came(self, point: str, layer: str) -> None:
        """A point has been reached, whether or not it is looked at."""
        kind = LAYERS if layer else point
        counts = self._points.get(kind)
        if counts is None:
            counts = self._points[kind] = {"seen": 0, "taken": 0, "first": None, "last": None}
        counts["seen"] += 1

    def looked(self, line: Mapping[str, Any]) -> None:
        """It is, and this is what was found."""
        counts = self._points[LAYERS if line["layer"] else line["point"]]
        counts["taken"] += 1
        told = {"step": line["step"], "rss": line["host"]["rss"], "anonymous": line["host"]["anonymous"]}
        counts["first"] = counts["first"] or told
        counts["last"] = told
        self._peak_rss = max(self._peak_rss or 0, line["host"]["peak_rss"])
        for device in line["devices"]:
            peaks = self._devices.setdefault(device["device"], {"peak_allocated": 0, "peak_reserved": 0})
            for name in peaks:
                peaks[name] = max(peaks[name], device[name])

    def fields(self) -> dict[str, Any]:
        """Of the summary."""
        return {
            "points": {kind: dict(counts) for kind, counts in self._points.items()},
            "peak_rss": self._peak_rss,
            "devices": {device: dict(peaks) for device, peaks in self._devices.items()},
        }
