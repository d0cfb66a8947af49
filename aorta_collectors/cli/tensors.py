"""`aorta-collectors tensors`: compare what `collect: tensors` left of two runs, and look at it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from aorta_collectors.analysis.bundles.bundle import Bundle, bundles_in
from aorta_collectors.analysis.bundles.compare import compare as compared
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.listing import found as found_under
from aorta_collectors.analysis.bundles.listing import listed
from aorta_collectors.analysis.bundles.ranks import compare_ranks
from aorta_collectors.analysis.bundles.series import series as series_of
from aorta_collectors.analysis.captures import TENSORS
from aorta_collectors.cli.compare_side import Side, parse
from aorta_collectors.cli.criteria import chosen, criterion_options
from aorta_collectors.cli.output import Output
from aorta_collectors.cli.progress import Bar
from aorta_collectors.cli.reading import output_options, selecting, tell_problems
from aorta_collectors.report import tensors_list, tensors_ranks, tensors_series
from aorta_collectors.report.tensors import render

_DIFFERENT = 3


@click.group()
def tensors() -> None:
    """Compare named tensors of two runs, and look at them."""


_named = click.option(
    "--name", "names", multiple=True, help="Only names like this, such as 'after_forward:*' (repeatable)."
)
_most = click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of each table.")


def _bundles(side: Side, cell: Sequence[str], trial: Sequence[str], rank: Sequence[int]) -> list[Bundle]:
    captures = side.captures(cell, trial, rank, TENSORS)
    tell_problems(captures)
    return bundles_in(captures)


@tensors.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option("--ranks", is_flag=True, help="Compare the ranks of A with each other.")
@_named
@criterion_options
@selecting
@_most
@output_options
def compare(
    a: str,
    b: str | None,
    ranks: bool,
    names: tuple[str, ...],
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    most: int,
    as_json: bool,
    output: Path | None,
    **criterion: Any,
) -> None:
    """Compare the tensors of two runs, cells, trials or ranks: which match, and which differs first.

    A is the baseline, B the candidate. Both are PATH[:CELL[:TRIAL]][@RANK], such as RUN:none-none or RUN@1; B may leave
    out PATH where it is that of A: RUN:none-none :compiled-none. Each rank is compared with the same rank.

    An observation is the same in both by its name and its invocation. Elements must agree within the tolerance of
    torch.testing.assert_close for the dtype, and where the dtypes differ, for the one of lower precision; its atol is
    multiplied by the largest magnitude of the baseline's tensor where that is less than 1. What has another shape does
    not match, nor with --bitwise what has another dtype. Equal digests need no more; where they differ and values were
    not kept (keep: values), only --bitwise can always tell.

    With --ranks, and no B, the ranks of A are compared with each other, in what should be the same on all of them: the
    parameters after each optimizer step, or what --name says.

    Exits with 0 if all that was compared matched, and with 3 otherwise, also if nothing could be compared.

    Example: aorta-collectors tensors compare triage_results/NAN-17/training/20261129-101500:none-none :compiled-none
    """
    if ranks == (b is not None):
        raise click.UsageError("name two sides, or one and --ranks")
    wanted = chosen(**criterion) or Criterion()
    left = parse(a)
    baseline = _bundles(left, cell, trial, rank)
    with Output(output) as out:
        if b is None:
            of_ranks = compare_ranks(baseline, wanted, names)
            matched = all(each.all_matched for each in of_ranks)
            if as_json:
                out.json({"a": left.text, "trials": [each.to_json(most) for each in of_ranks]})
            else:
                tensors_ranks.render(of_ranks, out.console(), most)
        else:
            right = parse(b, left.path)
            candidate = _bundles(right, cell, trial, rank)
            with Bar("comparing tensors") as bar:
                comparison = compared(baseline, candidate, wanted, names, bar)
            matched = comparison.all_matched
            if as_json:
                out.json({"a": left.text, "b": right.text, **comparison.to_json(most)})
            else:
                render(comparison, out.console(), left.text, right.text, most)
    sys.exit(0 if matched else _DIFFERENT)


@tensors.command()
@click.argument("a")
@click.argument("b")
@click.argument("name")
@criterion_options
@selecting
@_most
@output_options
def series(
    a: str,
    b: str,
    name: str,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    most: int,
    as_json: bool,
    output: Path | None,
    **criterion: Any,
) -> None:
    """Follow one name over steps, calls or replays of two runs: where a difference begins, and whether it grows.

    A and B are as in `compare`. NAME may be a pattern, such as 'user:logits*'.

    Exits with 0 if all match, and with 3 otherwise.

    Example: aorta-collectors tensors series RUN:none-none :graph-none after_forward:head.output
    """
    wanted = chosen(**criterion) or Criterion()
    left = parse(a)
    right = parse(b, left.path)
    baseline, candidate = (_bundles(side, cell, trial, rank) for side in (left, right))
    with Output(output) as out:
        with Bar("comparing tensors") as bar:
            found = series_of(baseline, candidate, name, wanted, bar)
        if as_json:
            out.json({"a": left.text, "b": right.text, "series": [each.to_json() for each in found]})
        else:
            tensors_series.render(found, out.console(), most)
    sys.exit(0 if all(each.all_matched for each in found) else _DIFFERENT)


@tensors.command("list")
@click.argument("a")
@_named
@selecting
@_most
@output_options
def list_names(
    a: str,
    names: tuple[str, ...],
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    most: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """List the names that were observed, in the order in which they first were.

    A is PATH[:CELL[:TRIAL]][@RANK].

    Example: aorta-collectors tensors list tensors_out --name 'after_backward:*'
    """
    found = listed(_bundles(parse(a), cell, trial, rank), names)
    with Output(output) as out:
        if as_json:
            out.json(found.to_json())
        else:
            tensors_list.render(found, out.console(), most)


@tensors.command()
@click.argument("a")
@click.argument("name")
@click.option("--invocation", type=click.IntRange(min=0), help="Only this one; else all.")
@click.option("--values", is_flag=True, help="Print the elements too, where they were kept, as torch does.")
@selecting
@_most
@output_options
def show(
    a: str,
    name: str,
    invocation: int | None,
    values: bool,
    cell: tuple[str, ...],
    trial: tuple[str, ...],
    rank: tuple[int, ...],
    most: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Show what was observed under a name: form, digest, statistics, and with --values the elements.

    A is PATH[:CELL[:TRIAL]][@RANK], and NAME may be a pattern. With --json, --values adds all elements of each.

    Example: aorta-collectors tensors show tensors_out after_forward:head.output --invocation 0 --values
    """
    found = found_under(_bundles(parse(a), cell, trial, rank), name, invocation)
    with Output(output) as out:
        if as_json:
            out.json([each.to_json(values) for each in found[:most]])
        else:
            tensors_list.render_shown(found, out.console(), most, values)
