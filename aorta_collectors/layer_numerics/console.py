"""What a person reads on stderr: lines in the stock logger's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.observe.observation import RootInfo


def attached_lines(config: Config, root: RootInfo) -> Iterator[str]:
    """What hooks stand on, once they do."""
    if not root.watched_names and config.groups:
        yield (
            f"WARNING: 0 modules matched (types={config.types}, names={config.names}) in {root.label}. Names are "
            "substrings of module paths, types are class names"
        )
    yield (
        f"attached layer hooks to {len(root.watched_names)} module(s) (types={config.types}, "
        f"names={config.names}); channels={config.channels}; params_scanned={root.params_scanned}; "
        f"params_skipped={len(root.skipped_params)}; root={root.label}"
    )
    if 0 < len(root.watched_names) <= 10:
        yield f"watched modules: {list(root.watched_names)}"


def shortened(first_bad: dict[str, Any] | None) -> dict[str, Any] | None:
    """The first bad record as the stock logger has it in its last line."""
    if first_bad is None:
        return None
    return {key: first_bad[key] for key in ("step", "layer", "direction", "kind", "matmul_calls_so_far")}
