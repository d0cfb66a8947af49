"""The table of launchers against the programs themselves, and against the page that lists it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from aorta_collectors.launch.launchers import BY_NAME, LAUNCHERS
from aorta_collectors.launch.row import Does, Launcher
from tests.support import PYTHON, ROOT, run

# Prints each option of an argparse parser, and whether a word follows it.
TORCHRUN = "from torch.distributed.run import get_args_parser as parser"
ACCELERATE = "from accelerate.commands.launch import launch_command_parser as parser"
OPTIONS = """
import json
print(json.dumps({name: action.nargs != 0 for action in parser()._actions for name in action.option_strings}))
"""


def row(name: str) -> Launcher:
    return BY_NAME[tuple(name.split())]


class TestAgainstThePrograms:
    @pytest.mark.parametrize(
        ("name", "module", "source"),
        [("torchrun", "torch", TORCHRUN), ("accelerate launch", "accelerate", ACCELERATE)],
        ids=["torchrun", "accelerate"],
    )
    def test_the_parser_has_the_options_of_the_table(self, name: str, module: str, source: str, tmp_path: Path) -> None:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
        out = run([PYTHON, "-c", source + OPTIONS], tmp_path).ok().out
        found = {option.replace("_", "-"): takes for option, takes in json.loads(out.splitlines()[-1]).items()}
        assert len(found) > 20
        assert {option: row(name).takes.get(option) for option in found} == {
            option: int(takes) for option, takes in found.items()
        }

    def test_docker_run_has_the_options_of_the_table(self, tmp_path: Path) -> None:
        if shutil.which("docker") is None:
            pytest.skip("docker is not installed")
        found: dict[str, int] = {}
        for line in run(["docker", "run", "--help"], tmp_path).ok().out.splitlines():
            option = re.match(r" {2,6}(?:(-\w), )?(--[\w-]+)(?: (\S+))?(?:  |$)", line)
            if option is not None and option.group(2) != "--help":
                found.update({name: int(bool(option.group(3))) for name in option.groups()[:2] if name})
        assert len(found) > 50
        for name in ("docker run", "podman run"):
            assert {option: row(name).takes.get(option) for option in found} == found

    @pytest.mark.parametrize("name", ["env", "timeout", "nice", "ionice", "chrt", "taskset", "stdbuf", "setsid"])
    def test_no_option_of_a_program_of_the_system_has_another_number_of_words(self, name: str, tmp_path: Path) -> None:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        text = run([name, "--help"], tmp_path).ok().out
        # "-k, --kill-after=DURATION", "-c, --class <class>", "    --block-signal[=SIG]"
        options = re.findall(r"^ +(?:-\w, )?(--[\w-]+)(\[?=| <)?", text, re.MULTILINE)
        takes = {option: int(mark in ("=", " <")) for option, mark in options}
        known = {option: count for option, count in takes.items() if option in row(name).takes}
        assert known
        assert known == {option: row(name).takes[option] for option in known}


class TestTheRows:
    def test_no_name_stands_for_two(self) -> None:
        names = [name for launcher in LAUNCHERS for name in (launcher.name, *launcher.aliases)]
        assert len(names) == len(set(names)) == len(BY_NAME)

    @pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)
    def test_a_row_speaks_of_options_that_it_has(self, launcher: Launcher) -> None:
        named = f"{launcher.module} {launcher.command} {launcher.hides} {launcher.moves}".split()
        assert set(named) | set(launcher.stops or {}) <= set(launcher.takes)
        both = set(launcher.flags.split()) & {value.partition(":")[0] for value in launcher.values.split()}
        assert not both
        assert launcher.source
        if launcher.does in (Does.HIDE, Does.LEAVE):
            assert launcher.why


class TestThePage:
    def test_it_lists_every_launcher_with_its_names_and_its_source(self) -> None:
        text = (ROOT / "docs" / "reference" / "launchers.md").read_text()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
        listed = {row[0]: row for row in cells if len(row) == 4 and row[0].startswith("`")}
        for launcher in LAUNCHERS:
            names = ", ".join(f"`{name}`" for name in (launcher.name, *launcher.aliases))
            assert names in listed, f"no line begins with {names}"
            assert listed[names][-1] == launcher.source
        assert len(listed) == len(LAUNCHERS)
