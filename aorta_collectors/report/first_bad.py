"""Where it first goes bad, in a terminal: the answer in a sentence, what led there, what mitigations do, a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aorta_collectors.analysis.first_bad import OfProcess, OfTrial
from aorta_collectors.analysis.mitigations import OfCell, Outcome
from aorta_collectors.printable import printable
from aorta_collectors.report.first_bad_wording import facts, fault_line, mitigations_of, state, versus
from aorta_collectors.report.wording import layer, tensor, text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Of one cell, and of one trial, so many rows; the others share one.
_MOST_TRIALS = 8
_MOST_RANKS = 6
# So many bad trials are told of in full, and so many names are in one line.
_MOST_DETAILS = 6
_MOST_NAMED = 12
# Up to so many are named with what is to say of each.
_MOST_EXPLAINED = 6
# In a terminal a table shows so much of a layer's name; the sentence above it has all.
_LONGEST_LAYER = 48
_WIDE = 300
# What is longer is folded where the terminal is too narrow.
_LONG = 24
# Below this width a table breaks every word.
_NARROW = 64
_STYLES = {"clean": "green", "removed": "bold green", "nan": "bold red", "inf": "bold red", "huge": "red", "oob": "red"}
_KINDS = {"oob": "out of range"}
_LISTED = {
    Outcome.REMOVED: "removed by",
    Outcome.LATER: "later with",
    Outcome.EARLIER: "earlier with",
    Outcome.ELSEWHERE: "elsewhere with",
    Outcome.SAME: "the same with",
    Outcome.APPEARS: "only with",
    Outcome.UNDECIDED: "undecided",
    Outcome.NOT_REACHED: "not reached by",
    Outcome.NO_EVIDENCE: "no evidence",
}


class _Row(NamedTuple):
    cell: str
    trial: str
    rank: str
    step: str
    tensor: str
    layer: str
    kind: str
    versus: str


def render(cells: Sequence[OfCell], console: Console) -> None:
    """Write the view. Of trials and ranks, those in which nothing is bad share a row."""
    head = _head(cells)
    _title(cells, head, console)
    if head is not None:
        _print_facts(facts(head[1]), console)
    _print_outcomes(cells, console)
    rows = [row for cell in cells for row in _rows(cell)]
    if len(rows) > 1:
        console.print()
        _print_rows(rows, console)
    _print_details(cells, head, console)
    _print_lacks(cells, console)


def _head(cells: Sequence[OfCell]) -> tuple[OfTrial, OfProcess] | None:
    """What the sentence is about: the baseline's first bad value; else the earliest of all cells."""
    baseline = [cell for cell in cells if cell.outcome is Outcome.BASELINE and cell.bad]
    bad = [trial for cell in baseline or cells for trial in cell.bad]
    found = [(trial, trial.earliest) for trial in bad if trial.earliest is not None]
    return min(found, key=lambda pair: int((pair[1].fault or {})["training_step"]), default=None)


def _title(cells: Sequence[OfCell], head: tuple[OfTrial, OfProcess] | None, console: Console) -> None:
    from rich.text import Text

    trials = [trial for cell in cells for trial in cell.trials]
    if head is None:
        seen = [trial for trial in trials if trial.processes]
        steps = sorted({trial.steps for trial in seen})
        if not seen:
            console.print(Text("Nothing is known: no trial has evidence.", style="bold yellow"))
            return
        span = f"{steps[0]} to {steps[-1]} steps" if len(steps) > 1 else _count(steps[0], "step")
        num_ranks = max(len({process.rank for process in trial.processes}) for trial in seen)
        of_ranks = f" ({num_ranks} ranks)" if num_ranks > 1 else ""
        whole = f"Nothing bad in {span} of {_count(len(seen), 'trial')}{of_ranks}"
        lacking = len(trials) - len(seen)
        style = "bold yellow" if lacking or any(trial.running for trial in seen) else "bold green"
        console.print(Text(whole + (f"; {lacking} more without evidence." if lacking else "."), style=style))
        return
    trial, process = head
    where = []
    if len(cells) > 1:
        bad = sum(bool(cell.bad) for cell in cells)
        console.print(Text(f"Bad in {bad} of {len(cells)} cells.", style="bold"))
        of = next(cell for cell in cells if trial in cell.trials)
        where.append(("the baseline " if of.outcome is Outcome.BASELINE else "") + text(of.label))
    if any(len(cell.trials) > 1 and trial in cell.trials for cell in cells):
        where.append(f"trial {text(trial.trial.index)}")
    ranks = {of.rank for of in trial.processes}
    if len(ranks) > 1:
        where.append(f"rank {process.rank} of {len(ranks)} ranks")
    if process.restart:
        where.append(f"attempt {process.restart}")
    line = Text("First bad" + (f" in {', '.join(where)}" if where else "") + ": ", style="bold")
    console.print(line.append(fault_line(process.fault or {}), style="bold red"))


