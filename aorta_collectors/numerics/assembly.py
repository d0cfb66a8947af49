"""Which parts a configuration asks for, and what they need of one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.model_device import ModelDevice
from aorta_collectors.numerics.engine.timeline import Timeline
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.layers.payload import Payload
from aorta_collectors.numerics.marker import Marks
from aorta_collectors.numerics.metrics.intervals import Intervals
from aorta_collectors.numerics.metrics.step_metrics import StepMetrics
from aorta_collectors.numerics.part import Part
from aorta_collectors.numerics.profile.bricks import BrickTable
from aorta_collectors.numerics.profile.counting import OperationCount
from aorta_collectors.numerics.profile.energy import Energy
from aorta_collectors.numerics.profile.escalation.escalation import Escalation
from aorta_collectors.numerics.profile.graphs import GraphExclusion
from aorta_collectors.numerics.profile.roofline import Machine
from aorta_collectors.numerics.profile.units import UnitWatch
from aorta_collectors.numerics.sources.collectives import CollectiveSource
from aorta_collectors.numerics.sources.data import DataSource
from aorta_collectors.numerics.sources.generation import GenerationSource
from aorta_collectors.numerics.sources.tokenizers import TokenizerSource
from aorta_collectors.numerics.sources.transfers import TransferSource, built_for_device


def parts_of(
    config: Config,
    timeline: Timeline,
    warn: Callable[[str], None],
    *,
    say: Callable[[str], None],
    place: Callable[[], tuple[Path, str] | None],
) -> list[Part]:
    """The parts, in the order in which they are told of what happens.

    Those that say of a step that its times do not count (OperationCount, Escalation) come before those that take times.

    Args:
        warn: Told what is not as it was asked for.
        say: Told lines for stderr.
        place: Gives the directory and the stem of this process's files; None as long as they are not known.
    """
    data = DataSource(timeline, warn)
    parts: list[Part] = [ModelDevice(), data, TransferSource(timeline, warn, built_for_device())]
    if config.traces or config.profiles:
        parts.append(CollectiveSource(timeline, warn))
    if config.traces:
        parts += [TokenizerSource(timeline, warn), GenerationSource(timeline, warn), Marks(timeline, warn)]
    machine = Machine(config, warn)
    counting = OperationCount(timeline, lambda error: warn(f"operations were not counted: {error}"))
    if config.profiles or config.measures_steps:
        parts += [machine, counting]
    if config.reads_layers:
        payload = Payload(config, place, warn) if config.keeps_payload else None
        parts.append(LayerStats(config, warn, payload=payload))
        parts += [payload] if payload is not None else []
    if config.profiles:
        parts += _of_bricks(config, timeline, warn, machine, counting)
    if config.measures_steps:
        metrics = StepMetrics(
            config,
            timeline,
            warn,
            say=say,
            remaining=data.remaining,
            flops=counting.flops_of_step,
            peak=lambda: machine.peak(counting.dtype_of_step()),
        )
        parts += [metrics, Intervals(config.interval, say)]
    return parts


def _of_bricks(
    config: Config, timeline: Timeline, warn: Callable[[str], None], machine: Machine, counting: OperationCount
) -> list[Part]:
    units = UnitWatch()
    # The two know of each other: a closer look follows from the table, and the table counts the looks.
    table = BrickTable(
        config,
        work=counting.work_of,
        roofline=lambda: machine.roofline,
        units=units.of,
        escalations=lambda layer, direction: escalation.taken_of(layer, direction),
    )
    escalation = Escalation(config, table, timeline)
    return [escalation, GraphExclusion(warn), units, table, Energy()]
