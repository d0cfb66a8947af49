"""Is what was asked for in force? The configuration of each process, and what all were to watch and to follow.

Each rank may hold another part of the model, or another one altogether. So a scope or a name is to be met on one of
them; where it is met on some only, the reason says on which it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.artifacts.process import Fault
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.reading import Process, is_stock

_NO_SPEC_KEY = (
    *("huge_threshold", "huge_headroom", "max_records", "max_param_numel", "stop_on_first", "sparse"),
    "flush_sec",
)
_DISCOVERED = ("batch.", "batch[")  # names that tensors get where none of those asked for is found


def check_configuration(process: Process, expected: Expected) -> None:
    """Raise Fault (misapplied) if another configuration was in force."""
    summary = process.summary
    where = f"summary_{process.stem}.json"
    if summary.get("spec_error"):
        raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied: {summary['spec_error']}")
    raw = dict(expected.options.raw)
    if is_stock(expected):
        if ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw) and not summary.get("spec_applied"):
            raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied")
        return
    if summary.get("spec_present") != ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw):
        raise Fault(
            Verdict.MISAPPLIED, f"{where}: spec_source is {summary.get('spec_source')}, which was not asked for"
        )
    asked = Config.from_environment(raw).describe()
    got = summary.get("config")
    if "NANLOG_SPEC_FILE" in raw and isinstance(got, Mapping):
        # The file may be gone by now; spec_applied and the schema have been checked. What no spec has a word for stays.
        asked = {key: asked[key] for key in _NO_SPEC_KEY}
        got = {key: got.get(key) for key in _NO_SPEC_KEY}
    if got != asked:
        keys = [key for key in asked if not isinstance(got, Mapping) or got.get(key) != asked[key]]
        found = got.get(keys[0]) if isinstance(got, Mapping) and keys else got
        wanted = asked[keys[0]] if keys else asked
        name = keys[0] if keys else "config"
        raise Fault(Verdict.MISAPPLIED, f"{where}: {name} in force is {found}, asked for {wanted}")


def check_scopes(attached: Sequence[Process], expected: Expected) -> None:
    """Raise Fault (misapplied) if a watch group or a bound matches nothing on any rank."""
    watching = [process for process in attached if process.summary["watched_count"]]
    if is_stock(expected) or not watching:
        return
    first = watching[0]
    where = f"summary_{first.stem}.json"
    for index in _everywhere(watching, "unmatched_groups"):
        group = first.summary.get("config", {}).get("groups", [])[index : index + 1]
        raise Fault(Verdict.MISAPPLIED, f"{where}: watch[{index}] matches no module: {group[0] if group else ''}")
    for pattern in _everywhere(watching, "unmatched_bounds"):
        raise Fault(Verdict.MISAPPLIED, f"{where}: NANLOG_BOUNDS: nothing that was read has {pattern!r} in its name")


def check_follows(attached: Sequence[Process], expected: Expected, seen: Mapping[str, frozenset[str]]) -> None:
    """Raise Fault (misapplied) if a followed tensor was met on no rank, or a stage or module where it was to be read.

    Args:
        seen: By the stem of a process's files, names under which followed tensors were recorded.
    """
    raw = dict(expected.options.raw)
    first = attached[0]
    where = f"rank {first.rank}: "
    names = seen[first.stem]
    if is_stock(expected):
        found = frozenset().union(*(seen[process.stem] for process in attached))
        if found and all(name.startswith(_DISCOVERED) for name in found):
            reason = f"rank {first.rank}: none of {first.summary.get('track_attr')} was found in a batch"
            raise Fault(Verdict.MISAPPLIED, f"{reason}; the stock logger read {', '.join(sorted(found)[:5])} instead")
        return
    has_spec = "NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw
    unfound, unmatched = _everywhere(attached, "unfound_tensors"), _everywhere(attached, "unmatched_follows")
    for index, entry in enumerate(first.summary.get("config", {}).get("follows", ())):
        place = f"follow[{index}]" if has_spec else "NANLOG_PIPELINE"
        name_of_tensor = f"{place}.tensor" if has_spec else "NANLOG_TRACK_ATTR"
        if entry["tensor"] in unfound:
            there = [name for name in sorted(names) if name.startswith(_DISCOVERED)]
            reason = f"no batch had an attribute or key {entry['tensor']!r}"
            hint = f"; it had {', '.join(there[:8])}" if there else "; name one that the batch has"
            raise Fault(Verdict.MISAPPLIED, f"{where}{name_of_tensor}: {reason}{hint}")
        if index in unmatched:
            raise Fault(Verdict.MISAPPLIED, f"{where}{place}.scope matches no module: {entry['modules']}")
        staged = any(process.summary.get("pipeline_checkpoints") for process in attached)
        if entry["stages"] and entry["modules"] is None and not staged:
            raise Fault(
                Verdict.MISAPPLIED,
                f"{where}{place}: no stage of a TrainPipelineSparseDist was passed (pipeline_installed="
                f"{first.summary.get('pipeline_installed')}). A loop without that pipeline can be followed with "
                "pipeline: false and a scope",
            )


def met_on_some(attached: Sequence[Process]) -> Iterator[str]:
    """What some of the ranks did not meet, and others did."""
    told: dict[str, Callable[[object], str]] = {
        "unmatched_groups": lambda index: f"watch[{index}] matches no module",
        "unmatched_bounds": lambda pattern: f"NANLOG_BOUNDS: {pattern!r} is in no name",
        "unmatched_follows": lambda index: f"follow[{index}].scope matches no module",
        "unfound_tensors": lambda name: f"no batch has {name!r}",
    }
    for key, tell in told.items():
        ranks: dict[object, set[int]] = {}
        for process in attached:
            for what in process.summary.get(key, ()):
                ranks.setdefault(what, set()).add(process.rank)
        for what, lacking in ranks.items():
            shown = ", ".join(map(str, sorted(lacking)[:8])) + (" and more" if len(lacking) > 8 else "")
            yield f"{tell(what)} on rank(s) {shown}"


def _everywhere(processes: Sequence[Process], key: str) -> list[Any]:
    """What each of the processes has in a list of its summary."""
    first, *others = (process.summary.get(key, ()) for process in processes)
    return [what for what in first if all(what in other for other in others)]
