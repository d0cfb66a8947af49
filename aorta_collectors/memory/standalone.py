"""The options of `python -m aorta_collectors.memory`: those of the collect: block, and a directory."""

from __future__ import annotations

from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.memory.config import Config
from aorta_collectors.memory.names import ARM_FUNCTION, PROCESS
from aorta_collectors.torch_collector.standalone import CommandLine

_ABOUT = (
    "Runs a program, and the Python processes that it starts, with a look at memory at each point of its model's "
    "steps: the process's own, and what torch's allocator holds on devices. Leaves summary_rank<N>.json, "
    "memory_rank<N>.jsonl, and growth_rank<N>.jsonl with the stacks that took most, where the program records those."
)
_EXAMPLE = "--scope 'layers.*' --steps 1-20 train.py"


def standalone() -> Standalone:
    """What memory has of its own on the command line."""
    return CommandLine(Config, PROCESS, ARM_FUNCTION, about=_ABOUT, example=_EXAMPLE).standalone()
