"""Which program this is, with which versions of what it stands on, and which variables decide what those do."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aorta_collectors.observe.environment.revision import revision_of

#: Packages that the numbers of a training run can depend on.
PACKAGES = (
    *("torch", "torchvision", "torchaudio", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "fbgemm-gpu-rocm", "torchao"),
    *("triton", "pytorch-triton-rocm", "numpy", "safetensors", "transformers", "tokenizers", "datasets", "peft"),
    *("accelerate", "deepspeed", "lightning", "pytorch-lightning", "megatron-core", "transformer-engine", "apex"),
    *("flash-attn", "xformers", "bitsandbytes", "amd-aorta", "aorta-collectors", "torch-cudagraph-debug"),
)
# Variables of libraries that compute, of launchers, and seeds, whatever those are called.
_RELEVANT = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|HIP|HSA|ROC[MR]?|MIOPEN|HIPBLASLT|ROCBLAS|TENSILE|AMD|GPU|PYTORCH|TORCH|TORCHINDUCTOR|"
    r"TRITON|INDUCTOR|NCCL|RCCL|GLOO|UCX|OMP|MKL|OPENBLAS|KMP|GOMP|ATEN|DNNL|ONEDNN|FBGEMM|XFORMERS|TOKENIZERS|"
    r"TRANSFORMERS|ACCELERATE|DS|DEEPSPEED|NUMERICS|TENSORS|MEMORY|NANLOG)_|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)$|"
    r"PYTHON(HASHSEED|MALLOC|OPTIMIZE)|LD_PRELOAD$|MALLOC_|.*SEED|.*DETERMINISTIC"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.IGNORECASE)
_MOST_CHARACTERS = 1000


def software() -> dict[str, Any]:
    """Program, interpreter and packages."""
    return {
        "argv": [word[:_MOST_CHARACTERS] for word in sys.argv],
        "cwd": _cwd(),
        "script_revision": revision_of(_script_directory()),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": _platform(),
        "torch": _torch(),
        "packages": dict(_packages()),
    }


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that may matter, sorted; none that holds what is nobody's business."""
    found = os.environ if environ is None else environ
    return {
        name: found[name][:_MOST_CHARACTERS]
        for name in sorted(found)
        if _RELEVANT.match(name) and not _SECRET.search(name)
    }


def _torch() -> dict[str, str | None]:
    import torch

    build: Any = torch.version
    return {
        "version": str(torch.__version__),
        "git_revision": getattr(build, "git_version", None),
        "cuda": getattr(build, "cuda", None),
        "hip": getattr(build, "hip", None),
    }


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        with suppress(PackageNotFoundError, OSError):
            yield name, version(name)


def _platform() -> str:
    """As platform.platform() has it, which starts a process to find out."""
    system = os.uname()
    known = [system.sysname, system.release, system.machine]
    with suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION")
        known += [libc.replace(" ", "")] if libc else []
    return "-".join(known)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return None


def _script_directory() -> str:
    """Where the program lies; the working directory where it is no file."""
    program = sys.argv[0] if sys.argv else ""
    return os.path.dirname(os.path.abspath(program)) if os.path.isfile(program) else (_cwd() or os.sep)
