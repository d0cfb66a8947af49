"""The options that say when numbers count as the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from aorta_collectors.analysis.bundles.criterion import BITWISE, TOLERANCE, ULP, Criterion


def tolerance(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """The callback of an option for a tolerance. Raises BadParameter for what is none."""
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is no tolerance; write 0 or more, such as 1e-3")
    return value


def criterion_options(verb: Callable[..., Any], of: str = "") -> Callable[..., Any]:
    """Add those of tensors, handed on as `bitwise`, `ulp`, `rtol`, `atol` and `equal_nan`.

    Args:
        of: What they are of, for a verb that does other things too.
    """

    def said(what: str) -> str:
        return f"{of}: {what}" if of else what[0].upper() + what[1:]

    atol = "absolute tolerance, taken as it is for tensors of any size."
    for option in (
        click.option("--equal-nan", is_flag=True, help=said("NaN equals NaN.")),
        click.option("--atol", type=float, callback=tolerance, help=said(atol)),
        click.option(
            "--rtol", type=float, callback=tolerance, help=said("relative tolerance of all dtypes, such as 1e-3.")
        ),
        click.option(
            "--ulp", type=click.IntRange(min=0), help=said("at most so many steps between numbers of the dtype.")
        ),
        click.option("--bitwise", is_flag=True, help=said("the same bits, of the same dtype.")),
    ):
        verb = option(verb)
    return verb


def chosen(bitwise: bool, ulp: int | None, rtol: float | None, atol: float | None, equal_nan: bool) -> Criterion | None:
    """The criterion that the options ask for; None without any. Raises UsageError for several at once."""
    asked = [bitwise, ulp is not None, rtol is not None or atol is not None]
    if sum(asked) > 1:
        raise click.UsageError("--bitwise, --ulp, and --rtol with --atol are three criteria; choose one")
    if bitwise and equal_nan:
        raise click.UsageError("--bitwise compares bits, and needs no --equal-nan: the same NaN equals itself")
    if not any(asked) and not equal_nan:
        return None
    kind = BITWISE if bitwise else ULP if ulp is not None else TOLERANCE
    return Criterion(kind, ulp or 0, rtol, atol, equal_nan)
