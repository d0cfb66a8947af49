"""Finding the Python program in a command line: a chain of launchers ending in a script, -m module or -c code.

What is not in the tables (`launchers`) is not guessed at: the command then runs unchanged and arms its children through
the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aorta_collectors.launch.executables import interpreter_words
from aorta_collectors.launch.launchers import BY_NAME, MODULES, launcher_at, subcommands
from aorta_collectors.launch.names import FRONTEND_MODULE, frontend_file
from aorta_collectors.launch.passing import CUTS, Cut
from aorta_collectors.launch.place import Place
from aorta_collectors.launch.python import PythonWords, is_python, read_python
from aorta_collectors.launch.row import Does, Launcher, Reading
from aorta_collectors.launch.shell import simple_command
from aorta_collectors.launch.target import Target

# Variables that change what torchrun starts, as its options do.
_OF_TORCHRUN = ("PYTHON_EXEC", "PET_MODULE", "PET_NO_PYTHON", "PET_RUN_PATH")
_BY_MODULE = ("-m", FRONTEND_MODULE)


def find_target(
    argv: Sequence[str], interpreter: str = "", environ: Mapping[str, str] | None = None, directory: str = os.curdir
) -> Target:
    """Find the Python program that `argv` ends in.

    Args:
        interpreter: The one that has this package installed; "" accepts any.
        environ: The variables with which the command is started; by default those of this process.
        directory: Where it is started; by default here.
    """
    place = Place(interpreter, os.environ if environ is None else environ, directory)
    return _Walk(tuple(argv), place).target()


class _Walk:
    """One way through a command, from its first word to its program."""

    def __init__(self, words: tuple[str, ...], place: Place, of_first_line: bool = False) -> None:
        self._words = words
        self._place = place
        self._of_first_line = of_first_line
        self._cuts: list[Cut] = []
        self._held = ""  # why the launch is refused, unless a container follows

    def target(self, index: int = 0) -> Target:
        """What the words from `index` on end in."""
        while index < len(self._words):
            found = launcher_at(self._words, index)
            if found is None:
                return self._program(index)
            launcher, after = found
            called = " ".join((os.path.basename(self._words[index]), *self._words[index + 1 : after]))
            match launcher.does:
                case Does.HIDE:
                    return self._opaque(f"{called} {launcher.why}")
                case Does.LEAVE:
                    return self._refuse(f"{called}: {launcher.why}")
                case Does.INTERPRET:
                    return self._shell(called, after)
                case Does.START if not self._place.contained and not self._place.has_us(self._words[index]):
                    return self._other_environment(index)
            step = self._behind(launcher, called, after)
            if isinstance(step, Target):
                return step
            index = step
        if not self._place.contained:
            self._cuts = []  # there is nobody to pass anything to
        return self._opaque("no command at the end of the launchers")

    def _behind(self, launcher: Launcher, called: str, after: int) -> int | Target:
        """Index of the word that a launcher starts, or the answer where it is the last one."""
        if launcher.does is Does.RUN and launcher.why:
            self._held = f"{called}: {launcher.why}"
        read = launcher.read(self._words, after)
        if read.problem:
            return self._opaque(read.problem, unarmed=read.problem if launcher.closed else "")
        if launcher.closed:
            # All that the program sees comes from these words, whatever kept it back before.
            self._cuts, self._held = [], ""
        cut = CUTS[launcher.name](read, self._place.environ) if launcher.name in CUTS else None
        self._cuts += [cut] if cut is not None else []
        self._place = self._place.behind(launcher, called, read)
        if launcher.does is Does.CONTAIN:
            self._place = replace(self._place, contained=True)
        for option in read.given:
            if option.name in (launcher.stops or {}):
                return self._refuse(f"{called} {option.name}: {(launcher.stops or {})[option.name]}")
        for option in read.given:
            if option.name in launcher.hides.split():
                return self._opaque(f"{called} with {option.name}, so that its words do not tell the program")
        if launcher.does is Does.START and not read.has(*launcher.command.split()):
            return self._started(launcher, called, read)
        return read.program

    def _started(self, launcher: Launcher, called: str, read: Reading) -> Target:
        """A launcher's own script; with -m, a module's name."""
        at = read.program
        if at >= len(self._words):
            return self._opaque(f"{called} without a program")
        if self._words[read.options_end] == "--":
            return self._opaque(f"{called} with --")
        if any(self._place.environ.get(name) for name in _OF_TORCHRUN):
            return self._opaque(f"{called} where one of {', '.join(_OF_TORCHRUN)} is set")
        name = self._words[at]
        is_module = read.has(*launcher.module.split())
        if name in (FRONTEND_MODULE, frontend_file()):
            return self._answer(Target(None, "front-end", f"{called} of the front-end", at))
        if self._place.contained and is_module:
            return self._opaque(f"{called} of module {name} in a container")
        shown = f"{called} of module {name}" if is_module else f"{called} of script {os.path.basename(name)}"
        if self._place.contained:
            return self._answer(Target(at, launcher.name, shown, at, (frontend_file(),)))
        # torchrun [options] -m MODULE becomes torchrun [options] -m FRONTEND -m MODULE.
        front = (FRONTEND_MODULE, "-m") if is_module else _BY_MODULE
        return self._answer(Target(at, launcher.name, shown, at, front))

    # -- the program

    def _program(self, index: int) -> Target:
        name = os.path.basename(self._words[index])
        if is_python(name):
            return self._python(index)
        if subcommands(name):
            return self._opaque(f"{name} is known here as {', '.join(subcommands(name))} only")
        return self._executable(index, name)

    def _python(self, index: int) -> Target:
        read = read_python(self._words, index + 1)
        if read.problem:
            return self._opaque(read.problem, blind=read.blind)
        name = self._words[read.program]
        if name == (FRONTEND_MODULE if read.kind == "module" else frontend_file()):
            return self._answer(Target(None, "front-end", "python with the front-end", read.program))
        ours = self._place.has_us(self._words[index])
        if read.kind == "module" and name in MODULES and (ours or self._place.contained):
            step = self._behind(BY_NAME[tuple(MODULES[name].split())], f"python -m {name}", read.program + 1)
            return step if isinstance(step, Target) else self.target(step)
        if read.kind == "module" and name == "torch.distributed.launch":
            return self._opaque(f"python -m {name} is deprecated by torch")
        shown = _shown(read, name)
        if self._place.contained or not ours or "S" in read.blind:
            if not self._place.contained and not read.blind:
                return self._other_environment(index)
            if read.joined:
                return self._opaque(f"{shown}, with -m in one word with other options", blind=read.blind)
            by_path = (frontend_file(),)
            return self._answer(Target(read.options_end, "by path", shown, read.program, by_path, blind=read.blind))
        if read.kind == "module":
            # Joined letters keep their -m: python -um MODULE becomes python -um FRONTEND -m MODULE.
            front = (FRONTEND_MODULE, "-m")
            return self._answer(Target(read.program, "module", shown, read.program, front, blind=read.blind))
        return self._answer(
            Target(read.options_end, read.kind, shown, read.program, _BY_MODULE, blind=read.blind),
        )

    def _executable(self, index: int, name: str) -> Target:
        unknown = f"{name} is not a Python program or a launcher known here"
        word = self._words[index]
        # A first line that names another script is not followed further.
        path = None if self._of_first_line else self._place.which(word)
        by = interpreter_words(path) if path is not None else []
        if path is None or not by:
            return self._opaque(unknown)
        inner = _Walk((*by, path), self._place, of_first_line=True).target()
        if inner.kind not in ("script", "by path") or inner.insert_at is None or inner.cuts:
            return self._opaque(f"{name} is a script of {' '.join(by)}")
        front = (*by[: inner.insert_at], *inner.front, *by[inner.insert_at :])
        # Of a name without a directory, Python is given the file that PATH leads to.
        found = "" if os.sep in word else path
        shown = f"{name}, a Python script"
        return self._answer(Target(index, "executable", shown, index, front, found, blind=inner.blind))

    def _shell(self, called: str, after: int) -> Target:
        shown = f"{called} runs what its words do not tell"
        words = simple_command(self._words, after)
        if not words:
            return self._opaque(shown)
        inner = _Walk(tuple(words), self._place).target()
        hidden = f"and what {called} -c runs is not rewritten; give the sweep the command itself"
        if inner.refused or inner.unarmed:
            return self._opaque(shown, unarmed=inner.refused or inner.unarmed)
        if inner.blind:
            return self._opaque(shown, unarmed=f"{_unseen(inner.blind)}, {hidden}")
        if any(cut.loses("PYTHONPATH") for cut in inner.cuts):
            return self._opaque(shown, unarmed=f"it keeps PYTHONPATH from the program, {hidden}")
        return self._opaque(shown)

    # -- answers

    def _other_environment(self, index: int) -> Target:
        by = self._place.elsewhere
        where = f"{by} runs it in" if by else f"{self._words[index]} belongs to"
        return self._opaque(f"{where} another Python environment, as far as its words tell")

    def _opaque(self, why: str, blind: str = "", unarmed: str = "") -> Target:
        if blind and not unarmed:
            unarmed = f"{_unseen(blind)}, and cannot be given a front-end ({why})"
        return self._answer(Target(None, "opaque", why, blind=blind, unarmed=unarmed))

    def _refuse(self, why: str) -> Target:
        return replace(self._answer(Target(None, "opaque", why)), refused=why)

    def _answer(self, target: Target) -> Target:
        return replace(target, cuts=tuple(self._cuts), refused=self._held, contained=self._place.contained)


def _unseen(blind: str) -> str:
    """Why an interpreter with these options is not armed by its environment."""
    misses = "looks for no sitecustomize" if blind == "S" else "does not see PYTHONPATH"
    return f"python -{blind} {misses}"


def _shown(read: PythonWords, name: str) -> str:
    kinds = {"script": f"python script {os.path.basename(name)}", "module": f"python -m {name}", "code": "python -c"}
    if not read.blind:
        return kinds[read.kind]
    return f"{kinds[read.kind]}; processes that it starts with -{read.blind} too are not observed"
