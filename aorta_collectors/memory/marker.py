"""A program's own points: `point("loaded")` looks at memory wherever a session is armed, and does nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

from aorta_collectors.observe.beacon import Beacon

_MOST_CHARACTERS = 200


class Points(Beacon):
    """Where `point` finds the session that is armed.

    Args:
        take: Called with the name of a point.
        refuse: Told of a point without one.
    """

    def __init__(self, take: Callable[[str], None], refuse: Callable[[str], None]) -> None:
        super().__init__()
        self.take = take
        self.refuse = refuse


def point(name: str, /) -> None:
    """Look at memory here, under a name of the program's own, where the process is observed; otherwise nothing at all.

    Inside of code that torch.compile compiles nothing is looked at: that would cut the code in two.

    Args:
        name: Printable, 1 to 200 characters. The same name may come any number of times. Under any other nothing is
            looked at, and the summary says so.
    """
    torch = sys.modules.get("torch")
    points = Points.find() if torch is not None and not torch.compiler.is_compiling() else None
    if points is None:
        return
    # One that is made from data may turn out to be none after hours, which must not end the program.
    if isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= _MOST_CHARACTERS:
        points.take(name)
    else:
        shown = repr(name)[:_MOST_CHARACTERS]
        points.refuse(f"point: {shown} is not looked at: a name has 1 to {_MOST_CHARACTERS} printable characters")
