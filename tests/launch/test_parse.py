"""Rewriting a command line: a corpus of what people write, and the property that no word of theirs is lost."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.launch.parse import find_target
from aorta_collectors.launch.value import ARM_VARIABLE, FRONTEND_MODULE, Launch, bootstrap_directory
from tests.support import BIN, PYTHON, run

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "corpus.json").read_text())
INSERTED = ("-m", FRONTEND_MODULE)
ARM = "some.collector:arm"

# Compares torchrun's own parser with the table: prints a line for each option whose kind differs.
TORCHRUN_OPTIONS = """
from torch.distributed.run import get_args_parser
from aorta_collectors.launch import parse
values = {f"--{name}" for name in parse._TORCHRUN_VALUES.split()} | {"-r", "-t"}
flags = {f"--{name}" for name in parse._TORCHRUN_FLAGS.split()} | {"-m", "--module", "-h", "--help"}
for action in get_args_parser()._actions:
    for option in action.option_strings:
        known = values if action.nargs is None else flags
        if (option if len(option) == 2 else option.replace("_", "-")) not in known:
            print(option, action.nargs)
"""

# Prints argv and environment as they arrived, one JSON line.
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def armed(argv: list[str], interpreter_dir: str = "") -> Launch:
    return Launch(tuple(argv), interpreter_dir=interpreter_dir).armed_with(ARM)


class TestCorpus:
    def test_the_corpus_is_large_and_without_repetition(self) -> None:
        assert len(CORPUS) >= 60
        assert len({json.dumps([row["argv"], row.get("interpreter")]) for row in CORPUS}) == len(CORPUS)

    @pytest.mark.parametrize("row", CORPUS, ids=lambda row: " ".join(row["argv"])[:60] or "nothing")
    def test_a_command_is_rewritten_as_expected(self, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
        launch = armed(row["argv"], str(BIN) if row.get("interpreter") == "ours" else "")
        if "becomes" in row:
            assert list(launch.argv) == row["becomes"]
            assert launch.route == "front-end"
        else:
            assert list(launch.argv) == row["argv"]
            assert launch.route == row["route"]
            assert launch.env["PYTHONPATH"] == bootstrap_directory()
        assert launch.env[ARM_VARIABLE] == ARM
        assert launch.note


class TestFindTarget:
    @pytest.mark.parametrize(
        ("argv", "kind", "program"),
        [
            (["python", "-u", "train.py", "x"], "script", "train.py"),
            (["python", "--", "train.py"], "script", "train.py"),
            (["nice", "python", "-m", "pkg.train", "x"], "module", "pkg.train"),
            (["python", "-c", "print(1)", "x"], "code", "print(1)"),
            (["torchrun", "--standalone", "train.py"], "torchrun", "train.py"),
            (["torchrun", "-m", "pkg.train"], "torchrun", "pkg.train"),
        ],
    )
    def test_the_program_is_named_by_kind_and_place(self, argv: list[str], kind: str, program: str) -> None:
        target = find_target(argv)
        assert target.kind == kind
        assert target.program is not None
        assert argv[target.program] == program

    @pytest.mark.parametrize(
        ("argv", "why"),
        [
            (["bash", "run.sh"], "bash is not a Python program or a launcher known here"),
            (["env", "-i", "python", "x.py"], "env with an option that is not known here"),
            (["python", "-"], "python reads its program from standard input"),
            (["torchrun", "--no-python", "x.sh"], "torchrun with --no-python"),
            ([], "no command at the end of the launchers"),
        ],
    )
    def test_what_is_not_understood_says_why(self, argv: list[str], why: str) -> None:
        target = find_target(argv)
        assert (target.kind, target.insert_at, target.program) == ("opaque", None, None)
        assert target.description == why

    def test_the_path_of_the_launch_decides_which_python_is_meant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(BIN))
        assert armed(["python", "x.py"], str(BIN)).route == "front-end"
        monkeypatch.setenv("PATH", "/nowhere")
        assert armed(["python", "x.py"], str(BIN)).route == "environment"

    def test_torchrun_of_the_installed_torch_has_the_options_of_the_table(self, tmp_path: Path) -> None:
        assert run([PYTHON, "-c", TORCHRUN_OPTIONS], tmp_path).ok().out == ""


class TestSeveralCollectors:
    @pytest.mark.parametrize("argv", [("python", "train.py"), ("bash", "run.sh"), ("torchrun", "-m", "pkg")])
    def test_a_second_collector_shares_the_front_end_of_the_first(self, argv: tuple[str, ...]) -> None:
        first = Launch(argv).armed_with("a:arm")
        second = first.armed_with("b:arm")
        assert second.argv == first.argv
        assert second.route == first.route
        assert second.env[ARM_VARIABLE] == "a:arm b:arm"

    def test_a_workload_inside_the_host_keeps_its_route(self) -> None:
        launch = Launch((), route="in-process").armed_with(ARM)
        assert (launch.argv, launch.route, dict(launch.env)) == ((), "in-process", {ARM_VARIABLE: ARM})

    def test_the_users_python_path_comes_after_ours(self) -> None:
        launch = Launch(("bash", "run.sh"), python_path="/a:/b").armed_with(ARM)
        assert launch.env["PYTHONPATH"] == f"{bootstrap_directory()}:/a:/b"

    def test_without_a_collector_a_launch_stays_as_it_was_written(self) -> None:
        for row in CORPUS:
            launch = Launch(tuple(row["argv"])).with_env({})
            assert (list(launch.argv), launch.route, dict(launch.env)) == (row["argv"], "unchanged", {})

    def test_a_launch_cannot_be_changed_through_the_mapping_it_was_given(self) -> None:
        env: dict[str, str | None] = {"A": "1"}
        launch = Launch(("x",), env)
        env["A"] = "2"
        assert launch.env["A"] == "1"
        with pytest.raises(TypeError):
            launch.env["A"] = "3"  # type: ignore[index]


CORPUS_WORDS = sorted({word for row in CORPUS for word in row["argv"]})
COMMANDS = [
    "python",
    "python3",
    "torchrun",
    "env",
    "timeout",
    "nice",
    "numactl",
    "taskset",
    "nohup",
    "stdbuf",
    "setsid",
]
words = st.one_of(st.sampled_from(CORPUS_WORDS), st.sampled_from(COMMANDS), st.text(max_size=6))


class TestProperties:
    @settings(max_examples=600, deadline=None)
    @given(st.lists(words, max_size=12))
    def test_rewriting_never_drops_or_reorders_a_word(self, argv: list[str]) -> None:
        launch = armed(argv)
        if launch.route == "environment":
            assert list(launch.argv) == argv
            return
        assert launch.route == "front-end"
        # Whatever place it was put in, taking the front-end out again gives back what the user wrote.
        places = [at for at in range(len(argv) + 1) if (*argv[:at], *INSERTED, *argv[at:]) == launch.argv]
        assert places

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(CORPUS), st.lists(st.text(max_size=8), max_size=4))
    def test_words_after_the_program_are_the_programs_own(self, row: dict[str, Any], more: list[str]) -> None:
        target = find_target(row["argv"])
        if target.program is not None:
            assert find_target([*row["argv"], *more]) == target


names = st.text(string.ascii_uppercase + string.digits + "_", min_size=1, max_size=6).map(lambda text: f"AC_{text}")
hostile = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.sampled_from(
        ["", " ", "'", '"', "\n", "$HOME", "`id`", "$(id)", "\\", "a b", "~", "*", "!", "#", ";", "&", "=", "-n"]
    ),
)
launches = st.lists(
    st.tuples(st.lists(hostile, max_size=5), st.dictionaries(names, st.one_of(st.none(), hostile), max_size=4)),
    min_size=1,
    max_size=12,
)


class TestShellText:
    @settings(max_examples=12, deadline=None)
    @given(launches)
    def test_a_shell_gives_the_program_the_same_words_and_variables(
        self, launches: list[tuple[list[str], dict[str, str | None]]]
    ) -> None:
        lines = [Launch((PYTHON, "-S", "-c", ECHO, *argv), env).shell_text() for argv, env in launches]
        inherited = {name: "inherited" for _, env in launches for name in env}
        ran = run(["sh", "-c", "\n".join(lines)], Path.cwd(), {**inherited, "PYTHONUTF8": "1"}).ok()
        # splitlines would also split at characters that JSON leaves as they are.
        for (argv, env), line in zip(launches, ran.out.strip("\n").split("\n"), strict=True):
            got_argv, got_env = json.loads(line)
            assert got_argv == argv
            for name in inherited:
                assert got_env.get(name) == env.get(name, "inherited")

    @pytest.mark.parametrize("name", ["my.option", "1ST", "with-dash"])
    def test_a_variable_that_is_no_shell_identifier_arrives_too(self, name: str, tmp_path: Path) -> None:
        text = Launch((PYTHON, "-S", "-c", ECHO), {name: "a b"}).shell_text()
        ran = run(["sh", "-c", text], tmp_path).ok()
        assert json.loads(ran.out)[1][name] == "a b"

    def test_it_reads_as_a_person_would_write_it(self) -> None:
        launch = Launch(("python", "train.py", "a b"), {"B": "2", "A": "x y"})
        assert launch.shell_text() == "A='x y' B=2 python train.py 'a b'"
        assert Launch(("python",), {"A": None, "B": "1"}).shell_text() == "env -u A B=1 python"
