"""Files of values: exactly what was observed, whatever the dtype, whole or not there at all."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from aorta_collectors.analysis.bundles import bundles_of
from aorta_collectors.analysis.bundles.listing import listed
from aorta_collectors.api import Verdict
from aorta_collectors.observe.process.place import Place
from aorta_collectors.tensors import observe
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.output import Output
from aorta_collectors.tensors.recorder import Recorder
from tests.tensors.left import armed
from tests.tensors.test_digest import NUMPY, OTHERS, bits


def test_each_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    dtypes = [*NUMPY, *OTHERS]
    tensors = {str(dtype): bits(3, 4, dtype=dtype) for dtype in dtypes}
    tensors["empty"] = torch.empty(0, 2)
    tensors["scalar"] = torch.tensor(2.5, dtype=torch.float16)
    tensors["complex scalar"] = torch.tensor(2.5 + 1j)
    tensors["transposed"] = torch.randn(3, 4).T
    with armed(tmp_path, keep="values") as left:
        for name, tensor in tensors.items():
            observe(tensor, name=name)
    for name, tensor in tensors.items():
        line = left.one(f"user:{name}")
        found = left.values(line)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        same = found.reshape(-1).contiguous().view(torch.uint8) if found.numel() else found
        expected = tensor.contiguous().reshape(-1).view(torch.uint8) if found.numel() else tensor
        assert torch.equal(same, expected), name
    verdict, reason = left.told({"keep": "values"})
    assert verdict is Verdict.CAPTURED
    assert reason.endswith("; rank(s) 0 called no model: only what the program observed itself is there")


def test_a_file_a_step_with_what_its_tensors_are(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    with armed(tmp_path, keep="values", points=("after_forward",), steps=("2-3",)) as left:
        for _ in range(4):
            model(torch.ones(1, 2))
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["values_rank0_step2.safetensors", "values_rank0_step3.safetensors"]
    key = "after_forward:(root).output#2"
    assert [(line["file"], line["key"]) for line in left.lines][1] == (names[1], key)
    with safe_open(tmp_path / names[1], "pt") as file:
        assert file.metadata()["step"] == "3"
        assert json.loads(file.metadata()[key]) == {"dtype": "float32", "shape": [1, 2]}
    assert left.summary["values"] == {"files": 2, "tensors": 2, "bytes": 16, "tensors_lost": 0}


def test_files_of_an_earlier_launch_are_gone(tmp_path: Path) -> None:
    (tmp_path / "values_rank0_step7.safetensors").write_bytes(b"old")
    (tmp_path / "values_rank1_step7.safetensors").write_bytes(b"another rank's")
    with armed(tmp_path):
        observe(torch.ones(1), name="x")
    assert {path.name for path in tmp_path.glob("*.safetensors")} == {"values_rank1_step7.safetensors"}


def test_that_evidence_of_an_earlier_launch_is_replaced_is_told_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    place = Place(tmp_path / "tensors_rank0.jsonl", tmp_path / "summary_rank0.json", 0, 1)
    (tmp_path / "values_rank0_step7.safetensors").write_bytes(b"old")
    place.records.touch()
    Output(place, warnings.append)
    assert warnings == [], "made for this run"
    (tmp_path / "values_rank0_step7.safetensors").write_bytes(b"old")
    place.records.write_text("{}\n")
    Output(place, warnings.append)
    (told,) = warnings
    assert told.startswith(f"evidence of an earlier launch is replaced: {place.records} and 1 file(s) that go with it;")


def test_where_values_cannot_be_written_the_rest_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    place = Place(tmp_path / "tensors_rank0.jsonl", tmp_path / "summary_rank0.json", 0, 1)
    output = Output(place, warnings.append)

    def refuse(*args: object) -> None:
        Path(str(args[1])).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", refuse)
    recorder = Recorder(Config(keep="values"), output)
    for step in (1, 2):
        recorder.begin(step)
        recorder.take_user("x", torch.ones(2))
        recorder.end(step == 2)
    lines = [json.loads(line) for line in place.records.read_text().splitlines()]
    reason = "not written (OSError: [Errno 28] No space left on device)"
    assert [(line["file"], line["left_out"]) for line in lines] == [(None, reason)] * 2
    assert all(line["digest"] for line in lines)
    assert warnings == ["values are not written: OSError: [Errno 28] No space left on device"]
    assert [path.name for path in tmp_path.iterdir()] == ["tensors_rank0.jsonl"]
    assert output.fields()["values"]["tensors_lost"] == 2


def test_values_for_which_alone_there_is_no_room_are_missed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with armed(tmp_path / "tensors", keep="values") as left:
            observe(torch.zeros(1 << 19), name="large")
            observe(torch.zeros(1), name="small")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.suffix for path in left.directory.iterdir()].count(".safetensors") == 0
    verdict, reason = left.told({"keep": "values"})
    assert verdict is Verdict.INCOMPLETE
    assert reason.startswith("rank 0: values of 2 tensor(s) are not written (SafetensorError: ")
    assert "File too large" in reason
    assert str(tmp_path) not in reason


def test_what_was_asked_for_and_never_came_is_told_here_and_by_the_list(tmp_path: Path) -> None:
    with armed(tmp_path, scope=("blok*",), steps=("1", "100")) as left:
        nn.Linear(3, 3)(torch.ones(1, 3)).sum().backward()
    told = ["scope: no module matches blok*", "steps: 100 asked for, and 1 step(s) ran"]
    assert left.summary["warnings"] == told
    found = listed(bundles_of(tmp_path))
    assert (found.names, [note.partition(": ")[2] for note in found.notes]) == ([], told)
