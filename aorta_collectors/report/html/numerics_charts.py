"""All charts of one trial's profile, by the names that the page's elements have for them."""

from __future__ import annotations

from aorta_collectors.analysis.report.profiled import Profiled
from aorta_collectors.analysis.report.statistics import Grid, Statistics
from aorta_collectors.report.html import course_figures, numerics_figures
from aorta_collectors.report.html.heat_figure import heat_figure
from aorta_collectors.report.html.plotting import Figure
from aorta_collectors.report.wording import text


def charts_of(found: Profiled) -> dict[str, Figure | None]:
    """None where there is nothing to draw."""
    profile, course = found.profile, found.course
    drawn = {
        "phases": numerics_figures.phases(profile),
        "bricks": numerics_figures.bricks(profile),
        "roofline": numerics_figures.roofline(found.points, profile.roofline),
        "breakdowns": numerics_figures.breakdowns(profile.escalated),
    }
    if course is not None:
        drawn["loss"] = course_figures.loss(course)
        drawn["steps"] = course_figures.step_times(course)
        drawn["throughput"] = course_figures.throughput(course)
        drawn["memory"] = course_figures.memory(course)
        drawn["norm"] = course_figures.gradient_norm(course)
    for statistics in found.statistics:
        drawn[f"largest-{statistics.direction}"] = _heat(statistics, statistics.largest, "largest finite magnitude")
        drawn[f"deviation-{statistics.direction}"] = _heat(statistics, statistics.deviation, "standard deviation")
    return drawn


def _heat(statistics: Statistics, values: Grid, quantity: str) -> Figure:
    labels = [
        text(first) if count == 1 else f"{text(first)} to {text(last)}, {count} layers"
        for first, last, count in statistics.rows
    ]
    rows = {cell[0] for cell in statistics.bad[:1]}
    return heat_figure(labels, statistics.columns, values, statistics.bad, statistics.ranks, quantity, rows_named=rows)
