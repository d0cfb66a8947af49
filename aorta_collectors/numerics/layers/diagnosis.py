"""What is told on stderr of the layer where the line was stopped: some twenty lines of at most a hundred columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from aorta_collectors.numerics.layers.causes import Cause, Facts, Given
from aorta_collectors.numerics.names import EXIT_STOPPED
from aorta_collectors.numerics.spans.span import BACKWARD
from aorta_collectors.observe.tensor_stats import dtype_name

_COLUMNS = 100
_MOST_ROWS = 8  # tensors of a kind
_NAME = 24


def diagnosis(facts: Facts, causes: Sequence[Cause]) -> str:
    """The text, with a newline at its end."""
    seen = facts.seen
    backward = seen.direction == BACKWARD
    what = "NaN" if seen.stats.nan_count else "Inf"
    where = f"the gradient of {seen.brick.layer}'s output" if backward else "its output"
    path = f" {seen.path}" if seen.path else ""
    lines = [
        f"numerics: the line is stopped at {facts.layer} ({facts.module_type}), step {facts.step}, {seen.direction}:",
        f"  {what} in {where}{path}",
        "",
        _HEADER,
        _row(Given("gradient out" if backward else f"output{path}", seen.dtype, seen.shape, seen.stats)),
    ]
    lines += _rows(facts.inputs)
    lines += _rows(facts.outputs)
    lines += _rows(sorted(facts.parameters, key=lambda given: given.stats.is_finite))
    lines.append("")
    if not backward and facts.inputs_are_bad:
        lines.append("  its input was bad already: the value came from outside of the layers that are watched")
    lines.append(f"  last clean layer before: {facts.before or 'none in this pass'}")
    if facts.run_up:
        peaks = ", ".join(f"{peak:.4g} (step {step})" for step, peak in facts.run_up)
        lines.append(f"  largest finite magnitude so far: {peaks}")
    lines += ["", "  likely causes"]
    for number, cause in enumerate(causes, 1):
        lines += textwrap.wrap(
            f"{number}. {cause.kind}: {cause.evidence}", _COLUMNS, initial_indent="    ", subsequent_indent=" " * 7
        )
    lines.append(f"  on_bad: stop ends the program with exit status {EXIT_STOPPED}")
    return "\n".join(line if len(line) <= _COLUMNS else line[: _COLUMNS - 3] + "..." for line in lines) + "\n"


_HEADER = f"  {'':{_NAME}} {'shape and dtype':26} {'nan':>8} {'inf':>8} {'min':>9} {'max':>9} {'std':>8}"


def _rows(given: Sequence[Given]) -> list[str]:
    lines = [_row(each) for each in given[:_MOST_ROWS]]
    if len(given) > _MOST_ROWS:
        lines.append(f"  and {len(given) - _MOST_ROWS} more")
    return lines


def _row(given: Given) -> str:
    stats = given.stats
    kind = f"{'x'.join(str(size) for size in given.shape) or 'scalar'} {dtype_name(given.dtype)}"
    name = given.name if len(given.name) <= _NAME else "..." + given.name[3 - _NAME :]
    numbers = f"{_short(stats.finite_min):>9} {_short(stats.finite_max):>9} {_short(stats.std):>8}"
    note = " *" if given.is_spoilt else ""
    return f"  {name:{_NAME}} {kind[:26]:26} {stats.nan_count:>8} {stats.inf_count:>8} {numbers}{note}"


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.3g}"
