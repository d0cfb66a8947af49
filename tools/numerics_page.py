"""The page of numerics: its options, the files that it writes, and what it says on the console."""

from __future__ import annotations

from collections.abc import Iterator

from collector_parts import File, alone, collect_block, directory, files, whole
from schema_tables import GENERATED

from aorta_collectors.numerics.config import OPTIONS_SCHEMA
from aorta_collectors.numerics.metrics.step_line import step_line
from aorta_collectors.numerics.names import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE, EXIT_STOPPED, PREFIX
from aorta_collectors.numerics.spans.span import INFERENCE_STEPS, PHASES, TRAINING_STEPS
from aorta_collectors.numerics.standalone import standalone

_FILES = (
    File("summary_rank<N>.json", "always", "what the process did, in numbers that do not grow with its length"),
    File("spans_rank<N>.jsonl", "`trace` is not `none`", "what had a beginning and an end"),
    File("stats_rank<N>.jsonl", "`trace: layer` or `payload`", "statistics of a layer's output or its gradient"),
    File("steps_rank<N>.jsonl", "`step_metrics: on`", "a line a step: time, phases, loss, throughput"),
    File("escalations_rank<N>.jsonl", "`profile` is not `off`, `escalate: on`", "closer looks at bricks"),
    File("payload_rank<N>_step<S>.safetensors", "`trace: payload`", "the tensors of one step"),
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
    "lines are left out, and the summary's `files` counts them."
)
_ABOUT_PAYLOAD = (
    "A tensor in a file of `trace: payload` has the key `layer|direction|tensor_path`, such as `h.0.attn|forward|[0]`, "
    "with `|2` behind it for the layer's second call in the step. The file's metadata have `step`, and of each tensor, "
    "as JSON under its key, `seq`, `dtype` and `shape`.\n"
)


_TIMELINE = (
    " `--trace-output FILE` writes the spans of all processes as a timeline for "
    "[ui.perfetto.dev](https://ui.perfetto.dev) and chrome://tracing when the program has ended."
)


def numerics() -> str:
    closing = directory(DIRECTORY_VARIABLE, DEFAULT_DIRECTORY) + _TIMELINE
    parts = [
        "# numerics: options and files\n",
        GENERATED,
        *collect_block(OPTIONS_SCHEMA),
        *alone(OPTIONS_SCHEMA, standalone(), "numerics", PREFIX, ("--dir", "--trace-output"), closing),
        *_steps(),
        *files(_FILES, _ABOUT_FILES),
        _ABOUT_PAYLOAD,
        *whole("numerics.summary", "summary_rank<N>.json"),
    ]
    for name in _LINES:
        parts += whole(f"numerics.{name}")
    parts += _console()
    parts.append("The file that says what verification found has [a page of its own](receipt.md).")
    return "\n".join(parts) + "\n"


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
