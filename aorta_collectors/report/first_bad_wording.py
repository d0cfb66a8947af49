"""A bad value in words: what it is, what led there, and how a cell's stands to the baseline's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aorta_collectors.analysis.captures import cell_place
from aorta_collectors.analysis.first_bad import OfProcess, OfTrial
from aorta_collectors.analysis.mitigations import OfCell, Outcome
from aorta_collectors.analysis.run_up import RunUp
from aorta_collectors.report.wording import KINDS, layer, number, tensor, text

# Less than doubled over all steps that are shown is no growth.
_GROWTH = 2.0


def fault_line(fault: Mapping[str, Any]) -> str:
    """Such as "step 14, fwd act of blocks.0.scores: 13 of 4096 Inf, float16"."""
    place = text(f"{fault['direction'] or ''} {tensor(fault)}".strip())
    kind = str(fault["kind"])
    count = fault.get(f"{kind}_count")
    what = text(KINDS.get(kind, kind))
    if count and fault.get("numel"):
        what = f"{count} of {fault['numel']} {what}"
    dtype = f", {text(str(fault['dtype']).removeprefix('torch.'))}" if fault.get("dtype") else ""
    evaluation = " (evaluation)" if fault.get("evaluation") else ""
    return f"step {fault['step']}{evaluation}, {place} of {layer({'module_path': fault['layer']})}: {what}{dtype}"


def facts(process: OfProcess, brief: bool = False) -> list[tuple[str, str]]:
    """What there is to tell of a fault, each fact with its label.

    Args:
        brief: Without what follows from the place, such as the reason for an origin that is the same.
    """
    fault = process.fault or {}
    found = []
    if process.run_up is not None:
        found.append(("run-up", run_up(process.run_up)))
    else:
        found.append(("run-up", "no record of this tensor before (NANLOG_PRE_CONTEXT keeps some)"))
    batch = [
        form.format(text(str(fault[name])))
        for name, form in (("batch_id", "{}"), ("phase", "at {}"), ("checkpoint", "after {}"))
        if fault.get(name) is not None and fault.get(name) != "" and fault.get("direction") == "pipeline"
    ]
    if batch:
        found.append(("batch", ", ".join(batch)))
    origin = process.origin
    if origin is not None and brief and (origin["module"], origin["step"]) == (fault["layer"], fault["step"]):
        found.append(("origin", f"here ({origin['stage']})"))
    elif origin is not None:
        reason = text(str(origin["reason"]))
        found.append(("origin", f"{origin['stage']}, {text(origin['module'])}, step {origin['step']}: {reason}"))
    first, lost = process.first, process.first_nonfinite
    if process.by_design and first is not None:
        kind = text(KINDS.get(str(first["kind"]), str(first["kind"])))
        found.append(("before", f"step {first['step']}: {kind}, taken to be by design ({text(process.by_design)})"))
    if lost is not None and fault.get("kind") in ("huge", "oob"):
        found.append(("then", fault_line(lost)))
    return found


def run_up(found: RunUp) -> str:
    """Such as "2810 -> 64060 in steps 4-13, x1.42 a step; float16 ends at 65504"."""
    first, last = found.magnitudes[0], found.magnitudes[-1]
    steps = f"step {found.steps[0]}" if len(set(found.steps)) == 1 else f"steps {found.steps[0]}-{found.steps[-1]}"
    least, most = min(found.magnitudes), max(found.magnitudes)
    if first > 0 and last / first >= _GROWTH:
        rate = found.per_step
        told = f"{number(first)} -> {number(last)} in {steps}" + (f", x{rate:.3g} a step" if rate is not None else "")
    elif least > 0 and most / least < _GROWTH:
        return f"none: steady at {number(last)} in {steps}"
    else:
        told = f"none: {number(least)} to {number(most)} in {steps}, {number(last)} at last"
    if found.limit is None:
        return told
    ends = "huge is beyond" if found.limit_of == "threshold" else f"{text(found.limit_of)} ends at"
    return f"{told}; {ends} {number(found.limit)}"


def versus(cell: OfCell) -> str:
    """How a cell stands to the baseline, such as "later by 3"; empty where nothing is compared."""
    if cell.outcome is None:
        return ""
    told = cell.outcome.value
    if cell.outcome in (Outcome.LATER, Outcome.EARLIER) and cell.steps_later is not None:
        told = f"{told} by {abs(cell.steps_later)}" + (f", {cell.why}" if cell.why else "")
    if len(cell.trials) > 1 and cell.bad:
        told += f" ({len(cell.bad)} of {len(cell.trials)} trials bad)"
    return text(told)


def state(trial: OfTrial) -> str:
    """Of a trial in which nothing counts as bad."""
    failed = {True: "", False: ", trial failed", None: ""}[trial.passed]
    if not trial.processes:
        return (trial.verdict or "no evidence") + failed
    kinds = {process.by_design for process in trial.processes} - {""}
    clean = f"bad by design only ({text(', '.join(sorted(kinds)))})" if kinds else "clean"
    doubt = {"captured": "", "pruned": " (pruned)", None: ", still running" if trial.running else ""}
    return f"{clean}, {trial.steps} steps{doubt.get(trial.verdict, f', {trial.verdict}')}{failed}"


def mitigations_of(cells: Sequence[OfCell]) -> dict[tuple[str, str], str]:
    """A name for each cell: its mitigations, where no other cell has the same, as it has in another environment."""
    named = {(cell.run, cell.cell): " + ".join(cell.mitigations) or cell.cell for cell in cells}
    times = Counter(named.values())
    return {key: text(name if times[name] == 1 else cell_place(*key)) for key, name in named.items()}
