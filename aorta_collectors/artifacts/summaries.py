"""The summaries of a trial's processes: each whole, to its schema, and of this trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aorta_collectors import strict_json
from aorta_collectors.api import Artifacts, Expected, Verdict
from aorta_collectors.artifacts.notes import killed_by
from aorta_collectors.artifacts.process import Fault, Process
from aorta_collectors.errors import ArtifactError
from aorta_collectors.schema_check import fault_text, first_fault, validator

#: The name of a summary, and in it the stem that the process's other files have too.
SUMMARY = re.compile(r"summary_(rank\d+(?:_p\d+)?)\.json$")
# Of all summaries of a trial, which are held in memory together and take some ten times as much there.
_SUMMARIES_BYTES = 256 << 20
# No job has more ranks, and everything that counts them would be lost in a larger number.
_MOST_RANKS = 1 << 20

P = TypeVar("P", bound=Process)


def summaries_of(artifacts: Artifacts) -> list[dict[str, Any]]:
    """All summaries, in the order of their names, of artifacts that have been verified."""
    return [summary for _, summary in stems_of(artifacts)]


def stems_of(artifacts: Artifacts) -> list[tuple[str, dict[str, Any]]]:
    """The same, each with the stem of its process's files."""
    found = ((name, SUMMARY.match(name)) for name in sorted(artifacts.sizes()))
    return [(match.group(1), strict_json.loads(artifacts.read(name))) for name, match in found if match]


def read_processes(
    artifacts: Artifacts,
    expected: Expected,
    schema: str,
    make: Callable[[str, Mapping[str, Any], str | None], P],
    *,
    module: str,
    has_run_ids: bool = True,
) -> list[P]:
    """The processes that left a summary for this trial.

    Args:
        schema: Of a summary, such as "layer_numerics.summary".
        make: From the stem, the summary, and what has killed a process that never came to its end.
        module: What a command can be run through where the collector does not get in otherwise.
        has_run_ids: False where summaries carry none; the directory was emptied before the launch.

    Raises:
        Fault: missing, invalid, stale.
    """
    checker = validator(schema)
    processes = []
    summaries = {name: found.group(1) for name in artifacts.sizes() if (found := SUMMARY.match(name))}
    size = sum(artifacts.sizes()[name] for name in summaries)
    if size > _SUMMARIES_BYTES:
        raise Fault(Verdict.INVALID, f"summaries of {size} bytes, more than the {_SUMMARIES_BYTES} that are taken in")
    for name, stem in summaries.items():
        try:
            summary = strict_json.loads(artifacts.read(name))
        except (ValueError, ArtifactError) as error:
            raise Fault(Verdict.INVALID, f"{name}: {error}") from None
        fault = first_fault(checker, summary)
        if fault is not None:
            raise Fault(Verdict.INVALID, f"{name}: {fault_text(fault)}")
        for key in ("rank", "world_size"):
            if summary.get(key, 0) > _MOST_RANKS:
                raise Fault(Verdict.INVALID, f"{name}: {key}: must be at most {_MOST_RANKS}, got {summary[key]}")
        process = make(stem, summary, None)
        processes.append(make(stem, summary, killed_by(artifacts, stem)) if process.running else process)
    if not processes:
        raise Fault(Verdict.MISSING, f"no summary_rank<N>.json: {_why_nothing(expected, module)}")
    other = next((process for process in processes if process.summary.get("run_id") not in expected.run_ids), None)
    if other is not None and has_run_ids:
        raise Fault(
            Verdict.STALE,
            f"summary_{other.stem}.json is from another run (run id {other.summary.get('run_id')}, "
            f"process {other.summary['pid']}), not from this trial",
        )
    return processes


def _why_nothing(expected: Expected, module: str) -> str:
    if expected.route == "environment":
        return (
            "no Python process of the command imported torch, or it was started with an emptied environment, -S, -E "
            f"or -I; run the script through `python -m {module}` inside the command"
        )
    if expected.route == "in-process":
        return "the workload did not import torch in aorta's process"
    return "the program ended before it imported torch, was killed, or removed its artifacts"
