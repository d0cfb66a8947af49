"""Flat NANLOG_* variables as fields of `Config`. What does not parse becomes a warning and the default.

The options schema gives types, limits and defaults, so that alone and in a sweep the same values are allowed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from aorta_collectors.layer_numerics.names import OUR_VARIABLES
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from aorta_collectors.schema_check import load_schema, suggestion

OPTIONS_SCHEMA = "layer_numerics.options"
#: More detail in each record: names in a spec, and in capitals the flat variables.
DIAGNOSTICS = ("addr", "locate", "bad_values", "moments", "dump_tensor", "alloc_snapshot")


def read_flat(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """(fields, warnings): the fields of `Config` that flat variables set, defaults filled in. Never raises."""
    reader = _Reader(environ)
    reader.warn_of_unknown()
    scope = _watch_scope(reader)
    follows = _follows(reader, scope)
    fields: dict[str, Any] = {
        "groups": _groups(reader, scope, follows),
        "follows": follows,
        "bounds": _bounds(reader),
        "diagnostics": frozenset(name for name in DIAGNOSTICS if reader.switch(f"NANLOG_{name.upper()}")),
    }
    for name in ("stop_on_first", "verbose", "sparse", "sparse_heavy", "origin"):
        fields[name] = reader.switch(f"NANLOG_{name.upper()}")
    for name in (
        *("sample_every", "pre_context", "huge_threshold", "max_records", "max_param_numel", "track_max"),
        *("huge_headroom", "flush_sec"),
    ):
        fields[name] = reader.number(f"NANLOG_{name.upper()}")
    if fields["sparse_heavy"] and not fields["sparse"]:
        fields["sparse_heavy"] = False
        reader.warnings.append("NANLOG_SPARSE_HEAVY: no effect without NANLOG_SPARSE=1")
    return fields, reader.warnings


def parse_bounds(text: str) -> tuple[list[Bound], list[str]]:
    """(bounds, faults) of NANLOG_BOUNDS, "substring:lo:hi;...". A fault names its entry, which is left out.

    The substring may hold colons, and be empty. An end of inf or -inf is open; NaN is a fault.
    """
    bounds, faults = [], []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        # From the right: module paths of some programs hold colons.
        pattern, *ends = entry.rsplit(":", 2)
        try:
            low, high = (float(end) for end in ends)
        except ValueError:
            low = high = math.nan
        shown = json.dumps(entry)
        if math.isnan(low) or math.isnan(high):
            faults.append(f"must be substring:lo:hi with two numbers, got {shown}")
        elif low > high:
            faults.append(f"lo must not be above hi, got {shown}")
        else:
            bounds.append(Bound(pattern.strip(), low, high))
    return bounds, faults


def _watch_scope(reader: _Reader) -> WatchGroup | None:
    """The watch scope with every call counted, or None where it is empty."""
    names = reader.words("NANLOG_WATCH_NAMES")
    # Naming a layer must not pull in every Linear as well.
    types = () if names and not reader.given("NANLOG_WATCH_TYPES") else reader.words("NANLOG_WATCH_TYPES")
    return WatchGroup(names, types, channels=()) if names or types else None


def _groups(reader: _Reader, scope: WatchGroup | None, follows: tuple[FollowEntry, ...]) -> tuple[WatchGroup, ...]:
    asked = reader.words("NANLOG_CHANNELS")
    channels = tuple(channel for channel in asked if channel in CHANNELS)
    if len(channels) != len(asked):
        unknown = sorted(set(asked) - set(CHANNELS))
        reader.warnings.append(f"NANLOG_CHANNELS: {unknown} ignored; valid: {', '.join(CHANNELS)}")
    stride = reader.number("NANLOG_WATCH_STRIDE")
    if scope is not None and channels:
        return (WatchGroup(scope.names, scope.types, channels, stride),)
    if not follows:
        empty = "NANLOG_CHANNELS is" if scope is not None else "NANLOG_WATCH_TYPES and NANLOG_WATCH_NAMES are"
        reader.warnings.append(f"{empty} empty; no modules will be watched")
    return ()


def _follows(reader: _Reader, scope: WatchGroup | None) -> tuple[FollowEntry, ...]:
    """What NANLOG_PIPELINE or NANLOG_PIPELINE_OFF_FOLLOW follows. Nothing else turns a follow on."""
    stages = reader.switch("NANLOG_PIPELINE")
    without_stages = reader.switch("NANLOG_PIPELINE_OFF_FOLLOW")
    side_stream = reader.switch("NANLOG_STAGE_READS")
    every_layer = reader.switch("NANLOG_TRACK_EVERY_LAYER")
    stride = reader.number("NANLOG_TRACK_LAYER_STRIDE")
    # A follow of nothing would be no follow, so a blank list means the default.
    tensors = reader.words("NANLOG_TRACK_ATTR") or reader.default_words("NANLOG_TRACK_ATTR")
    if stages and without_stages:
        reader.warnings.append("NANLOG_PIPELINE_OFF_FOLLOW: no effect beside NANLOG_PIPELINE=1")
    if side_stream and not stages:
        reader.warnings.append("NANLOG_STAGE_READS: no effect without NANLOG_PIPELINE=1")
    if reader.given("NANLOG_TRACK_LAYER_STRIDE") and not every_layer:
        reader.warnings.append("NANLOG_TRACK_LAYER_STRIDE: no effect without NANLOG_TRACK_EVERY_LAYER=1")
    if every_layer and not (stages or without_stages):
        reader.warnings.append("NANLOG_TRACK_EVERY_LAYER: no effect without a follow, that is NANLOG_PIPELINE=1")
    elif every_layer and scope is None:
        reader.warnings.append("NANLOG_TRACK_EVERY_LAYER: no effect without NANLOG_WATCH_NAMES or NANLOG_WATCH_TYPES")
    if not (stages or without_stages):
        return ()
    modules = WatchGroup(scope.names, scope.types, (), stride) if every_layer and scope is not None else None
    return tuple(FollowEntry(name, stages, side_stream and stages, modules) for name in dict.fromkeys(tensors))


def _bounds(reader: _Reader) -> tuple[Bound, ...]:
    """Patterns in their order, then the range that holds for all others."""
    bounds, faults = parse_bounds(reader.text("NANLOG_BOUNDS"))
    reader.warnings += [f"NANLOG_BOUNDS: {fault}; ignored" for fault in faults]
    low, high = reader.number("NANLOG_BOUND_LO"), reader.number("NANLOG_BOUND_HI")
    if low is None and high is None:
        return tuple(bounds)
    match_all = Bound("", -math.inf if low is None else low, math.inf if high is None else high)
    if match_all.low > match_all.high:
        reader.warnings.append(f"NANLOG_BOUND_LO: {low} is above NANLOG_BOUND_HI, {high}; both ignored")
        return tuple(bounds)
    return (*bounds, match_all)


class _Reader:
    """Reads variables one by one and collects warnings."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._schema: Mapping[str, Any] = load_schema(OPTIONS_SCHEMA)["properties"]
        self.warnings: list[str] = []

    def warn_of_unknown(self) -> None:
        for name in sorted(self._environ):
            if name.startswith("NANLOG_") and name not in OUR_VARIABLES and name not in self._schema:
                hint = suggestion(name, list(self._schema))
                self.warnings.append(f"{name}: unknown, and ignored{hint}")

    def text(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def given(self, name: str) -> bool:
        """Whether the variable says anything; for a list, an empty one says something too."""
        return name in self._environ if self._schema[name]["type"] == "array" else bool(self.text(name))

    def words(self, name: str) -> tuple[str, ...]:
        """Parts of a list. A blank variable is an empty list, not the default."""
        if not self.given(name):
            return self.default_words(name)
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def default_words(self, name: str) -> tuple[str, ...]:
        return tuple(self._schema[name]["default"])

    def switch(self, name: str) -> bool:
        text = self.text(name)
        if text not in ("", "0", "1"):
            self.warnings.append(f'{name}: must be "1" (on) or "0" (off), got {json.dumps(text)}; using "0"')
        return text == "1"

    def number(self, name: str) -> Any:
        """An integer or a finite number within the schema's limits; else its default, None where it has none."""
        entry, text = self._schema[name], self.text(name)
        default = entry.get("default")
        if not text:
            return default
        whole = entry["type"] == "integer"
        try:
            value: float = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        low, high, above = (entry.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
        # NaN is within no limits, and Inf is no number here.
        inside = (low is None or value >= low) and (high is None or value <= high) and (above is None or value > above)
        if inside and abs(value) < math.inf:
            return value
        noun = "an integer" if whole else "a finite number"
        if high is not None and value > high:
            noun += f" <= {high}"
        elif low is not None or above is not None:
            noun += f" > {above}" if low is None else f" >= {low}"
        shown = json.dumps(text if len(text) <= 80 else text[:77] + "...")
        using = "none" if default is None else default
        self.warnings.append(f"{name}: must be {noun}, got {shown}; using {using}")
        return default
