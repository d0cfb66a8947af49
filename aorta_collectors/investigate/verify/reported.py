"""Whether the report is the one that the artifacts give: made again and compared, file by file and line by line."""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.errors import ArtifactError, CollectorsError
from aorta_collectors.evidence.directory import Anchor, DirectoryMissing
from aorta_collectors.investigate.digests import sha256_below
from aorta_collectors.investigate.evidence import EVIDENCE, Printer
from aorta_collectors.investigate.files import Investigation, Run
from aorta_collectors.investigate.report.listed import INDEX, criterion_in, index_of, read_index
from aorta_collectors.investigate.report.reading import digest_of
from aorta_collectors.investigate.report.writing import PAGE, REPORT, rendered
from aorta_collectors.investigate.verify.fault import Fault
from aorta_collectors.investigate.verify.moved import Roots, resolved, with_digests

_LONGEST = 120


def roots_of(root: Path) -> Roots:
    """Where the last report was written, and where it is; the same where none can be read."""
    try:
        before = read_index(root)["root"]
    except ArtifactError:
        before = str(root)
    return Roots(before if os.path.isabs(before) else str(root), str(root))


def report_faults(
    investigation: Investigation, runs: Sequence[Run], printer: Printer, progress: Callable[[float, float], None]
) -> Iterator[Fault]:
    """What the last report says and is no longer so.

    Args:
        runs: All attempts that can be read.
    """
    root = investigation.root
    again = f"`aorta-collectors investigate report {shlex.quote(str(root))}` writes it anew"
    try:
        index = read_index(root)
    except DirectoryMissing:
        yield Fault(str(root / REPORT), "there is no report", again)
        return
    except ArtifactError as error:
        yield Fault(str(root / EVIDENCE / INDEX), f"what the report was made of is not known: {error}", again)
        return
    roots = roots_of(root)
    newest = max((run.record["ended_at"] or run.record["started_at"] for run in runs), default="")
    if index["made_at"] < newest:
        yield Fault(str(root / REPORT), f"it was made at {index['made_at']}, and the last run ended at {newest}", again)
    texts = dict(_texts(root, index))
    yield from _written(root, index["written"], texts, again)
    cited = {roots.below(name): digest for name, digest in index["cited"].items()}
    yield from _cited(root, {name: digest for name, digest in cited.items() if name not in index["written"]}, again)
    yield from _made_again(investigation, {**index, "cited": cited}, texts, again, roots, printer, progress)


def _texts(root: Path, index: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of each file that was written and is there."""
    for name in index["written"]:
        path = root / name
        try:
            with Anchor(root).open(path.parent) as directory:
                yield name, directory.read(path.name).decode("utf-8", "replace")
        except ArtifactError:
            continue


def _written(root: Path, written: Mapping[str, str], texts: Mapping[str, str], again: str) -> Iterator[Fault]:
    for name, digest in written.items():
        if name not in texts:
            yield Fault(str(root / name), "it is not there, or cannot be read", again)
        elif hashlib.sha256(texts[name].encode()).hexdigest() != digest:
            yield Fault(str(root / name), "it was changed since it was written", again)
    for name in (REPORT, PAGE):
        if name not in written:
            yield Fault(str(root / name), "the report did not write it", again)
    unreadable: list[str] = []
    for name in sha256_below(root / EVIDENCE, (INDEX,), unreadable):
        if f"{EVIDENCE}/{name}" not in written:
            what = "the report did not write it"
            yield Fault(str(root / EVIDENCE / name), what, "What a person adds belongs into supplemental/")


def _cited(root: Path, cited: Mapping[str, str], again: str) -> Iterator[Fault]:
    for name, digest in cited.items():
        path = resolved(root, name)
        if path is None:
            yield Fault(name, "a path that the report cites leads out of the investigation", again)
            continue
        found = digest_of(path)
        if found != digest:
            what = f"the report cites it with sha256 {digest}, and it is {found}"
            yield Fault(str(path), what, "It was changed since the report; put it back, or see what changed it")


def _made_again(
    investigation: Investigation,
    index: Mapping[str, Any],
    texts: Mapping[str, str],
    again: str,
    roots: Roots,
    printer: Printer,
    progress: Callable[[float, float], None],
) -> Iterator[Fault]:
    root = investigation.root
    engine = f"aorta-collectors {__version__}"
    other = "" if index["engine"] == engine else f" (it was written by {index['engine']}, and this is {engine})"
    try:
        found = rendered(investigation, criterion_in(index), printer, progress, index["made_at"])
    except CollectorsError as error:
        yield Fault(str(root / REPORT), f"it cannot be made again: {error}", "Put right what cannot be read")
        return
    was = {name: roots.plain(text) for name, text in texts.items()}
    given = {name: with_digests(roots.plain(text), found.files, index["written"]) for name, text in found.files.items()}
    for name, text in given.items():
        if name not in index["written"]:
            yield Fault(str(root / name), f"the artifacts give it, and the report has not written it{other}", again)
        elif name in was and was[name] != text and name != PAGE:
            line, has, is_now = _first_difference(was[name], text)
            what = f"line {line} is not what the artifacts give{other}: it has {has}, and they give {is_now}"
            yield Fault(str(root / name), what, again)
    if PAGE in was and was[PAGE] != given[PAGE] and was.get(REPORT) == given[REPORT]:
        yield Fault(str(root / PAGE), f"it is not what the artifacts give{other}", again)
    for name in index["written"]:
        if name not in given:
            yield Fault(str(root / name), f"nothing gives it any more{other}", again)
    yield from _listed(root / EVIDENCE / INDEX, index, index_of(found.report, found.files), again, roots)


def _listed(
    path: Path, index: Mapping[str, Any], is_now: Mapping[str, Any], again: str, roots: Roots
) -> Iterator[Fault]:
    """What the index itself says: which command printed what, and what is cited."""
    was, now = (
        {each["file"]: {**each, "command": list(map(roots.below, each["command"]))} for each in of["evidence"]}
        for of in (index, is_now)
    )
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            told = f"it has {was.get(name)}, and they give {now.get(name)}"
            yield Fault(str(path), f"its entry of {name} is not what the artifacts give: {told}", again)
    for name in dict.fromkeys((*index["cited"], *is_now["cited"])):
        if name not in index["cited"]:
            yield Fault(str(path), f"it does not list {name}, which the report stands on", again)
        elif name not in is_now["cited"]:
            yield Fault(str(path), f"it lists {name}, which nothing stands on", again)


def _first_difference(a: str, b: str) -> tuple[int, str, str]:
    """The number of the first line that differs, and what both sides have from shortly before that."""
    for number, (left, right) in enumerate(itertools.zip_longest(a.splitlines(), b.splitlines()), 1):
        if left != right:
            same = itertools.takewhile(lambda both: both[0] == both[1], zip(left or "", right or "", strict=False))
            begins = max(0, sum(1 for _ in same) - _LONGEST // 4)
            return number, _shown(left, begins), _shown(right, begins)
    return a.count("\n") + 1, "another end", "none"


def _shown(line: str | None, begins: int) -> str:
    if line is None:
        return "no such line"
    before, after = "..." if begins else "", "..." if len(line) > begins + _LONGEST else ""
    return repr(f"{before}{line[begins : begins + _LONGEST]}{after}")
