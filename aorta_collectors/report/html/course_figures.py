"""Charts over steps: the loss, how long steps take, what they get done, memory and the norm of the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aorta_collectors.analysis.report.course import Course, OfProcess, Points
from aorta_collectors.report.html.plotting import Figure, axis, escaped, layout
from aorta_collectors.report.profile_words import amount, duration
from aorta_collectors.report.wording import number, text

_HEIGHT = 300
_COLORS = [f"var(--line-{index})" for index in (0, 4, 2, 3, 5, 6, 7, 1)]
# A range of values this wide is shown on a logarithmic scale.
_WIDE = 100.0


def loss(course: Course) -> Figure | None:
    """The loss, its moving average, the best step, and steps whose loss is no number."""
    if not course.loss:
        return None
    data = [
        _line(course.loss, "loss", "var(--line-1)", _number, width=1),
        _line(course.ema, f"moving average ({course.smoothing:g})", "var(--line-0)", _number, width=2.4),
    ]
    if course.best_loss is not None:
        said = f"best {number(float(f'{course.best_loss:.4g}'))} in step {course.best_loss_step}"
        mark = {"symbol": "star", "size": 13, "color": "var(--good)", "line": {"width": 1, "color": "var(--page)"}}
        data.append(_marks([course.best_loss_step or 0], [course.best_loss], said, mark))
    if course.bad_steps:
        top = max(value for _, value in course.loss)
        mark = {"symbol": "x", "size": 10, "color": "var(--severity-nan)"}
        data.append(_marks(course.bad_steps, [top] * len(course.bad_steps), "NaN or infinite", mark))
    return _figure(data, [course.loss], "loss")


def step_times(course: Course) -> Figure | None:
    """Median and, of one rank alone, the slowest step of each point."""
    lines = _of_ranks(course, lambda process: process.step_ms, _ms)
    if len(course.processes) == 1 and course.processes[0].slowest_ms != course.processes[0].step_ms:
        slowest = _line(course.processes[0].slowest_ms, "slowest", "var(--line-1)", _ms, width=1)
        lines = [slowest, *({**line, "name": "median"} for line in lines)]
    return _figure(lines, [process.slowest_ms for process in course.processes], "milliseconds")


def throughput(course: Course) -> Figure | None:
    """Tokens a second where they are known, else samples."""
    for title, points in (
        ("tokens a second", lambda process: process.tokens_per_s),
        ("samples a second", lambda process: process.samples_per_s),
    ):
        lines = _of_ranks(course, points, amount)
        if lines:
            return _figure(lines, list(map(points, course.processes)), title)
    return None


def memory(course: Course) -> Figure | None:
    lines = _of_ranks(course, lambda process: process.memory_mb, lambda value: f"{number(round(value, 1))} MB")
    return _figure(lines, [], "megabytes")


def gradient_norm(course: Course) -> Figure | None:
    lines = _of_ranks(course, lambda process: process.grad_norm, _number)
    return _figure(lines, [process.grad_norm for process in course.processes], "2-norm")


def _of_ranks(course: Course, points: Callable[[OfProcess], Points], said: Callable[[float], str]) -> list[Figure]:
    return [
        _line(points(process), process.label, color, said, width=1.8)
        for process, color in zip(course.processes, _COLORS, strict=False)
        if points(process)
    ]


def _line(points: Points, name: str, color: str, said: Callable[[float], str], *, width: float) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "name": escaped(text(name)),
        "x": [step for step, _ in points],
        "y": [value for _, value in points],
        "text": [said(value) for _, value in points],
        "line": {"color": color, "width": width},
        "hovertemplate": f"{escaped(text(name))}, step %{{x}}: %{{text}}<extra></extra>",
    }


def _marks(steps: Sequence[int], values: Sequence[float], said: str, marker: Figure) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": said,
        "x": list(steps),
        "y": list(values),
        "marker": marker,
        "hovertemplate": f"step %{{x}}: {said}<extra></extra>",
    }


def _figure(data: Sequence[Figure], spread: Sequence[Points], title: str) -> Figure | None:
    if not data:
        return None
    values = [value for points in spread for _, value in points]
    is_wide = bool(values) and min(values) > 0 and max(values) / min(values) > _WIDE
    up = {**axis(title), "exponentformat": "SI"}
    return {
        "data": list(data),
        "layout": {
            **layout(_HEIGHT),
            "xaxis": axis("step"),
            "yaxis": {**up, "type": "log", "exponentformat": "power", "dtick": 1} if is_wide else up,
            "showlegend": len(data) > 1,
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
            "hovermode": "closest",
        },
    }


def _number(value: float) -> str:
    return number(float(f"{value:.4g}")) if math.isfinite(value) else str(value)


def _ms(value: float) -> str:
    return duration(1000 * value)
