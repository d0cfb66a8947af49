"""Many small tensors: what one record costs when there is nothing to compute, and what writing one costs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.alternate import BARE, Variant, alternate
from benchmarks.estimate import floor
from benchmarks.models import Trained, stack
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes
from benchmarks.stock import Stock
from benchmarks.variants import Ours

#: Nothing is left out for being too much.
_EVERY = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_MAX_RECORDS": "1000000000"}


def records_of_a_step(trained: Trained, directory: Path) -> int:
    """Tensors that the engine looks at in a step, default channels."""
    ours = Ours(directory, _EVERY, counts=True)
    with ours():
        trained.step()
    return ours.counted


def record_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `record`: what it costs to look at one tensor of 64 elements, stock against ours."""
    trained = stack(sizes.small_layers)
    count = records_of_a_step(trained, directory / "count")
    variants: dict[str, Variant] = {
        "ours": Ours(directory / "record"),
        "stock": Stock(trained.model, directory / "stock_record"),
    }
    samples = alternate(trained.step, variants, seconds=sizes.small_seconds, clock=sizes.clock, timed=sizes.timed)
    per_record = {name: samples.added(name, BARE).scaled(1e6 / count) for name in variants}
    numbers: dict[str, float | str] = {
        "ours us": per_record["ours"].value,
        "its interval": f"{per_record['ours'].low:.3g} to {per_record['ours'].high:.3g}",
        "stock us": per_record["stock"].value,
        "bare step us a layer": 1e6 * samples.median(BARE) / sizes.small_layers,
        "records a step": count,
        "ours / bare step": samples.ratio("ours", BARE).value,
        "from": samples.told,
    }
    what = f"{sizes.small_layers} Linear layers, 64 elements: cost of a record, stock / ours"
    return [Row("record", what, samples.ratio_of_added("stock", "ours", BARE), Bar(8, at_most=False), numbers)]


def written_rows(sizes: Sizes, directory: Path) -> list[Row]:
    """Row `write`: records written to a file in a second of added time, ours against stock."""
    trained = stack(sizes.written_layers)
    count = records_of_a_step(trained, directory / "count")
    variants: dict[str, Variant] = {
        "ours": Ours(directory / "write", _EVERY),
        "stock": Stock(trained.model, directory / "stock_write", _EVERY),
    }
    samples = alternate(
        trained.step,
        variants,
        seconds=sizes.written_seconds,
        clock=sizes.clock,
        timed=sizes.written_steps,
        discarded=1,
        to_the_end=True,
    )
    a_second = {
        name: samples.estimate(lambda m, name=name: count / floor(m(name) - m(BARE), m(BARE))) for name in variants
    }
    numbers: dict[str, float | str] = {
        "ours records/s": a_second["ours"].value,
        "its interval": f"{a_second['ours'].low:,.0f} to {a_second['ours'].high:,.0f}",
        "stock records/s": a_second["stock"].value,
        "ours us a record": 1e6 / a_second["ours"].value,
        "records a block": count * sizes.written_steps,
        "from": samples.told,
    }
    value = samples.ratio_of_added("stock", "ours", BARE)
    return [Row("write", "records written to JSONL per second, ours / stock", value, Bar(10, at_most=False), numbers)]
