"""Which signal ended a process, noted down without the process noticing.

A handler in Python would show in signal.getsignal, which libraries ask before they install their own, and would run
only once native code returns: a rank that hangs in a collective would survive the SIGTERM that is to end it. So the
interpreter's own faulthandler writes the note, at once and in whatever code the process is, and the signal then does
what it does anyway. The evidence ends with the step before, as with any sudden death.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from aorta_collectors.observe.held import set_aside

#: Signals that launchers, schedulers and terminals end a program with; SIGKILL cannot be seen by anybody.
NOTED = ("SIGTERM", "SIGHUP")
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def note_name(signal_name: str, stem: str) -> str:
    """Name of the file that holds a note once the signal has come, and is empty until then."""
    return f"{signal_name.lower()}_{stem}.txt"


def told(signal_name: str, note: str) -> str:
    """How a note reads: the signal, and the innermost line of Python that was running, other than our own."""
    for frame in _FRAME.finditer(note):
        if "aorta_collectors" not in frame["file"]:
            return f"signal {signal_name} in {os.path.basename(frame['file'])}:{frame['line']} ({frame['function']})"
    return f"signal {signal_name}"


@dataclass(frozen=True)
class _Note:
    """One signal's file. The interpreter writes one for each signal, so that collectors of a process share it.

    Attributes:
        path: By the first of them.
        status: Of the file, as it was opened.
        handler: What the operating system calls for the signal while faulthandler writes the note.
        places: What each collector calls it.
    """

    number: signal.Signals
    descriptor: int
    path: Path
    status: os.stat_result
    handler: int
    places: list[Path] = field(default_factory=list)


class SignalNotes:
    """Notes beside the evidence of one process. Signals that the program handles or ignores stay the program's.

    A handler that the program installs later takes the place of the note's, and finds signal.getsignal as it would be.
    A second collector's note is the first one's file under another name, or, on another file system, is not there.

    Args:
        directory: Where to leave notes. One that cannot be written gets none.
        stem: As in the names of the process's other files.
    """

    def __init__(self, directory: Path, stem: str) -> None:
        self._noted: list[tuple[_Note, Path]] = []
        try:
            # Looked up now, since a fork is no place to load a library in.
            self._sigaction = ctypes.CDLL(None).sigaction
        except (OSError, AttributeError, TypeError):
            return  # not a POSIX system
        for name in NOTED:
            path = directory / note_name(name, stem)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)  # of an earlier launch
            # Whatever a system does not have, it does without.
            with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError, KeyError):
                self._note(signal.Signals[name], path)
        if self._noted:
            # A fork must not write into its parent's note.
            os.register_at_fork(after_in_child=self._let_go)

    def withdraw(self) -> None:
        """Nothing is noted from now on, and no note is left: the evidence is complete."""
        notes = self._noted
        self._let_go()
        for note, path in notes:
            # The program may have removed it, and the next trial may have begun where this one's directory was.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), note.status):
                    path.unlink()

    def _note(self, number: signal.Signals, path: Path) -> None:
        others = _notes_of(os.getpid())
        note = others.get(number)
        if note is not None and self._handler(number) == note.handler:
            os.link(note.path, path)
        else:
            note = self._new_note(number, path)
        if note is not None:
            others[number] = note
            note.places.append(path)
            self._noted.append((note, path))

    def _new_note(self, number: signal.Signals, path: Path) -> _Note | None:
        if signal.getsignal(number) is not signal.SIG_DFL or self._handler(number) != 0:
            return None  # native code may have a handler that Python does not know of
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # Nobody can look before faulthandler writes, so a program that closes all descriptors must not get this number.
        descriptor = set_aside(descriptor)
        try:
            faulthandler.register(number, file=descriptor, all_threads=False, chain=True)
        except BaseException:
            os.close(descriptor)
            raise
        return _Note(number, descriptor, path, os.fstat(descriptor), self._handler(number))

    def _let_go(self) -> None:
        notes, self._noted = self._noted, []
        for note, path in notes:
            note.places.remove(path)
            if note.places:
                continue
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                # Unregistering puts the default back, which must not take the place of somebody else's handler.
                if self._handler(note.number) == note.handler:
                    faulthandler.unregister(note.number)
                    if os.path.samestat(os.fstat(note.descriptor), note.status):
                        os.close(note.descriptor)

    def _handler(self, number: signal.Signals) -> int:
        """Address of what the operating system calls for a signal; 0 is the default. Raises OSError."""
        # Longer than any system's struct sigaction, whose first field is the handler.
        action = (ctypes.c_void_p * 64)()
        if self._sigaction(int(number), None, action) != 0:
            raise OSError(f"the handler of {number.name} cannot be read")
        return action[0] or 0


@functools.cache
def _notes_of(pid: int) -> dict[signal.Signals, _Note]:
    """What is noted down in process `pid`, by whichever collectors."""
    return {}
