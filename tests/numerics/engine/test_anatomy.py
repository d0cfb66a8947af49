"""What modules are taken for: embeddings, blocks, the norm after them, the head."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from aorta_collectors.numerics.engine.anatomy import Anatomy, anatomy_of
from tests.numerics.models import LAYERS, MODELS, Block


def of(model: nn.Module) -> Anatomy:
    return anatomy_of(dict(model.named_modules()))


BLOCKS = tuple(str(number) for number in range(LAYERS))


class TestModels:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (
                "gpt2",
                Anatomy(
                    ("transformer.wte", "transformer.wpe"),
                    (tuple(f"transformer.h.{number}" for number in BLOCKS),),
                    ("transformer.ln_f",),
                    ("lm_head",),
                ),
            ),
            (
                "llama",
                Anatomy(
                    ("model.embed_tokens",),
                    (tuple(f"model.layers.{number}" for number in BLOCKS),),
                    ("model.norm",),
                    ("lm_head",),
                ),
            ),
            ("sequence_of_blocks", Anatomy((), (BLOCKS,), (), (str(LAYERS),))),
            ("mlp", Anatomy()),
            ("dlrm", Anatomy(("sparse_arch.embedding_bag_collection",), (), (), ())),
        ],
    )
    def test_each_has_its_parts_by_kind_and_position(self, name: str, expected: Anatomy) -> None:
        assert of(MODELS[name]().model) == expected

    def test_an_encoder_and_a_decoder_are_two_stacks(self) -> None:
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
        found = of(T5ForConditionalGeneration(config))
        assert found.blocks == (("encoder.block.0", "encoder.block.1"), ("decoder.block.0", "decoder.block.1"))
        assert found.norms == ("encoder.final_layer_norm", "decoder.final_layer_norm")
        assert found.heads == ("lm_head",)
        assert found.embeddings[0] == "shared"
        assert not any(".block." in path for path in found.embeddings), "relative positions are a block's"

    def test_a_mixture_of_experts_repeats_its_layers_not_its_experts(self) -> None:
        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.experts = nn.ModuleList([Block(8) for _ in range(5)])

        model = nn.Sequential(nn.Embedding(4, 8), nn.Sequential(Layer(), Layer()), nn.LayerNorm(8), nn.Linear(8, 4))
        assert of(model) == Anatomy(("0",), (("1.0", "1.1"),), ("2",), ("3",))

    def test_a_model_that_registers_its_blocks_first_has_an_embedding_all_the_same(self) -> None:
        model = nn.ModuleDict({"blocks": nn.ModuleList([Block(8), Block(8)]), "table": nn.Embedding(4, 8)})
        assert of(model).embeddings == ("table",)

    def test_a_small_list_beside_a_large_one_is_no_stack(self) -> None:
        model = nn.ModuleDict(
            {"blocks": nn.ModuleList([Block(32), Block(32)]), "heads": nn.ModuleList([Block(4), Block(4)])}
        )
        assert of(model).blocks == (("blocks.0", "blocks.1"),)

    def test_a_module_knows_the_block_that_it_lies_in(self) -> None:
        found = of(MODELS["gpt2"]().model)
        inside = ("transformer.h.2", "transformer.h.1.mlp.c_fc", "transformer.ln_f")
        assert [found.block_of(path) for path in inside] == [2, 1, None]


LEAVES: list[Callable[[], nn.Module]] = [
    lambda: nn.Linear(2, 2),
    lambda: nn.LazyLinear(2),
    lambda: nn.LayerNorm(2),
    lambda: nn.Embedding(2, 2),
    nn.ReLU,
    nn.Identity,
    lambda: Block(8),
    lambda: nn.MultiheadAttention(4, 2),
]


def trees() -> st.SearchStrategy[nn.Module]:
    leaves = st.sampled_from(LEAVES).map(lambda make: make())

    def grown(children: st.SearchStrategy[nn.Module]) -> st.SearchStrategy[nn.Module]:
        lists = st.lists(children, max_size=4)
        return (
            lists.map(nn.ModuleList)
            | lists.map(lambda parts: nn.Sequential(*parts))
            | lists.map(lambda parts: nn.ModuleDict({str(index): part for index, part in enumerate(parts)}))
            | children.map(lambda part: nn.Sequential(part, part))
        )

    return st.recursive(leaves, grown, max_leaves=12)


@settings(max_examples=60, deadline=None)
@given(trees())
def test_no_tree_is_too_strange_and_no_module_is_two_things(model: nn.Module) -> None:
    found = of(model)
    named = [*found.embeddings, *(path for stack in found.blocks for path in stack), *found.norms, *found.heads]
    assert len(set(named)) == len(named)
    assert set(named) <= set(dict(model.named_modules()))
    assert all(len(stack) > 1 for stack in found.blocks)
    assert all(found.block_of(path) is None for path in (*found.embeddings, *found.norms, *found.heads))
