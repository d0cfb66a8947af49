"""The page of tensors: its options, and the files that it writes."""

from __future__ import annotations

from collector_parts import File, alone, collect_block, directory, files, whole
from schema_tables import GENERATED
from tables import table

from aorta_collectors.tensors.config import OPTIONS_SCHEMA
from aorta_collectors.tensors.names import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE, PREFIX, ROOT, USER
from aorta_collectors.tensors.observation import Subject
from aorta_collectors.tensors.standalone import standalone

_FILES = (
    File("summary_rank<N>.json", "always", "what was asked for and seen, and what the run depended on"),
    File("tensors_rank<N>.jsonl", "always", "a line for each tensor at each point"),
    File("values_rank<N>_step<S>.safetensors", "`keep: values`", "the elements of the tensors of one step"),
)
_ABOUT_FILES = (
    "In the trial's directory below `_subprocess`, or in `--dir`. Ranks are never merged. A second process of one rank "
    "in a launch has `rank<N>_p<pid>` in its files' names. A file of values is there, whole, before the first line "
    "that names it; a step with very many tensors has several, `_part2` and so on."
)
#: Who a tensor is, and what that is in words.
_NAMES = (
    (Subject("after_forward", "layers.0", "", "output", "[1]"), "the second tensor of what a module returns"),
    (Subject("before_forward", ROOT, "", "input", ".ids"), "the model's argument `ids`"),
    (Subject("after_backward", "layers.0", "", "output_gradient", ""), "the gradient of what a module has returned"),
    (Subject("after_backward", "layers.0", "", "gradient", "weight"), "a parameter's gradient, as it has accumulated"),
    (Subject("after_step", "layers.0", "", "parameter", "weight"), "a parameter after the optimizer"),
    (Subject(USER, "", "", "user", "", "scores"), '`observe(scores, name="scores")`'),
    (Subject(USER, "", "", "user_gradient", "", "scores"), '`watch_grad(scores, name="scores")`'),
)


def tensors() -> str:
    closing = directory(DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)
    parts = [
        "# tensors: options and files\n",
        GENERATED,
        "[Capture tensors](../how-to/capture-tensors.md) shows how it is used.\n",
        *collect_block(OPTIONS_SCHEMA),
        *alone(OPTIONS_SCHEMA, standalone(), "tensors", PREFIX, ("--dir",), closing),
        "## Names\n",
        "A tensor is the same in two runs by its rank, its name and its invocation.\n",
        *table(("name", "of"), [(f"`{subject.name}`", what) for subject, what in _NAMES]),
        "",
        *files(_FILES, _ABOUT_FILES),
        *whole("tensors.summary"),
        *whole("tensors.observation"),
        "The file that says what verification found has [a page of its own](receipt.md).",
    ]
    return "\n".join(parts) + "\n"
