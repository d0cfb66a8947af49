"""Durations step by step, from the lines: of the whole step, of its phases and of each brick."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aorta_collectors.analysis.numerics.processes import Processes
from aorta_collectors.analysis.numerics.tables import Lines, json_object, number

#: More steps than these are thinned out evenly.
MOST = 2000
_KINDS = ("training", "inference", "evaluation")


@dataclass(frozen=True)
class Samples:
    """Of one trial. With several ranks, of a step the longest of any rank: it is what the others wait for.

    Attributes:
        kind: Of the steps that were taken: training ones where there are any, else inference.
        steps_ms: Of whole steps, less those in which operations were counted.
        phases_ms: Of each phase.
        bricks_us: Of each brick, by layer and direction: its own time in a step, all calls together.
        tokens, samples: Median of a step; None where they are not known.
    """

    kind: str
    steps_ms: tuple[float, ...]
    phases_ms: Mapping[str, tuple[float, ...]]
    bricks_us: Mapping[tuple[str, str], tuple[float, ...]]
    tokens: float | None
    samples: float | None


def samples_of(lines: Lines, processes: Processes) -> Samples:
    """Read the lines of a trial's processes."""
    of_steps: defaultdict[int, float] = defaultdict(float)
    of_phases: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    of_bricks: defaultdict[tuple[str, str], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    kind = _kind(lines, processes)
    where = "WHERE kind = ? AND NOT is_counted AND isfinite(step_ms)"
    tokens = samples = None
    for process in processes.counted:
        lines.look_at(process)
        ((count, of_tokens, of_samples),) = lines.rows(
            f"SELECT count(*), median(tokens), median(samples) FROM steps {where}", [kind]
        )
        if not count:
            continue
        tokens, samples = _larger(tokens, of_tokens), _larger(samples, of_samples)
        stride = -(-count // MOST)
        for step, step_ms, phases in lines.rows(
            f"SELECT step, step_ms, phases_ms FROM steps {where} AND step % {stride} = 0", [kind]
        ):
            of_steps[step] = max(of_steps[step], step_ms)
            for name, value in json_object(phases).items():
                of_phases[name][step] = max(of_phases[name][step], number(value))
        if not has_all_spans(process.summary):
            continue
        for layer, direction, step, own_us in lines.rows(_own_times(where, stride), [kind]):
            times = of_bricks[layer, direction]
            times[step] = max(times[step], own_us)
    return Samples(
        kind,
        tuple(of_steps.values()),
        {name: tuple(times.values()) for name, times in of_phases.items()},
        {key: tuple(times.values()) for key, times in of_bricks.items()},
        tokens,
        samples,
    )


def _kind(lines: Lines, processes: Processes) -> str:
    """Of the steps that are compared; empty where there are none."""
    kinds = set()
    for process in processes.counted:
        lines.look_at(process)
        kinds |= {kind for (kind,) in lines.rows("SELECT DISTINCT kind FROM steps")}
        if _KINDS[0] in kinds:
            break
    return next((kind for kind in _KINDS if kind in kinds), "")


def has_all_spans(summary: Mapping[str, Any]) -> bool:
    """Whether each module has spans, so that what they take without their parts can be told."""
    config = summary["config"]
    return config.get("profile") not in (None, "off") and config.get("trace") != "none" and not config.get("steps")


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)


def _own_times(where: str, stride: int) -> str:
    """Own microseconds of each module in each step: its spans less those of modules whose parent it is.

    Where the bricks of a model are timed, each of its modules has a span: of a named step one of the kind phase.
    """
    return f"""WITH found AS (
            SELECT span_id, parent_span_id, layer, direction, step, duration_ns - overhead_ns AS own_ns
            FROM spans WHERE kind IN ('phase', 'layer', 'brick') AND layer <> '' AND step % {stride} = 0),
        inner_ns AS (SELECT parent_span_id, sum(own_ns) AS own_ns FROM found GROUP BY ALL)
        SELECT c.layer, c.direction, c.step, sum(greatest(0, c.own_ns - coalesce(i.own_ns, 0))) / 1000
        FROM found c LEFT JOIN inner_ns i ON i.parent_span_id = c.span_id
        WHERE c.step IN (SELECT step FROM steps {where}) GROUP BY ALL"""
