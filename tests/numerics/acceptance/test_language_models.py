"""GPT-2 and Llama of transformers, generating from text and training: every named step is there, where it belongs."""

from __future__ import annotations

import pytest

from aorta_collectors.numerics.spans.span import PHASES, TRAINING_STEPS
from tests.numerics.acceptance.running import Tree, armed, end, follow_one_another
from tests.numerics.left import Left
from tests.numerics.models import LAYERS

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader
from tests.numerics.models import MODELS, VOCABULARY
from tests.numerics.sources.text import tokenizer

torch.manual_seed(0)
torch.set_num_threads(1)
model = MODELS[sys.argv[1]]().model
words = tokenizer()
model.eval()
model.generation_config.eos_token_id = None
for text in ("the quick fox", "fox"):
    batch = words(text, return_tensors="pt")
    batch.pop("token_type_ids", None)
    given = model.generate(**batch, max_new_tokens=3, do_sample=True, temperature=0.7, top_k=5)
    print(words.decode(given[0]))
tokens = torch.randint(2, VOCABULARY, (10, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model.train()
for batch in DataLoader(tokens, batch_size=2):
    optimizer.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""
KINDS = ("gpt2", "llama")
TOKENS = 3
GENERATING = range(1, 2 * TOKENS + 1)
TRAINING = range(2 * TOKENS + 1, 2 * TOKENS + 6)
PREFIX = {"gpt2": "transformer.h", "llama": "model.layers"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def left(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a model left that generated text, and then was trained."""
    ran, found = armed(tmp_path_factory.mktemp(kind), PROGRAM, "--trace-level", "layer", program=[kind])
    ran.ok()
    assert found.summary["hook_errors"] == 0, found.summary["first_hook_error"]
    found.lines("stats")
    return found


@pytest.fixture(scope="module")
def tree(left: Left) -> Tree:
    return Tree(left.lines("spans"))


def test_spans_lie_in_one_another(tree: Tree) -> None:
    tree.assert_nested()


class TestGenerate:
    def test_each_text_is_read_generated_and_written(self, tree: Tree) -> None:
        tokenized, sampled, decoded = (tree.named(name) for name in ("TOKENIZE", "SAMPLE", "DECODE"))
        assert (len(tokenized), len(sampled), len(decoded)) == (2, 2 * TOKENS, 2)
        order = [tokenized[0], *sampled[:TOKENS], decoded[0], tokenized[1], *sampled[TOKENS:], decoded[1]]
        assert follow_one_another(order)

    def test_each_token_goes_through_the_whole_model(self, tree: Tree, kind: str) -> None:
        names = ("TOKENIZE", "EMBED", "TRANSFORMER_BLOCK", "NORM", "LM_HEAD", "SAMPLE", "DECODE")
        embeddings = 2 if kind == "gpt2" else 1  # of tokens and of positions
        token = ["EMBED"] * embeddings + ["TRANSFORMER_BLOCK"] * LAYERS + ["NORM", "LM_HEAD", "SAMPLE"]
        steps = sorted(
            (span for name in names for span in tree.named(name)),
            key=lambda span: span["start_ns"],
        )[: 2 * (TOKENS * len(token) + 2)]
        assert [span["name"] for span in steps] == 2 * ["TOKENIZE", *TOKENS * token, "DECODE"]
        assert follow_one_another(steps)
        for step in GENERATING:
            blocks = tree.named("TRANSFORMER_BLOCK", "forward", step)
            assert [block["layer"] for block in blocks] == [f"{PREFIX[kind]}.{number}" for number in range(LAYERS)]
            (root,) = (span for span in tree.spans if span["layer"] == "(root)" and span["step"] == step)
            for name in names:
                is_of_model = name in ("EMBED", "TRANSFORMER_BLOCK", "NORM", "LM_HEAD")
                assert all((root in tree.ancestors(span)) == is_of_model for span in tree.named(name, step=step))

    def test_what_is_known_of_text_and_sampling_is_told(self, tree: Tree) -> None:
        first, second = (span["attributes"] for span in tree.named("TOKENIZE"))
        assert (first["tokens"], second["tokens"]) == (3, 1)
        attributes = tree.named("SAMPLE")[0]["attributes"]
        assert attributes["temperature"] == 0.7
        assert attributes["top_k"] == 5

    def test_no_step_is_taken_for_training(self, left: Left) -> None:
        lines = left.lines("steps")[: 2 * TOKENS]
        assert [(line["step"], line["kind"]) for line in lines] == [(n, "inference") for n in GENERATING]
        assert [line["tokens"] for line in lines] == [3, 1, 1, 1, 1, 1]
        assert {line["loss"] for line in lines} == {None}


class TestTraining:
    def test_phases_come_in_their_order(self, tree: Tree, kind: str) -> None:
        for step in TRAINING:
            (above,) = tree.named("STEP", step=step)
            data = [span for span in tree.named("DATA", step=step) if tree.parent(span) is above][-1]
            (forward,) = tree.named("FORWARD", step=step)
            (backward,) = tree.named("BACKWARD", step=step)
            (optimizer,) = tree.named("OPTIMIZER", step=step)
            assert follow_one_another([data, forward, backward, optimizer])
            loss = tree.named("LOSS", step=step)
            assert len(loss) == 1
            assert loss[0]["start_ns"] >= forward["start_ns"]
            assert end(loss[0]) <= backward["start_ns"]
            assert all(tree.parent(span) is above for span in (forward, *loss, backward, optimizer))

    def test_the_model_is_walked_through_and_back(self, tree: Tree, kind: str) -> None:
        for step in TRAINING:
            (forward,) = tree.named("FORWARD", step=step)
            (backward,) = tree.named("BACKWARD", step=step)
            there = [
                span
                for name in ("EMBED", "TRANSFORMER_BLOCK", "NORM", "LM_HEAD")
                for span in tree.named(name, "forward", step)
            ]
            assert follow_one_another(there)
            assert all(forward in tree.ancestors(span) for span in there)
            back = [
                span
                for name in ("LM_HEAD", "NORM", "TRANSFORMER_BLOCK", "EMBED")
                for span in tree.named(name, "backward", step)
            ]
            assert all(backward in tree.ancestors(span) for span in back)
            blocks = [span["layer"] for span in back if span["name"] == "TRANSFORMER_BLOCK"]
            assert blocks == [f"{PREFIX[kind]}.{number}" for number in reversed(range(LAYERS))]
            assert {span["name"] for span in back} == {"LM_HEAD", "NORM", "TRANSFORMER_BLOCK", "EMBED"}

    def test_phases_add_up_to_the_step(self, left: Left, tree: Tree) -> None:
        lines = left.lines("steps")[2 * TOKENS :]
        by_step = {span["step"]: span for span in tree.named("STEP")}
        assert [line["step"] for line in lines] == list(TRAINING)
        expected = ["data", "embed", "forward", "norm_lm", "loss", "lm_bwd", "norm_bwd", "blk_bwd", "embed_bwd", "opt"]
        for line in lines:
            phases = line["phases_ms"]
            assert [name for name in phases if name != "backward"] == expected
            assert list(phases) == [name for name in PHASES if name in phases]
            assert all(value > 0 for name, value in phases.items() if name not in ("backward", "loss"))
            assert sum(phases.values()) <= line["step_ms"] * 1.001
            above = by_step[line["step"]]
            around = [span for name in TRAINING_STEPS for span in tree.named(name) if tree.parent(span) is above]
            own_ms = sum(span["duration_ns"] - span["overhead_ns"] for span in around) / 1e6
            assert sum(phases.values()) == pytest.approx(own_ms, rel=0.01)
        # What lies between them: zero_grad, printing, and whoever else used the machine.
        assert min(1 - sum(line["phases_ms"].values()) / line["step_ms"] for line in lines) < 0.3

    def test_the_loss_is_the_programs(self, left: Left) -> None:
        lines = left.lines("steps")[2 * TOKENS :]
        assert all(line["kind"] == "training" for line in lines)
        assert all(3 < line["loss"] < 6 for line in lines)
        assert {(line["samples"], line["tokens"]) for line in lines} == {(2, 16)}
        assert all(line["grad_norm"] > 0 for line in lines)
        assert lines[-1]["flops"] > 0
        assert lines[-1]["eta_s"] == 0