def _print_facts(labelled: Sequence[tuple[str, str]], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    for label, told in labelled:
        grid.add_row(Text(f"  {label}", style="dim"), Text(told))
    if labelled:
        _print(grid, console)


def _print(table: Table, console: Console) -> None:
    """Without the spaces with which rich fills its lines: they are in the way in a file."""
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _print_outcomes(cells: Sequence[OfCell], console: Console) -> None:
    """What each mitigation does, those first that remove it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    names = mitigations_of(cells)
    for outcome, label in _LISTED.items():
        of_outcome = [cell for cell in cells if cell.outcome is outcome]
        if not of_outcome:
            continue
        explained = len(of_outcome) <= _MOST_EXPLAINED
        told = [names[cell.run, cell.cell] + (_how(cell) if explained else "") for cell in of_outcome[:_MOST_NAMED]]
        more = f", and {len(of_outcome) - _MOST_NAMED} more" if len(of_outcome) > _MOST_NAMED else ""
        grid.add_row(Text(label, style="bold"), Text(", ".join(told) + more, style=_STYLES.get(outcome.value, "")))
    if grid.row_count:
        console.print()
        _print(grid, console)


def _how(cell: OfCell) -> str:
    later = cell.steps_later or 0
    parts = [f"{later:+d} step" + ("s" if abs(later) > 1 else "") if later else "", text(cell.why)]
    if cell.outcome is Outcome.REMOVED:
        parts.insert(0, f"clean in {_count(min(trial.covered for trial in cell.trials), 'step')}")
    told = ", ".join(filter(None, parts))
    return f" ({told})" if told else ""


def _rows(cell: OfCell) -> Iterator[_Row]:
    name = text(cell.label)
    against = versus(cell)
    for trial in cell.bad[:_MOST_TRIALS]:
        for row in _ranks(trial):
            yield row._replace(cell=name, trial=text(trial.trial.index), versus=against)
    if left := cell.bad[_MOST_TRIALS:]:
        steps = _span(int((trial.earliest.fault or {})["step"]) for trial in left if trial.earliest is not None)
        yield _Row(name, f"{len(left)} more", "", steps, "", "", "bad", against)
    together: dict[str, list[str]] = {}
    for trial in cell.trials:
        if trial.earliest is None:
            together.setdefault(state(trial), []).append(trial.trial.index)
    for told, indices in together.items():
        trials = text(indices[0]) if len(indices) == 1 else f"{len(indices)} trials"
        yield _Row(name, trials, "", "-", "", "", told, against)


def _ranks(trial: OfTrial) -> Iterator[_Row]:
    """The ranks of a trial in which one is bad: the earliest is marked where there are several."""
    bad = sorted(
        (process for process in trial.processes if process.fault is not None),
        key=lambda process: (process.position, process.process),
    )
    clean = [process for process in trial.processes if process.fault is None]
    for process in bad[:_MOST_RANKS]:
        fault: Mapping[str, Any] = process.fault or {}
        mark = " first" if process is bad[0] and len(trial.processes) > 1 else ""
        attempt = f" attempt {process.restart}" if process.restart else ""
        kind = _KINDS.get(fault["kind"], str(fault["kind"]))
        place = text(f"{fault['direction'] or ''} {tensor(fault)}".strip())
        yield _Row(
            "",
            "",
            f"{process.rank}{attempt}{mark}",
            str(fault["step"]),
            place,
            layer({"module_path": fault["layer"]}),
            text(kind),
            "",
        )
    if left := bad[_MOST_RANKS:]:
        steps = _span(int((process.fault or {})["step"]) for process in left)
        yield _Row("", "", f"{len(left)} more", steps, "", "", "bad", "")
    if clean:
        who = str(clean[0].rank) if len(clean) == 1 else f"{len(clean)} ranks"
        yield _Row("", "", who, "-", "", "", f"clean, {_span(process.steps for process in clean)} steps", "")


def _print_rows(rows: Sequence[_Row], console: Console) -> None:
    """Only the columns in which rows differ, or that say something."""
    from rich.table import Table
    from rich.text import Text

    shown = [name for name in _Row._fields if any(getattr(row, name) for row in rows)]
    for name in ("trial", "rank"):
        if name in shown and len({getattr(row, name) for row in rows} - {""}) < 2:
            shown.remove(name)
    if console.width < _NARROW:
        for row in rows:
            value = " ".join(filter(None, (row.tensor, row.layer, row.kind)))
            words = [f"step {row.step}" if row.step not in ("", "-") else "", value, row.versus]
            place = [row.cell, f"trial {row.trial}" if "trial" in shown else ""]
            place.append(f"rank {row.rank}" if "rank" in shown and row.rank else "")
            console.print(Text(", ".join(filter(None, place)), style="bold"))
            _print_facts([("", ", ".join(filter(None, words)))], console)
        return
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in shown:
        longest = max(len(getattr(row, name)) for row in rows)
        folds = name == "layer" or longest > _LONG
        heading = {"versus": "change", "kind": "what"}.get(name, name)
        table.add_column(heading, no_wrap=not folds, overflow="fold", justify="right" if name == "step" else "left")
    before: _Row | None = None
    for row in rows:
        cells = []
        for name in shown:
            told = getattr(row, name)
            if name == "layer" and console.width < _WIDE:
                told = printable(told, _LONGEST_LAYER)
            if before is not None and before.cell == row.cell and name in ("cell", "versus"):
                told = ""
            cells.append(Text(told, style=_style(told) if name in ("kind", "versus") else ""))
        table.add_row(*cells)
        before = row
    _print(table, console)


def _style(told: str) -> str:
    return next((style for word, style in _STYLES.items() if told.startswith(_KINDS.get(word, word))), "")


def _print_details(cells: Sequence[OfCell], head: tuple[OfTrial, OfProcess] | None, console: Console) -> None:
    """What led to the other bad values: of each cell the earliest trial."""
    from rich.text import Text

    others = []
    for cell in cells:
        found = [(trial, trial.earliest) for trial in cell.bad if trial.earliest is not None and cell.earliest]
        first = next(((trial, of) for trial, of in found if of is cell.earliest), None)
        if first is not None and (head is None or first[1] is not head[1]):
            others.append(first)
    for trial, process in others[:_MOST_DETAILS]:
        console.print()
        label = text(trial.trial.label)
        console.print(Text(f"{label}: ", style="bold").append(fault_line(process.fault or {}), style="red"))
        _print_facts(facts(process, brief=True), console)
    if len(others) > _MOST_DETAILS:
        console.print(Text(f"\n{len(others) - _MOST_DETAILS} more cells are bad: --cell NAME tells of one."))


def _print_lacks(cells: Sequence[OfCell], console: Console) -> None:
    """Why trials have no evidence."""
    from rich.text import Text

    lacking = [trial for cell in cells for trial in cell.trials if trial.verdict not in (None, "captured", "pruned")]
    if lacking:
        console.print()
    for trial in lacking[:_MOST_DETAILS]:
        receipt = trial.trial.receipt
        reason = text(receipt.reason) if receipt is not None else ""
        console.print(Text(f"{text(trial.trial.label)}: evidence {trial.verdict}: {reason}", style="yellow"))
    if len(lacking) > _MOST_DETAILS:
        console.print(Text(f"{len(lacking) - _MOST_DETAILS} more: aorta-collectors verify lists them", style="yellow"))


def _span(numbers: Any) -> str:
    found = sorted(set(numbers))
    return "" if not found else str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
