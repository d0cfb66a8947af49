"""From observations to records: which are written, when the first bad one was, and the run-up to it.

A clean record is written in one step of `sample_every`; a bad one always. With `pre_context`, the last K steps of
unwritten records are kept and written when the first bad one is seen; from then on everything is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.observation import Observation


class Recorder:
    """Decides what is written. The file is opened by the caller once it is known where.

    Args:
        identity: Fields that all records of this process share: rank, gpu, host, pid.
        log: Where to say that something bad was seen.
    """

    def __init__(self, config: Config, identity: dict[str, Any], file: RecordFile, log: Callable[[str], None]) -> None:
        self._config = config
        self._identity = identity
        self._file = file
        self._log = log
        # Steps that may still be wanted as run-up. Observations are small tuples; dictionaries are built on writing.
        self._run_up: deque[tuple[int, list[Observation]]] = deque(maxlen=config.pre_context or None)
        self.first_bad: dict[str, Any] | None = None
        self.first_nonfinite: dict[str, Any] | None = None
        self.pre_context_flushed = False
        self.records_cut = 0

    @property
    def records_written(self) -> int:
        return self._file.written

    def step(self, step: int, observations: list[Observation]) -> bool:
        """Take in one step; returns whether it holds the first bad record."""
        config = self._config
        bad = [seen for seen in observations if _is_bad(seen)]
        is_first = bool(bad) and self.first_bad is None
        if is_first:
            self._note_first(step, bad[0])
        if bad and self.first_nonfinite is None:
            lost = next((seen for seen in bad if seen.stats.nan_count or seen.stats.inf_count), None)
            if lost is not None:
                self.first_nonfinite = _fingerprint(step, lost)
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
            self._write(step, observations)
        else:
            self._write(step, bad)
            if config.pre_context:
                clean = [seen for seen in observations if not _is_bad(seen)] if bad else observations
                self._run_up.append((step, clean))
        if config.verbose and bad:
            worst = max(bad, key=lambda seen: seen.stats.finite_abs_max or 0.0)
            self._log(
                f"step={step} worst_bad={worst.site.layer} abs_max={worst.stats.finite_abs_max or 0.0:.3e} "
                f"dir={worst.site.direction}"
            )
        return is_first

    def _note_first(self, step: int, seen: Observation) -> None:
        self.first_bad = _fingerprint(step, seen)
        self._log(
            f"FIRST BAD: step={step} layer={seen.site.layer} dir={seen.site.direction} kind={self.first_bad['kind']} "
            f"call#~{seen.calls} tf32={_tf32(seen)}"
        )

    def _write(self, step: int, observations: Iterable[Observation]) -> None:
        wanted = list(observations)
        room = max(0, self._config.max_records - self._file.written)
        self.records_cut += max(0, len(wanted) - room)
        self._file.append([self._record(step, seen) for seen in wanted[:room]])

    def _record(self, step: int, seen: Observation) -> dict[str, Any]:
        site, stats = seen.site, seen.stats
        return {
            "type": "layer_step",
            "step": step,
            "phase": "forward",
            "batch_id": None,
            **self._identity,
            "layer_name": site.layer,
            "direction": site.direction,
            "role": site.role,
            "param_name": site.param,
            "value_is_from_prev_step": site.from_prev_step,
            "shape": list(seen.shape),
            "dtype": str(seen.dtype),
            "tf32_path": _tf32(seen),
            "matmul_calls_so_far": seen.calls,
            "t": seen.time,
            "nan_count": stats.nan_count,
            "inf_count": stats.inf_count,
            "finite_count": stats.finite_count,
            "huge_count": stats.huge_count,
            "finite_abs_max": stats.finite_abs_max,
            "finite_max": stats.finite_max,
            "finite_min": stats.finite_min,
            "numel": stats.numel,
            "bad": stats.bad,
        }


def _fingerprint(step: int, seen: Observation) -> dict[str, Any]:
    stats = seen.stats
    return {
        "step": step,
        "layer": seen.site.layer,
        "direction": seen.site.direction,
        "kind": "nan" if stats.nan_count else "inf" if stats.inf_count else "huge",
        "matmul_calls_so_far": seen.calls,
        "role": seen.site.role,
        "param_name": seen.site.param,
    }


def _is_bad(seen: Observation) -> bool:
    return seen.reduced is not None and seen.stats.bad


def _tf32(seen: Observation) -> bool:
    """Whether a matmul of this tensor may use TF32."""
    return seen.dtype is torch.float32 and tf32_allowed()


def tf32_allowed() -> bool:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:
        return False  # torch refuses to say once a program has used its newer fp32_precision setting
