"""The page: one file that loads nothing, in which text of others is text, and figures that plotly takes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aorta_collectors.analysis.report.found import found_below
from aorta_collectors.errors import CollectorsError
from aorta_collectors.report.html import write_report
from tests.captured.runs import NAMES
from tests.captured.sweeps import trial
from tests.captured.synthetic import record, write
from tests.report.support import HOSTILE, figures_of, page_below, shown_text, without_scripts


class Tags(HTMLParser):
    """The elements of a page, each with its attributes, and what is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    run_dir = tmp_path_factory.mktemp("run")
    for index, name in enumerate(HOSTILE):
        records = [
            record(step, layer, seq=seq, nans=int(step > 2)) for step in range(5) for seq, layer in enumerate(HOSTILE)
        ]
        warned = {0: {"warnings": [name], "ended_by": name, "config": {"huge_threshold": 1e10, "key": name}}}
        folder = name.replace("/", "\u2215")
        trial(
            run_dir, f"{folder}-{index}", {0: records}, mitigations=["none"] if not index else [name], summaries=warned
        )
    return page_below(run_dir)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_loads_nothing_and_its_tags_close(captured: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    page = page_below(captured(name), tmp_path / "report.html")
    tags = Tags(without_scripts(page))
    assert tags.open == []
    assert not {tag for tag, _ in tags.found} & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert all("src" not in attributes for _, attributes in tags.found)
    links = [attributes["href"] or "" for tag, attributes in tags.found if tag == "a"]
    assert links
    assert all(link.startswith(("#", "./")) for link in links)
    assert all((tmp_path / link).exists() for link in links if not link.startswith("#"))
    anchors = {attributes.get("id") for _, attributes in tags.found}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


@pytest.mark.parametrize("name", NAMES)
def test_plotly_takes_every_figure(captured: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    import json

    from plotly.graph_objects import Figure

    figures = figures_of(page_below(captured(name), tmp_path / "report.html"))
    assert {"run-up-0", "heat-0"} <= set(figures) or {"numerics-phases-0", "numerics-bricks-0"} <= set(figures)
    for figure in figures.values():
        # The colours are the style sheet's, which the script puts in.
        plain = json.loads(re.sub(r"var\(--[a-z0-9-]+\)", "#123456", json.dumps(figure)))
        Figure(data=plain["data"], layout=plain["layout"])


def test_the_first_screen_answers(captured: Callable[[str], Path], tmp_path: Path) -> None:
    page = page_below(captured("mitigations"), tmp_path / "report.html")
    top = shown_text(page).partition("Trials")[0]
    for answer in (
        r"Inf in step \d+, layer blocks\.0\.attention\.scores\b",
        r"Origin: forward, blocks\.0\.attention\.scores, step \d+: its inputs",
        r"Run-up of its magnitude: \d+ -> \d+ in steps 3-12, x1\.\d+ a step; float16 ends at 65504\.",
        r"It is gone in fp32_scores-none\.",
        r"It comes earlier in small_lr-none \(step \d+, to another layer\)\.",
    ):
        assert re.search(answer, top), answer


def test_only_the_pages_own_scripts_may_run(hostile: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', hostile)
    assert policy is not None
    assert policy.group(1).startswith("default-src &#39;none&#39;; script-src ")
    scripts = re.findall(r"<script>(.*?)</script>", hostile, re.DOTALL)
    assert len(scripts) == 2
    digests = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(re.findall(r"sha256-([A-Za-z0-9+/=]+)", policy.group(1))) == digests


def test_what_a_program_chose_is_text(hostile: str) -> None:
    tags = Tags(without_scripts(hostile))
    assert tags.open == []
    assert not {tag for tag, _ in tags.found} & {"script", "img"}
    assert not [name for _, attributes in tags.found for name in attributes if name.startswith("on")]
    links = [attributes["href"] or "" for tag, attributes in tags.found if tag == "a"]
    assert all(link.startswith(("#", "./")) for link in links)
    shown = shown_text(hostile)
    for name in HOSTILE[:5]:
        assert name in shown
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile
    assert "\\u202e" in shown


def test_plotly_is_given_no_markup_of_others(hostile: str) -> None:
    figures = figures_of(hostile)
    assert "&lt;img src=x onerror=alert(1)&gt;" in str(figures)
    assert not re.search(r"<(?!/?b>|br>|/?extra>)", str(figures))


@pytest.mark.parametrize("records", [[], [record(1, high=None, nans=8)], [record(1, high=0.0)]])
def test_little_is_a_page_too(tmp_path: Path, records: list[dict[str, object]]) -> None:
    write(tmp_path / "out", {0: records})
    page = page_below(tmp_path / "out")
    assert Tags(without_scripts(page)).open == []
    assert bool(figures_of(page)) == bool(records)


def test_of_a_pruned_trial_the_receipt_tells(tmp_path: Path) -> None:
    told = {"steps": 9, "first_bad_step": 4, "first_bad_layer": "gone.layer", "first_bad_kind": "nan"}
    metrics = {f"layer_numerics_{name}": value for name, value in told.items()}
    trial(tmp_path, "none-x", None, verdict="pruned", metrics=metrics, passed=False)
    shown = shown_text(page_below(tmp_path))
    assert "NaN in step 4, layer gone.layer" in shown
    assert "the records are gone" in shown


def test_a_number_beyond_json_does_not_spoil_the_page(tmp_path: Path) -> None:
    write(tmp_path / "out", {0: [record(step, high=1.0) for step in range(3)]})
    file = tmp_path / "out" / "layers_rank0.jsonl"
    file.write_text(file.read_text().replace('"finite_abs_max": 1.0', '"finite_abs_max": 1e999', 1))
    figures = figures_of(page_below(tmp_path / "out"))
    assert figures["run-up-0"]["data"][0]["y"] == [None, 1.0, 1.0]


def test_a_page_of_very_much_stays_small(tmp_path: Path) -> None:
    layers = [f"model.layers.{index}.with.a.rather.long.name.that.goes.on" for index in range(400)]
    for cell in range(12):
        records = [
            record(step, name, seq=seq, nans=int(step > 3)) for step in range(20) for seq, name in enumerate(layers)
        ]
        trial(tmp_path, f"{'none' if not cell else f'm{cell}'}-x", {0: records[: 8000 if cell < 3 else 400]})
    page = page_below(tmp_path)
    from plotly.offline import get_plotlyjs

    assert len(page.encode()) - len(get_plotlyjs().encode()) < 5_000_000


def test_a_place_that_cannot_be_written_to_is_told(captured: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(CollectorsError):
        write_report(found_below(captured("clean")), tmp_path / "nowhere" / "report.html")


def test_the_smallest_and_the_largest_numbers_have_a_chart(tmp_path: Path) -> None:
    records = [record(1, high=5e-324, dtype="torch.float64"), record(2, high=1.7e308, infs=1, dtype="torch.float64")]
    write(tmp_path / "out", {0: records})
    axis = figures_of(page_below(tmp_path / "out"))["run-up-0"]["layout"]["yaxis"]
    assert axis["range"][0] < -306
    assert axis["range"][1] > 308
