"""`investigate open`: artifacts that were there before, looked at where they lie, and recorded as such."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from aorta_collectors.cli.printed import printed
from aorta_collectors.errors import CollectorsError, OptionsError
from aorta_collectors.investigate.existing import open_existing
from aorta_collectors.investigate.files import Investigation
from aorta_collectors.investigate.running import run_investigation
from aorta_collectors.investigate.verify.whole import verify_investigation
from tests.investigate.made import MIB, layers, memory
from tests.investigate.support import investigate


@pytest.fixture
def sides(tmp_path: Path) -> dict[str, Path]:
    """Two directories, as TENSORS_DIR names them."""
    found = {"baseline": tmp_path / "a", "candidate": tmp_path / "b"}
    for index, path in enumerate(found.values()):
        layers(1, 2 + index)(path)
    return found


def opened(tmp_path: Path, paths: dict[str, Path], kind: str = "values") -> Investigation:
    return open_existing(tmp_path / "root", "Did they differ?", "they agree", kind, paths)


class TestRoot:
    def test_nothing_is_copied_and_every_file_has_its_digest(self, tmp_path: Path, sides: dict[str, Path]) -> None:
        investigation = opened(tmp_path, sides)
        assert {path.name for path in investigation.root.iterdir()} == {"metadata.json", "journal.jsonl"}
        metadata = investigation.metadata
        assert (metadata["mode"], metadata["schedule"]) == ("existing artifacts", [])
        assert [(entry["variant"], entry["path"]) for entry in metadata["existing"]] == [
            ("baseline", str(sides["baseline"])),
            ("candidate", str(sides["candidate"])),
        ]
        names = ["summary_rank0.json", "tensors_rank0.jsonl", "values_rank0_step1.safetensors"]
        assert [sorted(entry["sha256"]) for entry in metadata["existing"]] == [names, names]

    def test_there_is_nothing_to_run(self, tmp_path: Path, sides: dict[str, Path]) -> None:
        root = opened(tmp_path, sides).root
        with (tmp_path / "log").open("w") as log, pytest.raises(CollectorsError, match="there is nothing to run"):
            run_investigation(root, log, only=None, allow_changes=False)

    def test_what_cannot_be_looked_at_is_refused_and_leaves_no_root(
        self, tmp_path: Path, sides: dict[str, Path]
    ) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(OptionsError, match=r"--candidate: .* has nothing that a collector"):
            opened(tmp_path, {**sides, "candidate": tmp_path / "empty"})
        summary = sides["candidate"] / "summary_rank0.json"
        content = summary.read_text()
        summary.write_text(content[:-20])
        with pytest.raises(OptionsError, match=r"--candidate: .* cannot be looked at: .*summary_rank0.json"):
            opened(tmp_path, sides)
        summary.write_text(content)
        with pytest.raises(OptionsError, match="same path as the baseline"):
            opened(tmp_path, {**sides, "candidate": sides["baseline"]})
        with pytest.raises(OptionsError, match="would change what is looked at"):
            open_existing(sides["baseline"] / "root", "a", "b", "values", sides)
        assert not (tmp_path / "root").exists()

    def test_a_root_that_exists_is_refused(self, tmp_path: Path, sides: dict[str, Path]) -> None:
        (tmp_path / "root").mkdir()
        with pytest.raises(CollectorsError, match="nothing is ever overwritten"):
            opened(tmp_path, sides)


class TestReport:
    def test_it_says_at_its_top_that_the_artifacts_were_there(self, tmp_path: Path, sides: dict[str, Path]) -> None:
        words = ("--question", "Did they differ?", "--criterion", "they agree", "--baseline", "a", "--candidate", "b")
        ran = investigate(tmp_path, "open", "root", *words).ok()
        assert ran.out.endswith("Next: aorta-collectors investigate report root\n")
        root = str(tmp_path / "root")
        assert "First divergence: after_forward:layers.1.output" in printed(["investigate", "report", root]).text
        text = (tmp_path / "root" / "REPORT.md").read_text()
        assert "**Existing artifacts.** Nothing was run for this question." in text.partition("## Question")[0]
        assert "order, warm-up and what else ran then are not known" in text
        assert f"tensors compare {sides['baseline']} {sides['candidate']}" in text
        verified = printed(["investigate", "verify", root])
        assert (verified.text, verified.code) == ("existing artifacts: all is as it was recorded\n", 0)

    def test_memory_and_a_nan_in_what_was_there(self, tmp_path: Path) -> None:
        from tests.investigate.test_report import report_of_root

        memory(8 * MIB)(tmp_path / "m")
        report = report_of_root(open_existing(tmp_path / "one", "a", "b", "memory", {"baseline": tmp_path / "m"}))
        assert "host rss goes from 108 MiB" in report.conclusions[0].text
        layers(1, math.nan)(tmp_path / "n")
        report = report_of_root(open_existing(tmp_path / "two", "a", "b", "finite", {"baseline": tmp_path / "n"}))
        assert report.conclusions[0].text.startswith(
            "NaN or Inf in the baseline. It was seen first, among what was observed, at step 1, after_forward:layers.1"
        )


class TestVerify:
    @pytest.mark.parametrize(("damage", "what"), [("changed", "was changed"), ("gone", "is not there")])
    def test_what_is_no_longer_as_it_was(self, tmp_path: Path, sides: dict[str, Path], damage: str, what: str) -> None:
        root = opened(tmp_path, sides).root
        path = sides["candidate"] / "summary_rank0.json"
        if damage == "changed":
            path.write_text(json.dumps({**json.loads(path.read_text()), "host": "there"}))
        else:
            path.unlink()
        faults = verify_investigation(root, printed, lambda done, total: None).faults
        assert (faults[0].place, faults[0].what) == (str(path), f"it {what} since the investigation was opened")
