"""The page in a browser: sorts, filters, unfolds, tells what one points at, asks the network for nothing."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.captured.sweeps import trial
from tests.captured.synthetic import record
from tests.numerics.synthetic import brick, escalation, stat, write
from tests.report.support import HOSTILE, page_below

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="needs Chromium and playwright"
)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture
def shown(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file; at the end nothing has gone wrong in there, and nothing was asked for."""
    wrong: list[str] = []
    opened: list[Page] = []

    def show(file: Path, **how: Any) -> Page:
        page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **how})
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "request",
            lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:", "blob:")) else None,
        )
        page.goto(file.absolute().as_uri())
        opened.append(page)
        return page

    yield show
    for page in opened:
        page.close()
    assert wrong == []


@pytest.fixture(scope="module")
def mitigations(captured: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    page_below(captured("mitigations"), file)
    return file


def cells(page: Page) -> list[str]:
    return page.locator("#verdicts tbody tr:visible th").all_inner_texts()


def test_trials_are_sorted_and_filtered(shown: Callable[..., Page], mitigations: Path) -> None:
    page = shown(mitigations)
    assert len(cells(page)) == 6
    step = page.get_by_role("button", name="step", exact=True)
    step.click()
    assert cells(page)[0] == "small_lr-none"
    step.click()
    assert cells(page)[0] == "warmup-none"
    assert cells(page)[-1] == "fp32_scores-none"  # without a step: last in both orders
    page.get_by_label("Filter").fill("fail forward later")
    assert sorted(cells(page)) == ["clip_gradients-none", "larger_eps-none", "warmup-none"]
    assert page.locator("#shown").inner_text() == "3 of 6"


def test_a_chart_tells_what_one_points_at(shown: Callable[..., Page], mitigations: Path) -> None:
    page = shown(mitigations)
    chart = page.locator("#run-up-0")
    chart.scroll_into_view_if_needed()
    chart.locator(".scatterlayer .point").nth(5).hover(force=True)
    page.locator("#run-up-0 .hoverlayer .hovertext").first.wait_for()
    assert "step 6" in (chart.locator(".hoverlayer").text_content() or "")
    heat = page.locator("#heat-0")
    heat.scroll_into_view_if_needed()
    heat.locator(".heatmaplayer image").first.wait_for()
    box = heat.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.5)
    heat.locator(".hoverlayer .hovertext").first.wait_for()
    told = heat.locator(".hoverlayer").text_content() or ""
    assert "NaN" in told
    assert "step 2" in told


def test_a_cells_name_unfolds_its_details_and_draws_them(shown: Callable[..., Page], mitigations: Path) -> None:
    page = shown(mitigations)
    page.get_by_role("link", name="fp32_scores-none").click()
    page.locator("#run-up-1 .scatterlayer .point").first.wait_for()
    assert page.locator("#detail-1").get_attribute("open") is not None
    assert not page.locator("#detail-2").evaluate("it => it.open")


def test_a_narrow_dark_screen_needs_no_sideways_scrolling(shown: Callable[..., Page], mitigations: Path) -> None:
    page = shown(mitigations, viewport={"width": 400, "height": 800}, color_scheme="dark")
    page.locator("#run-up-0").scroll_into_view_if_needed()
    page.locator("#run-up-0 .scatterlayer").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    colour = page.locator("#run-up-0 .xtick text").first.evaluate("it => getComputedStyle(it).fill")
    assert colour == "rgb(230, 233, 236)"


def test_hostile_names_stay_text(shown: Callable[..., Page], tmp_path: Path) -> None:
    records = [record(step, name, seq=seq, nans=int(step > 2)) for step in range(5) for seq, name in enumerate(HOSTILE)]
    for cell in ("none-x", "\u202e<b>other"):
        trial(tmp_path, cell, {0: records})
    page_below(tmp_path)
    page = shown(tmp_path / "report.html")
    page.locator("#run-up-0 .legendtext").first.wait_for()
    assert page.locator("#run-up-0 a, #run-up-0 script").count() == 0
    told = str(page.evaluate("document.getElementById('cells').data.map((trace) => trace.text)"))
    assert "\u202e" not in told
    assert "&lt;b&gt;other" in told
    assert "<img src=x onerror=alert(1)>" in page.locator("#run-up-0 .legend").inner_html().replace(
        "&lt;", "<"
    ).replace("&gt;", ">")


def test_a_brick_tells_what_it_took_and_hostile_ones_stay_text(shown: Callable[..., Page], tmp_path: Path) -> None:
    bricks = [brick(name, bound="compute", flops=5e7) for name in ("fc", *HOSTILE)]
    config = {"trace": "layer", "profile": "deferred"}
    looks = [escalation(name) for name in HOSTILE]
    stats = [stat(step, name, seq, nan_count=step - 1) for step in (1, 2) for seq, name in enumerate(("fc", *HOSTILE))]
    page_below(write(tmp_path / "out", config=config, bricks=bricks, escalations=looks, stats=stats))
    page = shown(tmp_path / "out" / "report.html")
    bars = page.locator("#numerics-bricks-0")
    bars.scroll_into_view_if_needed()
    bars.locator(".barlayer .point").first.hover(force=True)
    bars.locator(".hoverlayer .hovertext").first.wait_for()
    assert "efficiency 50.0%, bound by compute" in (bars.locator(".hoverlayer").text_content() or "")
    heat = page.locator("#numerics-deviation-forward-0")
    heat.scroll_into_view_if_needed()
    heat.locator(".heatmaplayer image").first.wait_for()
    box = heat.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 5)
    heat.locator(".hoverlayer .hovertext").first.wait_for()
    told = heat.locator(".hoverlayer").text_content() or ""
    for wanted in ("fc", "step 2", "standard deviation 0.500", "1 NaN of 8"):
        assert wanted in told
    for chart in page.locator(".plot").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for()
        assert chart.locator("a:not(.modebar-btn), script").count() == 0
