"""JSON as evidence has to be: standard, each key of an object once, and of a size that memory holds.

orjson refuses NaN, infinities and a byte order mark. It keeps the last of two equal keys without a word, though, where
another reader may keep the first. And it refuses lone surrogates, which stand for the bytes of a file name that are no
UTF-8; Python's own decoder takes them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

# A value takes some 60 bytes of memory or more, and as little as three of text.
_MOST_VALUES = 4_000_000
# Python's own functions for JSON, and ours, call themselves at each level.
_DEEPEST = 100


def loads(text: bytes) -> Any:
    """The value of one JSON text.

    Raises:
        ValueError: It is none, an object in it has a key twice, or it is larger or deeper than what is taken in.
    """
    check_extent(text)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        if b"\\ud" not in text.lower():
            raise
        value = _loads_surrogates(text)
    if text.count(b":") != _keys(value):
        _check_keys(text)
    return value


def loads_lines(lines: Sequence[bytes]) -> list[Any]:
    """The values of many texts. Raises ValueError like `loads`, without saying in which."""
    values = list(map(orjson.loads, lines))
    colons = b"".join(lines).count(b":")
    # Objects that hold no others, as records do, are counted without a look into them.
    if not (set(map(type, values)) == {dict} and colons == sum(map(len, values))) and colons != sum(map(_keys, values)):
        for line in lines:
            _check_keys(line)
    return values


def check_extent(text: bytes) -> None:
    """Raise ValueError if a text may hold more than four million values, before memory is spent on them."""
    if len(text) <= _MOST_VALUES:
        return
    most = text.count(b",") + text.count(b"[") + text.count(b"{")
    if most > _MOST_VALUES:
        raise ValueError(f"holds some {most} values, more than the {_MOST_VALUES} that are taken in")


def _keys(value: Any, depth: int = 0) -> int:
    """How many keys the objects in a value have together. Raises ValueError beyond the deepest level.

    Each key that was read stands before a colon of its own. So a text with no more colons than keys has none twice;
    one with more may also have them inside of strings, and is looked at closely.
    """
    if depth >= _DEEPEST:
        raise ValueError(f"is nested deeper than the {_DEEPEST} levels that are taken in")
    if type(value) is dict:
        inner = [item for item in value.values() if type(item) is dict or type(item) is list]
        return len(value) + sum(_keys(item, depth + 1) for item in inner)
    if type(value) is list:
        return sum(_keys(item, depth + 1) for item in value if type(item) is dict or type(item) is list)
    return 0


def _loads_surrogates(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_number, parse_float=_number)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _number(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"has {word}, which is no number in JSON")
    return number


def _check_keys(text: bytes) -> None:
    json.loads(text.decode(), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"has the key {json.dumps(twice)} twice in one object")
    return found
