"""Programs that are awkward to watch. Each gives tensors, or what else it sees, in the order in which it has them."""

from __future__ import annotations

from tests.torch_collector.awkward import lives, transforms, values
from tests.torch_collector.awkward.shared import Program

#: What a program has no tensors at.
LACKS: dict[Program, tuple[str, ...]] = {
    transforms.optimizer_of_its_own: ("after_step",),
    values.changed_in_place: ("after_step",),
    values.subclass_that_looks_on: ("after_step",),
    values.generator_as_forward: ("after_step",),
}
ALL: tuple[Program, ...] = (
    transforms.closure,
    transforms.optimizer_of_its_own,
    transforms.scaler_that_skips,
    transforms.transformed,
    transforms.scripted_and_traced,
    transforms.exported,
    transforms.observing_itself,
    transforms.without_memory,
    values.dtypes_and_layouts,
    values.values_of_all_kinds,
    values.changed_in_place,
    values.subclass_that_looks_on,
    values.generator_as_forward,
    lives.built_for_each_step,
    lives.copied_and_stored,
    lives.parts_come_and_go,
    lives.names_of_all_kinds,
    lives.nested_deeply,
    lives.failures_that_are_caught,
    lives.checkpointed,
    lives.without_gradients,
    lives.several_threads,
    lives.freed_at_once,
)
