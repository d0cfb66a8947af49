"""What of the host is replaced: kinds of patch points, each of which says whether the host has it as it should be."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aorta_collectors.host.attachment import Attachment
from aorta_collectors.registry import collector_names

_MARK = "__aorta_collectors__"

#: replace(attachment, original, *args, **kwargs), called in the original's place.
Replace = Callable[..., Any]


@dataclass(frozen=True)
class PatchPoint(ABC):
    """A global of one of the host's modules, which the host looks up there whenever it needs it."""

    module: str
    name: str

    @abstractmethod
    def mismatch(self, found: Any) -> str:
        """What is wrong with what the host has there, None where it has nothing; "" if it fits."""

    @abstractmethod
    def replacement(self, attachment: Attachment, original: Any) -> Any:
        """What is put there."""


@dataclass(frozen=True)
class Function(PatchPoint):
    """A function.

    Attributes:
        parameters: Its parameter names, in order: what the replacement relies on.
    """

    parameters: tuple[str, ...]
    replace: Replace

    def mismatch(self, found: Any) -> str:
        if not callable(found):
            return f"{self.module} has no function {self.name}"
        parameters = tuple(inspect.signature(found).parameters)
        if parameters == self.parameters:
            return ""
        return f"{self.module}.{self.name} takes ({', '.join(parameters)}), not ({', '.join(self.parameters)})"

    def replacement(self, attachment: Attachment, original: Any) -> Any:
        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return self.replace(attachment, original, *args, **kwargs)

        setattr(replaced, _MARK, attachment)
        return replaced


@dataclass(frozen=True)
class Names(PatchPoint):
    """The names of collectors that the host knows, to which those of all that are installed are added.

    Attributes:
        members: Names that the host has in there by itself.
    """

    members: frozenset[str]

    def mismatch(self, found: Any) -> str:
        if not isinstance(found, frozenset):
            return f"{self.module} has no frozenset {self.name}"
        if missing := sorted(self.members - found):
            return f"{self.module}.{self.name} lacks {', '.join(missing)}"
        return ""

    def replacement(self, attachment: Attachment, original: Any) -> Any:
        extended = _Extended(original | collector_names())
        extended.__wrapped__ = original
        setattr(extended, _MARK, attachment)
        return extended


class _Extended(frozenset[str]):
    """The host's names and others.

    Attributes:
        __wrapped__: The host's alone.
    """

    __wrapped__: frozenset[str]


def attached_by(found: Any) -> Attachment | None:
    """Whose replacement this is; None for what is the host's own."""
    attachment: Attachment | None = getattr(found, _MARK, None)
    return attachment
