"""Findings as a table for people: the terminal view shared by a sweep's end and `aorta-collectors verify`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from aorta_collectors.api import Verdict
from aorta_collectors.evidence.finding import Finding
from aorta_collectors.printable import printable

_UNBOUNDED = 10_000
# Findings that are listed one by one: what fits on a screen or two.
_ROWS = 40
_CELL = 300
# By one of these metrics a collector says how much it has looked at for bad values.
_LOOKED_AT = ("tensors_read", "observed", "modules")


def render(findings: Sequence[Finding], out: TextIO, every: bool = False) -> None:
    """Write a table, then where the artifacts are and what is wrong, a line each. Nothing at all without findings.

    Lines stay whole, however wide they are: a path that is wrapped can be neither copied nor grepped. Of many findings
    the satisfied ones share a row for each cell and verdict, and have no line of their own.

    Args:
        every: Whether each finding has its own row, however many there are.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        return
    console = Console(file=out, highlight=False, width=_UNBOUNDED)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("cell", "trial", "collector", "verdict", "first bad"):
        table.add_column(heading, no_wrap=True)
    is_short = every or len(findings) <= _ROWS
    alone = [finding for finding in findings if is_short or not finding.satisfied]
    together: dict[tuple[str, str, Verdict], list[Finding]] = {}
    for finding in findings if not is_short else ():
        if finding.satisfied:
            together.setdefault((finding.cell, finding.collector, finding.verdict), []).append(finding)
    for group in together.values():
        _add_row(table, group[0], f"{len(group)} trials" if len(group) > 1 else group[0].index, _of_all(group))
    for finding in alone:
        _add_row(table, finding, finding.index, first_bad(finding))
    console.print(Text("Evidence", style="bold"))
    console.print(table)
    for finding in alone:
        place = f"trial {finding.index}" if finding.cell == "-" else f"{finding.cell}, trial {finding.index}"
        if finding.receipt is not None and finding.receipt.files:
            added = f" ({len(finding.added)} file(s) added since: {finding.added[0]})" if finding.added else ""
            console.print(Text(printable(f"{place}: {shown(finding.artifacts)}{added}", _UNBOUNDED)))
        if not finding.satisfied:
            what = f"{finding.verdict.value}: {printable(finding.reason)} [{shown(finding.trial_file)}]"
            console.print(Text(printable(f"{place}: {what}", _UNBOUNDED)))


def _add_row(table: Any, finding: Finding, trials: str, bad: str) -> None:
    from rich.text import Text

    verdict = Text(finding.verdict.value, style="green" if finding.satisfied else "red")
    cells = [Text(printable(text, _CELL)) for text in (finding.cell, trials, finding.collector, bad)]
    table.add_row(*cells[:3], verdict, cells[3])


def _of_all(group: Sequence[Finding]) -> str:
    """The earliest first bad of several trials, and how many have one."""
    found = {index: first_bad(finding) for index, finding in enumerate(group)}
    bad = {index: text for index, text in found.items() if text not in ("none", "-")}
    if not bad:
        return found[0]
    earliest = min(bad, key=lambda index: (_bad_step(group[index]), index))
    if len(group) == 1:
        return bad[earliest]
    return f"in {len(bad)} of {len(group)}, first in trial {group[earliest].index}: {bad[earliest]}"


def _bad_step(finding: Finding) -> float:
    metrics: Mapping[str, Any] = finding.receipt.metrics if finding.receipt is not None else {}
    steps = (metrics.get(f"{finding.collector}_{kind}_step") for kind in ("first_bad", "origin"))
    return min((step for step in steps if isinstance(step, int)), default=math.inf)


def first_bad(finding: Finding) -> str:
    """Such as "step 18 bwd over_arch.model.1 huge, inf from step 41"; "none" where none of the watched steps was bad.

    "-" where that is not known, or the collector does not look for it.

    Of a followed tensor, where in its batch's life that was; and the origin, where one is known.
    """
    metrics: Mapping[str, Any] = finding.receipt.metrics if finding.receipt is not None else {}
    names = [f"{finding.collector}_{kind}" for kind in ("first_bad", "first_nonfinite")]
    prefix = next((name for name in names if f"{name}_step" in metrics), names[0])
    step = metrics.get(f"{prefix}_step")
    stage = metrics.get(f"{finding.collector}_origin_stage")
    if step is None and stage is None:
        counts = [metrics[name] for word in _LOOKED_AT if (name := f"{finding.collector}_{word}") in metrics]
        return "none" if counts and counts[0] != 0 else "-"
    parts = []
    if step is not None:
        words = [metrics.get(f"{prefix}_{key}") for key in ("direction", "layer", "kind")]
        parts.append(" ".join([f"step {step}", *(str(word) for word in words if word is not None)]))
        lost = metrics.get(f"{finding.collector}_first_nonfinite_step")
        if lost is not None and words[-1] == "huge":
            parts.append(f"{metrics.get(f'{finding.collector}_first_nonfinite_kind')} from step {lost}")
    for key, text in (("phase", "at {}"), ("checkpoint", "after {}"), ("batch_id", "batch {}")):
        if f"{prefix}_{key}" in metrics:
            parts.append(text.format(metrics[f"{prefix}_{key}"]))
    if stage not in (None, "unknown"):
        place = (metrics.get(f"{finding.collector}_origin_{key}") for key in ("module", "step"))
        parts.append("origin {} {} in step {}".format(stage, *place))
    return ", ".join(parts)


def shown(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return min(str(path), os.path.relpath(path), key=len)
    except OSError:  # there is none any more
        return str(path)
