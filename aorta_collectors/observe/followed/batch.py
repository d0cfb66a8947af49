"""Finding named tensors in a batch, whatever it is made of, without computing, waiting for, or changing anything."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.fx import Proxy

from aorta_collectors.observe.attributes import in_dict, in_slots
from aorta_collectors.observe.jagged import is_awaitable, is_jagged, values_of

_DEPTH = 4
_WRAPPERS = 8  # around one another
_LOOKS = 1000  # values looked at in one search: a batch may point to its whole data set
_OPAQUE = (str, bytes, bytearray, int, float, complex, type, ModuleType, nn.Module, Future, Proxy)
_DESCRIPTORS = (property, MemberDescriptorType, GetSetDescriptorType)


class Found(NamedTuple):
    """A tensor of the batch.

    Attributes:
        name: The name that was asked for, with the way on to the tensor below it, such as [0] or [clicks].
        jagged: The KeyedJaggedTensor or JaggedTensor whose values these are, or None.
    """

    name: str
    tensor: Tensor
    jagged: Any = None


def find(batch: Any, name: str, most: int = 64) -> list[Found]:
    """The tensors that `name` stands for; empty where there are none.

    A member of the batch comes first, then a dotted path of members, then the members of what lies inside the batch,
    the nearest ones. Where several lie equally near, as in a list of micro-batches, all are taken.
    """
    found = expand(name, _walk(batch, name), most)
    if found:
        return found
    matches = _search(batch, name)
    return expand(name, matches[0] if len(matches) == 1 else matches, most)


def expand(name: str, value: Any, most: int = 64, depth: int = _DEPTH) -> list[Found]:
    """All tensors in `value`, to `depth` levels of nesting, each once, at most `most`, named from `name` on."""
    found: list[Found] = []
    seen: set[int] = set()
    # Depth first, without a recursive closure: it would be a cycle that keeps the tensors until the next collection.
    ahead: list[tuple[str, Any, int]] = [(name, value, depth)]
    for _ in range(_LOOKS):
        if not ahead or len(found) >= most:
            break
        name, value, depth = ahead.pop()
        tensor = value if isinstance(value, Tensor) else values_of(value)
        if tensor is not None:
            if id(value) not in seen:
                found.append(Found(name, tensor, value if is_jagged(value) else None))
            seen.add(id(value))
        elif depth > 0:
            parts = [(name + step, part, depth - 1) for step, part in _parts(value) if not step.startswith("._")]
            ahead.extend(reversed(parts))
    return found


def parameter_names(root: nn.Module) -> tuple[str, ...]:
    """Names of the positional parameters of the forward of `root`, or of what it wraps if that takes anything."""
    module = root
    for _ in range(_WRAPPERS):
        try:
            parameters = inspect.signature(module.forward).parameters.values()
        except (TypeError, ValueError):
            return ()
        names = tuple(one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))
        inner = list(module.children())
        if names or len(inner) != 1:
            return names
        module = inner[0]
    return ()


def _walk(value: Any, name: str) -> Any:
    """The member `name` of `value`, or the one that a dotted name leads to; None where there is none."""
    member = _member(value, name)
    if member is not None:
        return member
    end = name.find(".")
    while end != -1:
        head = _member(value, name[:end])
        member = None if head is None else _walk(head, name[end + 1 :])
        if member is not None:
            return member
        end = name.find(".", end + 1)
    return None


def _search(batch: Any, name: str) -> list[Any]:
    """What `name` leads to from values inside the batch, of the least depth at which there is any."""
    level, seen, looks = [batch], {id(batch)}, _LOOKS
    for _ in range(_DEPTH):
        inner = []
        for value in level:
            for _, part in islice(_parts(value), looks):
                looks -= 1
                if id(part) not in seen and not _is_leaf(part):
                    seen.add(id(part))
                    inner.append(part)
        matches = {id(member): member for part in inner if (member := _walk(part, name)) is not None}
        if matches:
            return list(matches.values())
        level = inner
    return []


def _member(value: Any, name: str) -> Any:
    """A key, an element ("0", "1", ...), or an attribute. Attributes that exist by __getattr__ alone are passed over,
    and so is a cached property that hasn't been computed: it would be stored on the batch."""
    if _is_leaf(value):
        return None
    try:
        if isinstance(value, Mapping):
            if name in value:
                return _passable(value[name])
        elif isinstance(value, (list, tuple)):
            fields = getattr(type(value), "_fields", ())  # of a named tuple
            place = fields.index(name) if name in fields else int(name) if name.isdecimal() else len(value)
            return _passable(value[place]) if place < len(value) else None
        own = _own(value)
        if name in own:
            return _passable(own[name])
        for kind in type(value).__mro__:
            if name in vars(kind):
                plain = vars(kind)[name]
                if isinstance(plain, _DESCRIPTORS):
                    return _passable(getattr(value, name))
                return None if hasattr(type(plain), "__get__") else _passable(plain)
    except Exception:  # a property or a mapping of the program that cannot answer now
        return None
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container or an object holds, each with its step of the name: [0], [key], .field."""
    if _is_leaf(value):
        return
    parts: Iterator[tuple[str, Any]]
    if isinstance(value, Mapping):
        parts = ((f"[{_label(key, place)}]", part) for place, (key, part) in enumerate(value.items()))
    elif isinstance(value, (list, tuple, deque)):
        parts = ((f"[{place}]", part) for place, part in enumerate(value))
    else:
        parts = ((f".{name}", part) for name, part in _own(value).items())
    try:
        # A snapshot: the program's threads may be at work on the container.
        yield from list(islice(parts, _LOOKS))
    except Exception:
        return


def _own(value: Any) -> dict[str, Any]:
    """Attributes that are stored on the object itself, in its __dict__ or its slots."""
    return {**in_slots(value), **in_dict(value)}


def _is_leaf(value: Any) -> bool:
    kind = type(value)
    return value is None or issubclass(kind, (Tensor, *_OPAQUE)) or is_jagged(value) or is_awaitable(value)


def _passable(value: Any) -> Any:
    return None if is_awaitable(value) or issubclass(type(value), (Future, Proxy)) else value


def _label(key: Any, place: int) -> str:
    """Only keys that are cheap and safe to print are printed."""
    return str(key) if type(key) in (str, int, float, bool) else f"#{place}"
