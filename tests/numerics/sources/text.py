"""A tokenizer and a language model made in memory."""

from __future__ import annotations

from typing import Any

WORDS = ("[PAD]", "[UNK]", "[EOS]", "the", "quick", "brown", "fox", "jumps")


def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", padding_side="left"
    )


def language_model() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=len(WORDS), n_positions=64)
    model = GPT2LMHeadModel(config)
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model.eval()
