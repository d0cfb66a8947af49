"""`aorta-collectors schema`: the schemas as others can use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from aorta_collectors.cli import main
from aorta_collectors.schema_check import load_schema, schema_names
from tests.captured.synthetic import record
from tests.support import run


def _schema(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["schema", *words])
    assert result.exit_code == code, result.output
    return result


def test_all_are_listed_with_what_they_describe() -> None:
    listed = json.loads(_schema("--json").stdout)
    assert [each["name"] for each in listed] == [*schema_names(), "layer_numerics", "memory", "numerics", "tensors"]
    assert all(each["title"] and each["description"] for each in listed)
    shown = _schema().stdout
    assert all(name in shown for name in schema_names())


@pytest.mark.parametrize("name", schema_names())
def test_each_is_a_valid_schema_that_needs_no_other(name: str) -> None:
    printed = json.loads(_schema(name).stdout)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed.items() >= {key: value for key, value in load_schema(name).items() if key != "$defs"}.items()


def test_a_value_can_be_checked_with_what_is_printed() -> None:
    """The options refer to the spec's schema, which is in there."""
    checker = jsonschema.Draft202012Validator(json.loads(_schema("layer_numerics").stdout))
    good: dict[str, Any] = {"NANLOG_SPEC": {"watch": [{"scope": {"types": ["Linear"]}, "tensors": ["output"]}]}}
    assert checker.is_valid(good)
    assert not checker.is_valid({"NANLOG_SPEC": {"watch": [{"scope": {"types": "Linear"}, "tensors": ["output"]}]}})
    records = jsonschema.Draft202012Validator(json.loads(_schema("layer_numerics.record").stdout))
    line = {**record(1), "rank": 0, "gpu": 0, "host": "here", "pid": 1}
    assert records.is_valid(line)
    assert not records.is_valid({**line, "step": "1"})


def test_an_unknown_name_is_wrong_usage_with_the_nearest() -> None:
    assert "did you mean receipt?" in _schema("reciept", code=2).stderr
    assert "layer_numerics.spec" in _schema("xyzzy", code=2).stderr


def test_a_collector_of_another_package_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "others.py").write_text(
        "from aorta_collectors.api import Collector\n"
        "class Beat(Collector):\n"
        "    name, output_subdir = 'beat', 'beat'\n"
        "    schema = {'type': 'object', 'properties': {'BEAT_EVERY': {'type': 'integer'}}}\n"
        "    plan = armed = verify = None\n"
    )
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aorta.collectors]\nbeat = others:Beat\nfaulty = no_such_module:X\n")
    env = {"PYTHONPATH": str(tmp_path)}
    run(["aorta-collectors", "schema", "beat", "-o", "beat.json"], tmp_path, env).ok()
    assert json.loads((tmp_path / "beat.json").read_text())["properties"] == {"BEAT_EVERY": {"type": "integer"}}
    listed = run(["aorta-collectors", "schema"], tmp_path, env).ok().out
    assert "cannot be loaded" in next(line for line in listed.splitlines() if line.startswith("faulty "))
