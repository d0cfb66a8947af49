"""A table of what the engine names as origin in each case of the corpus: `python -m tests.corpus.score [case ...]`."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.corpus import runs
from tests.corpus.runs import Case, Place


def line(case: Case, folder: Path) -> tuple[bool, str]:
    directory = folder / case.name
    directory.mkdir()
    try:
        _, origin = runs.engine(case, directory)
    except Exception as error:
        return False, f"{case.name:34} {type(error).__name__}: {str(error).splitlines()[0]}"
    right = origin == case.truth
    return right, f"{case.name:34} {'right' if right else f'{said(origin)}   instead of   {said(case.truth)}'}"


def said(place: Place | None) -> str:
    return f"{place.stage} {place.module} step {place.step} rank {place.rank}" if place else "none"


def main(names: list[str]) -> None:
    cases = [case for case in runs.all_cases() if not names or case.name in names]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        right = 0
        for is_right, text in pool.map(lambda case: line(case, Path(folder)), cases):
            print(text, flush=True)
            right += is_right
    print(f"{right} of {len(cases)} right")


if __name__ == "__main__":
    main(sys.argv[1:])
