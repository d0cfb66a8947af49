"""`investigate new`: a question becomes a declared design, checked as far as it can be before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta_collectors import __version__
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.captures import TENSORS
from aorta_collectors.api import Capture, LaunchError, OptionsError
from aorta_collectors.errors import CollectorsError
from aorta_collectors.investigate.agreement import AGREEMENT, criterion_fields
from aorta_collectors.investigate.answering import doubts
from aorta_collectors.investigate.collecting import Collecting, collecting_for
from aorta_collectors.investigate.commands import SEED, check_command, parse_command
from aorta_collectors.investigate.design import BASELINE, CANDIDATE, VARIANTS, Design, schedule_of
from aorta_collectors.investigate.files import (
    METADATA,
    RUNS,
    SCHEMA_VERSION,
    Investigation,
    open_investigation,
    utc_now,
    write_metadata,
)
from aorta_collectors.investigate.recipes import check_cell
from aorta_collectors.investigate.revisions import asked_for


@dataclass(frozen=True)
class Asked:
    """What `new` was told.

    Attributes:
        commands: By variant, as one text each.
        environments: By variant, NAME=VALUE settings.
        recipe: In the place of commands, with `cells` by variant.
        collect: NAME or NAME:KEY=VALUE,... each; none for the kind's own.
        cwd: Where the commands are run.
        agreement: When tensors count as the same; None for the default.
    """

    question: str
    criterion: str
    kind: str
    design: Design
    commands: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recipe: Path | None = None
    cells: Mapping[str, str] = field(default_factory=dict)
    collect: Sequence[str] = ()
    points: Sequence[str] = ()
    seed: int | None = None
    timeout_s: float | None = None
    revision_of: Sequence[Path] = ()
    cwd: Path = Path(os.curdir)
    agreement: Criterion | None = None


@dataclass(frozen=True)
class Declared:
    """A new investigation.

    Attributes:
        observed: Points at which collectors look, as far as a program comes by there.
        routes: How collectors get into each variant, in words.
        doubts: What stands in the way of an answer, a sentence each.
    """

    investigation: Investigation
    observed: tuple[str, ...]
    routes: Mapping[str, str]
    doubts: tuple[str, ...] = ()


def declare(root: Path, asked: Asked) -> Declared:
    """Check a question's design and write it down in a fresh root. Nothing is run.

    Raises:
        OptionsError: Something that was asked cannot be done; the message names the option.
        CollectorsError: `root` exists, or the host refuses a recipe.
    """
    # Nothing of an earlier investigation may pass for evidence of this one.
    if os.path.lexists(root):
        raise CollectorsError(f"{root} exists, and nothing is ever overwritten. Name a directory that does not exist")
    for option, text in (("--question", asked.question), ("--criterion", asked.criterion)):
        if not text.strip():
            raise OptionsError(option, "is empty; say it in a sentence")
    cwd = asked.cwd.resolve()
    if not cwd.is_dir():
        raise OptionsError("--cwd", f"{cwd} is not a directory")
    collecting = collecting_for(asked.kind, asked.collect, asked.points)
    compares = TENSORS.collector in collecting.blocks
    if asked.agreement is not None and not compares:
        names = ", ".join(collecting.blocks)
        raise OptionsError(
            "--bitwise, --ulp, --rtol, --atol, --equal-nan",
            f"say when tensors count as the same, and {names} collects none; --collect tensors does",
        )
    seed = _seed(asked)
    variants = _variants(asked, cwd)
    routes = {variant["name"]: _route(variant, collecting, cwd, seed) for variant in variants}
    metadata = {
        "schema_version": SCHEMA_VERSION,
        "engine": f"aorta-collectors {__version__}",
        "mode": "fresh",
        "question": asked.question.strip(),
        "criterion": asked.criterion.strip(),
        "kind": asked.kind,
        "created_at": utc_now(),
        "started_at": None,
        "variants": variants,
        "collect": collecting.blocks,
        "points": list(collecting.points),
        **({AGREEMENT: criterion_fields(asked.agreement or Criterion())} if compares else {}),
        "design": asked.design.to_json(),
        "schedule": schedule_of(asked.design, [variant["name"] for variant in variants], seed),
        "seed": seed,
        "timeout_s": asked.timeout_s,
        "cwd": str(cwd),
        "environment": None,
        "revisions": {str(tree): {} for tree in asked_for(asked.revision_of)},
        "existing": [],
    }
    try:
        root.mkdir(parents=True)
        (root / RUNS).mkdir()
        write_metadata(root.resolve(), metadata)
    except FileExistsError:
        raise CollectorsError(f"{root} exists by now; name a directory that does not") from None
    except OSError as error:
        raise CollectorsError(f"{root / METADATA} cannot be written: {error.strerror}") from None
    return Declared(open_investigation(root), collecting.observed, routes, tuple(doubts(metadata)))


def _seed(asked: Asked) -> int | None:
    """Repetitions that ask whether a NaN depends on the seed need one, and so does a command with a place for it."""
    has_place = any(SEED in text for text in asked.commands.values())
    if asked.seed is None and (has_place or (asked.kind == "finite" and asked.design.repetitions > 1)):
        return 0
    return asked.seed


def _variants(asked: Asked, cwd: Path) -> list[dict[str, Any]]:
    given = asked.cells if asked.recipe is not None else asked.commands
    wanted = "--baseline-cell" if asked.recipe is not None else "--baseline"
    if BASELINE not in given:
        raise OptionsError(wanted, "is missing: there is nothing to run")
    if asked.recipe is not None and asked.commands:
        raise OptionsError("--recipe", "and commands exclude each other; cells are chosen by --baseline-cell")
    if asked.recipe is None and asked.cells:
        raise OptionsError("--recipe", "is missing: which recipe has these cells?")
    found = []
    for name in VARIANTS:
        environment = _environment(f"--{name}-env", asked.environments.get(name, ()))
        if name not in given:
            if environment:
                raise OptionsError(f"--{name}-env", f"is given, and --{name} is not")
            continue
        is_cell = asked.recipe is not None
        found.append(
            {
                "name": name,
                "command": None if is_cell else parse_command(f"--{name}", given[name]),
                "environment": environment,
                "recipe": str((cwd / asked.recipe).resolve()) if asked.recipe is not None else None,
                "cell": given[name] if is_cell else None,
            }
        )
    if len(found) == 2 and all(found[0][key] == found[1][key] for key in ("command", "cell", "environment")):
        raise OptionsError(f"--{CANDIDATE}", "is the same as the baseline; a difference is what is investigated")
    return found


def _environment(option: str, settings: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not name or "\0" in setting:
            raise OptionsError(option, f"{setting}: NAME=VALUE is wanted, such as OMP_NUM_THREADS=1")
        if name in found:
            raise OptionsError(option, f"{name} is given twice")
        found[name] = value
    return found


def _route(variant: Mapping[str, Any], collecting: Collecting, cwd: Path, seed: int | None) -> str:
    """How collectors get into a variant. Raises OptionsError where they cannot."""
    option = f"--{variant['name']}"
    if variant["command"] is None:
        try:
            return check_cell(Path(variant["recipe"]), variant["cell"], collecting.blocks, seed)
        except OSError as error:
            raise OptionsError("--recipe", f"{variant['recipe']}: {error.strerror}") from None
    launch = check_command(option, variant["command"], variant["environment"], cwd)
    for name, (collector, options) in collecting.loaded.items():
        try:
            launch = collector.plan(launch, options, Capture(Path(os.sep, "ARTIFACTS"), "RUN_ID"))
        except LaunchError as error:
            raise OptionsError(option, f"{name} cannot be attached: {error}") from None
        if launch.note.startswith("arming is impossible"):
            raise OptionsError(option, f"{name} cannot be attached: {launch.note}")
    return f"{launch.route} ({launch.note})" if launch.note else launch.route
