"""From observations to records: which are written, when the first bad one was, and the run-up to it.

A clean record is written in one step of `sample_every`; a bad one always. With `pre_context`, the last K steps of
unwritten records are kept and written when the first bad one is seen; from then on everything is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.record import RecordMaker, fingerprint, uses_tf32
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.step_trace import StepTrace

# Records written at once. A line has some 700 bytes, so that a step never takes more than some 3 MB of text.
_AT_ONCE = 4096


class Recorder:
    """Decides what is written. The file is opened by the caller once it is known where.

    Args:
        identity: Fields that all records of this process share: rank, gpu, host, pid.
        log: Where to say that something bad was seen.

    Attributes:
        first_bad, first_nonfinite, first_oob: Of the first record of the kind.
        peak_finite_min, peak_finite_max: The widest range seen of tensors that have bounds.
    """

    def __init__(self, config: Config, identity: dict[str, Any], file: RecordFile, log: Callable[[str], None]) -> None:
        self._config = config
        self._file = file
        self._log = log
        self._bounded = bool(config.bounds) or any(entry.bounds is not None for entry in config.follows)
        self._maker = RecordMaker(
            identity,
            bounded=self._bounded,
            locate="locate" in config.diagnostics,
            bad_values="bad_values" in config.diagnostics,
        )
        # Steps that may still be wanted as run-up: what was seen in them and its place in the order, nothing written.
        self._run_up: deque[tuple[int, Mapping[str, Any], Sequence[int], list[Observation]]] = deque(
            maxlen=config.pre_context or None
        )
        self.first_bad: dict[str, Any] | None = None
        self.first_nonfinite: dict[str, Any] | None = None
        self.first_oob: dict[str, Any] | None = None
        self.oob_records = 0
        self.peak_finite_min: float | None = None
        self.peak_finite_max: float | None = None
        self.pre_context_flushed = False
        self.records_cut = 0

    @property
    def records_written(self) -> int:
        return self._file.written

    def wants_ranges(self, step: int) -> bool:
        """Whether the finite range of a clean tensor of step `step` can come to be written.

        That of a tensor with bounds is always wanted. May be asked when the step begins, though steps before it have
        not been taken in yet: a step that is not wanted now is not wanted later either.
        """
        config = self._config
        if self._file.error is not None or self._file.written >= config.max_records:
            return False
        if config.stop_on_first and self.first_bad is not None:
            return False
        return bool(config.pre_context) or step % config.sample_every == 0

    def step(self, trace: StepTrace) -> bool:
        """Take in one step; returns whether it holds the first bad record."""
        config, step, observations = self._config, trace.step, trace.observations
        evaluation = trace.evaluation_fields()
        bad: Sequence[int] = trace.bad
        if bad and not trace.all_recorded:
            bad = [index for index in bad if observations[index].site.recorded]
        is_first = bool(bad) and self.first_bad is None
        if bad:
            self._note_bad(trace, bad)
        if self._bounded:
            self._note_range(observations)
        if is_first and config.pre_context:
            self.pre_context_flushed = True
            for earlier, evaluated, seqs, kept in self._run_up:
                self._write(earlier, len(kept), zip(seqs, kept, strict=True), evaluated)
            self._run_up.clear()
            self._log(f"pre-context: wrote the {config.pre_context}-step run-up before the first bad record")
        if config.stop_on_first and self.first_bad is not None:
            self._write(step, len(bad), ((index, observations[index]) for index in bad), evaluation)
        elif self.pre_context_flushed or step % config.sample_every == 0:
            seqs, seen = _recorded(trace)
            self._write(step, len(seen), zip(seqs, seen, strict=True), evaluation)
        elif bad:
            self._write(step, len(bad), ((index, observations[index]) for index in bad), evaluation)
        elif config.pre_context:
            self._run_up.append((step, evaluation, *_recorded(trace)))
        if config.verbose and bad:
            worst = max((observations[index] for index in bad), key=lambda seen: seen.stats.finite_abs_max or 0.0)
            self._log(
                f"step={step} worst_bad={worst.site.layer} abs_max={worst.stats.finite_abs_max or 0.0:.3e} "
                f"dir={worst.site.direction}"
            )
        return is_first

    def _note_bad(self, trace: StepTrace, bad: Sequence[int]) -> None:
        if self.first_bad is None:
            seen = trace.observations[bad[0]]
            self.first_bad = fingerprint(trace, bad[0])
            self._log(
                f"FIRST BAD: step={trace.step} layer={seen.site.layer} dir={seen.site.direction} "
                f"kind={self.first_bad['kind']} call#~{seen.calls} tf32={uses_tf32(seen)}{_where(seen)}"
            )
        for seq in bad:
            seen = trace.observations[seq]
            stats = seen.stats
            if self.first_nonfinite is None and (stats.nan_count or stats.inf_count):
                self.first_nonfinite = fingerprint(trace, seq)
            if stats.oob_count:
                self.oob_records += 1
                if self.first_oob is None:
                    moment = seen.moment
                    self.first_oob = {
                        "step": trace.step,
                        "layer": seen.site.layer,
                        "direction": seen.site.direction,
                        "phase": moment.phase,
                        "oob_count": stats.oob_count,
                        "batch_id": moment.batch_id,
                        "checkpoint": moment.checkpoint or None,
                        **trace.evaluation_fields(),
                        "seq": seq,
                    }

    def _note_range(self, observations: list[Observation]) -> None:
        for seen in observations:
            if seen.site.bounds is None or not seen.site.recorded:
                continue
            stats = seen.stats
            low, high = stats.finite_min, stats.finite_max
            if low is not None and (self.peak_finite_min is None or low < self.peak_finite_min):
                self.peak_finite_min = low
            if high is not None and (self.peak_finite_max is None or high > self.peak_finite_max):
                self.peak_finite_max = high

    def _write(
        self, step: int, count: int, entries: Iterable[tuple[int, Observation]], evaluation: Mapping[str, Any]
    ) -> None:
        """Write `count` (seq, observation) pairs, as far as there is room."""
        room = min(count, max(0, self._config.max_records - self._file.written))
        self.records_cut += count - room
        left: Iterator[tuple[int, Observation]] = islice(entries, room)
        while self._file.error is None and (lines := self._maker.lines(step, islice(left, _AT_ONCE), evaluation)):
            self._file.append(lines)


def _recorded(trace: StepTrace) -> tuple[Sequence[int], list[Observation]]:
    """What anybody asked records of: places in the order of the step, and observations."""
    observations = trace.observations
    if trace.all_recorded:
        return range(len(observations)), observations
    seqs = [index for index, seen in enumerate(observations) if seen.site.recorded]
    return seqs, [observations[index] for index in seqs]


def _where(seen: Observation) -> str:
    """Of a followed tensor, where in its batch's life it was read."""
    if seen.site.direction != "pipeline":
        return ""
    checkpoint = f" checkpoint={seen.moment.checkpoint}" if seen.moment.checkpoint else ""
    return f" phase={seen.moment.phase} batch={seen.moment.batch_id}{checkpoint}"
