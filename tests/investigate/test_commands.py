"""Commands: parsed without a shell, checked, filled in, and written down so that a shell runs them again."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.commands import (
    check_command,
    command_text,
    environment_of,
    filled_in,
    parse_command,
    script_of,
)
from tests.support import PYTHON

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=20)


class TestParsing:
    @given(st.lists(WORDS, max_size=4))
    def test_words_that_are_quoted_come_back_as_they_are(self, words: list[str]) -> None:
        assert parse_command("--baseline", shlex.join(["python", *words])) == ["python", *words]

    @pytest.mark.parametrize(
        "text",
        [
            "python a.py | tee log",
            "python a.py > log",
            "python a.py; python b.py",
            "python a.py && true",
            "python a.py $HOME",
            'python a.py "$HOME"',
            "python a.py `date`",
            "python a.py *.csv",
            "python ~/a.py",
        ],
    )
    def test_what_only_a_shell_would_act_on_is_refused(self, text: str) -> None:
        with pytest.raises(OptionsError, match="which a shell would act on"):
            parse_command("--baseline", text)

    @pytest.mark.parametrize(
        "text",
        ["bash -c 'python a.py | tee log'", 'sh -c "python a.py $HOME"', "python a.py --re '^a$' --shape [2,3] a~b"],
    )
    def test_a_shell_may_have_its_syntax_and_quotes_hide_it(self, text: str) -> None:
        assert parse_command("--baseline", text) == shlex.split(text)

    @pytest.mark.parametrize("text", ["", "  ", "python 'a.py"])
    def test_no_words_are_refused(self, text: str) -> None:
        with pytest.raises(OptionsError, match="--baseline"):
            parse_command("--baseline", text)

    def test_a_variable_before_the_command_is_refused_with_the_option_for_it(self) -> None:
        with pytest.raises(OptionsError, match="--candidate-env OMP_NUM_THREADS=VALUE"):
            parse_command("--candidate", "OMP_NUM_THREADS=1 python a.py")


class TestChecking:
    def test_a_command_that_is_there_is_launched_from_its_directory(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").touch()
        assert check_command("--baseline", [PYTHON, "a.py"], {}, tmp_path).directory == str(tmp_path)

    def test_a_program_or_script_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OptionsError, match="nowhere-to-be-found: no such program on PATH"):
            check_command("--baseline", ["nowhere-to-be-found"], {}, tmp_path)
        with pytest.raises(OptionsError, match=r"a\.py does not exist"):
            check_command("--baseline", [PYTHON, "a.py"], {}, tmp_path)
        with pytest.raises(OptionsError, match="no such program in"):
            check_command("--baseline", ["./run"], {}, tmp_path)

    def test_path_of_the_variant_is_looked_at(self, tmp_path: Path) -> None:
        program = tmp_path / "bin" / "mine"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        check_command("--baseline", ["mine"], {"PATH": str(program.parent)}, tmp_path)

    def test_scripts_and_modules_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "pkg").mkdir()
        (tmp_path / "pkg" / "train.py").touch()
        for words in ([PYTHON, "pkg/train.py"], [PYTHON, "-m", "pkg.train"], ["torchrun", "-m", "pkg.train"]):
            launch = check_command("--baseline", words, {}, tmp_path)
            assert script_of(launch) == tmp_path / "pkg" / "train.py"
        assert script_of(check_command("--baseline", [PYTHON, "-c", "pass"], {}, tmp_path)) is None
        assert script_of(check_command("--baseline", [PYTHON, "-m", "json.tool"], {}, tmp_path)) is None


class TestFilling:
    def test_seed_and_repetition_are_replaced(self) -> None:
        assert filled_in("--seed={seed}/{repetition}", 7, 2) == "--seed=7/2"
        assert filled_in("{seed}{other}", None, 2) == "{seed}{other}"

    def test_a_seed_fixes_hashes_unless_the_variant_says_otherwise(self) -> None:
        assert environment_of({}, None, Path("/r")) == {"AORTA_COLLECTORS_REPORT": "off", "INVESTIGATION_RUN": "/r"}
        found = environment_of({"PYTHONHASHSEED": "random"}, 5, Path("/r"))
        assert (found["INVESTIGATION_SEED"], found["PYTHONHASHSEED"]) == ("5", "random")

    @given(st.integers(0, 2**70))
    def test_any_seed_is_one_that_python_takes_for_hashes(self, seed: int) -> None:
        assert 0 <= int(environment_of({}, seed, Path())["PYTHONHASHSEED"]) <= 4294967295

    def test_a_shell_runs_command_txt_again(self, tmp_path: Path) -> None:
        code = "import os, sys; print(os.getcwd(), os.environ['A B'.replace(' ', '_')], sys.argv[1:])"
        directory = tmp_path / "a directory"
        directory.mkdir()
        words = [PYTHON, "-c", code, "it's", "$HOME", "two\nlines"]
        text = command_text(words, {"A_B": "x 'y' $z"}, str(directory), "Run 1.")
        done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"{directory} x 'y' $z {words[3:]}"
