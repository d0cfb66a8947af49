"""How numbers and places are written wherever a person reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aorta_collectors.printable import printable

_MOST = 200
#: A record's counts of what is bad, and the words for it.
COUNTS = (("nan_count", "NaN"), ("inf_count", "Inf"), ("huge_count", "huge"), ("oob_count", "out of range"))

#: The same words by kind.
KINDS = {name.removesuffix("_count"): word for name, word in COUNTS}


def number(value: float | None) -> str:
    """Four significant digits, such as 0.1235, 65500 and 3.403e+38; "-" for None."""
    if value is None:
        return "-"
    if isinstance(value, int) or (math.isfinite(value) and value.is_integer() and abs(value) < 1e6):
        return str(int(value))
    return f"{value:.4g}"


def tensor(found: Mapping[str, Any]) -> str:
    """Which tensor of a layer a record, or a summary's short form of one, is about: "act", "wgrad weight", "act[0]"."""
    parameter, path = found.get("param_name") or "", found.get("tensor_path") or ""
    role = str(found.get("role") or found.get("direction") or "")
    # weight and bias are named twice where the parameter has its role's name, as it mostly does.
    return text(f"{role} {parameter}{path}" if parameter not in ("", role) else f"{role}{path}")


def read_at(found: Mapping[str, Any]) -> str:
    """Which of a layer's tensors it was, and where: "fwd blocks.0 act, call 2", "pipeline ids track, at copy"."""
    parts = [f"{text(found['direction'] or '')} {layer(found)} {tensor(found)}".strip()]
    if (found.get("invocation") or 0) > 1:
        parts.append(f"call {found['invocation']}")
    if found["direction"] == "pipeline":
        forms = (("phase", "at"), ("checkpoint", "after"))
        parts += [f"{form} {text(found[name])}" for name, form in forms if found.get(name)]
    return ", ".join(parts)


def layer(found: Mapping[str, Any]) -> str:
    """The layer's path without what wrappers put around it; the layer's name where only that is known."""
    return text(str(found.get("module_path") or found.get("layer_name") or found.get("layer") or "-"))


def text(what: object) -> str:
    """A text that a program could choose, such as a layer's name: in one line, with escapes for what is no letter."""
    return printable(str(what), _MOST)
