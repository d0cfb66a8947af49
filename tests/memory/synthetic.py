"""Captures made up value by value, in the files of memory: for what no real program does on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.api import Expected, Options, Verdict, Verification
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.verify.verification import verify
from tests.memory.snapshots import MIB

Line = dict[str, Any]
RUN_ID = "trial-1"


def pool(kind: str = "default", **more: Any) -> Line:
    """One stream's share of a pool on a device."""
    name = "0,0" if kind == "default" else "0,1"
    told = {"pool": name, "kind": kind, "stream": 0, "segments": 2, "reserved": 20 * MIB, "allocated": 6 * MIB}
    told |= {"active": 8 * MIB, "requested": 7 * MIB, "inactive": 12 * MIB, "largest_inactive": 10 * MIB}
    return {**told, **more}


def device(**more: Any) -> Line:
    totals = {"allocated": 12 * MIB, "active": 16 * MIB, "reserved": 40 * MIB, "requested": 14 * MIB}
    totals |= {"inactive": 24 * MIB, "peak_allocated": 30 * MIB, "peak_reserved": 40 * MIB, "retries": 0}
    return {"device": "cuda:0", **totals, "history": "state only", "pools": [pool(), pool("private")], **more}


def host(rss: int = 500 * MIB, **more: Any) -> Line:
    told = {"rss": rss, "shared": MIB, "anonymous": rss - 100 * MIB, "swap": 0, "peak_rss": rss, "python": None}
    return {**told, **more}


def default_points(steps: int, config: Config, *, grows: int = 0, devices: Sequence[Line] = ()) -> list[Line]:
    """Those of steps that train, each point in its order.

    Args:
        grows: Bytes by which each step's resident set is above that of the step before.
    """
    lines: list[Line] = []
    for step in range(1, steps + 1):
        if not config.looks_at_step(step):
            continue
        for point in config.points:
            lines.append(
                {
                    "step": step,
                    "order": len(lines),
                    "name": point,
                    "invocation": step - 1,
                    "point": point,
                    "layer": "",
                    "time_ns": 1_700_000_000_000_000_000 + len(lines),
                    "host": host(500 * MIB + grows * step),
                    "devices": list(devices),
                }
            )
    return lines


def write(
    directory: Path,
    *,
    ranks: int = 1,
    steps: int = 4,
    config: Mapping[str, Any] | None = None,
    points: Sequence[Line] | None = None,
    summary: Mapping[str, Any] | None = None,
    by_rank: Mapping[int, Mapping[str, Any]] | None = None,
    **default: Any,
) -> Path:
    """Write what ranks would, into a directory as MEMORY_DIR names one. Returns the directory.

    Args:
        config: Options, decoded; the others are as by default.
        points: Lines of each rank, without what names the process; `default_points` where there is no list.
        summary: Further fields of every summary.
        by_rank: The same of one rank's.
        default: For `default_points`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options = Config.of(config or {})
    lines = default_points(steps, options, **default) if points is None else points
    for rank in range(ranks):
        identity = {"rank": rank, "pid": 1000 + rank}
        content = {**_summary(rank, ranks, steps, options, lines), **(summary or {}), **(by_rank or {}).get(rank, {})}
        (directory / f"summary_rank{rank}.json").write_text(json.dumps(content))
        text = "".join(json.dumps({**identity, **line}) + "\n" for line in lines)
        (directory / f"memory_rank{rank}.jsonl").write_text(text)
        if options.stacks:
            (directory / f"growth_rank{rank}.jsonl").write_text("")
    return directory


def _summary(rank: int, ranks: int, steps: int, options: Config, lines: Sequence[Line]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    peaks: dict[str, Any] = {}
    for line in lines:
        kind = "layers" if line["layer"] else line["point"]
        told = counts.setdefault(kind, {"seen": 0, "taken": 0, "first": None, "last": None})
        look = {"step": line["step"], "rss": line["host"]["rss"], "anonymous": line["host"]["anonymous"]}
        told.update(seen=told["seen"] + 1, taken=told["taken"] + 1, first=told["first"] or look, last=look)
        for found in line["devices"]:
            peaks[found["device"]] = {name: found[name] for name in ("peak_allocated", "peak_reserved")}
    files = {"memory": {"written": len(lines), "dropped": 0}}
    return {
        "schema_version": 1,
        "engine": "aorta-collectors 0",
        "run_id": RUN_ID,
        "status": "complete",
        "ended_by": "exit",
        "started_at": "2026-01-01T00:00:00+00:00",
        "rank": rank,
        "world_size": ranks,
        "restart": 0,
        "launcher": None,
        "host": "machine",
        "pid": 1000 + rank,
        "torch": "2.13.0",
        "warnings": [],
        "write_error": None,
        "config": options.describe(),
        "environment": {},
        "seeds": {},
        "files": {**files, "growth": {"written": 0, "dropped": 0}} if options.stacks else files,
        "steps_seen": steps,
        "steps_left_out": 0,
        "evaluation_steps": 0,
        "optimizer_steps": steps,
        "modules_built": 3,
        "roots": ["Model"],
        "watched_count": 2 if options.scope else 0,
        "called_count": 2 if options.scope else 0,
        "unseen_names": [],
        "unmatched_scope": [],
        "opaque_names": [],
        "graph_breaks": {},
        "hook_errors": 0,
        "first_hook_error": None,
        "overhead": {"looks": len(lines), "looks_ms": 1.0, "look_us_p50": 40.0, "look_us_p95": 60.0},
        "points": counts,
        "history": {"host": "recorded"},
        "peak_rss": max((line["host"]["peak_rss"] for line in lines), default=None),
        "devices": peaks,
    }


def check(directory: Path, config: Mapping[str, Any] | None = None, **expected: Any) -> Verification:
    fields: dict[str, Any] = {"run_ids": frozenset({RUN_ID}), **expected}
    with Anchor(directory.parent).open(directory) as artifacts:
        return verify(artifacts, Expected(Options({}, config or {}), **fields))


def told(directory: Path, config: Mapping[str, Any] | None = None, **expected: Any) -> tuple[Verdict, str]:
    found = check(directory, config, **expected)
    return found.verdict, found.reason
