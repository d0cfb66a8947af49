"""Through the front-end, a program fails as it fails in python: exit codes and stderr, tracebacks to the letter."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.frontend.compare import FRONTEND, same, script
from tests.support import PYTHON, run


class TestFailures:
    """Exit codes and stderr, tracebacks to the letter."""

    @pytest.mark.parametrize(
        "words",
        [
            ["nowhere.py"],
            ["no where/at all.py"],
            ["-m", "nowhere"],
            ["-m", "noisy.nowhere"],
            ["-m", "scripts"],
            ["-m", "json.nowhere"],
            ["my scripts"],
        ],
        ids=" ".join,
    )
    def test_a_missing_program_fails_in_pythons_words(self, programs: Path, words: list[str]) -> None:
        assert same(programs, words).code in (1, 2)

    def test_an_unreadable_script_fails_in_pythons_words(self, programs: Path) -> None:
        (programs / "loop.py").symlink_to("loop.py")
        assert same(programs, ["loop.py"]).code == 2

    @pytest.mark.parametrize(
        "source",
        [
            "def broken(:\n",
            "if True:\nprint(1)\n",
            "x = 'never closed\n",
            "import helper\nhelper.fail()\n",
            "def inner():\n    return 1 / 0\n\ndef outer():\n    inner()\n\nouter()\n",
            "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('next') from error\n",
            "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('meanwhile')\n",
            "import broken_module\n",
            "class Odd(BaseException):\n    pass\n\nraise Odd('not an Exception')\n",
            "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Mute\n",
            "assert 1 == 2, 'text'\n",
            "raise ModuleNotFoundError('mine')\n",
            "import sys\nsys.tracebacklimit = 0\n1 / 0\n",
            "raise GeneratorExit('late')\n",
        ],
    )
    def test_an_uncaught_exception_is_reported_as_python_reports_it(self, tmp_path: Path, source: str) -> None:
        script(tmp_path / "helper.py", "def fail():\n    raise OSError(2, 'gone', 'file')\n")
        script(tmp_path / "broken_module.py", "def f(:\n")
        script(tmp_path / "fails.py", source)
        for words in (["fails.py"], ["-m", "fails"], ["-c", source]):
            assert same(tmp_path, words).code == 1

    def test_a_failing_application_directory_shows_pythons_own_traceback(self, tmp_path: Path) -> None:
        script(tmp_path / "application" / "__main__.py", "def f():\n    1 / 0\n\nf()\n")
        assert same(tmp_path, ["application"]).code == 1

    @pytest.mark.parametrize(
        ("argument", "code"),
        [("", 0), ("None", 0), ("3", 3), ("'text'", 1), ("True", 1), ("('a', 1)", 1), ("-1", 255), ("256", 0)],
    )
    def test_sys_exit_means_what_it_means_in_python(self, tmp_path: Path, argument: str, code: int) -> None:
        source = f"import sys\nprint('before')\nsys.exit({argument})\n"
        script(tmp_path / "exits.py", source)
        for words in (["exits.py"], ["-m", "exits"], ["-c", source]):
            assert same(tmp_path, words).code == code

    @pytest.mark.parametrize(
        "source",
        [
            "import atexit, sys\natexit.register(sys.exit, 5)\n",
            "import atexit, os\natexit.register(os._exit, 5)\n",
            "import atexit\natexit.register(lambda: 1 / 0)\nraise ValueError('first')\n",
            "import os\nprint('x', flush=True)\nos._exit(9)\n",
            "import sys\nsys.stdout.close()\n",
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        ],
    )
    def test_the_end_of_the_process_is_the_programs(self, tmp_path: Path, source: str) -> None:
        script(tmp_path / "ends.py", source)
        same(tmp_path, ["ends.py"])

    @pytest.mark.parametrize(
        "source",
        [
            "raise KeyboardInterrupt\n",
            "import atexit, signal\natexit.register(print, 'handler ran')\nsignal.raise_signal(signal.SIGINT)\n",
        ],
    )
    def test_an_interrupt_ends_the_process_by_its_signal(self, tmp_path: Path, source: str) -> None:
        script(tmp_path / "interrupted.py", source)
        for words in (["interrupted.py"], ["-m", "interrupted"], ["-c", source]):
            assert same(tmp_path, words).code == -signal.SIGINT

    @pytest.mark.parametrize(
        "hook",
        [
            "print('hook', kind.__name__, value, trace.tb_frame.f_code.co_name, trace.tb_lineno)",
            "print(sys.exc_info(), value.__context__)",
            "raise RuntimeError('the hook fails')",
            "sys.exit(7)",
        ],
    )
    def test_the_programs_own_excepthook_is_called_as_python_calls_it(self, tmp_path: Path, hook: str) -> None:
        source = f"import sys\ndef hook(kind, value, trace):\n    {hook}\nsys.excepthook = hook\n1 / 0\n"
        script(tmp_path / "hooked.py", source)
        same(tmp_path, ["hooked.py"])

    def test_exit_handlers_find_the_exception_where_python_leaves_it(self, tmp_path: Path) -> None:
        source = """
            import atexit, sys, traceback
            def last():
                print(sys.last_type.__name__, sys.last_value, len(traceback.extract_tb(sys.last_traceback)))
            atexit.register(last)
            def f():
                raise ValueError("kept")
            f()
            """
        script(tmp_path / "last.py", source)
        assert "ValueError kept 2" in same(tmp_path, ["last.py"]).out

    def test_called_with_nothing_to_run_it_explains_itself(self, tmp_path: Path) -> None:
        for words in ([], ["-x"], ["-m"], ["-c"]):
            ran = run([PYTHON, "-m", FRONTEND, *words], tmp_path)
            assert ran.code == 2
            assert (
                ran.err
                == f"usage: python -m {FRONTEND} script.py [args...] | -m module [args...] | -c code [args...]\n"
            )
