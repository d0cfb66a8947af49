"""A malformed NANLOG_SPEC, one for each kind of rule: a sweep refuses it at load, a program alone trains on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.support import aorta, probe_recipe
from tests.support import PYTHON, TRAIN, records, run, summary

pytestmark = pytest.mark.sweep

SPECS = {
    "no JSON": ("{'watch': []}", "must be JSON text: "),
    "a key given twice": ('{"sample_every": 1, "sample_every": 2}', "key sample_every is given twice"),
    "an unknown key": ('{"folow": [{"tensor": "x"}]}', "unknown key folow; did you mean follow?"),
    "a wrong type": ('{"watch": {"tensors": ["output"]}}', "watch: must be "),
    "a number out of its limits": ('{"sample_every": 0}', "sample_every: must be an integer >= 1, got 0"),
    "an unknown word": ('{"watch": [{"tensors": ["outputs"]}]}', "watch[0].tensors[0]: must be one of "),
    "nothing to match": ('{"watch": [{"scope": {}, "tensors": ["output"]}]}', "watch[0].scope: must name modules"),
    "a follow of nothing": ('{"follow": [{"tensor": "x", "stages": false}]}', "follow[0]: captures nothing"),
    "options that exclude each other": (
        '{"follow": [{"tensor": "x", "pipeline": false, "stages": true, "scope": {"types": ["Linear"]}}]}',
        "follow[0].stages: pipeline: false excludes stages: true",
    ),
    "a range with its ends exchanged": (
        '{"follow": [{"tensor": "x", "bounds": [60, 0]}]}',
        "follow[0].bounds: lo must not be above hi, got [60, 0]",
    ),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints when nobody watches it."""
    directory = tmp_path_factory.mktemp("bare")
    return run([PYTHON, "-c", TRAIN], directory).ok().out


@pytest.mark.parametrize("kind", SPECS)
def test_a_sweep_refuses_it_before_anything_has_run(kind: str, tmp_path: Path) -> None:
    spec, message = SPECS[kind]
    recipe = probe_recipe(tmp_path / "r.yaml", collect={"layer_numerics": {"NANLOG_SPEC": spec}})
    command = ["python", "-c", "open('ran', 'w')"]
    ran = aorta(["sweep", "run", "--recipe", str(recipe), "--output", "out", "--", *command], tmp_path)
    assert ran.code == 1
    assert ran.out == ""
    assert "Traceback" not in ran.err
    (line,) = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    assert line.startswith(f"Error: recipe.collect.layer_numerics.NANLOG_SPEC: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["r.yaml"]


#: One that each of those who look at a spec refuses: the decoder, its schema, and what looks at several keys at once.
ALONE = ["no JSON", "an unknown word", "options that exclude each other"]


@pytest.mark.parametrize("kind", ALONE)
def test_alone_it_warns_takes_the_flat_variables_and_leaves_the_program_be(
    kind: str, bare: str, tmp_path: Path
) -> None:
    spec, message = SPECS[kind]
    env = {"NANLOG_DIR": "out", "NANLOG_SPEC": spec, "NANLOG_CHANNELS": "weight", "NANLOG_SAMPLE_EVERY": "1"}
    ran = run([PYTHON, "-m", "aorta_collectors.layer_numerics", "-c", TRAIN], tmp_path, env).ok()
    assert ran.out == bare
    (warning,) = [line for line in ran.err.splitlines() if "WARNING" in line]
    assert f"WARNING: NANLOG_SPEC: {message}" in warning
    assert warning.endswith("; using the flat NANLOG_* variables instead")
    found = summary(tmp_path / "out")
    assert (found["spec_present"], found["spec_applied"], found["spec_source"]) == (True, False, "NANLOG_SPEC")
    assert found["spec_error"].startswith(message)
    assert {line["role"] for line in records(tmp_path / "out" / "layers_rank0.jsonl")} == {"weight"}
