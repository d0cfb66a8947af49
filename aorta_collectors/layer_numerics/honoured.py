"""Is what was asked for in force? The configuration of a process, and what it was to watch and to follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aorta_collectors.api import Expected, Verdict
from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.reading import Fault, Process, is_stock

_NO_SPEC_KEY = (
    *("huge_threshold", "huge_headroom", "max_records", "max_param_numel", "stop_on_first", "sparse"),
    "flush_sec",
)
_DISCOVERED = ("batch.", "batch[")  # names that tensors get where none of those asked for is found


def check_configuration(process: Process, expected: Expected) -> None:
    """Raise Fault (misapplied) if another configuration was in force, or a watch group matches nothing."""
    summary = process.summary
    where = f"summary_{process.stem}.json"
    if summary.get("spec_error"):
        raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied: {summary['spec_error']}")
    raw = dict(expected.options.raw)
    if is_stock(expected):
        if ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw) and not summary.get("spec_applied"):
            raise Fault(Verdict.MISAPPLIED, f"{where}: the spec was not applied")
        return
    if summary["watched_count"] and summary.get("unmatched_groups"):
        index = summary["unmatched_groups"][0]
        group = summary.get("config", {}).get("groups", [])[index : index + 1]
        raise Fault(Verdict.MISAPPLIED, f"{where}: watch[{index}] matches no module: {group[0] if group else ''}")
    if summary.get("spec_present") != ("NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw):
        raise Fault(
            Verdict.MISAPPLIED, f"{where}: spec_source is {summary.get('spec_source')}, which was not asked for"
        )
    if summary["watched_count"] and summary.get("unmatched_bounds"):
        pattern = summary["unmatched_bounds"][0]
        raise Fault(Verdict.MISAPPLIED, f"{where}: NANLOG_BOUNDS: nothing that was read has {pattern!r} in its name")
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


def check_follows(process: Process, expected: Expected, seen: Collection[str]) -> None:
    """Raise Fault (misapplied) if a followed tensor was never met, or a stage or module where it was to be read.

    Args:
        seen: Names under which followed tensors were recorded.
    """
    summary = process.summary
    raw = dict(expected.options.raw)
    if is_stock(expected):
        if seen and all(name.startswith(_DISCOVERED) for name in seen):
            reason = f"rank {process.rank}: none of {summary.get('track_attr')} was found in a batch"
            raise Fault(Verdict.MISAPPLIED, f"{reason}; the stock logger read {', '.join(sorted(seen)[:5])} instead")
        return
    has_spec = "NANLOG_SPEC" in raw or "NANLOG_SPEC_FILE" in raw
    for index, entry in enumerate(summary.get("config", {}).get("follows", ())):
        place = f"follow[{index}]" if has_spec else "NANLOG_PIPELINE"
        name_of_tensor = f"{place}.tensor" if has_spec else "NANLOG_TRACK_ATTR"
        where = f"rank {process.rank}: "
        if entry["tensor"] in summary.get("unfound_tensors", ()):
            there = [name for name in sorted(seen) if name.startswith(_DISCOVERED)]
            reason = f"no batch had an attribute or key {entry['tensor']!r}"
            hint = f"; it had {', '.join(there[:8])}" if there else "; name one that the batch has"
            raise Fault(Verdict.MISAPPLIED, f"{where}{name_of_tensor}: {reason}{hint}")
        if index in summary.get("unmatched_follows", ()):
            raise Fault(Verdict.MISAPPLIED, f"{where}{place}.scope matches no module: {entry['modules']}")
        if entry["stages"] and entry["modules"] is None and not summary.get("pipeline_checkpoints"):
            raise Fault(
                Verdict.MISAPPLIED,
                f"{where}{place}: no stage of a TrainPipelineSparseDist was passed (pipeline_installed="
                f"{summary.get('pipeline_installed')}). A loop without that pipeline can be followed with pipeline: "
                "false and a scope",
            )
