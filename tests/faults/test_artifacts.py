"""Artifacts that are damaged, hostile or huge: the right verdict, bounded memory, and every other trial as it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from aorta_collectors.evidence.run import verify_run
from aorta_collectors.registry import load_collector
from tests.faults.spoiled import NAMES, Run
from tests.support import PYTHON, ROOT, run

#: Verifies one trial's artifacts with an eighth of the memory that the largest file here takes.
BOUNDED = """
import json, re, resource, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
limit = int(sys.argv[3]) << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from tests.faults.spoiled import Run

verdict, reason = Run(Path(sys.argv[2])).at_the_end()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([verdict, reason, int(peak[1]) >> 10]))
"""


def bounded(spoilt: Run, limit_mb: int = 900) -> tuple[str, str, int]:
    """Verdict, reason and the most memory in MB, in a process that can have no more than `limit_mb`."""
    ran = run([PYTHON, "-c", BOUNDED, str(ROOT), str(spoilt.run_dir), str(limit_mb)], spoilt.run_dir, timeout=170).ok()
    verdict, reason, peak_mb = json.loads(ran.out)
    return verdict, reason, peak_mb


def change_line(path: Path, index: int, change: Callable[[bytes], bytes]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[index] = change(lines[index])
    path.write_bytes(b"".join(lines))


def _field(text: bytes, other: bytes) -> Callable[[bytes], bytes]:
    def change(line: bytes) -> bytes:
        assert text in line
        return line.replace(text, other, 1)

    return change


def listen(path: Path) -> None:
    """Leave a socket. Its whole path would be too long for one."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


