"""`make demo`: one sweep through the stock aorta command, and what to read afterwards."""

import shutil
import subprocess
import sys
from pathlib import Path

RECIPES = Path(__file__).resolve().parent
OUTPUT = RECIPES.parent / "demo_results"
RUN = OUTPUT / "DEMO-OVERFLOW"


def main() -> int:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    bin_dir = Path(sys.executable).parent
    sweep = [
        str(bin_dir / "aorta"),
        *("sweep", "run", "--recipe", str(RECIPES / "dlrm_overflow.yaml")),
        *("--mitigations-file", str(RECIPES / "dlrm_overflow.mitigations.json")),
        *("--output", str(OUTPUT), "--", sys.executable, str(RECIPES / "dlrm_overflow.py")),
    ]
    print("$ aorta sweep run --recipe recipes/dlrm_overflow.yaml \\")
    print("    --mitigations-file recipes/dlrm_overflow.mitigations.json --output demo_results \\")
    print("    -- python recipes/dlrm_overflow.py\n", flush=True)
    # On stderr the host says which GPU tools this machine lacks; that is not the demo's subject.
    done = subprocess.run(sweep, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stderr)
        return done.returncode
    print("\nThe matrix (matrix.md):\n")
    matrix = (RUN / "matrix.md").read_text(encoding="utf-8").splitlines()
    print("\n".join(line for line in matrix if line.startswith("|")))
    collectors = (bin_dir / "aorta-collectors").relative_to(RECIPES.parent)
    run = RUN.relative_to(RECIPES.parent)
    print(f"\nWhere it starts, what led there, what removes it: {collectors} first-bad {run}")
    print(f"The same in a browser: {run}/report.html")
    print(f"Check the evidence again at any time: {collectors} verify {run}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
