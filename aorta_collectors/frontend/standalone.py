"""A collector's own command: `python -m aorta_collectors.COLLECTOR [--option value ...] script.py [args...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from aorta_collectors.environment import SWITCH_VARIABLE
from aorta_collectors.frontend.arming import arm_when_torch_is_there, let_children_arm
from aorta_collectors.frontend.program import USAGE, run_program


@dataclass(frozen=True)
class Standalone:
    """What a collector has of its own there.

    Attributes:
        arm_function: "module:function", called in each process once torch is there.
        options: By name, such as "--config": takes the option's value. Raises ValueError for one that it cannot take.
        needs: What is said of an option, by its name, that has no value; "a value" where it is not there.
        synopsis: The options as usage lines show them.
        help: What --help shows behind the usage line.
        begin: Called before anything is armed. Raises ValueError for options that cannot be together.
    """

    arm_function: str
    options: Mapping[str, Callable[[str], None]]
    needs: Mapping[str, str]
    synopsis: str
    help: str
    begin: Callable[[], None]

    def run(self, words: list[str], command: str) -> None:
        """Arm, then run the program that `words` name.

        Args:
            command: How the user called this.
        """
        # Only what stands before the program is ours; an option after it is the program's own.
        while words and words[0].startswith("--") and words[0] != "--":
            option, has_value, value = words[0].partition("=")
            if option == "--help":
                print(self._help(command), end="")
                return
            if option not in self.options:
                _refuse(command, f"unknown option {option}")
            if not has_value:
                value = words[1] if len(words) > 1 else ""
                words = words[1:]
            if not value.strip():
                _refuse(command, f"{option} needs {self.needs.get(option, 'a value')}")
            try:
                self.options[option](value.strip())
            except ValueError as error:
                _refuse(command, str(error))
            words = words[1:]
        if not words or words == ["-h"]:
            sys.stderr.write(self._help(command))
            raise SystemExit(2)
        if os.environ.get(SWITCH_VARIABLE, "").lower() != "off":
            try:
                self.begin()
            except ValueError as error:
                _refuse(command, str(error))
            let_children_arm(self.arm_function, os.environ)
            arm_when_torch_is_there(self.arm_function)
        run_program(words, f"{command} {self.synopsis}")

    def _help(self, command: str) -> str:
        return f"usage: {command} {self.synopsis} {USAGE}\n\n{self.help.replace('COMMAND', command)}"


def _refuse(command: str, message: str) -> NoReturn:
    sys.stderr.write(f"{command}: {message}\n")
    raise SystemExit(2)
