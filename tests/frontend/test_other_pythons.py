"""Every Python below a trial meets the site file, of whatever version; one that is not armed runs as it does alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aorta_collectors.launch.names import frontend_file
from tests.frontend.test_site import environment
from tests.support import run

OLDEST = (3, 10)
NAMES = ("python2", "python2.7", *(f"python3.{minor}" for minor in range(6, 16)), "pypy", "pypy3")
#: Both Pythons understand it.
SHOW = """
import sys
print([sys.path, "sitecustomize" in sys.modules, sys.argv])
import torch
"""


def others() -> dict[str, tuple[int, int]]:
    """Interpreters on this machine, with their versions: those on PATH, and those that pyenv has."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
        found += [str(path) for path in Path(root, "versions").glob("*/bin/python")]
    versions = {}
    for path in found:
        ask = [path, "-S", "-c", "import sys; print('%d %d' % sys.version_info[:2])"]
        told = subprocess.run(ask, capture_output=True, text=True, check=False)
        if told.returncode == 0:  # a shim may stand for a version that is not chosen
            major, minor = told.stdout.split()
            versions[path] = int(major), int(minor)
    return versions


def test_every_other_python_runs_as_it_would_have_and_says_why_it_is_not_armed(tmp_path: Path) -> None:
    pythons = others()
    if not pythons:
        pytest.skip("there is no other Python on this machine")
    (tmp_path / "torch.py").write_text("print('torch is imported')\n")
    (tmp_path / "collectors.py").write_text("def first(started_in): print('first armed')\n")
    (tmp_path / "show.py").write_text(SHOW)
    user = tmp_path / "user"
    user.mkdir()
    (user / "sitecustomize.py").write_text("print('custom ' + __name__)\n")
    for python, version in pythons.items():
        for before in ((), (user,)):
            path = os.pathsep.join(str(entry) for entry in (*before, tmp_path))
            bare = run([python, "show.py"], tmp_path, {"PYTHONPATH": path}).ok()
            ours = run([python, "show.py"], tmp_path, environment(tmp_path, *before)).ok()
            if version >= OLDEST:
                assert (ours.out, ours.err) == (bare.out + "first armed\n", bare.err)
                continue
            why = f"this is Python {version[0]}.{version[1]}, older than 3.10\n"
            said = f"aorta-collectors: could not arm: RuntimeError: {why}" if version >= (3, 0) else ""
            assert (ours.out, ours.err) == (bare.out, said)
            # As in a container with such a Python, which is started twice.
            by_path = run([python, "-u", frontend_file(), "show.py"], tmp_path, {"PYTHONPATH": path}).ok()
            assert by_path.out == bare.out if not before else by_path.out.endswith(bare.out)
            assert by_path.err == f"aorta-collectors: could not arm: {why}"


def test_another_interpreter_inside_the_process_starts_as_usual(tmp_path: Path) -> None:
    pytest.importorskip("_xxsubinterpreters")
    code = 'import _xxsubinterpreters as inner\ninner.run_string(inner.create(), "import sys; print(len(sys.path))")\n'
    (tmp_path / "inner.py").write_text(code)
    bare = run(["python", "inner.py"], tmp_path, {"PYTHONPATH": str(tmp_path)}).ok()
    ours = run(["python", "inner.py"], tmp_path, environment(tmp_path)).ok()
    assert (ours.out, ours.err) == (bare.out, bare.err)
