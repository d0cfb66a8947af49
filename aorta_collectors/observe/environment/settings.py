"""The settings of torch that decide which numbers come out, as they are at the moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def settings() -> dict[str, Any]:
    """Those of determinism, precision, and autocast; null for what this version of torch does not have."""
    import torch

    cudnn: Any = torch.backends.cudnn
    cuda: Any = torch.backends.cuda
    deterministic: Any = torch.utils.deterministic
    known: Any = torch._C
    return {
        "deterministic": _asked(torch.are_deterministic_algorithms_enabled),
        "deterministic_warn_only": _asked(torch.is_deterministic_algorithms_warn_only_enabled),
        "fill_uninitialized_memory": _asked(lambda: deterministic.fill_uninitialized_memory),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": _asked(lambda: known._get_float32_matmul_precision()),
        "matmul_tf32": _fp32_precision("cuda", "matmul", lambda: known._get_cublas_allow_tf32()),
        "cudnn_tf32": _fp32_precision("cuda", "conv", lambda: known._get_cudnn_allow_tf32()),
        "cudnn_enabled": _asked(lambda: cudnn.enabled),
        "cudnn_deterministic": _asked(lambda: cudnn.deterministic),
        "cudnn_benchmark": _asked(lambda: cudnn.benchmark),
        "fp16_reduced_precision_reduction": _asked(lambda: _plain(cuda.matmul.allow_fp16_reduced_precision_reduction)),
        "bf16_reduced_precision_reduction": _asked(lambda: _plain(cuda.matmul.allow_bf16_reduced_precision_reduction)),
        "attention_flash": _asked(cuda.flash_sdp_enabled),
        "attention_memory_efficient": _asked(cuda.mem_efficient_sdp_enabled),
        "attention_math": _asked(cuda.math_sdp_enabled),
        "autocast": {device: _autocast(device) for device in ("cpu", "cuda")},
        "anomaly_detection": _asked(torch.is_anomaly_enabled),
    }


def _asked(ask: Callable[[], Any]) -> Any:
    """None where this torch does not know, or refuses to say, since old and new ways of setting it were mixed."""
    try:
        return _plain(ask())
    except Exception:
        return None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _fp32_precision(backend: str, operation: str, allows: Callable[[], Any]) -> Any:
    """As torch 2.9 and newer call it, such as ieee or tf32; before, whether TF32 is allowed.

    Asked the old way, newer versions warn.
    """
    import torch

    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    return _asked(allows if getter is None else lambda: getter(backend, operation))


def _autocast(device: str) -> str | None:
    """The dtype, where it is on."""
    import torch

    on = _asked(lambda: torch.is_autocast_enabled(device))
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.") if on else None
