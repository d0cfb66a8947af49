"""Output in the page: whole, or collapsed with a line that says so, and never cut without a sign."""

from __future__ import annotations

import re
from pathlib import Path

from aorta_collectors.investigate.report.document import Document, Section, Verbatim
from aorta_collectors.investigate.report.page import page


def of_lines(count: int) -> str:
    text = "".join(f"line {number}\n" for number in range(1, count + 1))
    return page(Document("a title", (), (Section("Tool Evidence", (Verbatim(text),)),)), Path("/root"))


def test_short_output_is_open() -> None:
    html = of_lines(40)
    assert "<details" not in html
    assert "line 40" in html


def test_long_output_is_collapsed_whole_and_its_summary_says_how_long_it_is() -> None:
    html = of_lines(41)
    assert "<summary>41 lines, of which the first is <code>line 1</code></summary>" in html
    assert "line 41" in html


def test_no_box_of_output_has_a_height() -> None:
    (rule,) = re.findall(r"^pre:not\(\.wrap\) \{(.*?)^\}", of_lines(1), re.MULTILINE | re.DOTALL)
    assert "max-height: none" in rule
