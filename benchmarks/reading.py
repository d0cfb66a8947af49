"""How long the verbs take that read captures, beside jq and beside what the machine allows.

    python benchmarks/reading.py                        # 1,000,000 records: some minutes, 3 GB of disk
    python benchmarks/reading.py --records 100000       # half a minute
    python benchmarks/reading.py --gib 2                # memory on a file of 2 GB; no jq
    python benchmarks/reading.py --only first-bad --rounds 5 --json rows.json

Whole commands are timed, the start of Python, bash and jq included; ours and jq's alternate. jq's lines are printed;
they are those that benchmarks/jq.py explains, and both sides are held to name the same step and layer before anything
is timed. Nobody can be faster than a reader that does nothing: reading the bytes, their sha256, and decoding each line
with orjson on one core are measured on the same file in the same run.

A run that goes bad early is the best case for jq, which stops there, having read a thousandth of the file. first-bad
reads each file to its end, since ranks and attempts are put into one order by what stands in their records. That row
has no bar.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from benchmarks import jq
from benchmarks.captures import RECORDS_A_STEP, Template, make
from benchmarks.commands import alternate, answer, ours, shell
from benchmarks.estimate import Estimate
from benchmarks.row import Bar, Row

KEYS = ("first-bad", "compare", "limit", "trajectory", "layers", "query", "overlap", "report", "export", "memory")
_FASTER, _MOST_MB = Bar(5, at_most=False), Bar(1000)
#: By name of a capture: the part of its steps that is clean, and its ranks.
_CAPTURES: dict[str, tuple[float | None, int]] = {
    "late": (0.9, 1),
    "clean": (None, 1),
    "early": (0.001, 1),
    "ranks": (0.9, 8),
}
_LAYER = "blocks.12.feed_forward"
_BUFFER = 1 << 20


class Captures:
    """The captures of a benchmark, each made when it is first asked for."""

    def __init__(self, directory: Path, records: int) -> None:
        self.records = records
        self._directory = directory
        self._template = Template.of_a_run()

    def __getitem__(self, name: str) -> Path:
        path = self._directory / name
        bad_from, ranks = _CAPTURES[name]
        return path if path.exists() else make(path, self._template, self.records, bad_from=bad_from, ranks=ranks)

    def records_for(self, size: int) -> int:
        """How many records take so many bytes."""
        line = sum(map(len, self._template.clean)) / RECORDS_A_STEP
        return round(size / line)


class Benchmark:
    """Measures, and prints each row as soon as it is known.

    Args:
        place: Where commands write what they make.
        rounds: Runs of each command.
        with_jq: Whether to compare with jq.
    """

    def __init__(self, captures: Captures, place: Path, rounds: int, *, with_jq: bool) -> None:
        self._captures = captures
        self._place = place
        self._rounds = rounds
        self._with_jq = with_jq
        self._peaks: dict[str, float] = {}
        self._read_s: float | None = None

    def rows(self, key: str) -> Iterator[Row]:
        if key == "first-bad":
            yield from self._first_bad()
        elif key == "compare":
            sides = self._captures["late"], self._captures["clean"]
            what = "compare, of which one goes bad at nine tenths"
            yield self._against_jq("compare", what, ours("compare", *sides), jq.compare(*sides), _FASTER)
        elif key == "limit":
            yield from self._limit()
        elif key == "memory":
            yield self._memory()
        else:
            yield self._alone(key)

    def _first_bad(self) -> Iterator[Row]:
        kinds = {
            "late": ("bad from nine tenths on", jq.first_bad, _FASTER),
            "clean": ("nothing bad", jq.first_bad, _FASTER),
            "ranks": ("8 ranks, of which the last goes bad", jq.first_bad_of_ranks, _FASTER),
            "early": ("bad from the first thousandth on", jq.first_bad, None),
        }
        for name, (what, line, bar) in kinds.items():
            if self._with_jq or name == "late":
                directory = self._captures[name]
                command = ours("first-bad", directory)
                yield self._against_jq("first-bad", f"first-bad, {what}", command, line(directory), bar)

    def _against_jq(self, key: str, what: str, command: list[str], line: str, bar: Bar | None) -> Row:
        if not self._with_jq:
            return self._timed(key, what, command)
        # jq says with 4 that there is no output, of a capture in which nothing is bad.
        found = alternate({"ours": command, "jq": shell(line)}, self._rounds, allowed=(0, 3, 4))
        self._saw(key, found.peak_mb["ours"])
        numbers: dict[str, float | str] = {
            "ours_s": found.samples.median("ours"),
            "jq_s": found.samples.median("jq"),
            "ours_mb": found.peak_mb["ours"],
            "from": found.samples.told,
        }
        value = found.samples.ratio("jq", "ours")
        return Row(key, f"{what}: jq over ours", value, bar, numbers, note=line.replace(str(self._place), "."))

    def _alone(self, key: str) -> Row:
        directory = self._captures["late"]
        commands = {
            "trajectory": ours("trajectory", directory, _LAYER),
            "layers": ours("layers", directory),
            "query": ours("query", directory, "SELECT count(*) FROM records"),
            "overlap": ours("overlap", directory),
            "report": ours("report", directory, "-o", self._place / "report.html"),
            "export": ours("export", directory, "--format", "parquet", "-o", self._place / "parquet", "--force"),
        }
        return self._timed(key, key, commands[key])

    def _timed(self, key: str, what: str, command: list[str]) -> Row:
        found = alternate({"ours": command}, self._rounds)
        self._saw(key, found.peak_mb["ours"])
        numbers: dict[str, float | str] = {"ours_mb": found.peak_mb["ours"], "from": found.samples.told}
        return Row(key, what, found.samples.estimate(lambda median: median("ours")), None, numbers, unit=" s")

    def _limit(self) -> Iterator[Row]:
        path = self._captures["late"] / "layers_rank0.jsonl"
        size = path.stat().st_size
        for what, seconds in limits(path).items():
            numbers: dict[str, float | str] = {"gb": size / 1e9, "gb_per_s": size / 1e9 / seconds}
            title = f"{what} once, on one core"
            yield Row("limit", title, Estimate(seconds, seconds, seconds), None, numbers, unit=" s")

    def _saw(self, key: str, peak_mb: float) -> None:
        self._peaks[key] = max(peak_mb, self._peaks.get(key, 0.0))

    def _memory(self) -> Row:
        most = max(self._peaks.values(), default=0.0)
        numbers: dict[str, float | str] = {f"{key}_mb": peak for key, peak in self._peaks.items()}
        what = "memory of the verb that had the most"
        return Row("memory", what, Estimate(most, most, most), _MOST_MB, numbers, unit=" MB")


def limits(path: Path) -> dict[str, float]:
    """Seconds to read a file and do nothing, to take its sha256, and to decode each of its lines."""
    seconds = {}
    began = time.perf_counter()
    with path.open("rb", buffering=0) as stream:
        while stream.read(_BUFFER):
            pass
    seconds["reading the bytes"] = time.perf_counter() - began
    began = time.perf_counter()
    with path.open("rb", buffering=0) as stream:
        digest = hashlib.sha256()
        while block := stream.read(_BUFFER):
            digest.update(block)
    seconds["their sha256"] = time.perf_counter() - began
    began = time.perf_counter()
    with path.open("rb") as stream:
        for line in stream:
            orjson.loads(line)
    seconds["decoding each line"] = time.perf_counter() - began
    return seconds


def agree(captures: Captures) -> None:
    """Hold both sides to the same answers.

    Raises:
        RuntimeError: They differ.
    """
    for name, line in (("late", jq.first_bad), ("early", jq.first_bad), ("ranks", jq.first_bad_of_ranks)):
        told = json.loads(answer(ours("first-bad", "--json", captures[name])))
        (trial,) = told["cells"][0]["trials"]
        fault = next(one["fault"] for one in trial["processes"] if one["process"] == trial["earliest"])
        record = json.loads(answer(shell(line(captures[name]))))
        _same(name, (fault["step"], fault["layer"]), (record["step"], record["module_path"]))
    sides = captures["late"], captures["clean"]
    (pair,) = json.loads(answer(ours("compare", "--json", *sides), allowed=(3,)))["pairs"]
    place = pair["first_divergence"]["place"]
    differing = [line.lstrip("\t").split("\t")[:2] for line in answer(shell(jq.compare(*sides))).splitlines()]
    _same("compare", (str(place["step"]), True), (differing[0][0], [differing[0][0], place["layer"]] in differing))


def _same(what: str, found: object, by_jq: object) -> None:
    if found != by_jq:
        raise RuntimeError(f"{what}: {found}, but {by_jq} by jq")


def measure(
    directory: Path, records: int, size: int | None, rounds: int, wanted: Mapping[str, None], *, with_jq: bool
) -> Iterator[Row]:
    """The rows of the wanted keys, each as soon as it is known."""
    if with_jq:
        (directory / "small").mkdir()
        agree(Captures(directory / "small", 10_000))
    captures = Captures(directory, records)
    if size is not None:
        captures.records = captures.records_for(size)
    benchmark = Benchmark(captures, directory, rounds, with_jq=with_jq)
    for key in KEYS:
        if key in wanted:
            yield from benchmark.rows(key)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how_large = parser.add_mutually_exclusive_group()
    how_large.add_argument("--records", type=int, default=1_000_000, help="of each capture, to the next 100")
    how_large.add_argument("--gib", type=float, help="or more, of each capture; implies --without-jq")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each command")
    parser.add_argument("--only", default=",".join(KEYS), metavar="ROW[,ROW]", help=f"of {', '.join(KEYS)}")
    parser.add_argument("--without-jq", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    arguments = parser.parse_args()
    wanted = dict.fromkeys(arguments.only.split(","))
    if unknown := [key for key in wanted if key not in KEYS]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(KEYS)}")
    size = None if arguments.gib is None else int(arguments.gib * (1 << 30))
    with_jq = not (arguments.without_jq or size is not None)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for row in measure(Path(directory), arguments.records, size, arguments.rounds, wanted, with_jq=with_jq):
            rows.append(row)
            print(row.text(), flush=True)
    missed = [row.key for row in rows if row.met is False]
    bars = sum(row.bar is not None for row in rows)
    told = f"; MISSED: {', '.join(dict.fromkeys(missed))}" if missed else ""
    print(f"\n{bars - len(missed)} of {bars} bars met{told}")
    if arguments.json is not None:
        arguments.json.write_bytes(orjson.dumps([row.plain() for row in rows], option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
