"""The options that say when tensors count as the same, as `investigate new` and `investigate report` have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from aorta_collectors.analysis.bundles.criterion import BITWISE, TOLERANCE, ULP, Criterion


def _allowed(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is no tolerance; write 0 or more, such as 1e-3")
    return value


def criterion_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add them, handed on as `bitwise`, `ulp`, `rtol`, `atol` and `equal_nan`."""
    for option in (
        click.option("--equal-nan", is_flag=True, help="Tensors: NaN equals NaN."),
        click.option("--atol", type=float, callback=_allowed, help="Tensors: absolute tolerance."),
        click.option("--rtol", type=float, callback=_allowed, help="Tensors: relative tolerance of all dtypes."),
        click.option(
            "--ulp", type=click.IntRange(min=0), help="Tensors: at most so many steps between numbers of the dtype."
        ),
        click.option("--bitwise", is_flag=True, help="Tensors: the same bits, of the same dtype."),
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
