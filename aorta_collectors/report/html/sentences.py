"""What the top of the page says: where it starts, what led there, which cells differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.analysis.mitigations import OfCell, Outcome
from aorta_collectors.analysis.report import Detail, Report
from aorta_collectors.analysis.report.points import Series
from aorta_collectors.report.first_bad_wording import facts
from aorta_collectors.report.wording import COUNTS, number, tensor, text

KINDS = {"nan": "NaN", "inf": "Inf", "huge": "Huge value", "oob": "Value out of range"}
_DIRECTIONS = {
    "fwd": "forward",
    "bwd": "backward",
    "param": "parameter, as the step begins",
    "grad": "parameter gradient",
    "pipeline": "on its way to the model",
}
_ROLES = {
    "act": "Output",
    "input": "Input",
    "igrad": "Gradient of the input",
    "weight": "Weight",
    "bias": "Bias",
    "wgrad": "Gradient of the weight",
    "bgrad": "Gradient of the bias",
    "track": "Tensor of the batch",
    "sparse": "Sparse tensor of the batch",
    "loss": "What backward() is called on",
}
_OUTCOMES = {
    Outcome.REMOVED: "It is gone in",
    Outcome.LATER: "It comes later in",
    Outcome.EARLIER: "It comes earlier in",
    Outcome.ELSEWHERE: "It starts elsewhere in",
    Outcome.SAME: "It is the same in",
    Outcome.APPEARS: "It appears, unlike in the baseline, in",
    Outcome.CLEAN: "Nothing is bad, as in the baseline, in",
    Outcome.UNDECIDED: "Not known, since it does not compare, in",
    Outcome.NOT_REACHED: "Not known, since too few steps were run, in",
    Outcome.NO_EVIDENCE: "Not known, without evidence, in",
}
_MOST_CELLS, _MOST_RANKS = 6, 8


def kind(found: Mapping[str, Any]) -> str:
    """NaN, Inf, Huge value or Value out of range."""
    return KINDS.get(str(found.get("kind")), text(found.get("kind") or "Bad value"))


def layer(found: Mapping[str, Any]) -> str:
    """The path of the layer of a bad value."""
    return text(found.get("layer") or found.get("layer_name") or "-")


def where(found: Mapping[str, Any]) -> str:
    """Which tensor of the layer: "act, forward", "act, forward at copy, batch 7"."""
    direction = str(found.get("direction") or "")
    words = [tensor(found), _DIRECTIONS.get(direction, direction)]
    if found.get("checkpoint"):
        words.append(f"after {found['checkpoint']}")
    if direction == "pipeline" and found.get("phase"):
        words.append(f"at {found['phase']}")
    if found.get("batch_id") is not None:
        words.append(f"batch {found['batch_id']}")
    return text(", ".join(word for word in words if word))


def named(series: Series) -> str:
    """Such as "over_arch.model.1 igrad[0]"."""
    found = {"role": series.role, "param_name": series.param_name, "tensor_path": series.tensor_path}
    return " ".join(filter(None, (text(series.layer), tensor(found), text(series.place))))


def headline(report: Report) -> str:
    """One sentence."""
    lead = report.details[0] if report.details else None
    fault = lead.row.fault if lead is not None else None
    if fault is None:
        bad = [row for row in report.rows if row.fault is not None]
        if not bad:
            seen = [row.of for row in report.rows if row.of.trial.processes]
            so_far = " so far" if any(of.running for of in seen) else ""
            trials = _counted(len(seen), "observed trial")
            return f"Nothing bad in {trials}{so_far}" if seen else "No trial was observed"
        fault = bad[0].fault
        assert fault is not None
    what = "tensor" if fault.get("direction") == "pipeline" else "layer"
    return f"{kind(fault)} in step {fault['step']}, {what} {layer(fault)}"


def starts(report: Report) -> Iterator[str]:
    """Where it starts."""
    lead = report.details[0] if report.details else None
    if lead is None:
        gone = [row for row in report.rows if row.fault is not None]
        for row in gone[:1]:
            assert row.fault is not None
            yield f"{where(row.fault)}, {text(row.of.trial.label)}; the receipt says so, the records are gone."
        if not gone:
            yield "Nothing was recorded: the evidence column says why."
        return
    fault, process = lead.row.fault, lead.row.of.earliest
    if fault is None or process is None:
        yield "No NaN, Inf or huge value was seen in what was watched."
        largest = [line.series for line in lead.run_up if line.series.largest is not None]
        if largest:
            top = max(largest, key=lambda series: series.largest or 0.0)
            yield f"Largest magnitude {number(top.largest)}, {named(top)}."
    else:
        role = _ROLES.get(str(fault.get("role")))
        yield f"{role}: {where(fault)}." if role else f"{where(fault)}."
        counts = [f"{fault[key]} {word}" for key, word in COUNTS if fault.get(key)]
        if counts and fault.get("numel"):
            dtype = text(str(fault.get("dtype") or "").removeprefix("torch."))
            yield f"{', '.join(counts)} of {fault['numel']} {dtype} elements".rstrip() + "."
        if fault.get("kind") in ("huge", "oob") and process.first_nonfinite is None:
            yield "No NaN or Inf was recorded."
        attempt = f", attempt {process.restart}" if process.restart else ""
        yield f"{text(lead.row.of.trial.label)}, rank {process.rank}{attempt}."
        told = dict(facts(process))
        for name in ("then", "origin", "before"):
            if name in told:
                yield f"{name.capitalize()}: {told[name]}."
    failed = sum(row.host == "fail" and row.fault is None and bool(row.of.trial.processes) for row in report.rows)
    if failed:
        yield f"{_counted(failed, 'observed trial')} failed without a bad value on record."


def led(report: Report) -> Iterator[str]:
    """What led there."""
    lead = report.details[0] if report.details else None
    process = lead.row.of.earliest if lead is not None else None
    if lead is None or process is None:
        yield "There is nothing to lead to."
        return
    yield f"Run-up of its magnitude: {dict(facts(process))['run-up']}."
    yield from _before(lead)


def differ(report: Report) -> Iterator[str]:
    """Which cells, or which ranks, differ."""
    groups: dict[Outcome, list[OfCell]] = {}
    for cell in report.cells:
        if cell.outcome is not None:
            groups.setdefault(cell.outcome, []).append(cell)
    for outcome, words in _OUTCOMES.items():
        if outcome in groups:
            yield f"{words} {_cells(groups[outcome])}."
    if not groups and len(report.rows) > 1:
        yield f"Bad in {sum(row.fault is not None for row in report.rows)} of {len(report.rows)} trials."
    lacking = [row for row in report.rows if row.satisfied is False]
    if lacking:
        such = text(lacking[0].of.trial.label)
        yield f"{_counted(len(lacking), 'trial')} without the evidence asked for, such as {such}."
    lead = report.details[0] if report.details else None
    if lead is not None and len({process.rank for process in lead.row.of.processes}) > 1:
        yield _ranks(lead)
    elif len(report.rows) < 2:
        yield "There is one trial, of one rank."


def _before(lead: Detail) -> Iterator[str]:
    """What ran just before it in the same step."""
    fault = lead.row.fault
    if fault is None or lead.focus is None or not lead.at_fault or fault.get("direction") == "pipeline":
        return
    earlier = [line for line in lead.run_up[1:] if line.series.number < lead.focus.number]
    for line in sorted(earlier, key=lambda line: -line.series.number)[:1]:
        for point in line.points:
            if point.step == fault["step"]:
                state = KINDS[point.kind] if point.kind else f"clean, {number(point.magnitude)}"
                yield f"Just before it in that step: {named(line.series)}, {state}."


def _cells(cells: Sequence[OfCell]) -> str:
    names = []
    for cell in cells[:_MOST_CELLS]:
        fault = cell.earliest.fault if cell.earliest is not None else None
        several = cell.bad and len(cell.trials) > 1
        told = (
            f"step {fault['step']}" if fault is not None else "",
            f"{len(cell.bad)} of {len(cell.trials)} trials" if several else "",
            cell.why,
        )
        words = ", ".join(filter(None, told))
        names.append(text(cell.label) + (f" ({text(words)})" if words else ""))
    more = len(cells) - _MOST_CELLS
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _ranks(lead: Detail) -> str:
    processes = lead.row.of.processes
    num_ranks = len({process.rank for process in processes})
    bad = sorted({process.rank for process in processes if process.fault is not None})
    if not bad:
        spread = [rank for rank in lead.ranks if rank.largest is not None]
        if len(spread) > 1 and lead.focus is not None:
            least, most = min(spread, key=_largest), max(spread, key=_largest)
            return (
                f"Of {num_ranks} ranks none is bad; {named(lead.focus)} reaches {number(most.largest)} on rank "
                f"{most.rank}, {number(least.largest)} on rank {least.rank}."
            )
        return f"Of {num_ranks} ranks none is bad."
    shown = ", ".join(map(str, bad[:_MOST_RANKS])) + (" ..." if len(bad) > _MOST_RANKS else "")
    return f"Bad on {len(bad)} of {num_ranks} ranks: {shown}."


def _largest(rank: Any) -> float:
    return float(rank.largest)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
