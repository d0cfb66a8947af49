"""Commands of variants: checked when they are declared, and written down so that a person can run them again."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.left_over import RUN_VARIABLE
from aorta_collectors.launch.launchers import launcher_at
from aorta_collectors.launch.row import Does
from aorta_collectors.launch.value import Launch

SEED_VARIABLE = "INVESTIGATION_SEED"
SEED, REPETITION = "{seed}", "{repetition}"

# What a shell would act on where it stands outside quotes, and inside double ones.
_OPERATORS = re.compile(r"[|&;<>()`$*?]|(?<!\S)~")
_EXPANSIONS = re.compile(r"[`$]")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def parse_command(option: str, text: str) -> list[str]:
    """The words of a command, without a shell.

    Args:
        option: Where it was given, for messages.

    Raises:
        OptionsError: It has none, or holds what only a shell would act on.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionsError(option, f"{text}: {error}") from None
    if not words:
        raise OptionsError(option, "is empty; give the command, such as 'python train.py'")
    if _ASSIGNMENT.match(words[0]):
        name = words[0].partition("=")[0]
        raise OptionsError(option, f"begins with {words[0]}; variables are given by {option}-env {name}=VALUE")
    launchers = [launcher_at(words, index) for index in range(len(words))]
    has_shell = any(found is not None and found.launcher.does is Does.INTERPRET for found in launchers)
    found = _OPERATORS.search(_QUOTED.sub("", text))
    if found is None and not has_shell:
        quoted = " ".join(part for part in _QUOTED.findall(text) if part.startswith('"'))
        found = _EXPANSIONS.search(quoted)
    if found is not None:
        raise OptionsError(
            option,
            f"holds {found.group()}, which a shell would act on, and none runs it. Quote it to hand it on as it is, or "
            "give a shell: bash -c '...'",
        )
    return words


def check_command(option: str, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Launch:
    """See that a command can be started. Returns its launch.

    Raises:
        OptionsError: Its first word, or its script, is not there.
    """
    path = environment.get("PATH", os.environ.get("PATH"))
    first = words[0]
    # A word with a directory in it is meant from where the command runs, any other is looked up.
    if shutil.which(str(cwd / first) if os.sep in first else first, path=path) is None:
        raise OptionsError(option, f"{first}: no such program" + (f" in {cwd}" if os.sep in first else " on PATH"))
    launch = Launch.of_this_process(words, environment, str(cwd))
    script = script_of(launch)
    if script is not None and "{" not in str(script) and not script.exists():
        raise OptionsError(option, f"{script} does not exist; relative paths are meant from {cwd} (--cwd)")
    return launch


def script_of(launch: Launch) -> Path | None:
    """The Python file that a launch runs, as far as its words tell. A module's is known where it lies below there."""
    target = launch.target()
    if target.program is None or target.kind == "code":
        return None
    word, directory = target.found or launch.argv[target.program], Path(launch.directory)
    # A launcher of training may be given a module, which may be installed anywhere.
    if target.kind == "module" or not (word.endswith(".py") or os.sep in word):
        return _module_file(directory, word)
    return directory / word


def _module_file(directory: Path, module: str) -> Path | None:
    below = directory.joinpath(*module.split("."))
    return next((path for path in (below.with_suffix(".py"), below / "__main__.py") if path.is_file()), None)


def filled_in(text: str, seed: int | None, repetition: int) -> str:
    """A word with {seed} and {repetition} replaced. Without a seed, {seed} stays."""
    if seed is not None:
        text = text.replace(SEED, str(seed))
    return text.replace(REPETITION, str(repetition))


def environment_of(own: Mapping[str, str], seed: int | None, run: Path) -> dict[str, str]:
    """Variables that are set for a run: the variant's own, those by which a program repeats itself, and its place."""
    found = {"AORTA_COLLECTORS_REPORT": "off", RUN_VARIABLE: str(run)}
    if seed is not None:
        found |= {SEED_VARIABLE: str(seed), "PYTHONHASHSEED": str(seed % 2**32)}
    return {**found, **own}


def command_text(command: Sequence[str], environment: Mapping[str, str], cwd: str, what: str) -> str:
    """Content of command.txt: lines for a POSIX shell.

    Args:
        what: Says which run this is, for a person.
    """
    lines = [
        f"# {what}",
        "# To run it again, give another --output: the evidence of this run lies in the one below.",
        f"cd {shlex.quote(cwd)}",
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())),
        shlex.join(command),
    ]
    return "\n".join(lines) + "\n"
