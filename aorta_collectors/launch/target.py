"""What a command ends in, and how a front-end is put in there: the parser's answer."""

from __future__ import annotations

from dataclasses import dataclass

from aorta_collectors.launch.passing import Cut


@dataclass(frozen=True)
class Target:
    """The Python program that a command starts, or why none can be seen.

    Attributes:
        insert_at: Index in argv at which the words of `front` go in, or None for a command that cannot be rewritten.
        kind: "script", "module" or "code" of an interpreter that has this package, with room for a "-m MODULE" of ours
            before it; "executable" for a script that is run by its name; "by path" for an interpreter that does not
            have the package; the name of a launcher of training; "front-end" where one is there already; "opaque".
        description: What was found, for people.
        program: Index of the script, module name or code; None if opaque.
        front: The words that bring in the front-end.
        found: What stands for the program's word, where that is found on PATH and Python will want to read it.
        cuts: Launchers that keep variables or directories from the program.
        contained: It runs in a container.
        refused: Why no evidence can come of this launch, and what to do; "" where it may.
        blind: Options by which the program's interpreter does not see the environment that arms it.
        unarmed: Why nothing is armed, where that is certain.
    """

    insert_at: int | None
    kind: str
    description: str
    program: int | None = None
    front: tuple[str, ...] = ()
    found: str = ""
    cuts: tuple[Cut, ...] = ()
    contained: bool = False
    refused: str = ""
    blind: str = ""
    unarmed: str = ""
