"""Statistics of layers x steps, few enough values for a page: of steps and layers that share a cell the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aorta_collectors.analysis.numerics.processes import Processes
from aorta_collectors.analysis.numerics.tables import Lines

#: Of a heat map; ranks that are read.
COLUMNS, ROWS, MOST_RANKS = 200, 200, 8
_FRACTIONS = 20
_NAN, _INF = 4, 3
_LEAST_FRACTION = 0.5

Grid = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Statistics:
    """One direction: outputs, or their gradients.

    Attributes:
        rows: Layers of each row, in execution order: the first, the last, and how many.
        columns: Steps of each column, the first and the last. Steps between those that were sampled have no column.
        largest, deviation: Largest magnitude, and standard deviation; None where nothing is finite.
        bad: Row, column, severity, NaN, Inf and huge (0) elements, elements read and rank, of each bad cell.
        ranks: How many ranks are in it; of them the worst is shown.
    """

    direction: str
    rows: tuple[tuple[str, str, int], ...]
    columns: tuple[tuple[int, int], ...]
    largest: Grid
    deviation: Grid
    bad: tuple[tuple[int, ...], ...]
    ranks: int


@dataclass(frozen=True)
class Fractions:
    """A layer's output, or its gradient: parts of all elements, mean over steps and the largest of the ranks."""

    layer: str
    module_type: str
    direction: str
    zero: float | None
    saturated: float | None


def statistics_of(lines: Lines, processes: Processes) -> tuple[tuple[Statistics, ...], tuple[Fractions, ...]]:
    """Statistics of outputs and of gradients, as far as there are any; and the layers with most zeros or saturation."""
    read = [process for process in processes.counted if process.sizes.get("stats")][:MOST_RANKS]
    layers: dict[str, dict[str, None]] = {"forward": {}, "backward": {}}
    steps: set[int] = set()
    fractions: dict[tuple[str, str, str], tuple[float | None, float | None]] = {}
    for process in read:
        lines.look_at(process)
        rows = lines.rows(
            """SELECT layer, direction, any_value(module_type), avg(zero_fraction), avg(saturated_fraction)
            FROM stats WHERE layer IS NOT NULL GROUP BY layer, direction ORDER BY min(seq)"""
        )
        for layer, direction, module_type, zero, saturated in rows:
            layers.setdefault(direction, {})[layer] = None
            before = fractions.get((layer, module_type, direction), (None, None))
            fractions[layer, module_type, direction] = (_larger(before[0], zero), _larger(before[1], saturated))
        steps.update(step for (step,) in lines.rows("SELECT DISTINCT step FROM stats WHERE layer IS NOT NULL"))
    found = [
        _grid(lines, processes, direction, list(of_direction), sorted(steps))
        for direction, of_direction in layers.items()
        if of_direction
    ]
    return tuple(found), _telling(fractions)


def _telling(found: dict[tuple[str, str, str], tuple[float | None, float | None]]) -> tuple[Fractions, ...]:
    """Those that are mostly zero or saturated, the worst first."""
    made = [Fractions(*key, *both) for key, both in found.items() if max(both[0] or 0.0, both[1] or 0.0) > 0]
    told = [each for each in made if max(each.zero or 0.0, each.saturated or 0.0) >= _LEAST_FRACTION]
    return tuple(sorted(told, key=lambda each: -max(each.zero or 0.0, each.saturated or 0.0))[:_FRACTIONS])


def _grid(
    lines: Lines, processes: Processes, direction: str, layers: Sequence[str], steps: Sequence[int]
) -> Statistics:
    height, width = min(ROWS, len(layers)), min(COLUMNS, len(steps))
    column_of = [index * width // len(steps) for index in range(len(steps))]
    row_of = {layer: index * height // len(layers) for index, layer in enumerate(layers)}
    largest: list[list[float | None]] = [[None] * width for _ in range(height)]
    deviation: list[list[float | None]] = [[None] * width for _ in range(height)]
    bad: dict[tuple[int, int], tuple[int, ...]] = {}
    read = [process for process in processes.counted if process.sizes.get("stats")][:MOST_RANKS]
    for process in read:
        lines.look_at(process)
        rows = lines.batches(
            """SELECT layer, place, max(greatest(abs(min), abs(max))), max(std), max(nan_count), max(inf_count),
                max(numel)
            FROM stats JOIN (SELECT unnest(?::BIGINT[]) AS step, unnest(?::BIGINT[]) AS place) USING (step)
            WHERE direction = ? AND layer IS NOT NULL GROUP BY ALL""",
            [list(steps), column_of, direction],
        )
        for batch in rows:
            for layer, column, magnitude, std, nans, infs, numel in batch:
                row = row_of[layer]
                largest[row][column] = _larger(largest[row][column], magnitude)
                deviation[row][column] = _larger(deviation[row][column], std)
                if nans or infs:
                    cell = row, column, _NAN if nans else _INF, nans, infs, 0, numel, process.rank
                    bad[row, column] = max(bad.get((row, column), cell), cell, key=lambda it: it[2:5])
    grouped = [[layer for layer in layers if row_of[layer] == row] for row in range(height)]
    edges = [*(steps[column_of.index(column)] for column in range(width)), steps[-1] + 1]
    return Statistics(
        direction,
        tuple((names[0], names[-1], len(names)) for names in grouped),
        tuple((edges[column], edges[column + 1] - 1) for column in range(width)),
        tuple(map(tuple, largest)),
        tuple(map(tuple, deviation)),
        tuple(bad[key] for key in sorted(bad)),
        len(read),
    )


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
