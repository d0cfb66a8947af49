"""The page: a template filled with what a report shows, with all that it needs inside.

Whatever a program chose (names of layers and cells, reasons, command lines) is text: escaped by the template, and
within the data for the script written so that no tag can begin there. The page may run the two scripts in it, known by
their digests, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aorta_collectors import __version__
from aorta_collectors.analysis.report import Report
from aorta_collectors.report.first_bad_wording import state, versus
from aorta_collectors.report.html import numerics_sentences, sentences
from aorta_collectors.report.html.environment import environment, missing, resource
from aorta_collectors.report.html.heat_figure import heat_map
from aorta_collectors.report.html.line_figures import over, run_up
from aorta_collectors.report.html.numerics_charts import charts_of
from aorta_collectors.report.profile_words import amount, duration, passed, ratio
from aorta_collectors.report.wording import number, text

_MOST_ROWS, _MOST_RANKS, _MOST_PROBLEMS = 1000, 16, 50


def page(report: Report, folder: Path) -> str:
    """The HTML.

    Args:
        folder: Where it will lie: links are relative to that.

    Raises:
        CollectorsError: jinja2 or plotly is not installed.
    """
    try:
        import markupsafe
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing(error) from None
    templates = environment("aorta_collectors.report.html")
    templates.filters |= {
        "number": number,
        "id": id,
        "short": text,
        "layer": sentences.layer,
        "kind": sentences.kind,
        "where": sentences.where,
        "named": sentences.named,
        "state": state,
        "versus": versus,
        "ms": lambda value: "-" if value is None else f"{value:.3g}",
        "percent": lambda value: "-" if value is None else f"{value:.1%}",
        "amount": amount,
        "duration": duration,
        "ratio": ratio,
        "passed": passed,
        "of_numerics": numerics_sentences.in_short,
        "is_bad": numerics_sentences.is_bad,
        "shell": lambda path: shlex.quote(str(path)),
        "href": lambda path: _href(path, folder),
        "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False, default=str),
    }
    drawn = _figures(report)
    scripts = [get_plotlyjs(), resource("page.js")]
    digests = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rows = _rows(report)
    return templates.get_template("report.html.j2").render(
        report=report,
        rows=rows,
        rows_left_out=len(report.rows) - len(rows),
        lead=report.details[0] if report.details else None,
        most_ranks=_MOST_RANKS,
        most_problems=_MOST_PROBLEMS,
        numerics=numerics_sentences,
        **_top(report),
        detail_of={id(detail.row): index for index, detail in enumerate(report.details)},
        figures=drawn,
        headings=_headings(report),
        compared=_is_compared(report),
        data=markupsafe.Markup(_embedded(drawn)),
        style=markupsafe.Markup(resource("style.css")),
        scripts=[markupsafe.Markup(script) for script in scripts],
        policy=f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:",
        version=__version__,
    )


def _is_compared(report: Report) -> bool:
    return any(cell.outcome is not None for cell in report.cells)


def _headings(report: Report) -> list[str]:
    """Of the table of trials."""
    of_bad = ["step", "first bad", "origin"] if report.is_watched or not report.profiled else []
    beside = ["beside the baseline"] if _is_compared(report) else []
    return ["cell", "trial", "host", "evidence", *of_bad, *(["numerics"] if report.numerics else []), *beside, "files"]


def _top(report: Report) -> dict[str, Any]:
    """The headline, and what stands below it: of layer_numerics, where that left something."""
    if report.profiled and not report.is_watched:
        lead = report.profiled[0]
        answers: tuple[tuple[str, Iterable[str]], ...] = (
            ("Where the time goes", numerics_sentences.time(lead)),
            ("How it went", numerics_sentences.course(lead)),
            ("What stands out", numerics_sentences.outstanding(lead)),
        )
        headline = numerics_sentences.headline(lead)
    else:
        answers = (
            ("Where it starts", sentences.starts(report)),
            ("What led there", sentences.led(report)),
            ("Which differ", sentences.differ(report)),
        )
        headline = sentences.headline(report)
    return {"headline": headline, "answers": [(name, list(told)) for name, told in answers]}


def _figures(report: Report) -> dict[str, Any]:
    """By the ids of the page's elements."""
    found = {}
    for index, detail in enumerate(report.details):
        found[f"run-up-{index}"] = run_up(detail)
        found[f"heat-{index}"] = heat_map(detail)
        found[f"ranks-{index}"] = over(detail.by_rank, detail)
    for index, profiled in enumerate(report.profiled):
        found |= {f"numerics-{name}-{index}": figure for name, figure in charts_of(profiled).items()}
    if report.details:
        found["cells"] = over(report.cells_line, report.details[0])
    return {name: figure for name, figure in found.items() if figure is not None}


def _rows(report: Report) -> list[Any]:
    """All, or as many as a browser likes; what is bad, or lacks evidence, stays."""
    if len(report.rows) <= _MOST_ROWS:
        return list(report.rows)
    telling = [row for row in report.rows if row.fault is not None or row.satisfied is False or row.host != "pass"]
    kept = {id(row) for row in [*telling, *report.rows][:_MOST_ROWS]}
    return [row for row in report.rows if id(row) in kept]


def _href(path: Path, folder: Path) -> str | None:
    """A link that cannot be anything but a path; None where there is nothing."""
    try:
        if not path.exists():
            return None
        relative = os.path.relpath(path.absolute(), folder.absolute())
    except (OSError, ValueError):
        return None
    return quote(f"./{relative}", safe="/", errors="surrogateescape")


def _embedded(value: Mapping[str, Any]) -> str:
    """JSON that stands within a script element: nothing in it ends that, or begins another."""
    content = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
