"""What the checks train: blocks of a transformer, and a sink that keeps what the observer hands on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from aorta_collectors.observe.observation import Observation, RootInfo
from aorta_collectors.observe.observer import Observer
from aorta_collectors.observe.request import Request
from aorta_collectors.observe.step_trace import StepTrace
from aorta_collectors.observe.watch import CHANNELS, WatchGroup

DEFAULT = WatchGroup(types=("Linear",))
LINEARS = WatchGroup(types=("Linear",), channels=CHANNELS)


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm, as in a language model. Shapes: (batch, tokens, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 128)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def stack(layers: int, width: int, dtype: torch.dtype = torch.bfloat16) -> nn.Sequential:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return nn.Sequential(*[Block(width) for _ in range(layers)]).to(dtype)


def training_step(model: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    """A step of training with plain SGD that returns the loss and waits for nothing."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Sink:
    """Keeps what was seen, by step."""

    def __init__(self, keep: bool = True) -> None:
        self.seen: dict[int, list[Observation]] = {}
        self._keep = keep

    def attached(self, root: RootInfo) -> None:
        """Nothing to do."""

    def entered(self, step: int) -> None:
        """Nothing to do."""

    def ranges_wanted(self, step: int) -> bool:
        return True

    def forked(self) -> None:
        """Nothing to do."""

    def observed(self, trace: StepTrace) -> None:
        if self._keep:
            self.seen.setdefault(trace.step, []).extend(trace.observations)


@contextlib.contextmanager
def armed(*groups: WatchGroup, keep: bool = True, **options: Any) -> Iterator[Sink]:
    """An observer around the block; raises afterwards if there were errors of its own."""
    sink = Sink(keep)
    observer = Observer(Request(groups or (LINEARS,), **options), sink, log=_unexpected)
    observer.arm()
    try:
        yield sink
    finally:
        observer.disarm()
    assert observer.errors == 0, observer.first_error


def _unexpected(message: str) -> None:
    print(f"  engine: {message}", flush=True)
    if "read with torch" in message:
        raise AssertionError(message)


def places(seen: list[Observation]) -> list[tuple[str, str, str]]:
    return [(each.site.layer, each.site.role, each.site.param) for each in seen]
