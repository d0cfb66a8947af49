"""A small language model of transformers that writes nonsense: text in, tokens, a loop over the model, text out.

It has been trained on nothing, and nothing is downloaded. docs/how-to/trace-a-model.md goes through what a trace shows.
"""

import string

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from aorta_collectors.numerics import step

WORDS = ["?", *string.ascii_lowercase]
PROMPTS = ("a b c d", "x y z", "r s t u")


def tokenizer_of(words: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", pad_token="?")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = tokenizer_of(WORDS)
    config = GPT2Config(
        vocab_size=len(WORDS), n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, pad_token_id=0
    )
    model = GPT2LMHeadModel(config).eval()
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, return_tensors="pt")
        answers = model.generate(**tokens, min_new_tokens=6, max_new_tokens=6, do_sample=True, num_return_sequences=2)
        with step("RERANK", answers=len(answers)):  # a step of the program's own
            best = min(answers, key=lambda answer: len(answer.unique()))
        print(tokenizer.decode(best))


if __name__ == "__main__":
    main()
