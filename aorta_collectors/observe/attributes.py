"""What an object stores on itself, read without running any of its own code."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any


def in_dict(value: Any) -> dict[str, Any]:
    """The object's __dict__; empty where it has none."""
    try:
        attributes: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes


def in_slots(value: Any) -> dict[str, Any]:
    """Its slots that have a value, those of the nearest class first. Private names, which are mangled, are left out."""
    attributes: dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            slot = kind.__dict__.get(name)
            try:
                if isinstance(slot, MemberDescriptorType):
                    attributes[name] = slot.__get__(value)
            except AttributeError:  # no value yet
                continue
    return attributes
