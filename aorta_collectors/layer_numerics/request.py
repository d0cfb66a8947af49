"""What a configuration asks of the observer, which knows nothing of NANLOG_* variables."""

from __future__ import annotations

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.observe.request import Request


def request_of(config: Config) -> Request:
    return Request(
        groups=config.groups,
        follows=config.follows,
        bounds=config.bounds,
        threshold=config.huge_threshold,
        headroom=config.huge_headroom,
        max_param_numel=config.max_param_numel,
        origin=config.origin,
        addresses="addr" in config.diagnostics,
        locate=not config.diagnostics.isdisjoint({"locate", "bad_values"}),
        moments="moments" in config.diagnostics,
        keep_bad="dump_tensor" in config.diagnostics,
        follow_most=config.track_max,
        sparse=config.sparse,
        sparse_heavy=config.sparse_heavy,
    )
