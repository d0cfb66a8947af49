"""Comparisons of tensors as a person reads them: what matters first, in terminals of any width."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from aorta_collectors.analysis.bundles import bundles_of, compare, compare_ranks, series
from aorta_collectors.analysis.bundles.criterion import BITWISE, Criterion
from aorta_collectors.analysis.bundles.listing import found, listed
from aorta_collectors.report import tensors, tensors_list, tensors_ranks, tensors_series
from tests.analysis.bundles import made

ONE = torch.tensor([1.0, 2.0])
HOSTILE = "layer\x1b[2J\n.with.a.name.that.is.longer.than.any.terminal.is.wide." + "x" * 80


def console(width: int) -> Console:
    return Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, force_terminal=True, color_system=None
    )


def text_of(drawn: Console) -> str:
    assert isinstance(drawn.file, io.StringIO)
    return drawn.file.getvalue()


def write(tmp_path: Path, *, keep: bool = True) -> None:
    """Two ranks of two steps; in the second, rank 1 of b differs in one layer, is NaN in one, and lacks one."""
    for side in "ab":
        for rank in (0, 1):
            values = []
            for step in (1, 2):
                odd = side == "b" and rank == 1 and step == 2
                values.append(made.tensor("first", ONE, step=step, keep=keep))
                values.append(made.tensor(HOSTILE, ONE + 0.25 * odd, step=step, keep=keep))
                values.append(made.tensor("p", ONE + rank * (step - 1), kind="parameter", step=step, keep=keep))
                values.append(made.tensor("g", ONE * (math.nan if odd else 1), kind="gradient", step=step, keep=keep))
            if side == "a":
                values.append(made.tensor("gone", ONE, step=2))
            made.tensors(tmp_path / side, values, rank=rank, ranks=2)


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("keep", [True, False])
def test_every_report_keeps_to_the_width_and_shows_no_control_characters(
    tmp_path: Path, width: int, keep: bool
) -> None:
    write(tmp_path, keep=keep)
    a, b = (bundles_of(tmp_path / side) for side in "ab")
    drawn = console(width)
    tensors.render(compare(a, b), drawn, "run:a", "run:b", most=2)
    tensors_series.render(series(a, b, "after_*"), drawn, most=2)
    tensors_ranks.render(compare_ranks(b), drawn, most=2)
    tensors_list.render(listed(b), drawn, most=2)
    tensors_list.render_shown(found(b, "after_step:*"), drawn, most=2, with_values=keep)
    text = text_of(drawn)
    assert "\x1b[2J" not in text
    assert max(map(len, text.splitlines())) <= width


def test_absolute_values_stand_before_differences(tmp_path: Path) -> None:
    write(tmp_path)
    drawn = console(200)
    tensors.render(compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")), drawn, "run:a", "run:b")
    text = text_of(drawn)
    places = [
        text.index(word)
        for word in (
            "18 observations: 14 matched (14 bit for bit), 2 mismatched, 2 missing in the candidate.",
            "First divergence, in the forward pass",
            "element [0]",
            "abs. difference at [0]",
            "float32 [2] on cpu",
            "First in the backward pass: after_backward:g.weight.grad",
            "Names that do not match",
        )
    ]
    assert places == sorted(places)
    assert "All 5 observations before it matched." in text
    assert "NaN in the candidate alone" in text


def test_where_digests_cannot_tell_it_says_what_would(tmp_path: Path) -> None:
    for side, value in (("a", ONE), ("b", torch.nextafter(ONE, ONE + 1))):
        made.tensors(tmp_path / side, [made.tensor("x", value)])
    drawn = console(200)
    tensors.render(compare(bundles_of(tmp_path / "a"), bundles_of(tmp_path / "b")), drawn, "a", "b")
    assert "1 inconclusive: digests differ, and neither side kept values" in text_of(drawn)
    assert "observe with keep: values" in text_of(drawn)


def test_numbers_that_nine_digits_do_not_tell_apart_are_written_in_full(tmp_path: Path) -> None:
    exact = torch.tensor([1.0], dtype=torch.float64)
    for side, value in (("a", exact), ("b", torch.nextafter(exact, exact + 1))):
        made.tensors(tmp_path / side, [made.tensor("x", value, keep=True)])
    drawn = console(200)
    sides = (bundles_of(tmp_path / side) for side in "ab")
    baseline, candidate = sides
    tensors.render(compare(baseline, candidate, Criterion(BITWISE)), drawn, "a", "b")
    assert "1.0000000000000002" in text_of(drawn)


def step(number: int, changed: torch.Tensor) -> list[dict[str, Any]]:
    return [made.tensor(layer, changed if layer == "b" else ONE, step=number, keep=True) for layer in "abc"]


def test_the_first_other_dtype_is_told_whether_or_not_values_match(tmp_path: Path) -> None:
    made.tensors(tmp_path / "a", [*step(1, ONE), *step(2, ONE)])
    made.tensors(tmp_path / "b", [*step(1, ONE.to(torch.bfloat16)), *step(2, ONE.to(torch.bfloat16))])
    told = (
        "First dtype difference: after_forward:b.output, invocation 0 (step 1): float32 in the baseline, bfloat16 in "
        "the candidate; 2 observations have another dtype."
    )
    baseline, candidate = (bundles_of(tmp_path / side) for side in "ab")
    drawn = console(400)
    tensors.render(compare(baseline, candidate), drawn, "a", "b")
    assert "All 6 observations match, 4 bit for bit." in text_of(drawn)
    assert told in text_of(drawn)
    tensors.render(compare(baseline, candidate, Criterion(BITWISE)), drawn := console(400), "a", "b")
    assert told in text_of(drawn)
    assert "First divergence, in the forward pass: after_forward:b.output, invocation 0 (step 1)" in text_of(drawn)
    assert "Values decide what digests cannot" not in text_of(drawn)


def test_relative_and_ulp_are_those_of_the_elements_that_are_shown(tmp_path: Path) -> None:
    for side, value in (("a", [1.5, 0.001]), ("b", [1.6, 0.0])):
        made.tensors(tmp_path / side, [made.tensor("x", torch.tensor(value), keep=True)])
    baseline, candidate = (bundles_of(tmp_path / side) for side in "ab")
    drawn = console(200)
    tensors.render(compare(baseline, candidate), drawn, "a", "b")
    lines = {line[:40].strip(): line[40:].split() for line in text_of(drawn).splitlines()}
    assert lines["rel. difference at [0]"] == ["0.06667"]
    assert lines["rel. difference, largest elsewhere"] == ["1"]


def test_what_the_program_observes_itself_is_no_pass_of_its_own(tmp_path: Path) -> None:
    for side, value in (("a", ONE), ("b", ONE + 1)):
        made.tensors(tmp_path / side, [made.tensor("mine", value, kind="user", keep=True)])
    drawn = console(200)
    tensors.render(compare(*(bundles_of(tmp_path / side) for side in "ab")), drawn, "a", "b")
    assert "First divergence, in what the program observes itself: user:mine, invocation 0 (step 1)" in text_of(drawn)


def test_states_of_generators_are_told_in_words(tmp_path: Path) -> None:
    for side in "ab":
        seeds = {"armed": None, "first_call": {"torch_seed": 0, "torch_state": f"sha256:{side * 64}"}}
        made.tensors(tmp_path / side, [made.tensor("x", ONE)], seeds=seeds)
    drawn = console(200)
    tensors.render(compare(*(bundles_of(tmp_path / side) for side in "ab")), drawn, "a", "b")
    assert "seeds.torch_state: other numbers drawn before the first call, or not seeded alike" in text_of(drawn)
    assert "sha256" not in text_of(drawn)


def test_what_only_an_absolute_tolerance_lets_match_is_said(tmp_path: Path) -> None:
    for side, sign in (("a", 1), ("b", -1)):
        made.tensors(tmp_path / side, [made.tensor("l", sign * 1e-7 * ONE, kind="gradient", keep=True)])
    sides = [bundles_of(tmp_path / side) for side in "ab"]
    drawn = console(200)
    tensors.render(compare(*sides, Criterion(atol=1e-5)), drawn, "a", "b")
    assert "1 of the 1 match only since no element of theirs exceeds half the absolute tolerance" in text_of(drawn)
    assert "Furthest apart, for its size, of what matched: after_backward:l.weight.grad" in text_of(drawn)
    tensors.render(compare(*sides), drawn := console(200), "a", "b")
    assert "criterion  tolerance torch.testing's for each dtype, atol scaled down for tensors smaller" in text_of(drawn)
    assert "1 mismatched: values differ" in text_of(drawn)


def test_at_80_columns_labels_and_names_are_whole(tmp_path: Path) -> None:
    name = "blocks.0.attention.query_key"
    for side, value in (("a", ONE), ("b", (ONE + 0.5).to(torch.bfloat16))):
        made.tensors(tmp_path / side, [made.tensor(name, value.repeat(64, 128), keep=True)])
    drawn = console(80)
    tensors.render(compare(*(bundles_of(tmp_path / side) for side in "ab")), drawn, "a", "b")
    lines = [line.rstrip() for line in text_of(drawn).splitlines()]
    assert any(line.startswith("in ulp of bfloat16 at [0, 0]  ") for line in lines)
    assert "form  float32 [64, 256] on cpu / bfloat16 [64, 256] on cpu" in lines
    assert any(line.endswith(f"  after_forward:{name}.output") for line in lines)
