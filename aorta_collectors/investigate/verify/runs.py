"""Whether the runs are as they were recorded: files, receipts, points, and the order that was declared."""

from __future__ import annotations

import datetime
import itertools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.run import verify_run
from aorta_collectors.investigate.design import Design, schedule_of
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.existing import changed
from aorta_collectors.investigate.files import BUNDLES, COMMAND, METADATA, RUN, RUNS, Investigation, Run
from aorta_collectors.investigate.observed import observed_in
from aorta_collectors.investigate.outcome import outcome_of
from aorta_collectors.investigate.verify.fault import Fault
from aorta_collectors.registry import load_collector

_EDITED = "It was edited since, or its disk is damaged; what rests on it is void, so declare a new investigation"
_STANDS = "It stands as it is, and nothing replaces it; for a complete answer declare a new investigation"
_OVER = ("completed", "failed")
_LONGEST = 120


def schedule_faults(investigation: Investigation, runs: Sequence[Run]) -> Iterator[Fault]:
    """Whether each run of the declared schedule was made once, in its place.

    Args:
        runs: All attempts that can be read, in the schedule's order.
    """
    metadata = investigation.metadata
    place = f"{investigation.root / METADATA}: schedule"
    design = metadata["design"]
    declared = Design.of(
        metadata["kind"],
        order=design["order"],
        order_seed=design["order_seed"],
        repetitions=design["repetitions"],
        warm_up=design["warm_up"],
        observer_effect=design["observer_effect"],
    )
    names = [variant["name"] for variant in metadata["variants"]]
    if schedule_of(declared, names, metadata["seed"]) != metadata["schedule"]:
        yield Fault(place, "it is not the one that the design gives", _EDITED)
    by_number: dict[int, list[Run]] = {}
    for run in runs:
        by_number.setdefault(run.number, []).append(run)
    for entry in metadata["schedule"]:
        yield from _of_entry(investigation, entry, by_number.pop(entry["number"], []))
    for run in itertools.chain.from_iterable(by_number.values()):
        yield Fault(str(run.directory), f"the schedule has no run {run.number}", _EDITED)
    yield from order_faults(runs, metadata["started_at"])


def _of_entry(investigation: Investigation, entry: Mapping[str, Any], attempts: Sequence[Run]) -> Iterator[Fault]:
    place = f"{investigation.root / RUNS / entry['name']}"
    if not attempts:
        to_do = f"`aorta-collectors investigate run {shlex.quote(str(investigation.root))}` makes what is missing"
        yield Fault(place, f"run {entry['number']} of the schedule is not there", to_do)
        return
    for run in attempts:
        for key in ("name", "variant", "repetition", "seed", "tool", "warm_up"):
            if run.record[key] != entry[key]:
                what = f"{key} is {run.record[key]!r}, and the schedule has {entry[key]!r}"
                yield Fault(str(run.directory / RUN), what, _EDITED)
    numbers = [run.attempt for run in attempts]
    if numbers != list(range(1, len(attempts) + 1)):
        yield Fault(place, f"of its attempts there are {', '.join(map(str, numbers))}; one was removed", _EDITED)
    for run in attempts[:-1]:
        if run.state in _OVER:
            what = f"it {'failed' if run.state == 'failed' else 'completed'}, and another attempt replaces it"
            yield Fault(str(run.directory), what, "A run that ended by itself is final; declare a new investigation")
    last = attempts[-1]
    if last.state not in _OVER:
        to_do = f"`aorta-collectors investigate run {shlex.quote(str(investigation.root))}` makes it again"
        yield Fault(str(last.directory / RUN), f"the run is {last.state}", to_do)


def order_faults(runs: Sequence[Run], started_at: str | None) -> Iterator[Fault]:
    """Whether runs were started one after the other, in the schedule's order.

    Args:
        runs: In the schedule's order, with the attempts of a run in theirs.
        started_at: Of the investigation.
    """
    times = [(run, _time(run.record["started_at"]), _time(run.record["ended_at"])) for run in runs]
    for run, begun, ended in times:
        if begun is None or (run.record["ended_at"] is not None and ended is None):
            yield Fault(str(run.directory / RUN), "its times are none", _EDITED)
        elif ended is not None and ended < begun:
            yield Fault(str(run.directory / RUN), "it ended before it was started", _EDITED)
    for (before, begun_before, ended_before), (after, begun, _) in itertools.pairwise(times):
        if begun is None or begun_before is None:
            continue
        if begun < begun_before:
            what = (
                f"it was started at {after.record['started_at']}, before {before.directory.name}, which the declared "
                "order has first"
            )
            yield Fault(str(after.directory / RUN), what, "The order was not as declared; declare a new investigation")
        elif ended_before is not None and begun < ended_before:
            what = f"it was started before {before.directory.name} had ended"
            yield Fault(str(after.directory / RUN), what, "Runs disturb each other; declare a new investigation")
    first = next((begun for _, begun, _ in times if begun is not None), None)
    begun_all = _time(started_at)
    if first is not None and begun_all is not None and first < begun_all:
        place = str(times[0][0].directory / RUN)
        yield Fault(place, "it was started before the investigation was", _EDITED)


