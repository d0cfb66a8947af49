"""Which modules are watched, and which of their tensors: groups of names, class names and channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

# For annotations alone: a configuration made of watch groups can be checked where torch is not to be imported.
if TYPE_CHECKING:
    import torch

#: The channels in the order in which a step passes them.
CHANNELS = ("weight", "bias", "input", "act", "igrad", "wgrad", "bgrad")

# Parameters of these are not scanned each step: a recommender's tables are most of its memory, and a step touches
# a few rows of them. They are listed as skipped, so that "not scanned" is never read as "clean".
EMBEDDING_TYPES = frozenset(
    {
        "Embedding",
        "EmbeddingBag",
        "EmbeddingBagCollection",
        "EmbeddingCollection",
        "ShardedEmbeddingBagCollection",
        "ShardedEmbeddingCollection",
    }
)


@dataclass(frozen=True)
class WatchGroup:
    """One scope and the channels to read there.

    Attributes:
        types: Class names; a module matches if its own class has one of them (`class_names`). "*" stands for any.
        names: Substrings; a module matches if its path below the root contains one of them.
        channels: Members of CHANNELS.
        stride: Hook every Nth matching module, in the order of named_modules().
    """

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    channels: tuple[str, ...] = ("act", "igrad")
    stride: int = 1

    def matches(self, path: str, module: torch.nn.Module) -> bool:
        if "*" in self.types or not class_names(module).isdisjoint(self.types):
            return True
        return any(name in path for name in self.names)


@dataclass(frozen=True)
class Watched:
    """A module to watch: its path below the root, the groups that match, and the union of the channels they want."""

    path: str
    module: torch.nn.Module
    channels: frozenset[str]
    groups: frozenset[int] = frozenset()


def match(named_modules: Iterable[tuple[str, torch.nn.Module]], groups: tuple[WatchGroup, ...]) -> Iterator[Watched]:
    """The modules that at least one group selects, in the order given. Each group counts its own stride."""
    seen = [0] * len(groups)
    for path, module in named_modules:
        channels: set[str] = set()
        matching: set[int] = set()
        for index, group in enumerate(groups):
            if group.matches(path, module):
                matching.add(index)
                if seen[index] % group.stride == 0:
                    channels.update(group.channels)
                seen[index] += 1
        if channels:
            yield Watched(path, module, frozenset(channels), frozenset(matching))


def class_names(module: torch.nn.Module) -> set[str]:
    """The name of the module's class, and the one it had before torch derived a class of its own from it.

    FSDP2 makes an FSDPLinear of a Linear, parametrize a ParametrizedLinear.
    """
    kind = type(module)
    names = {kind.__name__}
    # A lazy layer becomes another with its first call, and a scripted one was another.
    becomes, was = getattr(kind, "cls_to_become", None), getattr(module, "original_name", None)
    names |= {name for name in (getattr(becomes, "__name__", None), was) if isinstance(name, str)}
    for base in kind.__mro__[1:]:
        if kind.__name__ in (f"FSDP{base.__name__}", f"Parametrized{base.__name__}"):
            names.add(base.__name__)
            kind = base
    return names


def is_embedding(module: torch.nn.Module) -> bool:
    return any(base.__name__ in EMBEDDING_TYPES for base in type(module).__mro__)
