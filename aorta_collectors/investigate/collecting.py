"""Which collectors an investigation asks for, with which options, and the points that every run has to have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta_collectors.api import Collector, Options
from aorta_collectors.errors import OptionsError
from aorta_collectors.registry import collector_names, load_collector
from aorta_collectors.schema_check import suggestion

#: For each kind of question: the collector that answers it, its options, and the points that any training or inference
#: comes by. Where a NaN begins, only all modules together tell: one without weights can be the first to make it.
DEFAULTS: Mapping[str, tuple[str, Mapping[str, str], tuple[str, ...]]] = {
    "values": ("tensors", {"keep": "values"}, ("after_forward",)),
    "finite": ("layer_numerics", {"NANLOG_WATCH_TYPES": "*", "NANLOG_ORIGIN": "1"}, ()),
    "memory": ("memory", {}, ("before_forward", "after_forward")),
    "timing": ("numerics", {}, ()),
}
#: The option by which a collector is told its points, and how the names of a program's own points begin.
POINTS = "points"
_OWN = ("user:", "grad:")


@dataclass(frozen=True)
class Collecting:
    """What is asked for.

    Attributes:
        blocks: Options by the collector's name, as in a recipe's collect: block.
        points: Points without which a run counts as failed.
        observed: Those, and where collectors look by default as far as a program comes by there.
        loaded: The collectors, each with its options as validated.
    """

    blocks: Mapping[str, Mapping[str, str]]
    points: tuple[str, ...]
    observed: tuple[str, ...]
    loaded: Mapping[str, tuple[Collector, Options]]


def collecting_for(kind: str, given: Sequence[str], points: Sequence[str]) -> Collecting:
    """What `--collect` and `--points` ask for, checked by the collectors themselves.

    Args:
        given: Each NAME or NAME:KEY=VALUE,...; none for the kind's own collector.
        points: Lifecycle points, and names of the program's own such as user:logits.

    Raises:
        OptionsError: A name, an option or a point that no collector knows.
        CollectorLoadError: A collector is installed and cannot be loaded.
    """
    name, options, usual = DEFAULTS[kind]
    blocks = _parsed(given) if given else {name: dict(options)}
    loaded = {name: _load(name) for name in blocks}
    having = [name for name in blocks if POINTS in loaded[name].schema.get("properties", {})]
    if points and not having:
        raise OptionsError("--points", f"{', '.join(blocks)} has no points; --collect tensors and --collect memory do")
    known = list(dict.fromkeys(point for name in having for point in _known(loaded[name])))
    for point in points:
        if point not in known and not (point.startswith(_OWN) and not point.endswith(":")):
            allowed = ", ".join((*sorted(known), "user:NAME", "grad:NAME"))
            raise OptionsError("--points", f"{point} is no point; allowed: {allowed}")
    in_life = [point for point in points if point in known]
    for name in having:
        if in_life:
            blocks[name].setdefault(POINTS, ",".join(in_life))
    validated = {}
    for name, block in blocks.items():
        try:
            validated[name] = (loaded[name], loaded[name].validate(block))
        except OptionsError as error:
            raise error.below(f"--collect {name}") from None
    wanted = [*points, *(point for name in having for point in validated[name][1].values.get(POINTS, ()))]
    required = tuple(dict.fromkeys(wanted or ([] if given else usual)))
    looked_at = {point for name in having for point in _looked_at(*validated[name])}
    in_order = [point for point in known if point in looked_at]
    return Collecting(blocks, required, tuple(dict.fromkeys((*in_order, *required))), validated)


def _parsed(given: Iterable[str]) -> dict[str, dict[str, str]]:
    """Blocks of NAME:KEY=VALUE,... A part without = goes on with the value before it: points=a,b has two."""
    found: dict[str, dict[str, str]] = {}
    for text in given:
        name, _, rest = text.partition(":")
        block = found.setdefault(name.strip(), {})
        key = ""
        for part in rest.split(",") if rest else []:
            before, equals, value = part.partition("=")
            if equals:
                key = before.strip()
                if key in block:
                    raise OptionsError(f"--collect {name}", f"{key} is given twice")
                block[key] = value
            elif key:
                block[key] += f",{part}"
            else:
                raise OptionsError(f"--collect {text}", "NAME:KEY=VALUE,... is wanted, such as tensors:keep=values")
    return found


def _load(name: str) -> Collector:
    known = sorted(collector_names())
    if name not in known:
        hint = suggestion(name, known) or f"; installed: {', '.join(known)}"
        raise OptionsError("--collect", f"{name} is no collector{hint}")
    return load_collector(name)


def _looked_at(collector: Collector, options: Options) -> Sequence[str]:
    """The points of a collector, by its options or else by default."""
    given: Sequence[str] | None = options.values.get(POINTS)
    return given if given is not None else collector.schema["properties"][POINTS].get("default", ())


def _known(collector: Collector) -> list[str]:
    items: Any = collector.schema["properties"][POINTS].get("items", {})
    return list(items.get("enum", ()))
