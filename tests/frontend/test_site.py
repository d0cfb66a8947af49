"""The environment route: a sitecustomize on PYTHONPATH arms Python children of what cannot be rewritten."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import zipapp
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.environment import bootstrap_directory
from aorta_collectors.launch.value import Launch
from tests.launch.started import started
from tests.support import PYTHON, TRAIN, Ran, run

# The interpreter behind the virtual environment: the one where a usercustomize is looked for, and where this
# package is not installed.
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)
SHOW = """
import json, os, sys
cached = sorted(sys.path_importer_cache)
print(json.dumps([sys.argv, sys.path, sorted(sys.modules), cached, sys.warnoptions, len(sys.meta_path)]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a module named torch, and a collector that says when it was armed."""
    files = {
        "torch.py": "print('torch is imported')\n",
        "collectors.py": "def first(started_in): print('first armed')\n"
        "def broken(started_in): raise ValueError('cannot be armed')\n",
        "uses_torch.py": "import torch\nprint('after')\n",
        "show.py": SHOW,
    }
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    return tmp_path


def environment(place: Path, *before: Path | str, arm: str = "collectors:first") -> dict[str, str]:
    """The environment of the route, as `Launch` makes it, with the user's own PYTHONPATH behind."""
    path = os.pathsep.join(str(entry) for entry in (*before, place))
    launch = Launch(("bash", "run.sh"), python_path=path).armed_with(arm)
    return {name: value for name, value in launch.env.items() if value is not None}


def with_and_without(place: Path, argv: list[str], *user: Path) -> tuple[Ran, Ran]:
    """A command with the bootstrap directory on PYTHONPATH, and with the user's PYTHONPATH alone."""
    path = os.pathsep.join(str(entry) for entry in (*user, place))
    return run(argv, place, environment(place, *user)), run(argv, place, {"PYTHONPATH": path})


class TestInvisible:
    def test_a_process_without_torch_is_what_it_was_but_for_the_watch(self, place: Path) -> None:
        for words in ([PYTHON, "-c", SHOW, "a"], [PYTHON, "-X", "dev", "-W", "error", "show.py"]):
            ours, bare = with_and_without(place, words)
            (*same, finders), (*same_, finders_) = map(_json, (ours.ok(), bare.ok()))
            assert (same, finders) == (same_, finders_ + 1)
            assert (ours.err, bare.err) == ("", "")

    def test_a_program_that_asks_for_torch_in_vain_is_told_so_as_usual(self, place: Path) -> None:
        (place / "torch.py").unlink()
        program = "import importlib.util as util\nfound = util.find_spec('torch')\nprint(found and found.origin)\n"
        (place / "asks.py").write_text(f"{program}import torch\n")
        ours, bare = with_and_without(place, [BASE_PYTHON, "asks.py"])
        assert (ours.out, ours.err, ours.code) == (bare.out, bare.err, bare.code)

    def test_a_working_directory_that_was_removed_hinders_nobody(self, place: Path) -> None:
        words = ["sh", "-c", f"mkdir gone; cd gone; rmdir ../gone; {BASE_PYTHON} -c 'import torch'"]
        ours, bare = with_and_without(place, words)
        assert bare.ok().out == "torch is imported\n"
        assert (ours.ok().out, ours.err) == (bare.out + "first armed\n", bare.err)

    def test_nothing_is_loaded_where_no_collector_is_asked_for(self, place: Path) -> None:
        env = {"PYTHONPATH": os.pathsep.join([bootstrap_directory(), str(place)])}
        for extra in ({}, {"AORTA_COLLECTORS_ARM": "collectors:first", "AORTA_COLLECTORS": "off"}):
            ran = run([PYTHON, "uses_torch.py"], place, {**env, **extra}).ok()
            assert (ran.out, ran.err) == ("torch is imported\nafter\n", "")
            loaded = _json(run([PYTHON, "show.py"], place, {**env, **extra}).ok())[2]
            assert not [name for name in loaded if name.startswith("aorta_collectors")]

    @pytest.mark.parametrize("entry", [bootstrap_directory(), bootstrap_directory() + "/", "relative"])
    def test_no_entry_is_left_in_the_path(self, place: Path, entry: str) -> None:
        entry = os.path.relpath(bootstrap_directory(), place) if entry == "relative" else entry
        env = {**environment(place), "PYTHONPATH": os.pathsep.join([entry, str(place), entry])}
        path = _json(run([PYTHON, "show.py"], place, env).ok())[1]
        assert str(place) in path
        assert not [item for item in path if os.path.realpath(item) == os.path.realpath(bootstrap_directory())]


class TestChaining:
    def test_the_users_sitecustomize_still_runs_and_is_the_one_in_sys_modules(self, place: Path) -> None:
        user = place / "user"
        user.mkdir()
        (user / "sitecustomize.py").write_text("print('custom', __name__, __file__, __spec__.name)\nMINE = 1\n")
        argv = [PYTHON, "-c", "import sitecustomize; print(sitecustomize.MINE)"]
        ours, bare = with_and_without(place, argv, user)
        assert (ours.out, ours.err, ours.code) == (bare.out, bare.err, bare.code)
        assert "custom sitecustomize" in ours.ok().out

    def test_a_sitecustomize_before_ours_in_the_path_wins_as_usual(self, place: Path) -> None:
        (place / "sitecustomize.py").write_text("print('custom')\n")
        env = {**environment(place), "PYTHONPATH": os.pathsep.join([str(place), bootstrap_directory()])}
        assert run([PYTHON, "-c", ""], place, env).ok().out == "custom\n"

    def test_a_sitecustomize_that_fails_is_reported_as_python_reports_it(self, place: Path) -> None:
        for source in ("raise ValueError('of the user')\n", "import nowhere_to_be_found\n"):
            (place / "sitecustomize.py").write_text(source)
            ours, bare = with_and_without(place, [PYTHON, "-c", "print('runs')"])
            assert (ours.out, ours.err, ours.code) == (bare.out, bare.err, bare.code)
            assert ours.out == "runs\n"

    def test_the_users_usercustomize_still_runs(self, place: Path) -> None:
        (place / "usercustomize.py").write_text("print('user', __name__)\n")
        (place / "sitecustomize.py").write_text("print('site', __name__)\n")
        for interpreter in (PYTHON, BASE_PYTHON):
            ours, bare = with_and_without(place, [interpreter, "-c", "print('program')"])
            assert (ours.out, ours.err, ours.code) == (bare.out, bare.err, bare.code)
            assert ours.out.startswith("site sitecustomize\n")

    def test_without_one_there_is_none(self, place: Path) -> None:
        ours, bare = with_and_without(place, [BASE_PYTHON, "-c", "import sitecustomize"])
        assert (ours.code, _last_line(ours.err)) == (bare.code, _last_line(bare.err))

    def test_a_virtual_environment_made_below_has_its_own(self, place: Path) -> None:
        """It has neither this package nor torch, but what lies on PYTHONPATH."""
        (place / "run.sh").write_text(
            textwrap.dedent("""
            set -e
            python -m venv --without-pip made
            (cd made/lib/python*/site-packages && echo 'print("of venv")' > sitecustomize.py)
            made/bin/python uses_torch.py
            made/bin/python -c pass
            rm -r made
            """)
        )
        ours, bare = with_and_without(place, ["bash", "run.sh"])
        assert bare.ok().out.splitlines() == ["of venv", "torch is imported", "after", "of venv"]
        assert ours.ok().out.splitlines() == ["of venv", "torch is imported", "first armed", "after", "of venv"]
        assert (ours.err, bare.err) == ("", "")

    def test_a_python_without_this_package_is_armed_too(self, place: Path) -> None:
        ran = run([BASE_PYTHON, "uses_torch.py"], place, environment(place)).ok()
        assert (ran.out, ran.err) == ("torch is imported\nfirst armed\nafter\n", "")


class TestArming:
    def test_every_python_that_imports_torch_below_a_shell_script_is_armed(self, place: Path) -> None:
        (place / "run.sh").write_text(
            textwrap.dedent(f"""
            set -e
            cd / && echo shell
            {PYTHON} -c 'print("helper")'
            {PYTHON} {place}/uses_torch.py
            {PYTHON} -c 'import os, sys; os.system(sys.executable + " {place}/uses_torch.py")'
            """)
        )
        ran = run(["bash", "run.sh"], place, environment(place)).ok()
        once = ["torch is imported", "first armed", "after"]
        assert ran.out.splitlines() == ["shell", "helper", *once, *once]
        assert ran.err == ""

    def test_a_collector_that_cannot_be_armed_says_so_in_one_line(self, place: Path) -> None:
        for arm, cause in (("collectors:broken", "ValueError: cannot be armed"), ("nowhere:x", "ModuleNotFoundError")):
            ran = run([PYTHON, "uses_torch.py"], place, environment(place, arm=arm)).ok()
            assert ran.out == "torch is imported\nafter\n"
            assert ran.err.count("\n") == 1
            assert ran.err.startswith(f"aorta-collectors: could not arm {arm}: {cause}")

    def test_a_zip_application_is_armed(self, place: Path) -> None:
        (place / "application").mkdir()
        (place / "application" / "__main__.py").write_text("import torch, sys\nprint(sys.path[0])\n")
        zipapp.create_archive(place / "application", place / "application.pyz")
        ours, bare = with_and_without(place, [PYTHON, "application.pyz"])
        assert ours.ok().out == bare.ok().out.replace("imported\n", "imported\nfirst armed\n")

    def test_a_program_that_takes_anothers_place_is_armed_as_well(self, place: Path) -> None:
        """It has the process's PID, and its environment says what had been armed there."""
        again = (
            "import os, sys, torch\nif len(sys.argv) == 1:\n    os.execl(sys.executable, 'python', 'again.py', 'x')\n"
        )
        (place / "again.py").write_text(again)
        for words in (["again.py"], ["-m", "aorta_collectors.frontend", "again.py"]):
            ran = run([PYTHON, "-u", *words], place, environment(place)).ok()
            assert (ran.out, ran.err) == (2 * "torch is imported\nfirst armed\n", "")

    def test_a_fork_that_imports_torch_itself_is_armed_once(self, place: Path) -> None:
        (place / "forks.py").write_text("import os\nif os.fork() == 0:\n    import torch\nelse:\n    os.wait()\n")
        for words in (["forks.py"], ["-m", "aorta_collectors.frontend", "forks.py"]):
            ran = run([PYTHON, "-u", *words], place, environment(place)).ok()
            assert (ran.out, ran.err) == ("torch is imported\nfirst armed\n", "")

    @pytest.mark.parametrize("flag", ["-S", "-I", "-E"])
    def test_a_python_that_looks_at_no_environment_works_unarmed(self, place: Path, flag: str) -> None:
        program = "import sys; sys.path.insert(0, '.'); import torch; print('after')"
        ours, bare = with_and_without(place, [PYTHON, flag, "-c", program])
        assert (ours.out, ours.err, ours.code) == (bare.out, bare.err, bare.code)
        assert ours.out == "torch is imported\nafter\n"

    def test_the_front_end_inside_an_armed_script_arms_once(self, place: Path) -> None:
        ran = run([PYTHON, "-m", "aorta_collectors.frontend", "uses_torch.py"], place, environment(place)).ok()
        assert ran.out == "torch is imported\nfirst armed\nafter\n"

    def test_the_standalone_logger_inside_an_armed_script_gives_verified_evidence(self, tmp_path: Path) -> None:
        """What a receipt of the environment route advises must work in the same script."""
        (tmp_path / "train.py").write_text(TRAIN)
        (tmp_path / "run.sh").write_text(f"{PYTHON} -m aorta_collectors.layer_numerics train.py\n")
        found = started(["bash", "run.sh"], tmp_path).captured()
        assert found.ran.err.count("attached layer hooks") == 1


def _last_line(text: str) -> str:
    return text.splitlines()[-1]


def _json(ran: Ran) -> list[Any]:
    return json.loads(ran.out.splitlines()[-1])
