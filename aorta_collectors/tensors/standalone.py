"""The options of `python -m aorta_collectors.tensors`: those of the collect: block, and a directory."""

from __future__ import annotations

from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import ARM_FUNCTION, PROCESS
from aorta_collectors.torch_collector.standalone import CommandLine

_ABOUT = (
    "Runs a program, and the Python processes that it starts, observed: which tensors come by at named points, with a "
    "digest and statistics of each, or all their values. Leaves summary_rank<N>.json, tensors_rank<N>.jsonl and "
    "values_rank<N>_step<M>.safetensors."
)
_SYNOPSIS = "[--points POINTS] [--scope PATTERNS] [--keep WHAT] [--steps STEPS] [--dir DIRECTORY] [--OPTION VALUE ...]"


def standalone() -> Standalone:
    """What tensors has of its own on the command line."""
    command = CommandLine(
        Config,
        PROCESS,
        ARM_FUNCTION,
        about=_ABOUT,
        example="--points after_forward,after_step --steps 1-3 train.py --lr 2",
        synopsis=_SYNOPSIS,
    )
    return command.standalone()
