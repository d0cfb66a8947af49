"""What two manifests say differently of options, environment and seeds, without what no two runs have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: What differs: its path in the manifest, such as environment.settings.cudnn_benchmark, and both values.
Condition = tuple[str, Any, Any]

_PARTS = ("config", "environment", "world_size")
# Where a run lies.
_PLACES = ("environment.cwd",)
# Variables that say where something lies, or which run, rank or process this is: never two the same, whatever they are
# called; and those of collectors and investigations, whose options are among `config`.
_BY_NATURE = re.compile(
    r"(TENSORS|MEMORY|NUMERICS|NANLOG|AORTA_COLLECTORS|INVESTIGATION)_|(LOCAL_|GROUP_)?RANK$|"
    r"(.*_)?(DIR|DIRECTORY|FILE|FD|ID|PID|UUID|PORT|ADDR|ENDPOINT|SOCKET|TIME|TIMESTAMP)S?$"
)


def conditions_of(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Condition]:
    """What may be why two runs differ, in the manifests' order."""
    found: list[Condition] = []
    for part in _PARTS:
        if baseline.get(part) and candidate.get(part):  # a process that saw no model knows of no environment
            found += _differing(part, baseline[part], candidate[part])
    return [*found, *_generators(baseline.get("seeds"), candidate.get("seeds"))]


def _differing(path: str, a: Any, b: Any) -> Iterator[Condition]:
    if path in _PLACES:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            if path != "environment.variables" or not _BY_NATURE.match(key):
                yield from _differing(f"{path}.{key}", a.get(key), b.get(key))
    elif a != b:
        yield path, a, b


def _generators(a: Any, b: Any) -> Iterator[Condition]:
    """Generators of random numbers when a model was first called: what came before, seeding overrules.

    A state tells something where seeds are the same, since other numbers have been drawn. Python's and numpy's
    generators have no seed that could be asked for. Unless a program seeds them, no two runs have them in one state,
    which is told only where a program has seeded them, or is seen to draw from them.
    """
    first, second = (side.get("first_call") or {} if isinstance(side, dict) else {} for side in (a, b))
    if not first or not second:
        return
    if first.get("torch_seed") != second.get("torch_seed"):
        yield "seeds.torch_seed", first.get("torch_seed"), second.get("torch_seed")
    told = {
        "torch_state": first.get("torch_seed") == second.get("torch_seed"),
        "python_state": any(_has_changed("python_state", side) for side in (a, b)),
        "numpy_state": bool(first.get("numpy_seeded") or second.get("numpy_seeded")),
    }
    for name in (name for name, matters in told.items() if matters):
        known = first.get(name), second.get(name)
        if None not in known and known[0] != known[1]:
            yield f"seeds.{name}", *known
    yield from _of_devices(*({each["device"]: each for each in side.get("devices", ())} for side in (first, second)))


def _has_changed(name: str, side: Mapping[str, Any]) -> bool:
    """Whether a program has seeded a generator, or drawn from it, since torch had been imported."""
    armed = (side.get("armed") or {}).get(name)
    return armed is not None and bool(armed != side["first_call"].get(name))


def _of_devices(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Condition]:
    for device in (device for device in a if device in b):
        for name in ("seed", "state"):
            if a[device].get(name) != b[device].get(name):
                yield f"seeds.{device}_{name}", a[device].get(name), b[device].get(name)
                break
