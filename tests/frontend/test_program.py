"""The front-end is invisible: a program run through it behaves as `python` itself would have run it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.frontend.compare import FRONTEND, PROBE, same, script
from tests.support import PYTHON, run


class TestForms:
    """Each form of program sees the same argv, path, names, flags and streams."""

    @pytest.mark.parametrize(
        "words",
        [
            ["probe.py", "a", "b c", "--flag", "-m", "-c"],
            ["scripts/probe.py", "a"],
            ["./scripts/../probe.py"],
            ["my scripts/probe it.py", "a b"],
            ["link.py", "through a link"],
            ["--", "-odd.py", "-u"],
            ["documented.py"],
            ["-m", "probe", "a", "-m", "b"],
            ["-m", "scripts.probe"],
            ["-m", "noisy", "a"],
            ["-m", "noisy.inner", "a"],
            ["-c", PROBE, "a", "-c", "b"],
            ["-c", ""],
            ["application", "a"],
            ["application/", "a"],
            ["application.pyz", "a"],
        ],
        ids=lambda words: " ".join(words)[:30] or "nothing",
    )
    def test_a_program_sees_what_python_would_show_it(self, programs: Path, words: list[str]) -> None:
        assert same(programs, words).code == 0

    def test_an_absolute_path_is_as_good_as_a_relative_one(self, programs: Path) -> None:
        same(programs / "scripts", [str(programs / "my scripts" / "probe it.py"), "a"])

    def test_a_zip_application_needs_no_suffix(self, programs: Path) -> None:
        assert same(programs, ["application-tool", "a"]).code == 0

    def test_a_compiled_script_runs(self, programs: Path) -> None:
        run([PYTHON, "-c", "import py_compile; py_compile.compile('probe.py', 'compiled.pyc')"], programs).ok()
        assert same(programs, ["compiled.pyc", "a"]).code == 0

    @pytest.mark.parametrize(
        "flags",
        [
            ("-I",),
            ("-E", "-s"),
            ("-u", "-O", "-B", "-W", "error", "-X", "utf8"),
            pytest.param(("-P",), marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P is 3.11's")),
        ],
        ids=" ".join,
    )
    @pytest.mark.parametrize("words", [["scripts/probe.py", "a"], ["application", "a"], ["-c", PROBE, "a"]])
    def test_flags_of_python_keep_their_meaning(self, programs: Path, flags: tuple[str, ...], words: list[str]) -> None:
        assert same(programs, words, flags).code == 0

    def test_a_module_runs_under_flags_that_keep_the_working_directory_out(self, programs: Path) -> None:
        for flag in ("-I", "-P") if sys.version_info >= (3, 11) else ("-I",):
            assert same(programs, ["-m", "this"], (flag,)).code == 0
            assert same(programs, ["-m", "probe"], (flag,)).code == 1

    @pytest.mark.parametrize("shadow", ["tokenize", "typing", "traceback"])
    def test_a_module_of_the_working_directory_takes_the_place_of_none_that_the_front_end_needs(
        self, programs: Path, shadow: str
    ) -> None:
        """The directory of a script is in its path, the working directory is not."""
        script(programs / f"{shadow}.py", "raise SystemExit('the wrong module')\n")
        assert same(programs, ["scripts/probe.py"]).code == 0

    def test_an_interactive_python_stays_interactive(self, tmp_path: Path) -> None:
        script(tmp_path / "ends.py", "x = 1\nraise ValueError('then look around')\n")
        same(tmp_path, ["ends.py"], ("-i", "-q"))

    def test_encodings_and_line_ends_of_a_script_are_read_as_python_reads_them(self, tmp_path: Path) -> None:
        (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nprint(ascii('é'))\n".encode("latin-1"))
        (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfprint('bom')\n")
        (tmp_path / "crlf.py").write_bytes(b"print('''a\r\nb''')\r\n")
        for name in ("latin.py", "bom.py", "crlf.py"):
            assert same(tmp_path, [name]).code == 0

    def test_main_has_the_kind_of_loader_that_python_gives_it(self, programs: Path) -> None:
        show = "print(getattr(__loader__, '__name__', None) or type(__loader__).__name__)"
        script(programs / "loader.py", show)
        for words in (["loader.py"], ["-m", "loader"], ["-c", show]):
            same(programs, words)

    def test_a_future_import_of_the_front_end_does_not_reach_the_program(self, tmp_path: Path) -> None:
        source = "def f(x: int): ...\nprint(f.__annotations__)\n"
        script(tmp_path / "plain.py", source)
        assert "<class 'int'>" in same(tmp_path, ["plain.py"]).out
        assert "<class 'int'>" in same(tmp_path, ["-c", source]).out


class TestAfterMain:
    """__main__ outlives the program's last line, as it does in python."""

    GLOBALS = textwrap.dedent("""
        import atexit, pickle, sys, threading, time
        class Point:
            pass
        VALUE = {"kept": True}
        def late(name):
            time.sleep(0.05)
            again = pickle.loads(pickle.dumps(Point()))
            print(name, VALUE, sys.modules["__main__"].VALUE is VALUE, type(again), flush=True)
        atexit.register(late, "handler")
        threading.Thread(target=late, args=("thread",)).start()
        """)

    @pytest.mark.parametrize("words", [["late.py"], ["-m", "late"], ["-c", GLOBALS], ["application"]])
    def test_threads_and_exit_handlers_use_the_programs_globals(self, tmp_path: Path, words: list[str]) -> None:
        script(tmp_path / "late.py", self.GLOBALS)
        script(tmp_path / "application" / "__main__.py", self.GLOBALS)
        assert same(tmp_path, words).out.count("True} True") == 2

    def test_threads_go_on_after_an_uncaught_exception(self, tmp_path: Path) -> None:
        script(tmp_path / "late.py", self.GLOBALS + "raise ValueError('main ends')\n")
        ran = same(tmp_path, ["late.py"])
        assert (ran.code, ran.out.count("True} True")) == (1, 2)

    def test_multiprocessing_finds_the_programs_functions(self, tmp_path: Path) -> None:
        source = """
            import multiprocessing, os, sys
            class Task:
                def __init__(self, n): self.n = n
            def work(task):
                return task.n, __name__, os.path.basename(__file__), sys.argv[1:]
            if __name__ == "__main__":
                for method in ("fork", "spawn"):
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(method, pool.map(work, [Task(1), Task(2)]))
            """
        script(tmp_path / "pool.py", source)
        for words in (["pool.py", "a"], ["-m", "pool", "a"]):
            assert same(tmp_path, words).code == 0

    def test_source_and_dataclasses_of_main_can_be_inspected(self, tmp_path: Path) -> None:
        source = """
            from __future__ import annotations
            import dataclasses, inspect, typing
            @dataclasses.dataclass
            class Point:
                x: int = 0
                kind: typing.ClassVar[str] = "point"
            def f(point: Point) -> int:
                return 1  # a comment
            print(Point(2), dataclasses.fields(Point)[0].name, typing.get_type_hints(f), f.__module__)
            try:
                print(inspect.getsource(f), inspect.getsource(Point), inspect.getmodule(f).__name__)
            except OSError as error:
                print(error)
            """
        script(tmp_path / "inspects.py", source)
        for words in (["inspects.py"], ["-m", "inspects"], ["-c", textwrap.dedent(source)]):
            assert same(tmp_path, words).code == 0

    def test_standard_input_is_the_programs(self, tmp_path: Path) -> None:
        script(tmp_path / "reads.py", "import sys\nprint(sys.stdin.read().upper())\n")
        for words in (["reads.py"], ["-m", FRONTEND, "reads.py"]):
            done = subprocess.run(
                [PYTHON, *words], cwd=tmp_path, input="abc", capture_output=True, text=True, timeout=60, check=True
            )
            assert done.stdout == "ABC\n"
