"""Check the engine on a GPU: `python tests/gpu/check.py`. Needs torch, with the Triton that comes with it, and no more.

Prints one line a check, PASS or FAIL, and a table of what the engine costs; the exit code is 1 if a check failed. The
stock logger is measured beside where `aorta` can be imported.

    --only results,waiting,graphs,steps,speed,cost    these parts alone
    --layers N, --width N                       of the stack of transformer blocks, 24 and 2048 by default
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tests.gpu import cost, graphs, results, speed, steps, waiting  # noqa: E402


class Report:
    """Prints checks as they are made.

    Attributes:
        failed: Names of checks that did not hold.
        table: (what, how much) lines for the end.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.table: list[tuple[str, str]] = []

    def check(self, name: str, function: Callable[[], str | None]) -> None:
        """Run a check, which returns what it saw and raises where that is not what it should be."""
        start = time.perf_counter()
        try:
            seen = function()
        except Exception as error:
            self.failed.append(name)
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"FAIL {name}: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})", flush=True
            )
            return
        print(f"PASS {name}{': ' + seen if seen else ''} ({time.perf_counter() - start:.1f} s)", flush=True)

    def measured(self, what: str, how_much: str) -> None:
        self.table.append((what, how_much))


def main() -> int:
    parts = {
        "results": results,
        "waiting": waiting,
        "graphs": graphs,
        "steps": steps,
        "speed": speed,
        "cost": cost,
    }
    parser = argparse.ArgumentParser(description="Check the engine on a GPU.")
    parser.add_argument("--only", default=",".join(parts), help="parts, with commas in between")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU that torch can use")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    report = Report()
    for name in options.only.split(","):
        parts[name].run(report, options)
    width = max((len(what) for what, _ in report.table), default=0)
    for what, how_much in report.table:
        print(f"{what:<{width}}  {how_much}")
    print(f"{len(report.failed)} failed" if report.failed else "all passed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
