"""The NANLOG_* configuration of one process, as a value.

Alone, a malformed variable or spec is reported and falls back to its default: a sidecar never takes a run down. In a
sweep the same text has been validated when the recipe was loaded, and verification compares what was in force
(`Config.describe`) with what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta_collectors.layer_numerics.flat import read_flat
from aorta_collectors.layer_numerics.spec import OWNED, find_spec, parse_spec, read_spec
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import WatchGroup


@dataclass(frozen=True)
class Config:
    """What is in force. Defaults are those of the reference table.

    Attributes:
        groups: What is watched; empty where a follow is all that was asked for.
        bounds: Allowed ranges by layer, the first that matches; a range of a follow entry stands in the entry.
        huge_threshold: |x| above it counts as huge, in the tensor's own unit.
        huge_headroom: Bits: an element of a floating tensor beyond finfo.max / 2**bits counts as huge too; None is off.
        track_max: Most tensors of a batch that are followed.
        origin: Read on every module what names the origin of the first bad value.
        flush_sec: Seconds between two writings of the summary; 0 is in every step.
        spec_source: Which structured spec was asked for; it is in force unless `spec_error` says why not.
    """

    groups: tuple[WatchGroup, ...] = (WatchGroup(types=("Linear",)),)
    follows: tuple[FollowEntry, ...] = ()
    bounds: tuple[Bound, ...] = ()
    diagnostics: frozenset[str] = frozenset()
    sparse: bool = False
    sparse_heavy: bool = False
    track_max: int = 64
    origin: bool = False
    sample_every: int = 50
    pre_context: int = 0
    huge_threshold: float = 1e10
    huge_headroom: float | None = None
    max_records: int = 200_000
    max_param_numel: int = 50_000_000
    stop_on_first: bool = False
    flush_sec: float = 30.0
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

    @property
    def pipeline(self) -> bool:
        """Whether the pipeline's stages are to be wrapped."""
        return any(entry.stages for entry in self.follows)

    @property
    def stage_reads(self) -> bool:
        return any(entry.side_stream for entry in self.follows)

    @property
    def track_attr(self) -> list[str]:
        return list(dict.fromkeys(entry.tensor for entry in self.follows))

    @property
    def track_every_layer(self) -> bool:
        return any(entry.modules is not None for entry in self.follows)

    @property
    def track_layer_stride(self) -> int:
        """The stride of the first follow that has modules; each keeps its own."""
        return next((entry.modules.stride for entry in self.follows if entry.modules is not None), 1)

    @property
    def bound_all(self) -> tuple[float, float] | None:
        """The range that holds where no pattern matches."""
        return next(((bound.low, bound.high) for bound in self.bounds if not bound.pattern), None)

    def describe(self) -> dict[str, Any]:
        """Plain JSON of all that changes what is recorded, and when; null is the open end of a range."""
        return {
            "groups": [
                {**_scope(group), "channels": sorted(group.channels), "stride": group.stride} for group in self.groups
            ],
            "follows": [
                {
                    "tensor": entry.tensor,
                    "stages": entry.stages,
                    "side_stream": entry.side_stream,
                    "modules": entry.modules and {**_scope(entry.modules), "stride": entry.modules.stride},
                    "bounds": entry.bounds and list(entry.bounds),
                }
                for entry in self.follows
            ],
            "bounds": [
                {"pattern": bound.pattern, "lo": _finite(bound.low), "hi": _finite(bound.high)} for bound in self.bounds
            ],
            "diagnostics": sorted(self.diagnostics),
            "sparse": self.sparse,
            "sparse_heavy": self.sparse_heavy,
            "track_max": self.track_max,
            "origin": self.origin,
            "sample_every": self.sample_every,
            "pre_context": self.pre_context,
            "huge_threshold": self.huge_threshold,
            "huge_headroom": self.huge_headroom,
            "max_records": self.max_records,
            "max_param_numel": self.max_param_numel,
            "stop_on_first": self.stop_on_first,
            "flush_sec": self.flush_sec,
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
        source, text, error = find_spec(environ, config_file, directory)
        spec: dict[str, Any] = {}
        if source is not None and error is None:
            spec, error = parse_spec(text)
        if source is None or error is not None:
            fields, warnings = read_flat(environ)
            if error is not None:
                warnings.append(f"{source}: {error}; using the flat NANLOG_* variables instead")
        else:
            fields, warnings = read_flat({name: value for name, value in environ.items() if name not in OWNED})
            changes, more = read_spec(spec)
            fields.update(changes)
            warnings += more
            ignored = sorted(name for name in OWNED if environ.get(name, "").strip() not in ("", "0"))
            if ignored:
                warnings.append(f"{source} is in force; ignored: {', '.join(ignored)}")
        if fields["sparse"] and not fields["follows"]:
            warnings.append("NANLOG_SPARSE: no effect without a follow")
        return cls(**fields, spec_source=source, spec_error=error, warnings=tuple(warnings))


def _scope(group: WatchGroup) -> dict[str, list[str]]:
    return {"names": list(group.names), "types": list(group.types)}


def _finite(end: float) -> float | None:
    """JSON has no Inf."""
    return end if math.isfinite(end) else None
