"""Run amd-aorta's own tests with this plugin installed and without it, and compare test by test.

    make host-suite

Downloads the host's source distribution, makes a virtual environment beside .venv, runs the tests under registry,
run, probe, triage and cli twice, and exits with 1 if any test ends differently. Takes some three minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = "amd-aorta==0.3.0"
SUITES = ("registry", "run", "probe", "triage", "cli")


def call(*argv: str | Path, cwd: Path | None = None, check: bool = True) -> None:
    subprocess.run([str(word) for word in argv], cwd=cwd, check=check)


def outcomes(python: Path, tests: Path, report: Path) -> dict[str, str]:
    """Test id to "passed", "failed", "error" or "skipped"."""
    folders = [f"tests/{suite}" for suite in SUITES]
    call(python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", f"--junitxml={report}", *folders,
         cwd=tests, check=False)  # fmt: skip
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        # Paths of temporary directories occur in some ids.
        name = re.sub(r"pytest-\d+", "pytest-N", f"{case.get('classname')}::{case.get('name')}")
        kinds = {child.tag for child in case}
        found[name] = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        venv = scratch / "venv"
        call(sys.executable, "-m", "venv", venv)
        python = venv / "bin" / "python"
        call(python, "-m", "pip", "install", "--quiet", "-r", ROOT / "requirements" / "cpu.txt")
        call(python, "-m", "pip", "install", "--quiet", "--no-deps", "torchrec==1.8.0")
        call(python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", scratch, HOST)
        archive = next(scratch.glob("amd_aorta-*.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        tests = next(path for path in scratch.glob("amd_aorta-*") if path.is_dir())
        without = outcomes(python, tests, scratch / "without.xml")
        call(python, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch, ROOT)
        call(python, "-m", "pip", "install", "--quiet", "--no-deps", next(scratch.glob("aorta_collectors-*.whl")))
        with_plugin = outcomes(python, tests, scratch / "with.xml")
    different = sorted(
        name for name in without.keys() | with_plugin.keys() if without.get(name) != with_plugin.get(name)
    )
    for name in different:
        print(f"{name}: without {without.get(name, 'absent')}, with {with_plugin.get(name, 'absent')}")
    print(f"{len(without)} tests, {len(different)} different with the plugin installed")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
