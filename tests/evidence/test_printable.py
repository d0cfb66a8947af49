"""What others chose to call things, on a terminal."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta_collectors.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("encoder.layers.0 (Größe, 層)", "encoder.layers.0 (Größe, 層)"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        (os.fsdecode(b"r\xe9sultats"), r"r\xe9sultats"),
        ("\ud800", r"\ud800"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b31m", r"\x9b31m"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_escaped_and_all_else_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_the_result_is_printable_whatever_it_was(text: str) -> None:
    assert printable(text).isprintable()


def test_a_long_text_keeps_its_ends() -> None:
    shown = printable("a" * 10_000 + "b", 100)
    assert (len(shown), shown[:50], shown[-1], " ... " in shown) == (105, "a" * 50, "b", True)
