"""What is known, at some point of a chain of launchers, of the place where the next program will run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aorta_collectors.launch.executables import interpreter_words
from aorta_collectors.launch.python import is_python
from aorta_collectors.launch.row import Launcher, Reading


@dataclass(frozen=True)
class Place:
    """Where the next word of a command is started.

    Attributes:
        interpreter: The interpreter that has this package installed; "" accepts any.
        environ: The variables there, as far as the command's words tell.
        directory: Where the command is started.
        elsewhere: The launcher that chooses the interpreter, where there is one.
        moved: The working directory may be another one.
        contained: It is a container.
    """

    interpreter: str
    environ: Mapping[str, str]
    directory: str = os.curdir
    elsewhere: str = ""
    moved: bool = False
    contained: bool = False

    def behind(self, launcher: Launcher, called: str, read: Reading) -> Place:
        """The place behind a launcher's own words."""
        environ = dict(self.environ)
        if launcher.name == "env":
            if read.has("-i", "--ignore-environment", "-"):
                environ = {}
            for option in read.all_of("-u", "--unset"):
                environ.pop("".join(option.values), None)
            environ.update(read.assignments)
        return replace(
            self,
            environ=environ,
            elsewhere=called if launcher.elsewhere else self.elsewhere,
            moved=self.moved or read.has(*launcher.moves.split()),
        )

    def which(self, command: str) -> str | None:
        """The file that would be started, if that can be known from here."""
        if self.contained or self.elsewhere or "\0" in command:
            return None
        if os.sep in command and not os.path.isabs(command):
            return None if self.moved else shutil.which(os.path.join(self.directory, command))
        # Without a PATH, the system looks where the C library says.
        return shutil.which(command, path=self.environ.get("PATH", os.defpath)) if command else None

    def has_us(self, command: str) -> bool:
        """Whether `command` is the interpreter that has this package installed, or one of its scripts beside it."""
        if not self.interpreter:
            return not self.elsewhere
        found = self.which(command)
        if found is None or not self._lies_beside(found):
            return False
        if is_python(os.path.basename(found)):
            return self._is_it(found)
        # Without a first line it is no script, and what lies beside an interpreter is that one's.
        by = interpreter_words(found)
        return not by or (self._lies_beside(by[0]) and self._is_it(by[0]))

    def _lies_beside(self, path: str) -> bool:
        return os.path.realpath(os.path.dirname(path)) == os.path.realpath(os.path.dirname(self.interpreter))

    def _is_it(self, path: str) -> bool:
        """Of what lies beside the interpreter. A system's bin has other versions too, with packages of their own."""
        in_environment = os.path.isfile(os.path.join(os.path.dirname(path), os.pardir, "pyvenv.cfg"))
        return in_environment or os.path.realpath(path) == os.path.realpath(self.interpreter)
