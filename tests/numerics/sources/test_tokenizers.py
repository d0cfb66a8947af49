"""TOKENIZE and DECODE of transformers' tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.sources.tokenizers import TokenizerSource
from tests.numerics.driving import timeline
from tests.numerics.sources.text import tokenizer


@pytest.fixture
def observed() -> Iterator[Timeline]:
    spans = timeline()
    source = TokenizerSource(spans, pytest.fail)
    source.start()
    yield spans
    source.stop()


def told(spans: Timeline) -> list[tuple[str, str, Any]]:
    return [(span.name, span.kind, span.attributes and span.attributes.get("tokens")) for span in spans.take()]


def test_calls_count_once_with_their_tokens(observed: Timeline) -> None:
    made = tokenizer()
    told(observed)
    encoded = made(["the quick fox", "jumps"], padding=True, return_tensors="pt")
    assert encoded["input_ids"].shape == (2, 3)
    assert told(observed) == [("TOKENIZE", "phase", 6)]
    assert made.encode("the brown fox") == [3, 5, 6]
    assert made("the")["input_ids"] == [3]
    assert made(["the fox", "jumps"])["input_ids"] == [[3, 6], [7]]
    assert told(observed) == [("TOKENIZE", "phase", 3), ("TOKENIZE", "phase", 1), ("TOKENIZE", "phase", 3)]
    assert made.decode([3, 4]) == "the quick"
    assert made.decode(5) == "brown"
    assert made.batch_decode(encoded["input_ids"]) == ["the quick fox", "[PAD] [PAD] jumps"]
    assert told(observed) == [("DECODE", "phase", 2), ("DECODE", "phase", 1), ("DECODE", "phase", 6)]


def test_errors_are_the_programs_own(observed: Timeline) -> None:
    with pytest.raises((TypeError, ValueError)):
        tokenizer()(3.5)
    assert [span[0] for span in told(observed)] == ["TOKENIZE"]


def test_after_it_has_stopped_nothing_stands() -> None:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

    before = dict(vars(PreTrainedTokenizerBase))
    source = TokenizerSource(timeline(), pytest.fail)
    source.start()
    assert dict(vars(PreTrainedTokenizerBase)) != before
    source.stop()
    assert dict(vars(PreTrainedTokenizerBase)) == before