def _time(text: str | None) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def file_faults(run: Run) -> Iterator[Fault]:
    """Whether the files of a run are those that it left."""
    if run.state == "running":
        return
    unreadable: list[str] = []
    found = sha256_below(run.directory, (RUN,), unreadable)
    for why in unreadable:
        yield Fault(str(run.directory), f"not all of it can be read: {why}", "Make it readable")
    for name, what in changed(run.record["sha256"], found).items():
        yield Fault(str(run.directory / name), f"it {what} since the run", _EDITED)
    try:
        with Anchor(run.directory).open(run.directory) as directory:
            lines = directory.read(COMMAND).decode("utf-8", "replace").splitlines()
    except ArtifactError as error:
        yield Fault(str(run.directory / COMMAND), f"it cannot be read: {error}", _EDITED)
        return
    if not lines or lines[-1] != shlex.join(run.record["command"]):
        yield Fault(str(run.directory / COMMAND), f"it does not have the command that is in {RUN}", _EDITED)


def evidence_faults(run: Run, metadata: Mapping[str, Any]) -> Iterator[Fault]:
    """Whether the receipts of a run with the tool still hold, and each point that was asked for was observed."""
    if not run.record["tool"] or run.state not in _OVER:
        return
    collectors = frozenset(metadata["collect"])
    recorded = {(item["collector"], item["path"]): item["verdict"] for item in run.record["receipts"]}
    lacking = collectors - {collector for collector, _ in recorded}
    for collector in sorted(lacking):
        yield Fault(str(run.directory / RUN), f"it has no receipt of {collector}", _STANDS)
    try:
        findings = verify_run(run.directory / BUNDLES, collectors, load_collector)
    except CollectorsError as error:
        yield Fault(str(run.directory / BUNDLES), f"its receipts cannot be verified: {error}", _EDITED)
        findings = []
    captured = Verdict.CAPTURED
    for finding in findings:
        if finding.verdict is not captured:
            before = captured.value in (verdict for (name, _), verdict in recorded.items() if name == finding.collector)
            what = f"{finding.collector}: {finding.verdict.value}: {finding.reason}"
            yield Fault(str(finding.trial_file), what, _EDITED if before else _STANDS)
    observed = observed_in(run.directory, run.record["receipts"], run.record["metrics"])
    for point in observed.missing(metadata["points"]):
        yield Fault(str(run.directory), f"nothing was observed at {point}, which was asked for", _STANDS)


def outcome_faults(run: Run, metadata: Mapping[str, Any]) -> Iterator[Fault]:
    """Whether run.json says what the sweep has left: exit code, duration, verdict, metrics, receipts and the like."""
    # Without a verdict, the sweep did not come to an end, and its files do not tell all.
    if run.state not in _OVER or run.record["verdict"] is None:
        return
    collectors = tuple(metadata["collect"]) if run.record["tool"] else ()
    found = outcome_of(run.directory, collectors, metadata["points"])
    for key, value in found.items():
        if key != "reason" and run.record[key] != value:
            what = f"its {key} is not what the files of the run tell, which is {_short(value)}"
            yield Fault(str(run.directory / RUN), what, _EDITED)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def absolute_faults(root: Path, metadata: Mapping[str, Any]) -> Iterator[Fault]:
    """Whether the paths of metadata.json are absolute."""
    paths = [metadata["cwd"], *metadata["revisions"], *(entry["path"] for entry in metadata["existing"])]
    paths += [variant["recipe"] for variant in metadata["variants"] if variant["recipe"] is not None]
    for path in paths:
        if not Path(path).is_absolute():
            yield Fault(str(root / METADATA), f"{path} is not absolute", _EDITED)
