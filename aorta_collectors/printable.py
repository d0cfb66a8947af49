"""Text of others made safe for a terminal: names and reasons that a measured program could choose."""

from __future__ import annotations

_MOST = 2000


def printable(text: str, most: int = _MOST) -> str:
    """The text in one line and at most `most` characters, with escapes for what moves the cursor or cannot be seen.

    An escape sequence, a line break, a mark that turns the direction of writing, or a byte of a file name that is no
    UTF-8 is written as in Python's string literals.
    """
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]} ... {text[len(text) - half :]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte, as os.fsdecode hands it on
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
