"""Our engine beside the stock logger: the same script, the same records, field by field."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.layer_numerics.programs import DMP
from tests.support import PYTHON, Ran, records, run, summary

SEVEN = "act,input,igrad,weight,bias,wgrad,bgrad"
GROWING = ["--lr", "3", "--steps", "12"]
# When a record was made and by which process: the only things two runs may differ in.
OF_A_RUN = ("t", "pid")
# What the summaries of both must agree on. `jsonl`, `pid` and `notes` differ by nature.
SUMMARY_FIELDS = (
    "rank",
    "host",
    "steps_seen",
    "records_written",
    "matmul_calls_total",
    "spec_present",
    "spec_applied",
    "spec_error",
    "spec_source",
    "huge_threshold",
    "pre_context",
    "pre_context_flushed",
    "watch_types",
    "watch_names",
    "watch_stride",
    "watched_count",
    "watched_names",
    "channels",
    "max_param_numel",
    "params_scanned",
    "grad_params_planned",
    "grad_records_stashed",
    "optimizer_hook_registered",
    "skipped_params",
    "tf32_allowed",
    "follow_mode",
    "pipeline_installed",
    "first_oob",
    "oob_records",
)


class Both:
    """One script run by the stock logger and by ours, with the same NANLOG_* variables."""

    def __init__(self, directory: Path, variables: dict[str, str], words: list[str]) -> None:
        (directory / "train.py").write_text(DMP)

        def one(module: str, out: str) -> Ran:
            env = {"NANLOG_DIR": str(directory / out), **variables}
            return run([PYTHON, "-m", module, "train.py", *words], directory, env).ok()

        with ThreadPoolExecutor(2) as pool:
            stock = pool.submit(one, "aorta.instrumentation.layer_numerics", "stock")
            ours = pool.submit(one, "aorta_collectors.layer_numerics", "ours")
            self.stock, self.ours = stock.result(), ours.result()
        self.stock_records, self.our_records = (self._records(directory / out) for out in ("stock", "ours"))
        self.stock_summary, self.our_summary = summary(directory / "stock"), summary(directory / "ours")

    @staticmethod
    def _records(directory: Path) -> list[dict[str, Any]]:
        """None at all where a logger left no file because it had nothing to write."""
        path = directory / "layers_rank0.jsonl"
        return records(path) if path.exists() else []

    def check_records(self) -> None:
        assert self.ours.out == self.stock.out
        places = [
            [(record["step"], record["layer_name"], record["role"], record["param_name"]) for record in side]
            for side in (self.our_records, self.stock_records)
        ]
        assert places[0] == places[1]
        for ours, stock in zip(self.our_records, self.stock_records, strict=True):
            assert set(ours) == set(stock)
            for key in OF_A_RUN:
                ours.pop(key)
                stock.pop(key)
            assert ours == stock
            assert [type(ours[key]) for key in stock] == [type(stock[key]) for key in stock]

    def check_summaries(self) -> None:
        ours, stock = self.our_summary, self.stock_summary
        assert {key: ours.get(key) for key in SUMMARY_FIELDS} == {key: stock[key] for key in SUMMARY_FIELDS}
        if stock["first_bad"] is None:
            assert ours["first_bad"] is None
        else:
            assert {key: ours["first_bad"][key] for key in stock["first_bad"]} == stock["first_bad"]
        assert ours["records_written"] == len(self.our_records)


@pytest.fixture
def both(tmp_path: Path, request: pytest.FixtureRequest) -> Both:
    variables, words = request.param
    return Both(tmp_path, variables, words)


@pytest.mark.parametrize(
    "both", [({"NANLOG_CHANNELS": SEVEN, "NANLOG_SAMPLE_EVERY": "1"}, GROWING)], indirect=True, ids=["seven"]
)
def test_every_record_of_all_seven_channels_is_the_stock_loggers_up_to_the_nan(both: Both) -> None:
    both.check_records()
    both.check_summaries()
    roles = {record["role"] for record in both.our_records}
    assert roles == set(SEVEN.split(","))
    assert both.our_summary["first_bad"] is not None
    assert any(record["nan_count"] for record in both.our_records)
    assert any(record["huge_count"] for record in both.our_records)
    assert any(record["finite_max"] is None for record in both.our_records)


@pytest.mark.parametrize(
    "both",
    [
        (
            {"NANLOG_PRE_CONTEXT": "4", "NANLOG_SAMPLE_EVERY": "5", "NANLOG_CHANNELS": SEVEN},
            ["--lr", "3", "--steps", "12"],
        )
    ],
    indirect=True,
    ids=["run-up"],
)
def test_the_run_up_before_the_first_bad_record_is_the_stock_loggers(both: Both) -> None:
    both.check_records()
    both.check_summaries()
    assert both.our_summary["pre_context_flushed"]
    assert not both.our_records[0]["bad"]


@pytest.mark.parametrize("both", [({}, ["--lr", "0.01", "--steps", "51"])], indirect=True, ids=["defaults"])
def test_by_default_the_same_steps_are_sampled(both: Both) -> None:
    both.check_records()
    both.check_summaries()
    assert {record["step"] for record in both.our_records} == {50}
    assert both.our_summary["first_bad"] is None


@pytest.mark.parametrize(
    "both",
    [
        (
            {
                "NANLOG_WATCH_NAMES": "dense_arch,sparse_arch",
                "NANLOG_WATCH_TYPES": "Perceptron,Linear",
                "NANLOG_CHANNELS": "act,igrad,weight,wgrad",
                "NANLOG_WATCH_STRIDE": "2",
                "NANLOG_HUGE_THRESHOLD": "0.5",
                "NANLOG_MAX_RECORDS": "20",
                "NANLOG_STOP_ON_FIRST": "1",
                "NANLOG_MAX_PARAM_NUMEL": "100",
                "NANLOG_SAMPLE_EVERY": "1",
            },
            ["--lr", "0.1"],
        )
    ],
    indirect=True,
    ids=["scope"],
)
def test_scope_stride_threshold_and_limits_mean_what_they_mean_to_the_stock_logger(both: Both) -> None:
    both.check_records()
    both.check_summaries()
    assert len(both.our_records) == 20
    assert both.our_summary["skipped_params"]
