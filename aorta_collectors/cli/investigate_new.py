"""`aorta-collectors investigate new ROOT`: declare a question, its variants and the order of its runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from aorta_collectors.cli.criteria import chosen, criterion_options
from aorta_collectors.investigate.declaring import Asked, declare
from aorta_collectors.investigate.described import design_lines
from aorta_collectors.investigate.design import BASELINE, CANDIDATE, KINDS, ORDERS, Design
from aorta_collectors.investigate.statistics import LEAST
from aorta_collectors.printable import printable
from aorta_collectors.report.evidence import shown

_DIRECTORY = click.Path(path_type=Path)


@click.command()
@click.argument("root", type=_DIRECTORY)
@click.option("--question", required=True, help="What is asked, in a sentence.")
@click.option("--criterion", required=True, help="What would answer it.")
@click.option("--kind", type=click.Choice(KINDS), default="values", show_default=True, help="Of the question.")
@click.option("--baseline", metavar="CMD", help="The command that is known, as one word.")
@click.option("--candidate", metavar="CMD", help="The one that is compared with it.")
@click.option("--baseline-env", multiple=True, metavar="K=V", help="A variable of the baseline's (repeatable).")
@click.option("--candidate-env", multiple=True, metavar="K=V", help="One of the candidate's (repeatable).")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its cells are run.")
@click.option("--baseline-cell", metavar="NAME", help="The cell in the place of --baseline.")
@click.option("--candidate-cell", metavar="NAME", help="The cell in the place of --candidate.")
@click.option("--points", default="", help="Points that every run must have, such as after_forward,user:logits.")
@click.option("--collect", multiple=True, metavar="NAME[:KEY=VALUE,...]", help="A collector (repeatable).")
@partial(criterion_options, of="Tensors")
@click.option("--repetitions", type=click.IntRange(min=1), help=f"Default: 1; for memory and timing {LEAST}.")
@click.option("--warm-up", type=click.IntRange(min=0), help="Runs of each that do not count. Default: 0, or 1.")
@click.option("--order", type=click.Choice(ORDERS), help="Default: pair; for memory and timing counterbalanced.")
@click.option("--order-seed", type=click.IntRange(min=0), help="Of --order random. Default: 0.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the first repetition; the next has one more.")
@click.option("--no-observer-effect", is_flag=True, help="Leave out the runs without the tool.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds a run may take.")
@click.option(
    "--revision-of",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="A further git work tree whose state is recorded (repeatable).",
)
@click.option("--cwd", type=_DIRECTORY, default=Path(), help="Where the commands are run. Default: here.")
def new(
    root: Path,
    question: str,
    criterion: str,
    kind: str,
    baseline: str | None,
    candidate: str | None,
    baseline_env: tuple[str, ...],
    candidate_env: tuple[str, ...],
    recipe: Path | None,
    baseline_cell: str | None,
    candidate_cell: str | None,
    points: str,
    collect: tuple[str, ...],
    repetitions: int | None,
    warm_up: int | None,
    order: str | None,
    order_seed: int | None,
    seed: int | None,
    no_observer_effect: bool,
    timeout: float | None,
    revision_of: tuple[Path, ...],
    cwd: Path,
    **agreement: Any,
) -> None:
    """Declare an investigation in ROOT, a directory that does not exist yet. Nothing is run.

    Kinds of questions, and the collectors that answer them unless --collect says otherwise: values, whether tensors
    agree (tensors); finite, where a NaN or Inf begins (layer_numerics); memory, what grows and where (memory); timing,
    what is slower (numerics). Of values and finite one matched pair says enough, unless the answer depends on a seed;
    memory and timing vary, so the variants take turns, as often as an interval of a median takes. {seed} and
    {repetition} in a command are replaced in each run; the seed is in INVESTIGATION_SEED as well.

    When tensors count as the same is declared too, before there is a result that could be looked at: --bitwise, --ulp,
    --rtol with --atol, or without these the tolerance of each dtype. A report with another criterion says so.

    Example: aorta-collectors investigate new slow-42 --kind timing --question "Is --fused faster?" --criterion
    "its median step is shorter" --baseline "python train.py" --candidate "python train.py --fused"

    Exit codes: 0 declared, 1 ROOT exists or a recipe is refused, 2 something that was asked cannot be done.
    """
    if order_seed is not None and order != "random":
        raise click.UsageError("--order-seed is the seed of --order random")
    design = Design.of(
        kind,
        order=order,
        order_seed=order_seed,
        repetitions=repetitions,
        warm_up=warm_up,
        observer_effect=not no_observer_effect,
    )
    commands = {BASELINE: baseline, CANDIDATE: candidate}
    cells = {BASELINE: baseline_cell, CANDIDATE: candidate_cell}
    asked = Asked(
        question,
        criterion,
        kind,
        design,
        commands={name: text for name, text in commands.items() if text is not None},
        environments={BASELINE: baseline_env, CANDIDATE: candidate_env},
        recipe=recipe.resolve() if recipe is not None else None,
        cells={name: cell for name, cell in cells.items() if cell is not None},
        collect=collect,
        points=tuple(point.strip() for point in points.split(",") if point.strip()),
        seed=seed,
        timeout_s=timeout,
        revision_of=revision_of,
        cwd=cwd,
        agreement=chosen(**agreement),
    )
    declared = declare(root, asked)
    for line in design_lines(declared.investigation.metadata, declared.routes, declared.observed):
        click.echo(line)
    for doubt in declared.doubts:
        click.echo(printable(f"note:       {doubt}"))
    click.echo(f"Next: aorta-collectors investigate run {shown(root)}")
