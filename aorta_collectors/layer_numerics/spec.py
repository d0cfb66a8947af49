"""NANLOG_SPEC, the structured configuration: where its text comes from, and what it means as fields of `Config`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.layer_numerics.support import check_spec
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.watch import WatchGroup
from aorta_collectors.options import parse_object

# What the `tensors` of a watch group mean in channels.
_TENSORS = {
    "input": ("input",),
    "output": ("act",),
    "weight": ("weight",),
    "bias": ("bias",),
    "igrad": ("igrad",),
    "grad": ("igrad", "wgrad", "bgrad"),
}
_LINEAR = {"types": ["Linear"]}

#: Flat variables for which a spec speaks: with one in force they count as unset. The others say what a spec cannot.
OWNED = frozenset(
    f"NANLOG_{name}"
    for name in (
        *("WATCH_NAMES", "WATCH_TYPES", "WATCH_STRIDE", "CHANNELS", "SAMPLE_EVERY", "PRE_CONTEXT", "BOUNDS"),
        *("PIPELINE", "PIPELINE_OFF_FOLLOW", "STAGE_READS"),
        *("TRACK_ATTR", "TRACK_EVERY_LAYER", "TRACK_LAYER_STRIDE"),
        *("ADDR", "LOCATE", "BAD_VALUES", "MOMENTS", "DUMP_TENSOR", "ALLOC_SNAPSHOT"),
    )
)


def find_spec(
    environ: Mapping[str, str], config_file: str | None, directory: Path
) -> tuple[str | None, str, str | None]:
    """(source, text, error): which spec was asked for, None if none was, and its text if that could be read."""
    path = config_file or environ.get("NANLOG_SPEC_FILE", "").strip()
    if path:
        source = f"{'--config' if config_file else 'NANLOG_SPEC_FILE'}={path}"
        try:
            return source, (directory / path).read_text(encoding="utf-8"), None
        except (OSError, ValueError) as error:
            return source, "", f"cannot be read ({error})"
    if environ.get("NANLOG_SPEC", "").strip():
        return "NANLOG_SPEC", environ["NANLOG_SPEC"], None
    return None, "", None


def parse_spec(text: str) -> tuple[dict[str, Any], str | None]:
    """(spec, error): the spec, valid, or why it is not."""
    try:
        spec = parse_object("", text)
        check_spec(spec)
    except OptionsError as error:
        return {}, str(error)
    return spec, None


def read_spec(spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(fields, warnings): what a valid spec changes in a configuration without any of the `OWNED` variables."""
    watch, follow = spec.get("watch", []), spec.get("follow", [])
    fields: dict[str, Any] = {"diagnostics": frozenset(spec.get("diagnostics", ()))}
    # A spec that only follows watches nothing: the Linear layers of the default were not asked for.
    if watch or follow:
        fields["groups"] = tuple(_watch_group(entry) for entry in watch)
    fields["follows"] = tuple(_follow(entry) for entry in follow)
    for key in ("sample_every", "pre_context"):
        if key in spec:
            fields[key] = int(spec[key])
    if "origin" in spec:
        fields["origin"] = spec["origin"]
    warnings = [
        f"follow[{index}]: is read at the pipeline's stages too, since a scope does not exclude them; "
        '"pipeline": false does, and leaves the timing of the stages alone'
        for index, entry in enumerate(follow)
        if "scope" in entry and not entry.get("stages") and entry.get("pipeline", True)
    ]
    return fields, warnings


def _watch_group(entry: Mapping[str, Any]) -> WatchGroup:
    channels = dict.fromkeys(channel for tensor in entry["tensors"] for channel in _TENSORS[tensor])
    return _scope(entry.get("scope", _LINEAR), tuple(channels), entry)


def _follow(entry: Mapping[str, Any]) -> FollowEntry:
    bounds = entry.get("bounds")
    return FollowEntry(
        tensor=entry["tensor"].strip(),
        stages=entry.get("pipeline", True),
        side_stream=entry.get("stage_reads", False),
        modules=_scope(entry["scope"], (), entry) if "scope" in entry else None,
        bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
    )


def _scope(scope: Mapping[str, Any], channels: tuple[str, ...], entry: Mapping[str, Any]) -> WatchGroup:
    names, types = (tuple(word.strip() for word in scope.get(key, ())) for key in ("names", "types"))
    return WatchGroup(names, types, channels, int(entry.get("stride", 1)))
