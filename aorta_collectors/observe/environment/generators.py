"""Seeds and states of the random number generators that a program may draw from. Nothing is drawn, nothing is started.

A state is told as its SHA-256: two runs whose states are equal draw the same numbers from there on.
"""

from __future__ import annotations

import hashlib
import random
import sys
from contextlib import suppress
from typing import Any


def generator_states() -> dict[str, Any]:
    """Those of Python, of numpy where the program has it, and of torch on the host and on devices that are in use."""
    import torch

    state: Any = torch.random.get_rng_state()
    return {
        "torch_seed": torch.initial_seed(),
        "torch_state": _sha256(_bytes_of(state)),
        "python_state": _sha256(repr(random.getstate()).encode()),
        **_numpy(),
        "devices": _devices(),
    }


def _numpy() -> dict[str, Any]:
    """Of the generator that numpy.random's functions share, and whether the program has seeded it.

    Unless it has, its state comes from the operating system, and is another one in every run.
    """
    numpy_random = sys.modules.get("numpy.random")
    state = seeded = None
    if numpy_random is not None:
        with suppress(Exception):
            kind, keys, position, has_gauss, gauss = numpy_random.get_state()
            state = _sha256(keys.tobytes() + repr((kind, position, has_gauss, gauss)).encode())
            # What it was seeded from, which numpy forgets when it is seeded anew.
            seeded = numpy_random.mtrand._rand._bit_generator.seed_seq is None
    return {"numpy_state": state, "numpy_seeded": seeded}


def _devices() -> list[dict[str, Any]]:
    """Of a process that has not used a device, its generator has not been made either."""
    import torch

    found: list[dict[str, Any]] = []
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        with suppress(Exception):
            for index, generator in enumerate(cuda.default_generators):
                # The state also has how many numbers were drawn. To read it waits for nothing: it is on the host.
                told = {"device": f"cuda:{index}", "seed": generator.initial_seed()}
                found.append({**told, "state": _sha256(_bytes_of(generator.get_state()))})
    return found


def _bytes_of(state: Any) -> bytes:
    """Of a tensor of uint8 in host memory."""
    return bytes(state.tolist())


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
