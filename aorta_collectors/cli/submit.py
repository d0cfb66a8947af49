"""`aorta-collectors submit RECIPE`: a sweep as one job a cell, on Slurm or on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aorta_collectors.scaleout.engine import EXECUTORS, Engine, parse_parameters
from aorta_collectors.scaleout.request import Request

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("recipe", type=_FILE)
@click.option("--executor", required=True, type=click.Choice(EXECUTORS), help="Where the jobs run.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Default: submit_results/RECIPE's name."
)
@click.option("--array-parallelism", type=click.IntRange(min=1), help="Jobs at a time. Default: local 1, slurm all.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter of submitit (repeatable).")
@click.option("--collect", default="", help="Collectors that replace the recipe's, separated by commas.")
@click.option("--mitigations-file", multiple=True, type=_FILE, help="As of aorta sweep run (repeatable).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def submit(
    recipe: Path,
    executor: str,
    output: Path | None,
    array_parallelism: int | None,
    param: tuple[str, ...],
    collect: str,
    mitigations_file: tuple[Path, ...],
    command: tuple[str, ...],
) -> None:
    """Run each cell of RECIPE as a job of its own, and gather the evidence of all of them.

    The same command again waits for jobs that still run, keeps what is there, and submits only cells that lack
    evidence. A probe recipe's command follows after --. Exits with 1 if a cell did not run or lacks evidence.

    Example: aorta-collectors submit sweep.yaml --executor slurm --param timeout_min=60 --param slurm_partition=gpu
    """
    from aorta_collectors.scaleout.submission import submit as submitted

    request = Request.of(recipe, command, collect, mitigations_file)
    engine = Engine(executor, parse_parameters(param), array_parallelism, f"aorta-{recipe.stem}")
    done = submitted(request, engine, output or Path("submit_results", recipe.stem), array_parallelism)
    sys.exit(0 if done else 1)
