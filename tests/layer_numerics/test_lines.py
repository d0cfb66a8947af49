"""The text of records: byte for byte what json.dumps makes of the fields, and made only where it is written."""

from __future__ import annotations

import gc
import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.record import RecordMaker
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.precision import headroom
from aorta_collectors.observe.reduce import Location, Stats
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.sums import Sums
from tests.support import records

IDENTITY = {"rank": 3, "gpu": 3, "host": 'a "node" \u00fc', "pid": 42}

texts = st.text(max_size=12)
counts = st.integers(0, 2**70)
# No dtype whose headroom is told holds anything smaller.
finites = st.floats(allow_nan=False, allow_infinity=False).map(
    lambda value: value if abs(value) > 1e-60 else 0.0 * value
)
dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64]
)
sites = st.builds(
    Site,
    texts,
    st.sampled_from(["fwd", "bwd", "param", "grad", "pipeline"]),
    st.sampled_from(["act", "igrad", "weight", "bias", "track"]),
    texts,
    module_path=st.none() | texts,
    tensor_path=texts,
)
moments = st.builds(
    Moment,
    st.sampled_from(["forward", "copy", "sparse_wait"]),
    st.none() | counts,
    st.just("") | texts,
    counts,
    st.booleans(),
    counts,
)
locations = st.builds(
    Location, counts, st.none() | counts, st.none() | counts, st.none() | counts, st.none() | st.floats()
)
sums = st.builds(Sums, st.floats(), st.floats(min_value=0) | st.just(math.nan))
extras = st.none() | st.dictionaries(
    texts.map("sparse_".__add__), st.booleans() | counts | texts | st.lists(counts, max_size=2), max_size=3
)


@st.composite
def statistics(draw: st.DrawFn) -> Stats:
    ends = draw(st.none() | st.tuples(finites, finites).map(sorted))
    low, high = ends or (None, None)
    faults = [draw(st.sampled_from([0, 0, 1, 2**53 + 1])) for _ in range(5)]
    location, moments = draw(st.none() | locations), draw(st.none() | sums)
    return Stats(draw(counts), *faults[:3], faults[3], low, high, 0, faults[4], location, moments)


@st.composite
def observations(draw: st.DrawFn, at: st.SearchStrategy[Site] = sites) -> Observation:
    low, high = draw(st.tuples(finites, finites).map(sorted) | st.just((None, None)))
    shape = torch.Size(draw(st.lists(st.integers(0, 2**40), max_size=4)))
    return Observation(
        draw(at),
        shape,
        draw(dtypes),
        draw(counts),
        draw(st.floats(0, 1e9)),
        draw(counts),
        low,
        high,
        draw(st.none() | statistics()),
        draw(moments),
        draw(extras),
    )


def fields(step: int, seq: int, seen: Observation, maker: dict[str, bool], tf32: bool = False) -> dict[str, Any]:
    """What a record has to say, in order."""
    site, stats, moment = seen.site, seen.stats, seen.moment
    told = {
        "type": "layer_step",
        "step": step,
        "phase": moment.phase,
        "batch_id": moment.batch_id,
        **IDENTITY,
        "layer_name": site.layer,
        "module_path": site.module_path,
        "direction": site.direction,
        "role": site.role,
        "param_name": site.param,
        "tensor_path": site.tensor_path,
        "seq": seq,
        "invocation": moment.invocation,
        "optimizer_step": moment.optimizer_step,
        "value_is_from_prev_step": site.role in ("weight", "bias"),
        "shape": list(seen.shape),
        "dtype": str(seen.dtype),
        "tf32_path": tf32 and seen.dtype is torch.float32,
        "matmul_calls_so_far": seen.calls,
        "t": seen.time,
        "nan_count": stats.nan_count,
        "inf_count": stats.inf_count,
        "finite_count": stats.finite_count,
        "huge_count": stats.huge_count,
        "finite_abs_max": stats.finite_abs_max,
        "finite_max": stats.finite_max,
        "finite_min": stats.finite_min,
        "numel": stats.numel,
        "bad": stats.bad,
    }
    if moment.checkpoint:
        told["checkpoint"] = moment.checkpoint
    if moment.recompute:
        told["recompute"] = True
    if stats.moments is not None:
        total, squares = stats.moments
        count = stats.finite_count
        told["finite_mean"] = total / count if count and math.isfinite(total) else None
        told["finite_rms"] = math.sqrt(squares / count) if count and math.isfinite(squares) else None
    bits = headroom(seen.dtype, stats.finite_abs_max)
    if bits is not None:
        told["headroom"] = round(bits, 3)
    if maker["bounded"]:
        told["oob_count"] = stats.oob_count
    if maker["locate"]:
        told["bad_rows"] = stats.location.bad_rows if stats.location else 0
    if maker["bad_values"] and stats.bad and stats.location:
        value = stats.location.value
        if value is not None and not math.isfinite(value):
            named: Any = "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
        else:
            named = value
        told["first_bad_flat_idx"] = stats.location.flat_index
        told["first_bad_row"] = stats.location.row
        told["first_bad_col"] = stats.location.column
        told["first_bad_value"] = named
    told.update(seen.extra or {})
    return told


