"""Standing in the place of a method that is written in C, as those of torch.Tensor are.

torch hands the method to a subclass's __torch_function__ as it finds it in the class, and the subclass looks it up
among those that it knows, which it may have got before or after ours stood there. So what stands there is equal to the
original, and has its attributes.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from aorta_collectors.observe.around import in_place_of


class MethodPatch:
    """Puts `around(original)` in the place of the method `name` of a class, which may have inherited it."""

    def __init__(self, owner: type, name: str, around: Callable[[Any], Any]) -> None:
        self._owner = owner
        self._name = name
        self._own = vars(owner).get(name)
        original = getattr(owner, name)
        self._ours = _StandIn(original, in_place_of(original, around(original)))
        setattr(owner, name, self._ours)

    def undo(self) -> None:
        """Somebody may have wrapped it after us: theirs stays, and ours has to fall silent."""
        if vars(self._owner).get(self._name) is not self._ours:
            return
        if self._own is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own)


class _StandIn:
    def __init__(self, original: Any, ours: Callable[..., Any]) -> None:
        self._original = original
        self._ours = ours
        self.__name__ = original.__name__
        self.__qualname__ = original.__qualname__
        self.__doc__ = original.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self._ours, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ours(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)
