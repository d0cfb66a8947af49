"""Spans: how they nest, what they know of overhead, which are kept, and which step they belong to."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.filter import StepsFilter
from aorta_collectors.numerics.engine.timeline import Opened, Timeline
from aorta_collectors.numerics.spans.lamport import LamportClock
from aorta_collectors.numerics.spans.span import Span
from tests.numerics.forked import in_a_fork


def timeline(**options: Any) -> Timeline:
    return Timeline(Config(**options), LamportClock())


def ended(lines: Timeline, opened: Opened, **told: Any) -> Span:
    span = lines.end(opened, **told)
    assert span is not None
    return span


class TestNesting:
    def test_what_begins_inside_has_what_encloses_it_as_its_parent(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user")
        inner = lines.begin("DECODE", "phase")
        first, second = ended(lines, inner), ended(lines, outer)
        assert (first.parent_id, second.parent_id) == (second.span_id, 0)
        assert first.lamport > second.lamport
        assert second.start_ns <= first.start_ns <= first.end_ns <= second.end_ns

    def test_each_thread_has_its_own(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user")
        there: list[Span] = []
        thread = threading.Thread(target=lambda: there.append(ended(lines, lines.begin("DATA", "phase"))))
        thread.start()
        thread.join()
        here = ended(lines, outer)
        assert there[0].parent_id == 0
        assert there[0].thread != here.thread

    def test_what_an_exception_left_open_ends_with_what_encloses_it(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user")
        lines.begin("DECODE", "phase")
        last = lines.begin("DATA", "phase")
        span = ended(lines, outer, at_ns=outer.start_ns + 5)
        assert [(found.name, found.end_ns) for found in lines.take()] == [
            (name, span.end_ns) for name in ("DATA", "DECODE", "SAMPLE")
        ]
        assert lines.end(last) is None, "it is over"

    def test_what_was_is_added_below_what_enclosed_it_then(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user", at_ns=100)
        lines.begin("DECODE", "phase", at_ns=200)
        added = lines.add("all_reduce", "collective", 150, 250, attributes={"bytes": 4})
        assert added is not None
        assert (added.parent_id, added.attributes) == (outer.span_id, {"bytes": 4})

    def test_a_span_knows_what_observing_took_in_it(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user", at_ns=0)
        lines.overhead_ns += 300
        inner = lines.begin("DECODE", "phase", at_ns=500)
        lines.overhead_ns += 40
        assert ended(lines, inner, at_ns=600).own_ns == 60
        assert ended(lines, outer, at_ns=1000).own_ns == 660

    def test_what_observing_took_meanwhile_on_other_threads_is_no_more_than_it_lasted(self) -> None:
        lines = timeline()
        outer = lines.begin("SAMPLE", "user", at_ns=0)
        lines.overhead_ns += 300
        span = ended(lines, outer, at_ns=200)
        assert (span.overhead_ns, span.own_ns) == (200, 0)


class TestKept:
    def test_nothing_is_where_nothing_is_traced(self) -> None:
        lines = timeline(trace="none", profile="deferred")
        assert lines.end(lines.begin("SAMPLE", "user")) is None
        assert lines.add("all_reduce", "collective", 1, 2) is None
        assert lines.take() == []

    @pytest.mark.parametrize(
        ("word", "kept"),
        [
            ("sample", ["SAMPLE"]),
            ("H.1", ["CausalAttention"]),
            ("attention", ["CausalAttention"]),
            ("samp", []),  # of a named step the whole word
        ],
    )
    def test_a_word_is_a_named_step_or_a_part_of_a_path_or_class(self, word: str, kept: list[str]) -> None:
        lines = timeline(steps=(word,))
        for name, kind, layer in (("SAMPLE", "user", ""), ("CausalAttention", "layer", "h.1.attn")):
            lines.end(lines.begin(name, kind, layer))
        assert [span.name for span in lines.take()] == kept
        assert lines.filter.unmatched == ([] if kept else [word])

    def test_steps_and_the_process_are_kept_whatever_the_words(self) -> None:
        chosen = StepsFilter(["sample"])
        assert chosen.keeps("STEP", "step", "")
        assert chosen.keeps("train.py", "process", "")
        assert chosen.unmatched == ["sample"]

    def test_what_is_kept_inside_of_what_is_not_has_a_parent_that_is(self) -> None:
        lines = timeline(steps=("embed", "step_one"))
        outer = lines.begin("step_one", "user")
        middle = lines.begin("FORWARD", "phase")
        inner = lines.begin("EMBED", "phase")
        spans = [lines.end(inner), lines.end(middle), lines.end(outer)]
        assert spans[1] is None
        assert spans[0] is not None
        assert spans[0].parent_id == outer.span_id

    def test_a_fork_records_nothing(self) -> None:
        lines = timeline()

        def record() -> None:
            lines.end(lines.begin("SAMPLE", "user"))
            assert lines.take() == []

        assert in_a_fork(record)[1] == 0


class TestSteps:
    def test_what_began_after_a_step_ended_belongs_to_the_next(self) -> None:
        lines = timeline()
        lines.begin_step(1, 100, 0.0, 1)
        lines.end(lines.begin("FORWARD", "phase", at_ns=110), at_ns=150)
        lines.end(lines.begin("DATA", "phase", at_ns=180), at_ns=190)
        running = lines.begin("SAMPLE", "user", at_ns=185)
        spans, _ = lines.end_step(160, 0.0)
        assert [(span.name, span.step, span.start_ns, span.end_ns) for span in spans] == [
            ("FORWARD", 1, 110, 150),
            ("STEP", 1, 100, 160),
        ]
        lines.begin_step(2, 160, 0.0, 2)
        lines.end(running, at_ns=195)
        spans, sources = lines.end_step(200, 0.0)
        step = spans[-1]
        assert [(span.name, span.step) for span in spans] == [("DATA", 2), ("SAMPLE", 2), ("STEP", 2)]
        assert {span.parent_id for span in spans[:2]} == {step.span_id}
        assert [(source.phase, source.own_ns) for source in sources] == [("data", 10)]

    def test_other_threads_have_the_step_as_their_parent(self) -> None:
        lines = timeline()
        lines.begin_step(1, 0, 0.0, 1)
        lines.begin("FORWARD", "phase")
        thread = threading.Thread(target=lambda: lines.end(lines.begin("DATA", "phase", at_ns=5)))
        thread.start()
        thread.join()
        spans, _ = lines.end_step(10, 0.0)
        assert spans[0].parent_id == spans[-1].span_id

    def test_what_is_told_late_belongs_to_the_step_that_it_began_in(self) -> None:
        lines = timeline()
        steps = []
        for number in (1, 2, 3):
            lines.begin_step(number, 100 * number, 0.0, number)
            if number < 3:
                steps += lines.end_step(100 * number + 100, 0.0)[0]
        lines.begin("FORWARD", "phase", at_ns=310)
        told = [lines.add("all_reduce", "collective", start, start + 5) for start in (50, 150, 250, 350)]
        found = [(span.step, span.parent_id) for span in told if span is not None]
        third = found[3][1]
        assert found == [(0, 0), (1, steps[0].span_id), (2, steps[1].span_id), (3, third)]
        assert third not in (0, *(step.span_id for step in steps))

    def test_what_began_before_another_thread_began_a_step_does_not_lie_in_it(self) -> None:
        lines = timeline()
        lines.begin_step(1, 100, 0.0, 1)
        first = ended(lines, lines.begin("SAMPLE", "user", at_ns=110))
        lines.begin_step(2, 200, 0.0, 2)
        late = ended(lines, lines.begin("FORWARD", "phase", at_ns=190))
        assert (late.step, late.parent_id) == (1, first.parent_id)
        assert ended(lines, lines.begin("FORWARD", "phase", at_ns=210)).step == 2

    def test_what_comes_after_the_last_step_is_the_process_s(self) -> None:
        lines = timeline()
        lines.begin_step(1, 100, 0.0, 1)
        lines.begin("SAMPLE", "user", at_ns=180)
        lines.end(lines.begin("FORWARD", "phase", at_ns=190), at_ns=195)
        lines.end(lines.begin("DATA", "phase", at_ns=205), at_ns=210)
        spans, _ = lines.end_step(200, 0.0)
        step = spans[-1].span_id
        assert [span.parent_id for span in lines.finish(200)] == [lines.stack()[0].span_id]
        lines.end(lines.stack()[0], at_ns=220)
        assert lines.add("all_reduce", "collective", 150, 160) is not None
        assert lines.add("DECODE", "phase", 230, 240) is not None
        assert [(span.name, span.parent_id) for span in lines.take()] == [
            ("SAMPLE", step),
            ("all_reduce", step),
            ("DECODE", 0),
        ]
        lines.begin_step(2, 300, 0.0, 2)  # it is armed again
        assert ended(lines, lines.begin("FORWARD", "phase", at_ns=310)).parent_id not in (0, step)

    def test_the_first_step_comes_before_all_that_it_turns_out_to_enclose(self) -> None:
        lines = timeline()
        fetched = ended(lines, lines.begin("DATA", "phase", at_ns=10), at_ns=20)
        lines.begin_step(1, lines.last_fetch_ns(50), 0.0, lines.first_lamport())
        spans, _ = lines.end_step(60, 0.0)
        assert [span.name for span in spans] == ["DATA", "STEP"]
        assert spans[0].parent_id == spans[1].span_id
        assert spans[1].lamport < fetched.lamport < lines.first_lamport()

    def test_what_cannot_be_held_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aorta_collectors.numerics.engine.timeline._MOST_PENDING", 2)
        lines = timeline()
        for _ in range(5):
            lines.end(lines.begin("TOKENIZE", "phase"))
        assert (len(lines.take()), lines.dropped) == (2, 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=40), st.data())
def test_spans_form_a_tree_whatever_is_left_open(begins: list[bool], data: st.DataObject) -> None:
    lines = timeline()
    opened: list[Opened] = []
    begun = 0
    for begin in begins:
        if begin or not opened:
            begun += 1
            opened.append(lines.begin("SAMPLE", "user"))
        else:
            index = data.draw(st.integers(0, len(opened) - 1))
            lines.end(opened[index])
            del opened[index:]
    for left in opened[:1]:
        lines.end(left)
    spans = {span.span_id: span for span in lines.take()}
    assert len(spans) == begun
    for span in spans.values():
        parent = spans.get(span.parent_id)
        assert parent is not None or span.parent_id == 0
        if parent is not None:
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
            assert parent.lamport < span.lamport
