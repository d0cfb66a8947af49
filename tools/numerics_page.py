"""The page of numerics: its options, the files that it writes, and what it says on the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schema_tables import GENERATED, properties
from tables import table

from aorta_collectors.numerics.config import OPTIONS_SCHEMA
from aorta_collectors.numerics.metrics.step_line import step_line
from aorta_collectors.numerics.names import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE, EXIT_STOPPED, PREFIX
from aorta_collectors.numerics.spans.span import INFERENCE_STEPS, PHASES, TRAINING_STEPS
from aorta_collectors.numerics.standalone import standalone
from aorta_collectors.schema_check import load_schema

_FILES = (
    ("summary_rank<N>.json", "always", "what the process did, in numbers that do not grow with its length"),
    ("spans_rank<N>.jsonl", "`trace` is not `none`", "what had a beginning and an end"),
    ("stats_rank<N>.jsonl", "`trace: layer` or `payload`", "statistics of a layer's output or its gradient"),
    ("steps_rank<N>.jsonl", "`step_metrics: on`", "a line a step: time, phases, loss, throughput"),
    ("escalations_rank<N>.jsonl", "`profile` is not `off`, `escalate: on`", "closer looks at bricks"),
    ("payload_rank<N>_step<S>.safetensors", "`trace: payload`", "the tensors of one step"),
)
# Not a span of its own: the kind of many.
_BRICKS = "BRICK_PROFILE"
_LINES = ("span", "stats", "step", "escalation")
# As a large run on one GPU would have it.
_STEP = {
    "step": 123,
    "kind": "training",
    "loss": 0.45,
    "tokens_per_s": 12_500.0,
    "samples_per_s": 12.2,
    "mfu": 0.423,
    "grad_norm": 0.005,
    "memory_used_mb": 22_000.0,
    "memory_total_mb": 80_000.0,
    "step_ms": 42.0,
    "eta_s": 190.0,
}
_ABOUT_FILES = (
    "In the trial's directory below `_subprocess`, or in `--dir`. A second process of one rank in a launch has "
    "`rank<N>_p<pid>` in its files' names. Lines are JSON. A file of lines has a largest size; as it fills up, "
    "lines are left out, and the summary's `files` counts them.\n"
)
_ABOUT_PAYLOAD = (
    "A tensor in a file of `trace: payload` has the key `layer|direction|tensor_path`, such as `h.0.attn|forward|[0]`, "
    "with `|2` behind it for the layer's second call in the step. The file's metadata have `step`, and of each tensor, "
    "as JSON under its key, `seq`, `dtype` and `shape`.\n"
)


def numerics() -> str:
    options = load_schema(OPTIONS_SCHEMA)
    parts = [
        "# numerics: options and files\n",
        GENERATED,
        "## The collect: block\n",
        options["description"] + "\n",
        *properties(options["properties"], default=True),
        "",
        *_alone(list(options["properties"])),
        *_steps(),
        "## Files\n",
        _ABOUT_FILES,
        *table(("file", "where", "what"), [(f"`{name}`", where, what) for name, where, what in _FILES]),
        "",
        _ABOUT_PAYLOAD,
        *_summary(),
    ]
    for name in _LINES:
        schema = load_schema(f"numerics.{name}")
        parts += [f"## {schema['title']}\n", schema["description"] + "\n", *properties(schema["properties"]), ""]
        parts += _nested(schema["properties"])
    parts += _console()
    parts.append("The file that says what verification found has [a page of its own](receipt.md).")
    return "\n".join(parts) + "\n"


def _alone(names: list[str]) -> Iterator[str]:
    """Options of the standalone front-end: it has one for each of the block but on_missing, in the same order."""
    of_schema = [name for name in names if name != "on_missing"]
    options = [option for option in standalone().options if option not in ("--dir", "--trace-output")]
    rows = [
        [f"`{option}`", f"`{PREFIX}{name.upper()}`", f"`{name}`"]
        for option, name in zip(options, of_schema, strict=True)
    ]
    yield "### Alone\n"
    yield (
        "`python -m aorta_collectors.numerics [OPTION VALUE ...] script.py [args...]`, or `-m module`, or `-c code`. "
        "An option wins over its variable. A sweep sets the variables itself, and removes those that the block does "
        "not have.\n"
    )
    yield from table(("option", "variable", "as in the block"), rows)
    yield (
        f"\n`--dir`, or `{DIRECTORY_VARIABLE}`, names the output directory, by default `{DEFAULT_DIRECTORY}`; the "
        "sweep owns it in a trial. `--trace-output FILE` writes the spans of all processes as a timeline for "
        "[ui.perfetto.dev](https://ui.perfetto.dev) and chrome://tracing when the program has ended.\n"
    )


def _steps() -> Iterator[str]:
    of_model = ", ".join(f"`{name}`" for name in INFERENCE_STEPS if name != _BRICKS)
    around = ", ".join(f"`{name}`" for name in TRAINING_STEPS)
    phases = ", ".join(f"`{name}`" for name in PHASES)
    yield "## Named steps and phases\n"
    yield (
        f"Named steps are {of_model} and {around}, with `NORM` for the norm before the head. All other modules have "
        "the name of their class; with `profile` their spans are of kind `brick`. "
        "[Trace a model](../how-to/trace-a-model.md) says how each is found.\n"
    )
    yield f"A training step is broken down into these phases, of which it need not have all: {phases}.\n"


def _summary() -> Iterator[str]:
    schema = load_schema("numerics.summary")
    yield "## summary_rank<N>.json\n"
    yield schema["description"] + "\n"
    yield from properties(schema["properties"])
    yield ""
    yield from _nested(schema["properties"])


def _nested(entries: Mapping[str, Any]) -> Iterator[str]:
    """A table for each field that is an object, a list of objects, or objects by name."""
    for name, entry in entries.items():
        found = (entry, entry.get("items"), entry.get("additionalProperties"))
        inner = next((each["properties"] for each in found if isinstance(each, dict) and "properties" in each), None)
        if inner is not None:
            yield f"### {name}\n"
            yield from properties(inner)
            yield ""


def _console() -> Iterator[str]:
    yield "## On stderr\n"
    yield (
        "Each line begins with the time and `[PID=<pid> rank=<N>] numerics: `. With `step_metrics: on` there is a line "
        "for each of the first ten steps, then at most one a second; a dash stands for what is not known:\n"
    )
    yield f"```\n{step_line(_STEP)}\n```\n"
    yield (
        "After each `interval` steps comes one with the percentiles of the step and of its longest phases, and at the "
        "end one that names the summary.\n"
    )
    yield "## Exit status\n"
    yield (
        f"The program's own, with one exception: {EXIT_STOPPED} where `on_bad: stop` has ended it "
        "([stop at the first bad value](../how-to/stop-at-the-first-bad-value.md)).\n"
    )
