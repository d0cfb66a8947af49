"""From observations to records: which are written, when the first bad one was, and the run-up to it.

A clean record is written in one step of `sample_every`; a bad one always. With `pre_context`, the last K steps of
unwritten records are kept and written when the first bad one is seen; from then on everything is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.record import RecordMaker, fingerprint, uses_tf32
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.observation import Observation
from aorta_collectors.observe.trace import StepTrace

_Entry = tuple[int, Observation]  # with its place in the order of the step


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
        self._maker = RecordMaker(
            identity,
            bounded=bool(config.bounds) or any(entry.bounds is not None for entry in config.follows),
            locate="locate" in config.diagnostics,
            bad_values="bad_values" in config.diagnostics,
        )
        # Steps that may still be wanted as run-up. Observations are small tuples; dictionaries are built on writing.
        self._run_up: deque[tuple[int, list[_Entry]]] = deque(maxlen=config.pre_context or None)
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

    def step(self, trace: StepTrace) -> bool:
        """Take in one step; returns whether it holds the first bad record."""
        config, step = self._config, trace.step
        entries = [(seq, seen) for seq, seen in enumerate(trace.observations) if seen.site.recorded]
        bad = [entry for entry in entries if entry[1].is_bad]
        is_first = bool(bad) and self.first_bad is None
        if is_first:
            self._note_first(step, bad[0][1])
        self._note_others(step, entries, bad)
        sampled = step % config.sample_every == 0
        if is_first and config.pre_context and not self.pre_context_flushed:
            self.pre_context_flushed = True
            for earlier, kept in self._run_up:
                self._write(earlier, kept)
            self._run_up.clear()
            self._log(f"pre-context: wrote the {config.pre_context}-step run-up before the first bad record")
        if config.stop_on_first and self.first_bad is not None:
            self._write(step, bad)
        elif sampled or self.pre_context_flushed:
            self._write(step, entries)
        else:
            self._write(step, bad)
            if config.pre_context:
                self._run_up.append((step, [entry for entry in entries if not entry[1].is_bad] if bad else entries))
        if config.verbose and bad:
            worst = max((seen for _, seen in bad), key=lambda seen: seen.stats.finite_abs_max or 0.0)
            self._log(
                f"step={step} worst_bad={worst.site.layer} abs_max={worst.stats.finite_abs_max or 0.0:.3e} "
                f"dir={worst.site.direction}"
            )
        return is_first

    def _note_first(self, step: int, seen: Observation) -> None:
        self.first_bad = fingerprint(step, seen)
        self._log(
            f"FIRST BAD: step={step} layer={seen.site.layer} dir={seen.site.direction} kind={self.first_bad['kind']} "
            f"call#~{seen.calls} tf32={uses_tf32(seen)}{_where(seen)}"
        )

    def _note_others(self, step: int, entries: list[_Entry], bad: list[_Entry]) -> None:
        for _, seen in bad:
            stats = seen.stats
            if self.first_nonfinite is None and (stats.nan_count or stats.inf_count):
                self.first_nonfinite = fingerprint(step, seen)
            if stats.oob_count:
                self.oob_records += 1
                if self.first_oob is None:
                    moment = seen.moment
                    self.first_oob = {
                        "step": step,
                        "layer": seen.site.layer,
                        "phase": moment.phase,
                        "oob_count": stats.oob_count,
                        "batch_id": moment.batch_id,
                        "checkpoint": moment.checkpoint or None,
                    }
        for _, seen in entries:
            if seen.site.bounds is None:
                continue
            low, high = seen.stats.finite_min, seen.stats.finite_max
            if low is not None and (self.peak_finite_min is None or low < self.peak_finite_min):
                self.peak_finite_min = low
            if high is not None and (self.peak_finite_max is None or high > self.peak_finite_max):
                self.peak_finite_max = high

    def _write(self, step: int, entries: list[_Entry]) -> None:
        room = max(0, self._config.max_records - self._file.written)
        self.records_cut += max(0, len(entries) - room)
        self._file.append([self._maker.record(step, seq, seen) for seq, seen in entries[:room]])


def _where(seen: Observation) -> str:
    """Of a followed tensor, where in its batch's life it was read."""
    if seen.site.direction != "pipeline":
        return ""
    checkpoint = f" checkpoint={seen.moment.checkpoint}" if seen.moment.checkpoint else ""
    return f" phase={seen.moment.phase} batch={seen.moment.batch_id}{checkpoint}"
