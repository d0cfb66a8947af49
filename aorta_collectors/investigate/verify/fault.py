"""A fault: where something is not as it was recorded, what that is, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from aorta_collectors.printable import printable


@dataclass(frozen=True)
class Fault:
    """
    Attributes:
        place: A path, absolute, perhaps with a part of the file.
        what: A sentence without its full stop.
        to_do: What helps.
    """

    place: str
    what: str
    to_do: str

    @property
    def line(self) -> str:
        return printable(f"{self.place}: {self.what}. {self.to_do}.", 10_000)

    def to_json(self) -> dict[str, str]:
        return asdict(self)
