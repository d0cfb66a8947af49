"""Pages say what a terminal shows: the commands of each are run in order, and their output compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.captured.runs import swept
from tests.docs.console import Shown, Typed, commands, session
from tests.support import ROOT

DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(DOCS).as_posix(): found
    for page in sorted(DOCS.rglob("*.md"))
    if (found := commands(page.read_text(encoding="utf-8")))
}
#: Run directories that are there before a page's first command, by the name of what was captured.
STARTS_WITH = {
    "how-to/compare-two-runs.md": {"out/DEMO-NAN": "mitigations", "out/TWO-RANKS": "ranks"},
    "how-to/read-a-run.md": {"out/DEMO-NAN": "mitigations"},
    "how-to/several-nodes.md": {"out/TWO-RANKS": "ranks"},
    "how-to/timing-sensitive-bugs.md": {"out/DEMO-NAN": "mitigations"},
    "how-to/watch-a-run.md": {"out/DEMO-NAN": "mitigations"},
}
#: Sweeps that are captured for other tests as well, and so are not run again for a page: what one is captured with.
CAPTURING = {
    """aorta sweep run --recipe recipes/attention_nan.yaml \\
    --mitigations-file recipes/attention_nan.mitigations.json \\
    --output out -- python recipes/attention_nan.py""": "mitigations",
    """aorta sweep run --recipe recipes/slow_attention.yaml \\
    --mitigations-file recipes/slow_attention.mitigations.json \\
    --output out -- python recipes/slow_attention.py""": "slow",
}


@pytest.mark.sweep
@pytest.mark.timeout(300)  # torch.compile takes its time where others run beside it
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(
    name: str, tmp_path: Path, captured: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    shown_here = PAGES[name]
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for place, capture in STARTS_WITH.get(name, {}).items():
        shutil.copytree(captured(capture), tmp_path / place)
    typed = [shown.command for shown in shown_here]
    for number, sweep in enumerate(map(CAPTURING.get, typed)):
        if sweep is not None:
            done = swept(tmp_path_factory, sweep)
            (tmp_path / "printed").write_text(done.ran.err + done.ran.out)
            typed[number] = f"cat printed; mkdir out; cp -r {done.run_dir} out/; (exit {done.ran.code})"
    went = session(typed, tmp_path)
    assert len(went) == len(shown_here)
    for number, (shown, actual) in enumerate(zip(shown_here, went, strict=True)):
        command = f"$ {shown.command}\n"
        told = went[number + 1 : number + 2] == [Typed(0, (str(actual.code),))]
        assert actual.code == 0 or told, command + "\n".join([*actual.lines, f"exit code {actual.code}"])
        differs = [command, "the page shows", *shown.output, "", "it prints", *actual.lines]
        assert shown.matches(actual.lines), "\n".join(differs)


def test_the_pages_that_begin_with_a_run_are_there() -> None:
    assert set(STARTS_WITH) <= set(PAGES)


@pytest.mark.parametrize(
    ("output", "lines", "same"),
    [
        ((), [], True),
        ((), ["a"], False),
        (("a", "b"), ["a", "b"], True),
        (("a", "b"), ["a"], False),
        (("a",), ["a", "b"], False),
        (("...", "b"), ["b"], True),
        (("...", "b", "..."), ["a", "a", "b", "c"], True),
        (("a.*",), ["abc"], False),
        (("a",), ["a "], True),
        (("a",), ["a b"], False),
        (("took ... ms, a",), ["took 12.5 ms, a"], True),
        (("took ... ms, a",), ["took 12.5 ms, b"], False),
        (("took ... ms", "a"), ["took", " ms", "a"], False),
    ],
)
def test_dots_alone_stand_for_what_varies(output: tuple[str, ...], lines: list[str], same: bool) -> None:
    assert Shown("true", output).matches(lines) is same


def test_commands_go_on_behind_a_backslash() -> None:
    page = "```console\n$ one \\\n    --two\nout\n$ three\n```\n\n```\n$ not this\n```\n"
    assert commands(page) == [Shown("one \\\n    --two", ("out",)), Shown("three", ())]


def test_a_session_keeps_its_variables_and_says_how_each_command_ended(tmp_path: Path) -> None:
    typed = ["export WORD=here", 'echo "$WORD"; echo there >&2', "false | cat", "echo $?", "grep -c x /dev/null"]
    assert session(typed, tmp_path) == [
        Typed(0, ()),
        Typed(0, ("here", "there")),
        Typed(1, ()),
        Typed(0, ("1",)),
        Typed(1, ("0",)),
    ]
