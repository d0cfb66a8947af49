"""A live view of a run of numerics: what is known of it at this moment, again and again, at little cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.analysis.captures import NONE, NUMERICS, Process, Trial
from aorta_collectors.analysis.live_lines import Fitting
from aorta_collectors.analysis.live_process import LiveProcess
from aorta_collectors.analysis.live_processes import LiveProcesses
from aorta_collectors.analysis.live_search import LiveSearch, anchor_of
from aorta_collectors.analysis.numerics.bricks import Brick, bricks_of
from aorta_collectors.analysis.numerics.phases import named_steps_of, steps_counted, steps_ms
from aorta_collectors.analysis.numerics.processes import Processes, processes_of, weighted
from aorta_collectors.analysis.numerics.samples import has_all_spans
from aorta_collectors.analysis.top_losses import SMOOTHING, Losses
from aorta_collectors.analysis.top_snapshot import Look, Span, Top, TopBrick, TopStep, Training
from aorta_collectors.analysis.top_window import Bucket, Window
from aorta_collectors.analysis.watch import now
from aorta_collectors.layer_numerics.order import Alignment, Line

_MOST_LOOKS = 40
_SCHEMAS = {"spans": "span", "steps": "step", "escalations": "escalation"}


class LiveProfile:
    """What is looked at: a run directory, a trial's record or directory, or what NUMERICS_DIR names.

    It need not be there yet.

    Raises:
        ArtifactError: The path names a file that is no trial's record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._search = LiveSearch(path, NUMERICS)
        self._trial: tuple[Path, _LiveTrial] | None = None

    def look(self) -> Top:
        """What is known now. What cannot be read is told in it, and read again at the next look."""
        search = self._search
        top = Top(now(), str(self._path), "waiting")
        awaited = search.look()
        if awaited is not None:
            return replace(top, awaited=awaited)
        top = replace(top, cells=search.cells, problems=search.problems)
        shown = search.shown
        if shown is None:
            state, awaited = search.state(None)
            return replace(top, state=state, awaited=awaited)
        if self._trial is None or self._trial[0] != shown.artifacts:
            self._trial = shown.artifacts, _LiveTrial(shown.artifacts, anchor_of(shown))
        trial = self._trial[1]
        trial.processes.look()
        progress = trial.processes.progress()
        if shown.record or (progress is not None and progress.has_ended):
            search.soon()
        state, awaited = search.state(None if progress is None else progress.has_ended)
        top = replace(top, state=state, awaited=awaited, cell=shown.cell, trial=shown.index, progress=progress)
        top = replace(top, problems=(*top.problems, *trial.processes.problems))
        return top if progress is None else trial.shown(top)


class _LiveTrial:
    """What the processes of one trial have written so far.

    Args:
        directory: Where they write.
        anchor: At or above it, the operator's own.
    """

    def __init__(self, directory: Path, anchor: Path) -> None:
        self.processes = LiveProcesses(directory, anchor, NUMERICS, self._take, self._forget)
        self._directory = directory
        self._forget()

    def _forget(self) -> None:
        self._fitting = {kind: Fitting(f"numerics.{schema}") for kind, schema in _SCHEMAS.items()}
        self._window = Window()
        self._losses: dict[str, Losses] = {}
        self._last: dict[str, Mapping[str, Any]] = {}
        self._looks: deque[Look] = deque(maxlen=_MOST_LOOKS)

    def _take(self, process: LiveProcess, line: Line, kind: str, lines: list[bytes]) -> None:
        if kind not in self._fitting or (kind == "spans" and not has_all_spans(process.summary)):
            return
        found = self._fitting[kind].lines(lines)
        if kind == "spans":
            self._window.take(process.stem, found)
        elif kind == "escalations":
            self._looks.extend(map(_look, found))
        elif found:
            losses = self._losses.setdefault(process.stem, Losses())
            for step in found:
                losses.take(step)
            self._last[process.stem] = found[-1]

    def shown(self, top: Top) -> Top:
        """With all that its processes say; of those that have ended in order the whole run, not its last seconds."""
        processes = self._processes()
        bricks = bricks_of(processes)
        window = self._window.sums()
        summaries = processes.summaries
        looks = [summary.get("escalations", {}) for summary in summaries]
        top = replace(
            top,
            profile=str(summaries[0]["config"].get("profile", "off")),
            training=self._training(processes),
            efficiency=weighted([(brick.efficiency, brick.self_us) for brick in bricks]),
            looks=tuple(reversed(self._looks)),
            looks_taken=sum(entry.get("taken", 0) for entry in looks),
            looks_suppressed=sum(entry.get("suppressed", 0) for entry in looks),
            stopped=next((summary["stopped"] for summary in summaries if summary.get("stopped")), None),
            passed_over_bytes=self.processes.passed_over_bytes,
            unreadable_lines=sum(fitting.unreadable for fitting in self._fitting.values()),
        )
        has_last_summary = all(process.state == "ended" for process in self.processes.current)
        if window.modules and not has_last_summary:
            return replace(top, **_of_window(window, bricks))
        return replace(top, **_of_summaries(processes, bricks))

    def _processes(self) -> Processes:
        """As they are in captures, so that what is asked of these can be asked here."""
        current = self.processes.current
        alignment = Alignment(process.summary for process in current)
        found = tuple(Process(process.stem, process.summary, alignment.line(process.summary)) for process in current)
        return processes_of(Trial(".", NONE, NONE, self._directory, self._directory, found, source=NUMERICS))

    def _training(self, processes: Processes) -> Training | None:
        """The last step of all ranks, with the loss of the first that has one."""
        stems = [process.stem for process in processes.counted if process.stem in self._last]
        if not stems:
            return None
        last = [self._last[stem] for stem in stems]
        chosen = next((stem for stem in stems if self._losses[stem].last is not None), stems[0])
        losses, of_chosen = self._losses[chosen], self._last[chosen]
        best, best_step = losses.best, losses.best_step
        summary = next(process.summary for process in processes.counted if process.stem == chosen)
        before = summary.get("step_metrics", {})  # of lines that were passed over, too
        if before.get("best_loss") is not None and (best is None or before["best_loss"] < best):
            best, best_step = before["best_loss"], before.get("best_loss_step")
        utilizations = _known(last, "mfu")
        return Training(
            of_chosen["step"],
            of_chosen["kind"],
            losses.last,
            losses.ema,
            SMOOTHING,
            best,
            best_step,
            sum(_known(last, "tokens_per_s")) or None,
            sum(_known(last, "samples_per_s")) or None,
            sum(utilizations) / len(utilizations) if utilizations else None,
            of_chosen["grad_norm"],
            max(_known(last, "step_ms"), default=None),
            max(_known(last, "memory_used_mb"), default=None),
            max(_known(last, "memory_total_mb"), default=None),
            max(_known(last, "eta_s"), default=None),
            losses.curve.points,
            losses.ema_curve.points,
        )


