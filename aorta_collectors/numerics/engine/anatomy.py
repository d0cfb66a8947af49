"""Which modules of a model are its embeddings, its repeated blocks, the norm after them and its head.

By kind and position, in the order in which modules were registered: no names of models, nor of their attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn
from torch.nn.parameter import is_lazy

from aorta_collectors.observe.watch import is_embedding

EMBED, TRANSFORMER_BLOCK, NORM, LM_HEAD = "EMBED", "TRANSFORMER_BLOCK", "NORM", "LM_HEAD"

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
# Beside the largest list of blocks, one with this part of its parameters is another stack (an encoder before a
# decoder); a smaller one is something else.
_SMALLEST_STACK = 0.1
_NO_NORMS = ("weightnorm", "spectralnorm")  # torch's parametrizations are modules too


@dataclass(frozen=True)
class Anatomy:
    """Paths below the root, as named_modules() has them, in the order of registration.

    Attributes:
        blocks: Of every stack in turn.
    """

    embeddings: tuple[str, ...] = ()
    blocks: tuple[tuple[str, ...], ...] = ()
    norms: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()

    def step_names(self) -> dict[str, str]:
        """Path -> named step, of the modules that are one."""
        named = dict.fromkeys(self.embeddings, EMBED)
        named |= dict.fromkeys((path for stack in self.blocks for path in stack), TRANSFORMER_BLOCK)
        return named | dict.fromkeys(self.norms, NORM) | dict.fromkeys(self.heads, LM_HEAD)

    def block_of(self, path: str) -> int | None:
        """The number, in its stack, of the block that a module is or lies in."""
        for stack in self.blocks:
            for number, block in enumerate(stack):
                if path == block or path.startswith(f"{block}."):
                    return number
        return None


@dataclass(frozen=True)
class _Stack:
    """Blocks in a list, by path, and the number of their parameters' elements."""

    blocks: tuple[str, ...]
    numel: int


def anatomy_of(parts: Mapping[str, nn.Module]) -> Anatomy:
    """
    Args:
        parts: Path -> module, as of named_modules() of a root, in that order.
    """
    stacks = _stacks(parts)
    inside = tuple(block for stack in stacks for block in stack)
    outside = {path: part for path, part in parts.items() if not _lies_in(path, inside)}
    order = {path: number for number, path in enumerate(parts)}
    embeddings = list(_outermost(path for path, part in outside.items() if is_embedding(part)))
    if not stacks:
        return Anatomy(tuple(embeddings))
    last = order[stacks[-1][-1]]
    # Some models register their blocks first.
    embeddings = [path for path in embeddings if order[path] < last] or embeddings
    outside = {path: part for path, part in outside.items() if not _lies_in(path, tuple(embeddings))}
    norms = []
    for number, stack in enumerate(stacks):
        end = order[stacks[number + 1][0]] if number + 1 < len(stacks) else len(order)
        found = [path for path, part in outside.items() if order[stack[-1]] < order[path] < end and _is_norm(part)]
        norms += found[-1:]
    linears = [path for path, part in outside.items() if order[path] > last and isinstance(part, nn.Linear)]
    return Anatomy(tuple(embeddings), stacks, tuple(norms), tuple(linears[-1:]))


def _stacks(parts: Mapping[str, nn.Module]) -> tuple[tuple[str, ...], ...]:
    """The outermost runs of blocks of one class, without small ones beside large ones."""
    paths = {id(part): path for path, part in parts.items()}
    found: list[_Stack] = []
    for path, part in parts.items():
        if isinstance(part, _LISTS) and not any(_lies_in(path, stack.blocks) for stack in found):
            run = _longest_run(part)
            blocks = tuple(paths[id(block)] for block in run if id(block) in paths)
            if len(blocks) > 1:
                found.append(_Stack(blocks, _numel(run)))
    largest = max((stack.numel for stack in found), default=0)
    return tuple(stack.blocks for stack in found if stack.numel >= _SMALLEST_STACK * largest)


def _longest_run(container: nn.Module) -> list[nn.Module]:
    """The members in a row that are of one class and are blocks; of several such rows the longest."""
    best: list[nn.Module] = []
    run: list[nn.Module] = []
    for member in container.children():
        if not _is_block(member):
            run = []
            continue
        run = [*run, member] if run and _kind(member) == _kind(run[0]) else [member]
        best = max(best, run, key=len)
    return best


def _kind(module: nn.Module) -> tuple[type[nn.Module], object]:
    # What TorchScript has compiled is all of one class.
    return type(module), getattr(module, "original_name", None)


def _is_block(module: nn.Module) -> bool:
    """Whether it has at least two parts that compute with parameters: a Linear and its activation are no block."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return False  # never called
    own = sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules() if part is not module)
    return own > 1


def _is_norm(module: nn.Module) -> bool:
    name = type(module).__name__.lower().rstrip("123d")
    return name.endswith("norm") and not name.endswith(_NO_NORMS) and not any(True for _ in module.children())


def _numel(modules: Iterable[nn.Module]) -> int:
    parameters = {id(param): param for module in modules for param in module.parameters()}
    return sum(0 if is_lazy(param) else param.numel() for param in parameters.values())


def _lies_in(path: str, holders: tuple[str, ...]) -> bool:
    return any(path == holder or not holder or path.startswith(f"{holder}.") for holder in holders)


def _outermost(paths: Iterable[str]) -> Iterator[str]:
    """Those that lie in no other, of paths in the order of named_modules()."""
    last: str | None = None
    for path in paths:
        if last is None or not _lies_in(path, (last,)):
            last = path
            yield path