#: What a line becomes, and what is said of it.
LINES = {
    "a key twice": (_field(b'"bad": false', b'"bad": true, "bad": false'), 'has the key "bad" twice'),
    "a key twice, escaped": (
        _field(b'"bad": false', b'"b\\u0061d": true, "bad": false'),
        "twice in one object",
    ),
    "a key twice, spaced": (_field(b'"numel": 8', b'"numel" : 9, "numel"\t: 8'), 'has the key "numel" twice'),
    "a key twice, far inside": (_field(b'"numel": 8', b'"x": [{"y": {"z": 1, "z": 2}}], "numel": 8'), 'key "z" twice'),
    "NaN": (_field(b'"finite_max": ', b'"finite_max": NaN, "x": '), "line 5: "),
    "Infinity": (_field(b'"finite_max": ', b'"finite_max": -Infinity, "x": '), "line 5: "),
    "a number beyond float64": (_field(b'"finite_max": ', b'"finite_max": 1e999, "x": '), "infinity"),
    "a huge integer": (_field(b'"step": 1', b'"step": 1' + b"0" * 40), "line 5: step 1"),
    "an integer without end": (_field(b'"step": 1', b'"step": 1' + b"0" * 100_000), "line 5: "),
    "a negative integer": (_field(b'"nan_count": 0', b'"nan_count": -1'), "nan_count: must be an integer >= 0"),
    "deep nesting": (_field(b'"bad": false', b'"bad": ' + b"[" * 100_000 + b"]" * 100_000), "line 5: "),
    "a NUL byte": (_field(b"torch.float32", b"torch\x00float32"), "line 5: "),
    "a byte order mark": (lambda line: b"\xef\xbb\xbf" + line, "line 5: "),
    "UTF-16": (lambda line: line.decode().encode("utf-16"), "line 5: "),
    "Latin-1": (_field(b"torch.float32", b"torch\xe9float32"), "line 5: "),
    "two records": (lambda line: line.rstrip() + b" " + line, "line 5: "),
    "a carriage return alone": (lambda line: line.rstrip() + b"\r", "line 5: "),
    "no record": (lambda line: b'"text"\n', "line 5: must be an object"),
    "half of one": (lambda line: line[: len(line) // 2] + b"\n", "line 5: "),
    "another process's": (_field(b'"rank": 1', b'"rank": 0'), "is from process"),
}


@pytest.mark.parametrize("what", LINES)
def test_a_damaged_line_is_named(spoilt: Run, what: str) -> None:
    change, message = LINES[what]
    change_line(spoilt.records, 4, change)
    verdict, reason = spoilt.at_the_end()
    assert verdict == ("stale" if what == "another process's" else "invalid")
    assert reason.startswith("layers_rank1.jsonl: line 5")
    assert message in reason
    assert reason.isprintable()
    assert len(reason) < 4000
    assert spoilt.later() == (verdict, f"captured when the trial ended, but since then: {reason}")


SUMMARIES = {
    "a key twice": (b'{"rank": 1, "rank": 1,', 'has the key "rank" twice'),
    "NaN": (b'{"x": NaN,', "summary_rank1.json: "),
    "deep nesting": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b",", "summary_rank1.json: "),
    "nesting that orjson takes": (b'{"x": ' + b"[" * 900 + b"]" * 900 + b",", "nested deeper than the 100 levels"),
    "a world too large": (b'{"world_size": 1' + b"0" * 12 + b",", "twice"),
    "a byte order mark": (b"\xef\xbb\xbf{", "summary_rank1.json: "),
    "a NUL byte": (b"\x00{", "summary_rank1.json: "),
}


@pytest.mark.parametrize("what", SUMMARIES)
def test_a_damaged_summary_is_named(spoilt: Run, what: str) -> None:
    start, message = SUMMARIES[what]
    spoilt.summary.write_bytes(start + spoilt.summary.read_bytes()[1:])
    verdict, reason = spoilt.at_the_end()
    assert (verdict, reason.startswith("summary_rank1.json: ")) == ("invalid", True)
    assert message in reason
    assert spoilt.later()[0] == "invalid"


def test_a_number_of_ranks_that_nobody_has_is_refused_before_it_is_counted(spoilt: Run) -> None:
    spoilt.edit(spoilt.summary, world_size=10**12)
    verdict, reason, _ = bounded(spoilt)
    assert (verdict, reason) == ("invalid", f"summary_rank1.json: world_size: must be at most 1048576, got {10**12}")


def test_lone_surrogates_are_read_as_python_reads_them_and_shown_as_escapes(spoilt: Run) -> None:
    """Python writes the bytes of a directory's name that are no UTF-8 like that."""
    for line in range(len(spoilt.records.read_bytes().splitlines())):
        change_line(spoilt.records, line, _field(b"torch.float32", b"torch.\\udce9"))
    spoilt.edit(spoilt.summary, jsonl="/r\udce9sultats", warnings=["\udce9\x1b[31m"])
    verdict, reason = spoilt.at_the_end()
    assert verdict == "captured", reason
    assert r"\xe9\x1b[31m" in reason
    assert reason.isprintable()
    assert spoilt.later()[0] == "invalid"


def test_windows_line_ends_are_json_all_the_same_but_not_what_was_verified(spoilt: Run) -> None:
    spoilt.records.write_bytes(spoilt.records.read_bytes().replace(b"\n", b"\r\n"))
    assert spoilt.at_the_end()[0] == "captured"
    verdict, reason = spoilt.later()
    assert (verdict, reason.split()[0]) == ("invalid", "layers_rank1.jsonl")


class TestTornLine:
    """Of a process that died, it is where the evidence ends; of one that says it is complete, damage."""

    @staticmethod
    def tear(spoilt: Run, **changes: object) -> tuple[str, str]:
        spoilt.records.write_bytes(spoilt.records.read_bytes()[:-10])
        spoilt.edit(spoilt.summary, **changes)
        return spoilt.at_the_end()

    def test_of_a_process_that_was_killed(self, spoilt: Run) -> None:
        verdict, reason = self.tear(spoilt, status="running", records_written=20, ended_by=None)
        assert verdict == "incomplete"
        assert "layers_rank1.jsonl: line 40 is torn off: rank 1 died while it wrote, in step 4" in reason

    def test_of_one_whose_disk_was_full(self, spoilt: Run) -> None:
        verdict, reason = self.tear(spoilt, write_error="No space left on device", records_written=39)
        assert (verdict, "could not write on: No space left" in reason) == ("incomplete", True)

    def test_of_one_that_is_complete(self, spoilt: Run) -> None:
        assert self.tear(spoilt) == ("invalid", "layers_rank1.jsonl: line 40 is torn off")

    def test_damage_before_it_is_still_damage(self, spoilt: Run) -> None:
        change_line(spoilt.records, 2, lambda line: b"{}\n")
        verdict, reason = self.tear(spoilt, status="running", records_written=20)
        assert (verdict, "line 3: " in reason) == ("invalid", True)


class TestHuge:
    def test_half_a_gigabyte_of_records_is_read_to_its_end_in_little_memory(self, spoilt: Run) -> None:
        lines = spoilt.records.read_bytes()
        times = -(-(1 << 29) // len(lines))
        count = times * len(lines.splitlines())
        with spoilt.records.open("ab") as stream:
            for _ in range(times - 1):
                stream.write(lines)
        assert spoilt.records.stat().st_size >= 1 << 29
        spoilt.edit(spoilt.summary, records_written=count)
        verdict, _, peak_mb = bounded(spoilt)
        assert verdict == "captured"
        assert peak_mb < 250
        spoilt.records.unlink()

    def test_a_gigabyte_without_a_line_break_is_refused_at_its_beginning(self, spoilt: Run) -> None:
        with spoilt.records.open("ab") as stream:
            stream.truncate(1 << 30)  # the rest is zeros that take no space
        verdict, reason, peak_mb = bounded(spoilt)
        assert (verdict, peak_mb < 150) == ("invalid", True)
        assert "layers_rank1.jsonl: line 41 is longer than the 1048576 bytes that it can have" in reason

    def test_sparse_files_beside_the_evidence_take_no_time(self, spoilt: Run) -> None:
        for name in ("core", "dump.bin"):
            with (spoilt.artifacts / name).open("wb") as stream:
                stream.truncate(1 << 40)
        assert bounded(spoilt)[0] == "captured"
        assert spoilt.later()[0] == "captured"

    def test_a_summary_of_50_megabytes_is_read_and_the_receipt_stays_small(self, spoilt: Run) -> None:
        names = [f"encoder.layers.{index}.feed_forward" for index in range(1_400_000)]
        spoilt.edit(spoilt.summary, watched_names=names, unobserved_names=names[:1000], warnings=["x" * 100_000])
        assert spoilt.summary.stat().st_size > 50_000_000
        verdict, reason, peak_mb = bounded(spoilt)
        assert (verdict, peak_mb < 700, len(reason) < 4000) == ("captured", True, True)

    def test_a_larger_one_is_refused(self, spoilt: Run) -> None:
        with spoilt.summary.open("ab") as stream:
            stream.truncate((64 << 20) + 1)
        verdict, reason, peak_mb = bounded(spoilt)
        assert (verdict, peak_mb < 150) == ("invalid", True)
        assert f"summary_rank1.json: {(64 << 20) + 1} bytes, more than the {64 << 20} that it can have" in reason

    def test_too_many_large_ones_are_refused_before_one_is_read(self, spoilt: Run) -> None:
        for rank in range(2, 7):
            with (spoilt.artifacts / f"summary_rank{rank}.json").open("wb") as stream:
                stream.truncate(60 << 20)
        verdict, reason = spoilt.at_the_end()
        assert (verdict, reason.endswith(f"more than the {256 << 20} that are taken in")) == ("invalid", True)

    def test_a_smaller_one_that_would_fill_the_memory_is_refused(self, spoilt: Run) -> None:
        spoilt.summary.write_bytes(b'{"x": [' + b"{}," * 15_000_000 + b"0]}")
        verdict, reason, peak_mb = bounded(spoilt)
        assert (verdict, peak_mb < 300) == ("invalid", True)
        assert "more than the 4000000 that are taken in" in reason

    def test_tens_of_thousands_of_files_are_too_many(self, spoilt: Run) -> None:
        for index in range(50_100):
            os.close(os.open(spoilt.artifacts / f"{index}.tmp", os.O_CREAT | os.O_WRONLY))
        verdict, reason, peak_mb = bounded(spoilt)
        assert (verdict, peak_mb < 200) == ("invalid", True)
        assert reason.endswith("layer_numerics: more than 50000 files, the most that are looked at")
        assert spoilt.later()[0] == "invalid"
        shutil.rmtree(spoilt.artifacts)


class TestStrangeFiles:
    def test_what_is_no_file_beside_the_evidence_is_passed_over(self, spoilt: Run) -> None:
        os.mkfifo(spoilt.artifacts / "pipe")
        listen(spoilt.artifacts / "socket")
        (spoilt.artifacts / "device").symlink_to("/dev/zero")
        for name in (b"with space", b"quote'\"", b"line\nbreak", b"\x1b[31mred", b"\xff\xfe", b"\xe2\x80\xae"):
            Path(os.fsdecode(os.path.join(os.fsencode(spoilt.artifacts), name))).write_text("x")
        assert spoilt.at_the_end()[0] == "captured"
        assert spoilt.later()[0] == "captured"

    @pytest.mark.parametrize("kind", ["fifo", "socket", "device", "directory", "unreadable"])
    @pytest.mark.parametrize("which", ["records", "summary"])
    def test_one_in_the_place_of_evidence_is_no_evidence(self, spoilt: Run, kind: str, which: str) -> None:
        path: Path = getattr(spoilt, which)
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            listen(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "directory":
            path.mkdir()
        else:
            path.write_bytes(b"\x00" * 100)
        verdict, reason = spoilt.at_the_end()
        assert verdict in ("invalid", "incomplete")
        assert path.name in reason or "rank(s) 1 of 2" in reason or "rank 1" in reason
        assert spoilt.later()[0] == verdict

    def test_a_hard_link_is_the_file(self, spoilt: Run) -> None:
        kept = spoilt.run_dir.parent / "kept.jsonl"
        os.link(spoilt.records, kept)
        assert spoilt.later()[0] == "captured"
        assert kept.read_bytes() == spoilt.records.read_bytes()

    def test_a_file_that_grows_while_it_is_read_has_an_end(self, spoilt: Run) -> None:
        from aorta_collectors.evidence.directory import Anchor

        with Anchor(spoilt.run_dir).open(spoilt.artifacts) as artifacts:
            before = len(spoilt.records.read_bytes())
            read = 0
            for line in artifacts.lines(spoilt.records.name):
                read += len(line)
                with spoilt.records.open("ab") as stream:
                    stream.write(line * 100)
            assert read == before


class TestReceipts:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b'"verdict": "incomplete", "verdict":', 'has the key "verdict" twice'),
            (b'"metrics": {"x": NaN}, "verdict":', "unreadable receipt"),
            (b'"metrics": ' + b"[" * 100_000 + b"]" * 100_000 + b', "verdict":', "unreadable receipt"),
            (b'"details": {"x": ' + b"[" * 500 + b"]" * 500 + b'}, "verdict":', "unreadable receipt"),
            (b"\xff", "unreadable receipt"),
        ],
        ids=["a key twice", "NaN", "deep", "not so deep", "no UTF-8"],
    )
    def test_a_damaged_receipt_is_invalid(self, spoilt: Run, text: bytes, message: str) -> None:
        spoilt.receipt.write_bytes(spoilt.receipt.read_bytes().replace(b'"verdict":', text))
        verdict, reason = spoilt.later()
        assert verdict == "invalid"
        assert message in reason

    def test_a_huge_one_is_invalid(self, spoilt: Run) -> None:
        with spoilt.receipt.open("ab") as stream:
            stream.truncate(1 << 30)
        verdict, reason = spoilt.later()
        assert (verdict, "bytes, more than the" in reason) == ("invalid", True)

    @pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"{}", b"\xff", b"[]", b'{"config": 1, "trial_id": 1}'])
    def test_a_record_of_the_host_that_is_none_is_missed(self, spoilt: Run, content: bytes) -> None:
        spoilt.trial.with_suffix(".json").write_bytes(content)
        verdict, reason = spoilt.later()
        assert verdict == "invalid"
        assert "the record of this trial cannot be read: trial_d0_m0_t1.json is no record of a trial" in reason

    @pytest.mark.parametrize("content", [b"{", b'{"requested": 1}', b'{"requested": [{"cell": "a"}]}', b"[" * 100_000])
    def test_a_damaged_ledger_is_told_beside_the_trials(self, spoilt: Run, content: bytes) -> None:
        (spoilt.run_dir / "evidence.json").write_bytes(content)
        findings = verify_run(spoilt.run_dir, NAMES, load_collector)
        assert [finding.verdict.value for finding in findings] == ["captured"] * 3 + ["invalid"]
        assert "what this sweep asked for is not known: " in findings[-1].reason
        assert "evidence.json" in findings[-1].reason


