"""The flamegraph: one SVG that is whole, the same each time, harmless whatever the names, and zooms by a click."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from aorta_collectors.analysis.profile_stacks import stacks_of
from aorta_collectors.report.flamegraph import flamegraph
from tests.analysis.profiled import profile_below, profile_with
from tests.numerics.synthetic import brick, write
from tests.report.support import HOSTILE
from tests.report.test_browser import CHROMIUM, QUIET

_SVG = "{http://www.w3.org/2000/svg}"


def drawn(path: Path, title: str = "a run") -> str:
    return flamegraph(stacks_of(profile_below(path).bricks), title, "4 steps")


def test_frames_are_as_wide_as_their_time_and_hang_on_what_encloses_them(tmp_path: Path) -> None:
    root = xml.fromstring(drawn(write(tmp_path, config={"profile": "deferred"})))
    frames = root.findall(f"{_SVG}g")
    assert len(frames) == 20
    by_name = {frame.get("data-name", ""): frame for frame in frames[:10]}
    block, attention = by_name["h.0 Block"], by_name["attn Attention"]
    # Forward is a third of all: 2840 of 8520 microseconds.
    assert float(by_name["forward"].get("data-w", 0)) == pytest.approx(1 / 3)
    assert float(block.get("data-w", 0)) == pytest.approx(1200 / 8520)
    assert (block.get("data-level"), attention.get("data-level")) == ("1", "2")
    title = attention.findtext(f"{_SVG}title") or ""
    assert title.splitlines() == [
        "h.1.attn (Attention), forward",
        "2.8 ms (8.2%) with its parts, 2.8 ms (8.2%) its own",
        "4 calls, 700 us each, p99 840 us, CV 0.05",
        "50.0% of the roofline, bound: compute",
    ]
    for frame in frames:
        rect, label = frame.find(f"{_SVG}rect"), frame.findtext(f"{_SVG}text") or ""
        assert rect is not None
        assert len(label) * 7 <= float(rect.get("width", 0))


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    write(tmp_path, config={"profile": "deferred"})
    assert drawn(tmp_path) == drawn(tmp_path)


def test_names_cannot_break_out(tmp_path: Path) -> None:
    names = [*HOSTILE, "a]]>b", "\x00\x1b\ud800\uffff", "&amp;"]
    bricks = [brick(name, module_type=name, self_us=1000 + index) for index, name in enumerate(names)]
    profile_with(tmp_path, bricks)
    text = drawn(tmp_path, title="".join(names[:3]))
    root = xml.fromstring(text.encode())
    assert len(root.findall(f".//{_SVG}g")) == len(names) + 1
    assert len(re.findall("<script", text)) == 1
    assert not re.search(
        r"(href|src)=|https?://(?!www\.w3\.org/2000/svg)", re.sub(r'data-(name|short)="[^"]*"|<t.*?</t', "", text)
    )


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium and playwright")
def test_a_click_zooms_and_one_beside_goes_back(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    target = tmp_path / "x.svg"
    target.write_text(drawn(write(tmp_path / "out", config={"profile": "deferred"})))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        page = browser.new_page(viewport={"width": 1200, "height": 300})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(target.absolute().as_uri())
        block = page.locator("g.frame[data-name='h.0 Block']").first
        before = float(block.locator("rect").get_attribute("width") or 0)
        block.click()
        assert float(block.locator("rect").get_attribute("width") or 0) == pytest.approx(1180)
        shown = page.locator("g.frame:visible").evaluate_all("all => all.map(frame => frame.dataset.name)")
        assert shown == ["forward", "h.0 Block", "attn Attention", "mlp MLP"]
        page.mouse.click(1198, 2)
        assert float(block.locator("rect").get_attribute("width") or 0) == pytest.approx(before, abs=0.1)
        browser.close()
        assert wrong == []
