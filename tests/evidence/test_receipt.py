"""Receipts: written, read again, and never taken for a trial by the host."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.api import Verdict
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.receipt import Receipt, read_receipt, receipt_name, trial_coordinates
from aorta_collectors.schema_check import first_error, load_schema

NAME = receipt_name("d0_m1_t2", "layer_numerics")


def receipt(**changes: Any) -> Receipt:
    fields: dict[str, Any] = {
        "collector": "layer_numerics",
        "trial": "cell/d0_m1_t2",
        "cell": "cell",
        "run_ids": ("a", "b"),
        "verdict": "captured",
        "reason": "2 module(s) over 5 step(s), 1 rank(s)",
        "route": "front-end",
        "options": {"NANLOG_SAMPLE_EVERY": "1"},
        "artifacts": "trial_d0_m1_t2/layer_numerics",
        "files": {"summary_rank0.json": 12},
        "metrics": {"layer_numerics_steps": 5, "layer_numerics_first_bad_layer": "head", "x": 0.5},
        "launch": {"argv": ["python", "train.py"], "env": {"A": "1", "B": None}},
        "details": {"processes": [{"rank": 0}]},
        "ignored_environment": ("NANLOG_VERBOSE",),
    }
    return Receipt(**{**fields, **changes})


def read_back(directory: Path, content: bytes) -> Receipt | None:
    (directory / NAME).write_bytes(content)
    with Anchor(directory).open(directory) as opened:
        return read_receipt(opened, NAME)


class TestRoundTrip:
    @pytest.mark.parametrize("verdict", list(Verdict))
    def test_a_receipt_reads_back_as_it_was_written(self, tmp_path: Path, verdict: Verdict) -> None:
        written = receipt(verdict=verdict.value, cell=None, launch=None)
        assert read_back(tmp_path, written.to_json()) == written
        assert written.satisfied == verdict.satisfied
        assert first_error("receipt", json.loads(written.to_json())) is None

    def test_only_three_verdicts_satisfy_a_request(self) -> None:
        assert {verdict.value for verdict in Verdict if verdict.satisfied} == {"captured", "pruned", "off"}

    @settings(max_examples=60, deadline=None)
    @given(
        st.text(max_size=20),
        st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3),
        st.dictionaries(
            st.text(max_size=5),
            st.one_of(st.integers(), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)),
            max_size=3,
        ),
        st.lists(st.text(max_size=6), min_size=1, max_size=3),
    )
    def test_any_text_survives(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        reason: str,
        options: dict[str, str],
        metrics: dict[str, Any],
        ids: list[str],
    ) -> None:
        written = receipt(reason=reason, options=options, metrics=metrics, run_ids=tuple(ids))
        assert read_back(tmp_path_factory.getbasetemp(), written.to_json()) == written

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_a_metric_that_is_no_number_does_not_make_the_receipt_unreadable(
        self, tmp_path: Path, number: float
    ) -> None:
        """A collector of numerics may well measure one; what was written must be JSON and must be readable."""

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is not JSON")

        content = receipt(metrics={"peak": number}).to_json()
        json.loads(content, parse_constant=refuse)
        assert read_back(tmp_path, content) is not None

    def test_every_field_is_in_the_schema_and_the_other_way_round(self) -> None:
        assert set(json.loads(receipt().to_json())) == set(load_schema("receipt")["properties"])


class TestReading:
    def test_no_receipt_is_none(self, tmp_path: Path) -> None:
        with Anchor(tmp_path).open(tmp_path) as opened:
            assert read_receipt(opened, NAME) is None

    def test_a_link_in_its_place_is_no_receipt(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").write_bytes(receipt().to_json())
        (tmp_path / NAME).symlink_to("elsewhere")
        with Anchor(tmp_path).open(tmp_path) as opened:
            assert read_receipt(opened, NAME) is None

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda content: content.pop("verdict"), "verdict is missing"),
            (lambda content: content.update(verdict="fine"), "verdict: must be one of captured, missing"),
            (lambda content: content.update(schema_version=2), "schema_version"),
            (lambda content: content.update(run_ids=[]), "run_ids: must not be empty"),
            (lambda content: content.update(files={"x": -1}), "files.x: must be an integer >= 0, got -1"),
            (lambda content: content.update(surprise=1), "unknown key surprise"),
            (lambda content: content.update(metrics={"x": float("nan")}), "not JSON (unexpected character"),
        ],
    )
    def test_a_damaged_receipt_is_an_error_that_names_the_fault(
        self, tmp_path: Path, damage: Callable[[dict[str, Any]], object], message: str
    ) -> None:
        content = json.loads(receipt().to_json())
        damage(content)
        with pytest.raises(ArtifactError) as caught:
            read_back(tmp_path, json.dumps(content).encode())
        assert NAME in str(caught.value)
        assert message in str(caught.value)

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
    def test_what_is_no_receipt_at_all_is_an_artifact_error(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(ArtifactError):
            read_back(tmp_path, content)

    def test_a_receipt_of_an_earlier_writer_without_the_later_fields_is_read(self, tmp_path: Path) -> None:
        content = json.loads(receipt().to_json())
        for key in ("on_missing", "launch", "details", "ignored_environment"):
            del content[key]
        found = read_back(tmp_path, json.dumps(content).encode())
        assert found is not None
        assert (found.on_missing, found.launch, found.ignored_environment) == ("error", None, ())


class TestNames:
    @pytest.mark.parametrize("collector", ["layer_numerics", "trial_x", "trial_d0_m0_t0", "x.json"])
    def test_the_hosts_glob_for_trials_never_finds_a_receipt(self, collector: str) -> None:
        name = receipt_name("d0_m0_t0", collector)
        assert not fnmatch.fnmatch(name, "trial_*.json")
        assert trial_coordinates(name) is None

    @pytest.mark.parametrize(
        ("name", "coordinates"),
        [
            ("trial_d0_m0_t3.json", "d0_m0_t3"),
            ("trial_d10_m2_t12.json", "d10_m2_t12"),
            ("trial_d0_m0.json", None),
            ("trial_d0_m0_t3.json.bak", None),
            ("xtrial_d0_m0_t3.json", None),
            ("trial_d0_m0_t3_extra.json", None),
            ("trial_.json", None),
        ],
    )
    def test_coordinates_are_read_from_a_trials_name_alone(self, name: str, coordinates: str | None) -> None:
        assert trial_coordinates(name) == coordinates