def _of_window(window: Bucket, bricks: Sequence[Brick]) -> dict[str, Any]:
    """Span, bricks and named steps of the last seconds; what only the summary knows of a brick is taken from there."""
    known = {brick.key: brick for brick in bricks}
    whole_ns = sum(window.step_ns.values())
    found = []
    for (layer, direction), sums in window.modules.items():
        brick = known.get((layer, direction))
        own_us = sums.own_ns / 1000
        allowed = brick.allowed_us if brick is not None else None
        found.append(
            TopBrick(
                layer,
                brick.module_type if brick is not None else "",
                direction,
                sums.calls,
                own_us,
                sums.own_ns / whole_ns if whole_ns else None,
                sums.mean_us,
                sums.cv,
                allowed * sums.calls / own_us if allowed is not None and own_us else None,
                brick.bound if brick is not None else None,
                brick.escalations if brick is not None else 0,
            )
        )
    named = [
        TopStep(name, direction, sums.calls, sums.mean_us, sums.total_ns / whole_ns if whole_ns else None)
        for (name, direction), sums in window.named.items()
    ]
    span = Span("spans", max(window.steps.values()), max(window.step_ns.values()) / 1e9)
    return {"span": span, "bricks": _by_time(found), "steps": tuple(sorted(named, key=lambda step: -(step.share or 0)))}


def _of_summaries(processes: Processes, bricks: Sequence[Brick]) -> dict[str, Any]:
    """The same since the start."""
    summaries = processes.summaries
    found = [
        TopBrick(
            brick.layer,
            brick.module_type,
            brick.direction,
            brick.calls,
            brick.self_us,
            brick.share,
            brick.mean_us,
            brick.cv,
            brick.efficiency,
            brick.bound,
            brick.escalations,
        )
        for brick in bricks
    ]
    named = [
        TopStep(step.name, step.direction, step.count, step.mean_us, step.share) for step in named_steps_of(summaries)
    ]
    whole, ranks = steps_ms(summaries), len(summaries)
    span = Span("summary", steps_counted(summaries) // ranks, whole / 1000 / ranks if whole else None)
    return {"span": span, "bricks": _by_time(found), "steps": tuple(sorted(named, key=lambda step: -(step.share or 0)))}


def _by_time(bricks: Sequence[TopBrick]) -> tuple[TopBrick, ...]:
    return tuple(sorted(bricks, key=lambda brick: -brick.self_us))


def _known(lines: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [line[key] for line in lines if line[key] is not None]


def _look(line: Mapping[str, Any]) -> Look:
    split = line["breakdown"] or {}
    return Look(
        line["step"],
        line["rank"],
        line["layer"],
        line["direction"],
        line["reason"],
        line["value"],
        line["threshold"],
        line["brick_us"],
        split.get("dominant", ""),
        split.get("source", ""),
    )
