"""The exposition is in OpenMetrics 1.0, by a parser of its grammar that takes nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.analysis.search import captures_below
from aorta_collectors.export.openmetrics import _escaped, write_openmetrics
from tests.captured.synthetic import record, write

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)?\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)")
#: What may follow a family's name in the name of its samples.
SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info", "stateset": ""}


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float


def parse(text: str) -> dict[str, list[Sample]]:
    """Samples by family, of a text that keeps to the specification."""
    assert text.endswith("\n# EOF\n") or text == "# EOF\n"
    families: dict[str, list[Sample]] = {}
    described: dict[str, dict[str, str]] = {}
    current = ""
    for line in text.removesuffix("# EOF\n").split("\n")[:-1]:
        if line.startswith("# "):
            match = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)", line)
            assert match, line
            what, name, value = match.groups()
            if name != current:
                assert name not in families, f"{name} comes twice"
                current, families[name], described[name] = name, [], {}
            assert what not in described[name]
            assert not families[name], "what describes a family stands before its samples"
            described[name][what] = value
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        kind = described[current]["TYPE"]
        assert match[1] == current + SUFFIXES[kind], line
        pairs = re.findall(LABEL, match[2] or "")
        labels = {
            name: re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text) for name, text in pairs
        }
        assert len(labels) == len(pairs)
        value = float(match[match.lastindex or 0])
        if kind == "counter":
            assert value >= 0
        if kind == "info":
            assert value == 1
        if kind == "stateset":
            assert value in (0, 1)
            assert current in labels
        families[current].append(Sample(labels, value))
    for name, samples in families.items():
        assert samples
        if unit := described[name].get("UNIT"):
            assert name.endswith(f"_{unit}")
        assert len({tuple(sorted(sample.labels.items())) for sample in samples}) == len(samples)
    return families


def _families(place: Path) -> dict[str, list[Sample]]:
    write_openmetrics(captures_below(place), place / "out")
    return parse((place / "out").read_text())


def test_a_summarys_numbers_are_metrics(tmp_path: Path) -> None:
    hostile = 'l"\\\n{}é# EOF'
    lines = [record(1, "a"), record(2, hostile, high=None, nans=8)]
    overhead = {"hook_ms_p50": 0.25, "hook_ms_p95": None, "share_of_step": 0.5}
    more: dict[int, dict[str, Any]] = {0: {"overhead": overhead, "records_cut": 3}}
    families = _families(write(tmp_path / "in", {0: lines, 1: lines[:1]}, more))
    assert [sample.value for sample in families["aorta_layer_numerics_steps"]] == [2, 1]
    assert [sample.value for sample in families["aorta_layer_numerics_records_cut"]] == [3]
    (first,) = families["aorta_layer_numerics_first_bad_step"]
    assert (first.value, first.labels["rank"]) == (2, "0")
    (place,) = families["aorta_layer_numerics_first_bad"]
    assert (place.labels["layer"], place.labels["kind"]) == (hostile, "nan")
    (hooks,) = families["aorta_layer_numerics_hook_time_seconds"]
    assert (hooks.value, hooks.labels["statistic"]) == (0.00025, "p50")
    assert "aorta_evidence_verdict" not in families
    states = families["aorta_layer_numerics_status"]
    assert [sample.labels["aorta_layer_numerics_status"] for sample in states if sample.value] == ["complete"] * 2


@given(st.text())
def test_any_text_can_be_a_label(text: str) -> None:
    line = f'# TYPE a gauge\na{{b="{_escaped(text)}"}} 1\n# EOF\n'
    assert parse(line)["a"] == [Sample({"b": text}, 1.0)]