def test_the_command_says_it_all_and_no_control_character_gets_through(spoilt: Run) -> None:
    """Names and reasons that a program chose are escaped on a terminal, whatever the directory is called."""
    escape = "\x1b]0;owned\x07\x1b[2J\u202e\n0 of 0 requests satisfied"
    change_line(spoilt.records, 4, lambda line: json.dumps({"step": escape}).encode() + b"\n")
    other = spoilt.cell / "receipt_d0_m0_t2_layer_numerics.json"
    spoilt.edit(other, verdict="incomplete", reason=escape, metrics={"layer_numerics_first_bad_layer": escape})
    spoilt.edit(spoilt.cell / "receipt_d0_m0_t0_layer_numerics.json", artifacts=f"{escape}/x")
    place = spoilt.run_dir.parent / os.fsdecode(b"r\xffun 'of' \"mine\"\n\x1b[31m")
    spoilt.run_dir.rename(place)
    for stdout in ("utf-8", "ascii"):
        ran = run(["aorta-collectors", "verify", str(place)], place.parent, {"PYTHONIOENCODING": stdout})
        assert (ran.code, "Traceback" in ran.err) == (1, False)
        assert re.findall(r"[^\x20-\x7e\n]", ran.out + ran.err) == []
        assert ran.out.count("requests satisfied") > 1
        assert [line for line in ran.out.splitlines() if line.endswith("requests satisfied")] == [
            "0 of 3 requests satisfied"
        ]
        assert r"r\xffun 'of' " in ran.out
    ran = run(["aorta-collectors", "verify", "--json", str(place)], place.parent)
    assert [finding["verdict"] for finding in json.loads(ran.out)] == ["missing", "invalid", "incomplete"]
    ran = run(["aorta-collectors", "verify", str(place / "cells" / "cell0" / "training" / "trial_d0_m0_t2")], place)
    assert (ran.code, re.findall(r"[^\x20-\x7e\n]", ran.err)) == (1, [])
