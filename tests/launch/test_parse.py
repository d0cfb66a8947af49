"""Rewriting a command line: a corpus of what people write, and the property that no word of theirs is lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aorta_collectors.environment import ARM_VARIABLE
from aorta_collectors.errors import LaunchError
from aorta_collectors.launch.launchers import LAUNCHERS
from aorta_collectors.launch.names import FRONTEND_MODULE, package_directories
from aorta_collectors.launch.parse import find_target
from aorta_collectors.launch.value import Launch
from tests.launch.corpus import ARM, CORPUS, SITE, VARIABLES, armed, filled, launch_of, name_of
from tests.support import BIN, PYTHON


class TestCorpus:
    def test_the_corpus_is_large_and_without_repetition(self) -> None:
        assert len(CORPUS) >= 220
        distinct = {json.dumps([row.get(key) for key in ("argv", "interpreter", "files", "environ")]) for row in CORPUS}
        assert len(distinct) == len(CORPUS)

    @pytest.mark.parametrize("row", CORPUS, ids=name_of)
    def test_a_command_is_rewritten_as_expected(
        self, row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if "refused" in row:
            with pytest.raises(LaunchError) as refused:
                launch_of(row, tmp_path)
            assert row["refused"] in str(refused.value)
            return
        launch = launch_of(row, tmp_path)
        expected = row.get("becomes") or row.get("words") or row["argv"]
        assert list(launch.argv) == filled(expected, tmp_path)
        assert launch.route == row.get("route", "front-end")
        assert row.get("note", "") in launch.note
        assert launch.note
        assert launch.env[ARM_VARIABLE] == ARM
        assert launch.env["PYTHONPATH"] == SITE

    @pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)
    def test_every_launcher_of_the_table_stands_in_it_twice(self, launcher: Any) -> None:
        def calls(words: list[str]) -> bool:
            names = [name.split() for name in (launcher.name, *launcher.aliases)]
            heads = [[os.path.basename(word), *words[at + 1 :]] for at, word in enumerate(words)]
            return any(head[: len(name)] == name for head in heads for name in names)

        assert sum(calls(row["argv"]) for row in CORPUS) >= 2


class TestFindTarget:
    @pytest.mark.parametrize(
        ("argv", "kind", "program"),
        [
            (["python", "-u", "train.py", "x"], "script", "train.py"),
            (["python", "--", "train.py"], "script", "train.py"),
            (["nice", "python", "-m", "pkg.train", "x"], "module", "pkg.train"),
            (["python", "-c", "print(1)", "x"], "code", "print(1)"),
            (["python", "-S", "train.py"], "by path", "train.py"),
            (["torchrun", "--standalone", "train.py"], "torchrun", "train.py"),
            (["torchrun", "-m", "pkg.train"], "torchrun", "pkg.train"),
            (["accelerate", "launch", "train.py"], "accelerate launch", "train.py"),
            (["docker", "run", "image", "python", "train.py"], "by path", "train.py"),
        ],
    )
    def test_the_program_is_named_by_kind_and_place(self, argv: list[str], kind: str, program: str) -> None:
        target = find_target(argv)
        assert target.kind == kind
        assert target.program is not None
        assert argv[target.program] == program

    def test_what_is_not_understood_has_no_place_for_a_front_end(self) -> None:
        target = find_target(["bash", "run.sh"])
        assert (target.kind, target.insert_at, target.program) == ("opaque", None, None)

    def test_the_path_of_the_launch_decides_which_python_is_meant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(BIN))
        assert armed(["python", "x.py"], PYTHON).route == "front-end"
        monkeypatch.setenv("PATH", "/nowhere")
        assert armed(["python", "x.py"], PYTHON).route == "environment"
        elsewhere = Launch(("python", "x.py"), {"PATH": str(BIN)}, interpreter=PYTHON)
        assert elsewhere.armed_with(ARM).route == "front-end"

    def test_of_several_pythons_in_one_directory_only_one_has_us(self, tmp_path: Path) -> None:
        """As in /usr/bin. In a virtual environment they are all the same."""
        first_lines = {"python3": "", "python3.12": "", "torchrun": "python3", "of-3.12/torchrun": "python3.12"}
        for name, interpreter in first_lines.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!{tmp_path}/{interpreter}\n")
            path.chmod(0o755)
        (tmp_path / "python").symlink_to("python3")
        ours = str(tmp_path / "python3")
        for name in ("python", "python3", "torchrun"):
            assert armed([str(tmp_path / name), "x.py"], ours).route == "front-end"
        assert armed([str(tmp_path / "python3.12"), "x.py"], ours).route == "environment"
        (tmp_path / "of-3.12" / "torchrun").replace(tmp_path / "torchrun")
        assert armed([str(tmp_path / "torchrun"), "x.py"], ours).route == "environment"


words = st.one_of(
    st.sampled_from(sorted({word for row in CORPUS for word in row["argv"]})),
    st.sampled_from([word for launcher in LAUNCHERS for word in launcher.name.split()]),
    st.sampled_from(["python", "--", "-"]),
    st.text(max_size=6),
)


def without_added(argv: list[str], launch: Launch) -> bool:
    """Whether `argv` is what remains of the rewritten command when some words are taken out of it, in order."""
    rest = iter(launch.argv)
    return all(any(kept in (word, shutil.which(word) or word) for kept in rest) for word in argv)


class TestProperties:
    @example(["docker", "run", "image", "train.sh"])
    @settings(max_examples=300, deadline=None)
    @given(st.lists(words, max_size=12))
    def test_rewriting_never_drops_or_reorders_a_word(self, argv: list[str]) -> None:
        try:
            launch = armed(argv)
        except LaunchError:
            return
        assert without_added(argv, launch)
        # What was put in is what brings in the front-end, or passes variables and directories on; nothing else.
        own = {ARM_VARIABLE, "NANLOG_DIR", "PYTHONPATH", "-e", "-x", "--volume", "--bind", "-m", FRONTEND_MODULE}
        # In a checkout the schemas are mounted as well, wherever that lies.
        own |= {f"{directory}:{directory}:ro" for directory in package_directories()}
        added = list(launch.argv)
        for word in argv:
            if word in added:
                added.remove(word)
        assert all(word in own or "aorta_collectors" in word or "/evidence" in word for word in added), added
        assert launch.route in ("front-end", "environment")

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(CORPUS), st.lists(st.text(max_size=8), max_size=4))
    def test_words_after_the_program_are_the_programs_own(self, row: dict[str, Any], more: list[str]) -> None:
        target = find_target(row["argv"])
        if target.program is not None:
            assert find_target([*row["argv"], *more]) == target

    @settings(max_examples=300, deadline=None)
    @given(st.one_of(st.lists(words, max_size=10), st.sampled_from(CORPUS).map(lambda row: row["argv"])))
    def test_arming_again_changes_nothing(self, argv: list[str]) -> None:
        try:
            once = armed(argv)
        except LaunchError:
            return
        again = Launch(once.argv, VARIABLES, once.route, once.note).armed_with(ARM, Path("/evidence"))
        assert (again.argv, again.route, again.note) == (once.argv, once.route, once.note)
