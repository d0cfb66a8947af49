"""The words of `steps`: what they choose of a real model, and of what has no module."""

from __future__ import annotations

import pytest

from aorta_collectors.numerics import step
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.filter import StepsFilter
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.marker import Marks
from aorta_collectors.numerics.spans.lamport import LamportClock
from tests.numerics.armed import armed, train
from tests.numerics.models import gpt2

ATTENTION = {f"transformer.h.{block}.attn" for block in range(3)}


def test_a_word_is_a_step_or_a_part_of_a_path_or_class_in_any_case() -> None:
    chosen = StepsFilter(["Sample", "ATTENTION", "h.1"])
    assert chosen.of_step("SAMPLE") == {"Sample"}
    assert not chosen.of_step("SAMPLES")
    assert chosen.of_module("encoder.h.1.mlp", "GPT2Attention") == {"ATTENTION", "h.1"}
    assert chosen.unmatched == ["Sample", "ATTENTION", "h.1"]


def test_a_named_class_is_traced_though_it_is_neither_a_step_nor_a_leaf() -> None:
    with armed(trace="basic", steps=("attention",)) as seen:
        train(gpt2(), 2)
    assert {span.layer for span in seen.spans if span.layer} == ATTENTION
    assert seen.engine.unmatched_steps == []


def test_and_its_parts_with_it_where_layers_are_read() -> None:
    config = Config(trace="layer", steps=("attention",))
    with armed(LayerStats(config, lambda message: None), trace="layer", steps=("attention",)) as seen:
        train(gpt2(), 2)
    layers = {line["layer"] for trace in seen.traces for line in trace.stats}
    assert layers >= ATTENTION
    assert layers >= {f"{path}.c_attn" for path in ATTENTION}
    assert all(any(layer.startswith(path) for path in ATTENTION) for layer in layers)


def test_bricks_are_chosen_by_the_steps_name() -> None:
    with armed(trace="basic", profile="deferred", steps=("brick_profile",)) as seen:
        train(gpt2(), 2)
    assert {"GPT2Attention", "GPT2MLP"} <= {span.name for span in seen.spans if span.kind == "brick"}
    rows = {(row["name"], row["direction"]) for row in seen.timeline.trace_steps.fields()}
    assert ("BRICK_PROFILE", "forward") in rows


@pytest.mark.parametrize("is_counted", [False, True])
def test_what_lies_outside_the_model_counts_also_where_operations_are_counted(is_counted: bool) -> None:
    timeline = Timeline(Config(), LamportClock())
    marks = Marks(timeline, lambda message: None)
    marks.start()
    with step("RERANK"):
        pass
    timeline.end(timeline.begin("EMBED", "phase", "wte", "forward"))
    marks.stop()
    timeline.trace_steps.add(timeline.take(), is_counted=is_counted)
    names = [row["name"] for row in timeline.trace_steps.fields()]
    assert names == (["RERANK"] if is_counted else ["RERANK", "EMBED"])
