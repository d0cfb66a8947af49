"""Finding bundles, and reading them with care: what is malformed is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from aorta_collectors.analysis.bundles import bundles_of, compare, memory_runs_of
from aorta_collectors.errors import ArtifactError
from tests.analysis.bundles.made import memory, point, tensor, tensors

ONE = torch.tensor([1.0, 2.0])


def lines_of(directory: Path) -> Path:
    return directory / "tensors_rank0.jsonl"


class TestFinding:
    def test_below_a_run_directory_in_a_directory_and_by_a_file(self, tmp_path: Path) -> None:
        trial = tmp_path / "run/cell/training/trial_d0_m0_t0"
        for rank in (0, 1):
            tensors(trial / "tensors", [tensor("a", ONE)], rank=rank, ranks=2)
        (trial.parent / "trial_d0_m0_t0.json").write_text("{}")
        places = [tmp_path / "run", tmp_path / "run/cell", trial, trial / "tensors", trial.with_suffix(".json")]
        for place in places:
            assert [(each.rank, each.stem, each.path) for each in bundles_of(place)] == [
                (0, "rank0", trial / "tensors"),
                (1, "rank1", trial / "tensors"),
            ]
        (alone,) = bundles_of(trial / "tensors/tensors_rank1.jsonl")
        assert (alone.rank, alone.manifest["world_size"]) == (1, 2)
        assert [each.name for each in alone.observations()] == ["after_forward:a.output"]

    def test_memory_beside_tensors(self, tmp_path: Path) -> None:
        memory(tmp_path / "trial_d0_m0_t0/memory", [point(1, "after_step", 5)])
        tensors(tmp_path / "trial_d0_m0_t0/tensors", [tensor("a", ONE)])
        assert len(bundles_of(tmp_path)) == 1
        (run,) = memory_runs_of(tmp_path)
        assert run.path.name == "memory"

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match=r"nothing was captured below .* TENSORS_DIR named"):
            bundles_of(tmp_path)

    def test_a_file_without_its_summary(self, tmp_path: Path) -> None:
        tensors(tmp_path, [tensor("a", ONE)])
        tensors(tmp_path, [tensor("a", ONE)], rank=1)
        (tmp_path / "summary_rank1.json").unlink()
        with pytest.raises(ArtifactError, match=r"tensors_rank1.jsonl has no summary_rank1.json beside it"):
            bundles_of(tmp_path / "tensors_rank1.jsonl")


class TestReading:
    @pytest.mark.parametrize(
        ("damage", "fault"),
        [
            (lambda line: line[:-1], "line 2: "),
            (lambda line: line.replace('"numel": 2', '"numel": -2'), "line 2: numel: must be an integer >= 0, got -2"),
            (lambda line: line.replace('"order": 1,', ""), "line 2: order is missing"),
            (lambda line: line.replace('"pid": 100', '"pid": 7'), "line 2 is of rank 0, process 7"),
            (lambda line: line.replace('"step": 1', '"step": 1, "step": 2'), "twice"),
        ],
    )
    def test_a_malformed_line_is_told_with_its_place(self, tmp_path: Path, damage: object, fault: str) -> None:
        tensors(tmp_path, [tensor(layer, ONE) for layer in "abc"])
        lines = lines_of(tmp_path).read_text().splitlines()
        lines[1] = damage(lines[1])  # type: ignore[operator]
        lines_of(tmp_path).write_text("".join(f"{line}\n" for line in lines))
        with pytest.raises(ArtifactError) as raised:
            list(bundles_of(tmp_path)[0].observations())
        assert "tensors_rank0.jsonl: line 2" in str(raised.value)
        assert fault in str(raised.value)

    def test_a_torn_last_line_is_noted_and_the_rest_is_read(self, tmp_path: Path) -> None:
        for side in "ab":
            tensors(tmp_path / side, [tensor(layer, ONE) for layer in "abc"], status="running", ended_by=None)
        text = lines_of(tmp_path / "b").read_text()
        lines_of(tmp_path / "b").write_text(text[:-30])
        found = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b"))
        assert (found.counts.matched, found.counts.missing_in_candidate) == (2, 1)
        killed = "rank 0: the process was killed, or still runs: the last of what it saw may be missing"
        assert found.pairs[0].notes == [
            f"baseline, {killed}",
            f"candidate, {killed}",
            "candidate, rank 0: tensors_rank0.jsonl ends in line 3, which is torn off",
        ]

    @pytest.mark.parametrize(
        ("ended_by", "notes"),
        [
            ("exit", []),
            ("os._exit 0", []),
            ("os._exit 3", ["candidate, rank 0: the program ended with os._exit 3, in step 7"]),
            ("ValueError: boom", ["candidate, rank 0: the program ended with ValueError: boom, in step 7"]),
        ],
    )
    def test_a_program_that_did_not_come_to_its_end_is_noted(
        self, tmp_path: Path, ended_by: str, notes: list[str]
    ) -> None:
        tensors(tmp_path / "a", [tensor("a", ONE)])
        tensors(tmp_path / "b", [tensor("a", ONE)], ended_by=ended_by, steps_seen=7)
        (pair,) = compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")).pairs
        assert pair.notes == notes

    def test_fewer_lines_than_the_summary_says_are_noted(self, tmp_path: Path) -> None:
        tensors(tmp_path, [tensor("a", ONE)], lines_written=3, lines_dropped=2)
        (pair,) = compare(bundles_of(tmp_path), bundles_of(tmp_path)).pairs
        assert "candidate, rank 0: tensors_rank0.jsonl has 1 line(s), and its summary says 3" in pair.notes
        assert "baseline, rank 0: there was no room for 2 line(s) in tensors_rank0.jsonl" in pair.notes

    def test_no_link_is_followed(self, tmp_path: Path) -> None:
        tensors(tmp_path / "there", [tensor("a", ONE, keep=True)])
        tensors(tmp_path / "here", [tensor("a", ONE + 1, keep=True)])
        lines_of(tmp_path / "here").unlink()
        lines_of(tmp_path / "here").symlink_to(lines_of(tmp_path / "there"))
        (bundle,) = bundles_of(tmp_path / "here")
        lines = bundle.lines
        assert list(lines) == []
        assert "there is no tensors_rank0.jsonl" in lines.notes[0]

    def test_values_behind_a_link_or_outside_are_not_read(self, tmp_path: Path) -> None:
        tensors(tmp_path / "there", [tensor("a", ONE, keep=True)])
        tensors(tmp_path / "here", [tensor("a", ONE + 1, keep=True)])
        (bundle,) = bundles_of(tmp_path / "here")
        (of,) = bundle.observations()
        assert of.file is not None
        assert bundle.values(of).tolist() == [2.0, 3.0]
        (tmp_path / "here" / of.file).unlink()
        (tmp_path / "here" / of.file).symlink_to(tmp_path / "there" / of.file)
        with pytest.raises(ArtifactError, match="a symbolic link, which is not followed"):
            bundle.values(of)
        with pytest.raises(ArtifactError, match="not a file name"):
            bundle.values(of._replace(file=f"../there/{of.file}"))

    def test_values_that_are_not_those_of_their_line(self, tmp_path: Path) -> None:
        tensors(tmp_path, [tensor("a", ONE, keep=True), tensor("b", ONE)])
        (bundle,) = bundles_of(tmp_path)
        of, without = bundle.observations()
        with pytest.raises(ArtifactError, match="were not kept"):
            bundle.values(without)
        with pytest.raises(ArtifactError, match=r"is torch.float32 of shape \[2\], and its line says float16"):
            bundle.values(of._replace(dtype="float16"))
        with pytest.raises(ArtifactError, match="no dtype float99"):
            bundle.values(of._replace(dtype="float99"))
        with pytest.raises(ArtifactError, match="nonsense"):
            bundle.values(of._replace(key="nonsense"))
        (tmp_path / of.file).write_bytes(b"no safetensors")  # type: ignore[arg-type,operator]
        with pytest.raises(ArtifactError, match=r"values_rank0_step1.safetensors"):
            bundle.values(of)

    @pytest.mark.parametrize(
        "dtype",
        [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128, torch.bool],
        ids=str,
    )
    def test_values_of_dtypes_of_all_kinds(self, tmp_path: Path, dtype: torch.dtype) -> None:
        value = torch.tensor([[1.0, 0.0, 2.0]]).to(dtype)
        tensors(tmp_path, [tensor("a", value, keep=True)])
        (bundle,) = bundles_of(tmp_path)
        (of,) = bundle.observations()
        found = bundle.values(of)
        assert (found.dtype, found.shape) == (dtype, value.shape)
        assert found.view(torch.uint8).tolist() == value.view(torch.uint8).tolist()

    def test_a_manifest_that_is_none(self, tmp_path: Path) -> None:
        tensors(tmp_path, [tensor("a", ONE)])
        (tmp_path / "summary_rank0.json").write_text(json.dumps({"rank": 0}))
        with pytest.raises(ArtifactError, match="nothing was captured"):
            bundles_of(tmp_path)
