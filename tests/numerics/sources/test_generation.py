"""SAMPLE: between the calls of a model that generates."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.sources.generation import GenerationSource
from tests.numerics.driving import timeline
from tests.numerics.sources.text import language_model


@pytest.fixture
def observed() -> Iterator[tuple[Timeline, GenerationSource, Any]]:
    """With a model whose calls the source is told of."""
    spans = timeline()
    source = GenerationSource(spans, pytest.fail)
    source.start()
    model = language_model()
    brick = Brick(weakref.ref(model), "(root)", "GPT2LMHeadModel", "", None, False, True, None, 0)
    assert source.wants(brick)
    assert not source.wants(Brick(weakref.ref(model.lm_head), "lm_head", "Linear", "", None, True, False, brick, 1))
    before = model.register_forward_pre_hook(
        lambda _, args, kwargs: source.entered(brick, args, kwargs), with_kwargs=True
    )
    after = model.register_forward_hook(lambda _, args, result: source.left(brick, args, result))
    yield spans, source, model
    before.remove()
    after.remove()
    source.stop()


def test_each_new_token_is_one(observed: tuple[Timeline, GenerationSource, Any]) -> None:
    spans, _, model = observed
    torch.manual_seed(3)
    model.generate(
        torch.ones(2, 4, dtype=torch.long),
        max_new_tokens=5,
        min_new_tokens=5,
        do_sample=True,
        temperature=0.7,
        top_p=0.9,
    )
    found = spans.take()
    assert [(span.name, span.kind) for span in found] == [("SAMPLE", "phase")] * 5
    assert {tuple(sorted((span.attributes or {}).items())) for span in found} == {
        (("do_sample", True), ("temperature", 0.7), ("tokens", 2), ("top_p", 0.9))
    }
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(found))
    assert all(span.own_ns > 0 for span in found)


def test_tokens_are_the_same_with_and_without(observed: tuple[Timeline, GenerationSource, Any]) -> None:
    _, source, model = observed

    def generated() -> torch.Tensor:
        torch.manual_seed(5)
        found: torch.Tensor = model.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=8, do_sample=True)
        return found

    seen = generated()
    source.stop()
    assert torch.equal(generated(), seen)


def test_outside_of_generate_a_call_is_none(observed: tuple[Timeline, GenerationSource, Any]) -> None:
    spans, _, model = observed
    with torch.no_grad():
        model(torch.ones(1, 3, dtype=torch.long))
        model(torch.ones(1, 3, dtype=torch.long))
    assert spans.take() == []


def test_an_error_ends_it(observed: tuple[Timeline, GenerationSource, Any]) -> None:
    spans, _, model = observed
    with pytest.raises((ValueError, TypeError)):
        model.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=2, no_such_argument=1)
    model(torch.ones(1, 3, dtype=torch.long))
    assert spans.take() == []
