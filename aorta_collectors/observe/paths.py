"""The path of a module as its author knows it: without what wrappers put around it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

_WRAPPER_SEGMENTS = frozenset(
    {"_dmp_wrapped_module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module"}
)
# Their one child is called "module", a name that a model's author may use as well.
_WRAPPER_CLASSES = frozenset(
    {
        "DistributedDataParallel",
        "DataParallel",
        "FullyShardedDataParallel",
        "DistributedModelParallel",
        "DMPCollection",
        "AveragedModel",
        "DeepSpeedEngine",
        "OptimizedModule",
    }
)


def module_path(path: str, modules: Mapping[str, nn.Module]) -> str:
    """`path` without the segments that wrappers add; "(root)" where nothing is left.

    Args:
        modules: Path -> module, as of named_modules() of the root.
    """
    kept: list[str] = []
    so_far = ""
    for segment in path.split(".") if path else ():
        owner = modules.get(so_far)
        so_far = f"{so_far}.{segment}" if so_far else segment
        if segment in _WRAPPER_SEGMENTS:
            continue
        if segment == "module" and owner is not None and type(owner).__name__ in _WRAPPER_CLASSES:
            continue
        kept.append(segment)
    return ".".join(kept) or "(root)"
