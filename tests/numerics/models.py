"""Small models of the kinds that are traced, each with a batch: built from configurations, nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

VOCABULARY, WIDTH, LAYERS, BATCH, LENGTH = 64, 32, 3, 2, 8


@dataclass
class Sample:
    """A model and what it is trained on.

    Attributes:
        loss: Runs the forward pass and computes the loss.
        call: Runs the forward pass alone.
    """

    model: nn.Module
    loss: Callable[[], Tensor]
    call: Callable[[], Any]


def gpt2(dropout: float = 0.1) -> Sample:
    """GPT-2 with its head tied to the embedding; computes its loss itself, given labels."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=2,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return _language_model(GPT2LMHeadModel(config))


def llama() -> Sample:
    """Llama with grouped queries and a head of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=0.1,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return _language_model(LlamaForCausalLM(config))


def _language_model(model: Any) -> Sample:
    ids = torch.randint(2, VOCABULARY, (BATCH, LENGTH))
    return Sample(model, lambda: model(input_ids=ids, labels=ids).loss, lambda: model(input_ids=ids))


class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual. x_BLW: batch, length, width."""

    def __init__(self, width: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x_BLW: Tensor) -> Tensor:
        batch, length, width = x_BLW.shape
        q, k, v = self.qkv(self.norm1(x_BLW)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x_BLW = x_BLW + self.drop(self.out(mixed))
        hidden: Tensor = x_BLW + self.down(gelu(self.up(self.norm2(x_BLW))))
        return hidden


def sequence_of_blocks() -> Sample:
    """Blocks and a last Linear in one Sequential, as in the overhead benchmark; the loss is computed outside."""
    model = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, 16))
    inputs, labels = torch.randn(BATCH, LENGTH, WIDTH), torch.randint(16, (BATCH * LENGTH,))
    return Sample(model, lambda: cross_entropy(model(inputs).flatten(0, 1), labels), lambda: model(inputs))


def mlp() -> Sample:
    """No blocks and no embedding; one activation works in place."""
    model = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
    )
    inputs = torch.randn(16, WIDTH)
    return Sample(model, lambda: model(inputs).square().mean(), lambda: model(inputs))


def dlrm() -> Sample:
    """torchrec's DLRM over two tables."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM

    tables = [
        EmbeddingBagConfig(name=name, embedding_dim=8, num_embeddings=32, feature_names=[feature])
        for name, feature in (("table_a", "a"), ("table_b", "b"))
    ]
    model = DLRM(
        embedding_bag_collection=EmbeddingBagCollection(tables=tables),
        dense_in_features=4,
        dense_arch_layer_sizes=[16, 8],
        over_arch_layer_sizes=[16, 8, 1],
    )
    dense = torch.randn(3, 4)
    sparse = KeyedJaggedTensor.from_lengths_sync(
        keys=["a", "b"], values=torch.tensor([1, 2, 3, 4, 5, 6, 7]), lengths=torch.tensor([1, 2, 0, 1, 1, 2])
    )
    return Sample(model, lambda: model(dense, sparse).square().mean(), lambda: model(dense, sparse))


#: By name.
MODELS: dict[str, Callable[[], Sample]] = {
    "gpt2": gpt2,
    "llama": llama,
    "sequence_of_blocks": sequence_of_blocks,
    "mlp": mlp,
    "dlrm": dlrm,
}
