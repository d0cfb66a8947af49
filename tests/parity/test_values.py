"""Our engine beside the stock logger on awkward tensors: counts and magnitudes exactly, for each kind of number."""

from __future__ import annotations

import pytest
import torch

from tests.parity.both import Both, Case, Differs, run_cases
from tests.parity.differences import NO_FOLLOW
from tests.parity.programs import VALUES

OUTPUTS = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_WATCH_TYPES": "Make", "NANLOG_CHANNELS": "act"}
DETAILS = {"NANLOG_LOCATE": "1", "NANLOG_BAD_VALUES": "1"}
RANGES = "clean:-2:3;int64:-1:4;truth:0:0;uint8:1:9;float16:-1:2;float64:0:1;scalar:0:1"

BEFORE_DOUBLING = Differs(
    "What a module is given is read before the module overwrites it in place.",
    ("finite_abs_max", "finite_max", "finite_min"),
    lambda ours, stock: (
        ours["role"] == "input"
        and (ours["finite_min"], ours["finite_max"]) == (-3, 2)
        and (stock["finite_min"], stock["finite_max"]) == (-6, 4)
    ),
)

CASES = {
    "plain": Case(VALUES, OUTPUTS, (), (NO_FOLLOW,)),
    "details": Case(VALUES, {**OUTPUTS, **DETAILS}, (), (NO_FOLLOW,)),
    "ranges": Case(VALUES, {**OUTPUTS, **DETAILS, "NANLOG_BOUNDS": RANGES}, (), (NO_FOLLOW,)),
    "saved": Case(VALUES, {**OUTPUTS, "NANLOG_DUMP_TENSOR": "1"}, (), (NO_FOLLOW,)),
    "threshold": Case(VALUES, {**OUTPUTS, **DETAILS, "NANLOG_HUGE_THRESHOLD": "2.5"}, (), (NO_FOLLOW,)),
    "in place": Case(
        VALUES,
        {**OUTPUTS, "NANLOG_WATCH_TYPES": "Twice", "NANLOG_CHANNELS": "input,act"},
        (),
        (NO_FOLLOW, BEFORE_DOUBLING),
    ),
}
ALONE = {
    "spoilt": Case(VALUES, {**OUTPUTS, "NANLOG_DUMP_TENSOR": "1"}, ("--spoil",)),
    "complex": Case(VALUES, {**OUTPUTS, **DETAILS}, ("--complex",), bare=True),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    return run_cases(tmp_path_factory, "values", {**CASES, **ALONE})


@pytest.mark.parametrize("name", CASES)
def test_records_and_summary_are_the_stock_loggers(runs: dict[str, Both], name: str) -> None:
    runs[name].check(CASES[name].differences)


def test_all_kinds_of_numbers_were_there(runs: dict[str, Both]) -> None:
    dtypes = {record["dtype"].removeprefix("torch.") for record in runs["plain"].ours.records}
    assert dtypes == {
        *("float32", "float16", "bfloat16", "float64"),
        *("int64", "int32", "uint8", "bool"),
    }


def test_an_empty_tensor_has_no_record_and_is_counted(runs: dict[str, Both]) -> None:
    ours = runs["plain"].ours
    assert not any("empty" in record["layer_name"] for record in ours.records)
    assert ours.summary["tensors_skipped"]["empty"]["count"] == 2


def test_the_saved_tensor_is_what_was_seen_not_what_became_of_it(runs: dict[str, Both]) -> None:
    both = runs["spoilt"]
    (name,) = both.ours.dumps
    assert "negative_and_nan" in name
    expected = torch.tensor([-3.0, float("nan"), -2.5])
    torch.testing.assert_close(both.ours.dumps[name], expected, rtol=0, atol=0, equal_nan=True)
    assert both.stock.dumps[name].eq(0).all()


def test_complex_numbers_do_not_end_the_program(runs: dict[str, Both]) -> None:
    """The stock logger raises from its hook: complex numbers have no order."""
    both = runs["complex"]
    assert both.bare is not None
    assert both.stock.ran.code == 1
    assert both.ours.ran.ok().out == both.bare.ran.ok().out
    (record, _) = (record for record in both.ours.records if record["layer_name"].endswith("complex64"))
    assert record["nan_count"] > 0