def clean(layer: str = "a", low: float = -4.0, high: float = 2.0, dtype: torch.dtype = torch.float32) -> Observation:
    return Observation(Site(layer, "fwd", "act"), torch.Size([2, 3]), dtype, 1, 12.5, 6, low, high, None, Moment())


OPTIONS = st.fixed_dictionaries({"bounded": st.booleans(), "locate": st.booleans(), "bad_values": st.booleans()})
PLAIN = {"bounded": False, "locate": False, "bad_values": False}


class TestBytes:
    @given(
        options=OPTIONS,
        steps=st.lists(sites, min_size=1, max_size=3).flatmap(
            lambda some: st.lists(st.lists(observations(st.sampled_from(some)), max_size=5), min_size=1, max_size=4)
        ),
    )
    @example(options=PLAIN, steps=[[clean(low=-0.0, high=-0.0), clean(low=-0.0, high=0.0), clean(low=-3, high=-1)]])
    @example(options=PLAIN, steps=[[clean(low=-2.5, high=2.5), clean(low=5e-324, high=1e22), clean(low=0, high=2**64)]])
    @example(options=PLAIN, steps=[[clean(dtype=torch.float16, low=0.0, high=0.0), clean("\ud800\n\u2028\U0001f600")]])
    def test_a_line_is_what_json_dumps_gives(self, options: dict[str, bool], steps: list[list[Observation]]) -> None:
        maker = RecordMaker(IDENTITY, **options)
        for step, seen in enumerate(steps):
            expected = [json.dumps(fields(step, seq, one, options), allow_nan=False) for seq, one in enumerate(seen)]
            assert maker.lines(step, enumerate(seen)) == expected

    def test_a_program_may_change_its_tf32_setting(self) -> None:
        maker = RecordMaker(IDENTITY, **PLAIN)
        before = torch.backends.cuda.matmul.allow_tf32
        seen = [clean(), clean(dtype=torch.float64)]
        try:
            for tf32 in (False, True, False):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                for step in (1, 2):
                    expected = [json.dumps(fields(step, seq, one, PLAIN, tf32)) for seq, one in enumerate(seen)]
                    assert maker.lines(step, enumerate(seen)) == expected
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def test_a_program_that_makes_ever_new_models_does_not_fill_the_memory(self) -> None:
        maker = RecordMaker(IDENTITY, **PLAIN)
        for part in range(8):
            seen = [clean(f"part{part}.{index}") for index in range(10_000)]
            lines = maker.lines(1, enumerate(seen))
            assert all(f'"layer_name": "{one.site.layer}"' in line for one, line in zip(seen, lines, strict=True))
        seen.clear()
        gc.collect()
        assert sum(type(thing) is Site for thing in gc.get_objects()) < 40_000

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_a_number_that_json_lacks_is_refused_and_not_written(self, bad: float) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            RecordMaker(IDENTITY, **PLAIN).lines(1, [(0, clean()._replace(extra={"sparse_x": bad}))])


class TestManyAtOnce:
    @pytest.mark.parametrize(("most", "written"), [(200_000, 10_000), (9_999, 9_999), (4_096, 4_096), (5_000, 5_000)])
    def test_a_long_step_comes_out_whole_and_in_order(self, most: int, written: int, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "layers.jsonl")
        recorder = Recorder(Config(sample_every=1, max_records=most), IDENTITY, file, lambda message: None)
        site = clean()
        recorder.step(StepTrace(1, [site] * 10_000))
        assert [record["seq"] for record in records(file.path)] == list(range(written))
        assert recorder.records_cut == 10_000 - written
        assert recorder.records_written == written

    @pytest.mark.parametrize("pre_context", [0, 3])
    def test_a_step_that_is_not_written_costs_no_memory_per_record(self, pre_context: int, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "layers.jsonl")
        config = Config(sample_every=1000, pre_context=pre_context)
        recorder = Recorder(config, IDENTITY, file, lambda message: None)
        traces = [StepTrace(step, [clean()] * 20_000) for step in range(1, 8)]
        tracemalloc.start()
        for trace in traces:
            recorder.step(trace)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000
        assert file.written == 0
