"""A row of the table of launchers, and the reading of a launcher's own words by what the row says of them."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Does(enum.Enum):
    """What a launcher does with the words that come after its own."""

    RUN = "runs the command that follows"
    START = "starts a Python script, or a module, in processes of its own"
    CONTAIN = "runs the command that follows the image, in a container"
    INTERPRET = "runs a script or a string of a shell"
    HIDE = "starts programs that its words do not tell, or not in a way that can be rewritten"
    LEAVE = "starts the program where neither the collector nor its directory is, or where nobody waits for it"


@dataclass(frozen=True)
class Spelling:
    """How a program reads its options.

    Attributes:
        joined: Letters may be joined, with a value behind (-vo FILE, -n10).
        shortened: The beginning of a long option stands for it where no other begins so (--sig KILL).
        underscores: --num_nodes is --num-nodes.
        one_dash: A long option has one dash or two (-np and --np are the same), and takes no =value.
    """

    joined: bool = True
    shortened: bool = False
    underscores: bool = False
    one_dash: bool = False


GNU = Spelling(shortened=True)
PLAIN = Spelling()
TORCHRUN = Spelling(shortened=True, underscores=True)
ACCELERATE = Spelling(underscores=True)
MPI = Spelling(joined=False, one_dash=True)

#: The source of a row that has none to know.
NO_OPTIONS = "none are read"

_NUMBER = "-NUMBER"


@dataclass(frozen=True)
class Given:
    """An option as it stands in a command.

    Attributes:
        after: Index of the first word behind it and its values.
    """

    name: str
    values: tuple[str, ...]
    after: int


@dataclass(frozen=True)
class Reading:
    """A launcher's own words in a command.

    Attributes:
        options_end: Index at which a further option can be put in.
        program: Index of the first word that is not the launcher's own.
        problem: Why it could not be read; then the rest means nothing.
    """

    given: tuple[Given, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()
    options_end: int = 0
    program: int = 0
    problem: str = ""

    def all_of(self, *names: str) -> list[Given]:
        return [option for option in self.given if option.name in names]

    def has(self, *names: str) -> bool:
        return bool(self.all_of(*names))


@dataclass(frozen=True)
class Launcher:
    """One row. Options are separated by spaces.

    Attributes:
        name: The words with which it is called, such as "uv run".
        aliases: The same, of programs that take the same words.
        source: Where its options were read.
        values: Options with a value, which is the next word unless it is joined; "-mca:2" takes the next two.
        flags: Options without. "-NUMBER" is any number with a dash.
        operands: For each word between the options and the program, what it must look like. A word that does not is a
            sign that the table is not right for this version, and nothing is rewritten then.
        assignments: NAME=value words may come before the program.
        begins: The word behind which the program begins, whatever stands before.
        module: Flags by which the program is a module's name.
        command: Flags by which the program is any command.
        hides: Options under which the words that follow are not run as usual: the command stays as it is.
        stops: Options under which no evidence can come about, and why.
        elsewhere: It starts the program with an interpreter of its own choosing.
        moves: Options that change the working directory, so that relative paths are meant from there.
        closed: Of the environment it was started with, the program sees nothing.
        why: For a launcher that hides or leaves, how it does, and what can be done about it. One that runs a command
            and has this is refused, unless a container follows, which takes its variables from the words alone.
    """

    name: str
    does: Does
    source: str
    aliases: tuple[str, ...] = ()
    values: str = ""
    flags: str = ""
    spelling: Spelling = GNU
    operands: tuple[str, ...] = ()
    assignments: bool = False
    begins: str = ""
    module: str = ""
    command: str = ""
    hides: str = ""
    stops: Mapping[str, str] | None = None
    elsewhere: bool = False
    moves: str = ""
    closed: bool = False
    why: str = ""

    @functools.cached_property
    def takes(self) -> dict[str, int]:
        """For each option, how many words follow it."""
        counts = dict.fromkeys(self.flags.split(), 0)
        for word in self.values.split():
            name, _, count = word.partition(":")
            counts[name] = int(count or 1)
        return counts

    def read(self, words: Sequence[str], start: int) -> Reading:
        """Read the launcher's own words, which begin at `start`."""
        if self.begins:
            if self.begins not in words[start:]:
                return Reading(problem=f"{self.name} without {self.begins}")
            end = words.index(self.begins, start)
            return Reading(options_end=end, program=end + 1)
        given: list[Given] = []
        index = start
        while index < len(words) and words[index].startswith("-") and words[index] != "--":
            found = self._options_at(words, index)
            if not found:
                if words[index] == "-":
                    break
                return Reading(problem=f"{self.name} with {words[index]}, which is not known here")
            given += found
            index = found[-1].after
        end = index
        if index < len(words) and words[index] == "--":
            index += 1
        assignments: list[tuple[str, str]] = []
        # Whatever has a "=" in it, as env(1) has it.
        while self.assignments and index < len(words) and "=" in words[index]:
            name, _, value = words[index].partition("=")
            assignments.append((name, value))
            index += 1
        for pattern in self.operands:
            if index < len(words) and not re.fullmatch(pattern, words[index]):
                return Reading(problem=f"{self.name} with {words[index]}, which is not known here")
            index += 1
        return Reading(tuple(given), tuple(assignments), end, index)

    def _options_at(self, words: Sequence[str], index: int) -> list[Given]:
        """The options in one word; none if any is unknown."""
        word = words[index]
        if self.spelling.one_dash:
            return self._whole(words, index, "-" + word.lstrip("-"))
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = self._long(name)
            if equals and self.takes.get(name, 2) < 2:
                return [Given(name, (value,), index + 1)]
            return [] if equals else self._whole(words, index, name)
        if word in self.takes or not self.spelling.joined:
            return self._whole(words, index, word)
        if word[1:].isdecimal() and _NUMBER in self.takes:
            return [Given(_NUMBER, (word[1:],), index + 1)]
        found: list[Given] = []
        for position, letter in enumerate(word[1:], start=1):
            name = f"-{letter}"
            if name not in self.takes:
                return []
            if self.takes[name]:
                rest = word[position + 1 :]
                if rest:
                    return [*found, Given(name, (rest,), index + 1)]
                return [*found, *self._whole(words, index, name)]
            found.append(Given(name, (), index + 1))
        return found

    def _whole(self, words: Sequence[str], index: int, name: str) -> list[Given]:
        if name not in self.takes:
            return []
        after = index + 1 + self.takes[name]
        return [Given(name, tuple(words[index + 1 : after]), after)]

    def _long(self, name: str) -> str:
        if self.spelling.underscores:
            name = name.replace("_", "-")
        if name in self.takes or not self.spelling.shortened:
            return name
        meant = [known for known in self.takes if known.startswith(name) and known.startswith("--")]
        return meant[0] if len(meant) == 1 else name
