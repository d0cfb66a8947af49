"""Tensors and values of all kinds go in and come out."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict, UserDict, deque, namedtuple
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.torch_collector.awkward.shared import Reluctant, Wrapped, trained, two_layers

# -- tensors and values of all kinds


def dtypes_and_layouts() -> Iterator[Any]:
    def of_all_kinds(x: Tensor) -> list[Tensor]:
        z = torch.complex(x, x)
        plain = x.detach()
        floats = [getattr(torch, name) for name in dir(torch) if name.startswith("float8_")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [
                *(z, z.conj(), z.conj().imag, x.bfloat16(), x.half(), x.double()),
                *(plain.to(dtype) for dtype in (*floats, torch.bool, torch.int8, torch.uint8, torch.int64)),
                *(torch.empty(0), torch.tensor(3), torch.zeros(2, 0, 3), x.expand(5, 3, 4), x.t(), x[:, ::2]),
                *(plain.to_sparse(), plain.to_sparse_csr(), torch.nested.nested_tensor([plain[:1], plain])),
                torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8),
            ]

    yield from trained(Wrapped(of_all_kinds))


@dataclasses.dataclass
class Output:
    first: Tensor
    rest: list[Any]


Pair = namedtuple("Pair", "x y")


def values_of_all_kinds() -> Iterator[Any]:
    taken: list[Any] = []

    def of_all_kinds(x: Tensor) -> Any:
        endless: list[Any] = [x]
        endless.append(endless)
        once = iter([x, x])
        taken.append(once)
        return [
            *(Output(x, [x, {"k": x}]), Pair(x, None), OrderedDict(a=x), UserDict(a=x), deque([x]), Reluctant(x)),
            *({1: x, ("a", 2): x, None: x, "a\nb\ud800'": x}, frozenset([x]), endless, once, None, 3, "s", [x] * 1200),
        ]

    yield from trained(Wrapped(of_all_kinds))
    yield [sum(1 for _ in once) for once in taken]  # nobody else has taken from them


def changed_in_place() -> Iterator[Any]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    for _ in range(3):
        out = model(torch.randn(3, 4))
        out.mul_(2).add_(1)
        out[0] = 0
        out.square().mean().backward()
        yield from (out, model[0].weight.grad)


def subclass_that_looks_on() -> Iterator[Any]:
    class Logged(Tensor):
        seen: list[str] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    model = two_layers()
    for _ in range(3):
        loss = model(torch.randn(3, 4).as_subclass(Logged)).square().mean()
        loss.backward()
        yield loss.as_subclass(Tensor)
    yield Logged.seen


def generator_as_forward() -> Iterator[Any]:
    class Repeating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Iterator[Tensor]:
            for _ in range(3):
                x = self.layer(x)
                yield x

    model = Repeating()
    for _ in range(3):
        loss = torch.stack([result.mean() for result in model(torch.randn(3, 4))]).sum()
        loss.backward()
        yield loss
    next(model(torch.randn(3, 4)))  # and no further
