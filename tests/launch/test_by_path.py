"""The front-end as a file: a program that it runs sees what plain python would show it, and it needs torch alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aorta_collectors.launch.names import frontend_file
from tests.frontend.compare import PROBE, script
from tests.support import PYTHON, Ran, run

# No children are to be armed: the comparison is of an environment without a collector.
FORMS = [
    ["scripts/probe.py", "a", "-m"],
    ["my scripts/probe it.py"],
    ["--", "-odd.py", "x"],
    ["-m", "noisy.inner", "a b"],
    ["-m", "noisy"],
    ["-c", PROBE, "-c", "x"],
    ["application"],
]
# python -I finds no module in the working directory.
CASES = [(flags, words) for flags in ((), ("-I",), ("-S",)) for words in FORMS if words[0] != "-m" or "-I" not in flags]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name in ("scripts/probe.py", "my scripts/probe it.py", "-odd.py", "noisy/inner.py", "application/__main__.py"):
        script(tmp_path / name)
    script(tmp_path / "noisy" / "__init__.py", "")
    script(tmp_path / "noisy" / "__main__.py")
    # Must not be taken for the standard library's, nor for ours.
    script(tmp_path / "tokenize.py", "raise SystemExit('the program\\'s own module was imported')\n")
    script(tmp_path / "aorta_collectors.py", "raise SystemExit('the program\\'s own module was imported')\n")
    return tmp_path


def both(cwd: Path, words: list[str], flags: tuple[str, ...], python: str = PYTHON) -> tuple[Ran, Ran]:
    return run([python, *flags, *words], cwd), run([python, *flags, frontend_file(), *words], cwd)


class TestTheProgramCannotTell:
    @pytest.mark.parametrize(("flags", "words"), CASES, ids=lambda part: " ".join(part)[:30] or "plain")
    def test_it_sees_what_python_shows_it(self, programs: Path, words: list[str], flags: tuple[str, ...]) -> None:
        bare, ours = both(programs, words, flags)
        assert bare.code == 0
        assert (ours.code, ours.out, ours.err) == (0, bare.out, bare.err)

    def test_python_that_puts_no_directory_first_has_none_taken_away(self, programs: Path) -> None:
        if sys.version_info < (3, 11):
            pytest.skip("python -P is 3.11's")
        bare, ours = both(programs, ["scripts/probe.py"], ("-P", "-u", "-O", "-W", "error"))
        assert (ours.out, ours.err) == (bare.out, bare.err)

    @pytest.mark.parametrize(
        "source",
        [
            "import helper\nhelper.fail()\n",
            "def broken(:\n",
            "import sys\nsys.exit(3)\n",
            "import sys\nsys.exit('text')\n",
            "raise KeyboardInterrupt\n",
        ],
    )
    def test_it_fails_in_pythons_words(self, programs: Path, source: str) -> None:
        script(programs / "helper.py", "def fail():\n    raise OSError(2, 'gone', 'file')\n")
        script(programs / "fails.py", source)
        bare, ours = both(programs, ["fails.py"], ())
        assert bare.code != 0
        assert (ours.code, ours.out, ours.err) == (bare.code, bare.out, bare.err)

    def test_a_file_that_is_not_there_is_reported_as_usual(self, programs: Path) -> None:
        bare, ours = both(programs, ["nowhere.py"], ())
        assert (ours.code, ours.err) == (2, bare.err)


class TestArming:
    def test_it_arms_the_program_and_the_processes_below_and_keeps_their_path(self, tmp_path: Path) -> None:
        """As in a container: neither the package nor what arms children is on the path, and the image has its own."""
        script(tmp_path / "lib" / "torch.py", "")
        script(tmp_path / "lib" / "collectors.py", "def arm(started_in): print('armed', started_in)\n")
        source = """
            import os, subprocess, sys
            import torch
            print(os.environ["PYTHONPATH"].split(os.pathsep)[1:])
            subprocess.run([sys.executable, "-c", "import sys, torch; print(sys.path[1])"], check=True)
            """
        script(tmp_path / "starts.py", source)
        env = {"AORTA_COLLECTORS_ARM": "collectors:arm", "PYTHONPATH": str(tmp_path / "lib")}
        ran = run([PYTHON, "-u", frontend_file(), "starts.py"], tmp_path, env).ok()
        lib = str(tmp_path / "lib")
        assert ran.out.splitlines() == [f"armed {tmp_path}", str([lib]), f"armed {tmp_path}", lib]
        off = run([PYTHON, frontend_file(), "starts.py"], tmp_path, {**env, "AORTA_COLLECTORS": "off"}).ok()
        assert off.out.splitlines() == ["[]", lib]

    def test_a_python_that_is_too_old_runs_the_program_bare_and_says_so(self, programs: Path) -> None:
        """There is no old interpreter here; this one is told that it is."""
        told = "import runpy, sys; sys.version_info = (3, 8, 1, 'final', 0); sys.argv = sys.argv[1:]; "
        told += "sys.path.insert(0, 'x'); runpy.run_path(sys.argv[0], run_name='__main__')"
        words = ["scripts/probe.py", "a b"]
        ran = run([PYTHON, "-u", "-c", told, frontend_file(), *words], programs)
        bare = run([PYTHON, "-u", *words], programs)
        assert json.loads(ran.out) == json.loads(bare.out)
        assert ran.err == f"aorta-collectors: could not arm: this is Python 3.8, older than 3.10\n{bare.err}"
