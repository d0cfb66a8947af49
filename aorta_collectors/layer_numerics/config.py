"""The NANLOG_* configuration of one process, as a value.

Alone, a malformed variable or spec is reported and falls back to its default: a sidecar never takes a run down. In a
sweep the same text has been validated when the recipe was loaded, and verification compares what was in force
(`Config.describe`) with what was asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from aorta_collectors.layer_numerics.names import OUR_VARIABLES
from aorta_collectors.observe.watch import CHANNELS, WatchGroup
from aorta_collectors.schema_check import load_schema, suggestion

_T = TypeVar("_T")

# What the `tensors` of a spec's watch group mean in channels.
_SPEC_TENSORS = {
    "input": ("input",),
    "output": ("act",),
    "weight": ("weight",),
    "bias": ("bias",),
    "igrad": ("igrad",),
    "grad": ("igrad", "wgrad", "bgrad"),
}
_DEFAULT_TYPES = ("Linear",)


@dataclass(frozen=True)
class Group(WatchGroup):
    """A watch group with the default scope of NANLOG_WATCH_TYPES."""

    types: tuple[str, ...] = _DEFAULT_TYPES

    def describe(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "types": list(self.types),
            "channels": sorted(self.channels),
            "stride": self.stride,
        }


@dataclass(frozen=True)
class Config:
    """What is in force. Defaults are those of the reference table."""

    groups: tuple[Group, ...] = (Group(),)
    sample_every: int = 50
    pre_context: int = 0
    huge_threshold: float = 1e10
    max_records: int = 200_000
    max_param_numel: int = 50_000_000
    stop_on_first: bool = False
    verbose: bool = False
    spec_source: str | None = None
    spec_error: str | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def channels(self) -> list[str]:
        return sorted({channel for group in self.groups for channel in group.channels})

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

    @property
    def types(self) -> list[str]:
        return list(dict.fromkeys(name for group in self.groups for name in group.types))

    def describe(self) -> dict[str, Any]:
        """Plain JSON of all that changes what is recorded."""
        return {
            "groups": [group.describe() for group in self.groups],
            "sample_every": self.sample_every,
            "pre_context": self.pre_context,
            "huge_threshold": self.huge_threshold,
            "max_records": self.max_records,
            "max_param_numel": self.max_param_numel,
            "stop_on_first": self.stop_on_first,
        }

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], config_file: str | None = None, directory: Path = Path()
    ) -> Config:
        """Read NANLOG_* variables; never raises.

        Args:
            config_file: The path given with --config, which wins over NANLOG_SPEC_FILE, NANLOG_SPEC and flat variables.
            directory: What a relative path is meant from.
        """
        reader = _Reader(environ)
        reader.warnings += _unknown(environ)
        flat = cls(
            groups=(reader.group(),),
            sample_every=reader.integer("NANLOG_SAMPLE_EVERY", cls.sample_every, minimum=1),
            pre_context=reader.integer("NANLOG_PRE_CONTEXT", cls.pre_context, minimum=0),
            huge_threshold=reader.threshold("NANLOG_HUGE_THRESHOLD", cls.huge_threshold),
            max_records=reader.integer("NANLOG_MAX_RECORDS", cls.max_records, minimum=0),
            max_param_numel=reader.integer("NANLOG_MAX_PARAM_NUMEL", cls.max_param_numel, minimum=0),
            stop_on_first=environ.get("NANLOG_STOP_ON_FIRST", "0") == "1",
            verbose=environ.get("NANLOG_VERBOSE", "0") == "1",
        )
        source, text, error = _spec_text(environ, config_file, directory)
        spec: dict[str, Any] = {}
        if source is not None and error is None:
            spec, error = _parse_spec(text)
        if error is not None:
            reader.warnings.append(f"{source}: {error}; using the flat NANLOG_* variables instead")
        return replace(
            flat,
            **(_from_spec(spec) if source is not None and error is None else {}),
            spec_source=source,
            spec_error=error,
            warnings=tuple(reader.warnings),
        )


def _unknown(environ: Mapping[str, str]) -> list[str]:
    """What to say of NANLOG_* variables that are misspelt, or that only the stock logger has."""
    known = load_schema("layer_numerics.options")["properties"]
    warnings = []
    for name in sorted(environ):
        if not name.startswith("NANLOG_") or name in OUR_VARIABLES:
            continue
        if name not in known:
            warnings.append(f"{name}: unknown, and ignored{suggestion(name, list(known))}")
        elif "x-frontend" in known[name] and environ[name] not in ("", "0"):
            warnings.append(f"{name}: not in this engine yet, and ignored; the stock logger has it")
    return warnings


def _spec_text(
    environ: Mapping[str, str], config_file: str | None, directory: Path
) -> tuple[str | None, str, str | None]:
    """(source, text, error): which structured spec was requested, and its text if that could be read."""
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


def _parse_spec(text: str) -> tuple[dict[str, Any], str | None]:
    """(spec, error): the spec, checked against its schema and against what this engine can do."""
    from aorta_collectors.errors import OptionsError
    from aorta_collectors.options import parse_object

    try:
        spec = parse_object("", text)
        from aorta_collectors.layer_numerics.support import check_spec

        check_spec(spec)
    except OptionsError as error:
        return {}, str(error)
    except ImportError as error:
        return {}, f"cannot be checked here, since {error.name} is not installed"
    return spec, None


def _from_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that a valid spec makes to the flat configuration."""
    changes: dict[str, Any] = {}
    if spec.get("watch"):
        changes["groups"] = tuple(_watch_group(entry) for entry in spec["watch"])
    for key in ("sample_every", "pre_context"):
        if key in spec:
            changes[key] = int(spec[key])
    return changes


