"""What is trained while it is measured: a small transformer, and a stack of many small layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

Step = Callable[[], None]

BATCH, LENGTH, HEADS, CLASSES = 8, 128, 4, 64
SMALL = 8  # rows and columns: 64 elements


class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual. x_BLW: batch, length, width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BLW: Tensor) -> Tensor:
        batch, length, width = x_BLW.shape
        heads = self.qkv(self.norm1(x_BLW)).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x_BLW = x_BLW + self.out(mixed)
        return x_BLW + self.down(gelu(self.up(self.norm2(x_BLW))))


class Trained:
    """A model on the same input in each step: the same work, bit for bit, whatever else is armed.

    Args:
        lr: Of plain SGD; 0 is no optimizer at all, where gradients add up from step to step.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, lr: float = 0.0) -> None:
        self.model = model
        self._inputs = inputs
        self._optimizer = torch.optim.SGD(model.parameters(), lr=lr) if lr else None

    def step(self) -> None:
        if self._optimizer is not None:
            self._optimizer.zero_grad()
        self.model(self._inputs).square().mean().backward()
        if self._optimizer is not None:
            self._optimizer.step()


def transformer(width: int, layers: int) -> Trained:
    """The yardstick: blocks and a last Linear, on 8 sequences of 128 tokens, with SGD."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(width) for _ in range(layers)], nn.Linear(width, CLASSES))
    return Trained(model, torch.randn(BATCH, LENGTH, width), lr=1e-3)


def stack(layers: int) -> Trained:
    """Many Linear layers in a row whose tensors have 64 elements each. Rotations, so that nothing grows or fades."""
    torch.manual_seed(0)
    linears = [nn.Linear(SMALL, SMALL, bias=False) for _ in range(layers)]
    for linear in linears:
        nn.init.orthogonal_(linear.weight)
    return Trained(nn.Sequential(*linears), torch.randn(SMALL, SMALL))