def _watch_group(entry: Mapping[str, Any]) -> Group:
    scope = entry.get("scope", {"types": list(_DEFAULT_TYPES)})
    channels = dict.fromkeys(channel for tensor in entry["tensors"] for channel in _SPEC_TENSORS[tensor])
    return Group(
        names=tuple(scope.get("names", ())),
        types=tuple(scope.get("types", ())),
        channels=tuple(channels),
        stride=int(entry.get("stride", 1)),
    )


class _Reader:
    """Reads variables one by one; what does not parse becomes a warning and the default."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.warnings: list[str] = []

    def group(self) -> Group:
        names = self._list("NANLOG_WATCH_NAMES", "")
        # Naming a layer must not pull in every Linear as well.
        types = self._list("NANLOG_WATCH_TYPES", "" if names else ",".join(_DEFAULT_TYPES))
        asked = self._list("NANLOG_CHANNELS", "act,igrad")
        channels = tuple(channel for channel in asked if channel in CHANNELS)
        if len(channels) != len(asked):
            unknown = sorted(set(asked) - set(CHANNELS))
            self.warnings.append(f"NANLOG_CHANNELS: {unknown} ignored; valid: {', '.join(CHANNELS)}")
        return Group(names, types, channels, self.integer("NANLOG_WATCH_STRIDE", 1, minimum=1))

    def integer(self, name: str, default: int, minimum: int) -> int:
        return self._number(name, default, int, lambda value: value >= minimum, f"an integer >= {minimum}")

    def threshold(self, name: str, default: float) -> float:
        return self._number(
            name, default, float, lambda value: value > 0 and math.isfinite(value), "a finite number > 0"
        )

    def _number(
        self, name: str, default: _T, parse: Callable[[str], _T], allowed: Callable[[_T], bool], noun: str
    ) -> _T:
        text = self._environ.get(name, "").strip()
        if not text:
            return default
        value: _T | None
        try:
            value = parse(text)
        except ValueError:
            value = None
        if value is None or not allowed(value):
            self.warnings.append(f"{name}: must be {noun}, got {json.dumps(text)}; using {default}")
            return default
        return value

    def _list(self, name: str, default: str) -> tuple[str, ...]:
        text = self._environ.get(name, default)
        return tuple(part.strip() for part in text.split(",") if part.strip())
