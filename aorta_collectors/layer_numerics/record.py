"""Lines of layers_rank<N>.jsonl from observations, and the short form in which the summary names one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.precision import headroom
from aorta_collectors.observe.step_trace import StepTrace

_MOST_PLACES = 1 << 15  # some 25 MB of text, in a program that makes a new model in each step
_MOST_HEADROOMS = 1 << 14  # some 3 MB
_NO_EVALUATION: Mapping[str, Any] = MappingProxyType({})


class _Place(NamedTuple):
    """What stays the same from step to step: where a tensor is read, of which shape and dtype.

    Attributes:
        upto_seq, upto_calls: The text of the line before `seq`, and from `value_is_from_prev_step` to the calls.
        narrow: Whether the dtype is one whose headroom is told.
    """

    shape: torch.Size
    dtype: torch.dtype
    upto_seq: str
    upto_calls: str
    narrow: bool


class RecordMaker:
    """Builds lines. Fields that only an option adds are there where that option is on.

    A line has the bytes that json.dumps gives for its fields. All that a step does not change is kept as text by site;
    what remains to be put in is a dozen of numbers.

    Args:
        identity: Fields that all records of this process share: rank, gpu, host, pid.
        bounded: Whether ranges are checked, so that each record says how many elements lie outside.
        locate: Whether each record says how many rows hold a bad element.
        bad_values: Whether a bad record names its first bad element.
    """

    def __init__(self, identity: dict[str, Any], *, bounded: bool, locate: bool, bad_values: bool) -> None:
        self._identity = json.dumps(identity)[1:-1]
        self._bounded = bounded
        self._locate = locate
        self._bad_values = bad_values
        self._is_plain = not (bounded or locate or bad_values)
        self._places: dict[Site, _Place] = {}
        self._headrooms: dict[tuple[torch.dtype, float], str] = {}
        self._tf32 = False

    def lines(
        self, step: int, entries: Iterable[tuple[int, Observation]], evaluation: Mapping[str, Any] = _NO_EVALUATION
    ) -> list[str]:
        """One line for each (seq, observation) of a step, without the line's end.

        Args:
            evaluation: Fields that tell of evaluations up to the step.

        Raises:
            ValueError: A number of `extra` is NaN or Inf, for which JSON has no word.
        """
        self._see_tf32()
        places = self._places
        made: list[str] = []
        moments: dict[Moment, tuple[str, str, str]] = {}
        moment: Moment | None = None
        upto_site = upto_previous = of_call = ""
        for seq, seen in entries:
            if seen.moment is not moment:
                moment = seen.moment
                if moment not in moments:
                    moments[moment] = self._moment(step, moment, evaluation)
                upto_site, upto_previous, of_call = moments[moment]
            site, dtype = seen.site, seen.dtype
            place = places.get(site)
            if place is None or place.dtype is not dtype or place.shape != seen.shape:
                place = self._place(site, seen.shape, dtype)
            more = of_call
            low: float | None
            high: float | None
            if seen.reduced is None:
                nans = infs = huge = 0
                numel = finite = seen.numel
                low, high, bad = seen.low, seen.high, "false"
            else:
                stats = seen.stats
                numel, finite, nans, infs, huge = (
                    stats.numel,
                    stats.finite_count,
                    stats.nan_count,
                    stats.inf_count,
                    stats.huge_count,
                )
                low, high, bad = stats.finite_min, stats.finite_max, "true" if stats.bad else "false"
                if stats.moments is not None:
                    more += f', "finite_mean": {_text(stats.finite_mean)}, "finite_rms": {_text(stats.finite_rms)}'
            if low is None or high is None:
                lowest = highest = largest = "null"
            else:
                # The magnitude has the digits of one of the two ends: writing a float out takes longer than all else.
                lowest, highest = repr(float(low)), repr(float(high))
                largest = highest if high > 0 and high >= -low else lowest.lstrip("-")
                if place.narrow:
                    more += self._headroom(dtype, max(abs(low), abs(high)))
            if not self._is_plain or seen.extra:
                more += self._more(seen)
            made.append(
                f"{upto_site}{place.upto_seq}{seq}{upto_previous}{place.upto_calls}{seen.calls}"
                f', "t": {seen.time!r}, "nan_count": {nans}, "inf_count": {infs}, "finite_count": {finite}, '
                f'"huge_count": {huge}, "finite_abs_max": {largest}, "finite_max": {highest}, "finite_min": {lowest}, '
                f'"numel": {numel}, "bad": {bad}{more}}}'
            )
        return made

    def _see_tf32(self) -> None:
        """A program may change the setting between two steps."""
        tf32 = tf32_allowed()
        if tf32 is not self._tf32:
            self._tf32 = tf32
            self._places.clear()

    def _moment(self, step: int, moment: Moment, evaluation: Mapping[str, Any]) -> tuple[str, str, str]:
        """The text before the site's, between `seq` and the site's second, and at the end."""
        upto_site = (
            f'{{"type": "layer_step", "step": {step}, "phase": {json.dumps(moment.phase)}, '
            f'"batch_id": {json.dumps(moment.batch_id)}, {self._identity}, '
        )
        upto_previous = f', "invocation": {moment.invocation}, "optimizer_step": {moment.optimizer_step}, '
        of_call = f', "checkpoint": {json.dumps(moment.checkpoint)}' if moment.checkpoint else ""
        if moment.recompute:
            of_call += ', "recompute": true'
        if evaluation:
            of_call += f", {json.dumps(evaluation)[1:-1]}"
        return upto_site, upto_previous, of_call

    def _place(self, site: Site, shape: torch.Size, dtype: torch.dtype) -> _Place:
        named = {
            "layer_name": site.layer,
            "module_path": site.module_path,
            "direction": site.direction,
            "role": site.role,
            "param_name": site.param,
            "tensor_path": site.tensor_path,
        }
        shaped = {
            "value_is_from_prev_step": site.from_prev_step,
            "shape": [int(size) for size in shape],
            "dtype": str(dtype),
            "tf32_path": self._tf32 and dtype is torch.float32,
        }
        if len(self._places) >= _MOST_PLACES and site not in self._places:
            self._places.clear()
        place = self._places[site] = _Place(
            shape,
            dtype,
            f'{json.dumps(named)[1:-1]}, "seq": ',
            f'{json.dumps(shaped)[1:-1]}, "matmul_calls_so_far": ',
            headroom(dtype, 1.0) is not None,
        )
        return place

    def _headroom(self, dtype: torch.dtype, largest: float) -> str:
        """Of a low-precision dtype, which has few values, so that most have come before."""
        text = self._headrooms.get((dtype, largest))
        if text is None:
            bits = headroom(dtype, largest)
            text = f', "headroom": {round(bits, 3)!r}' if bits is not None else ""
            if len(self._headrooms) >= _MOST_HEADROOMS:
                self._headrooms.clear()
            self._headrooms[dtype, largest] = text
        return text

    def _more(self, seen: Observation) -> str:
        """Fields that an option or the kind of the tensor adds."""
        stats = seen.stats if seen.reduced is not None else None
        location = stats.location if stats is not None else None
        text = ""
        if self._bounded:
            text += f', "oob_count": {stats.oob_count if stats is not None else 0}'
        if self._locate:
            text += f', "bad_rows": {location.bad_rows if location is not None else 0}'
        if self._bad_values and stats is not None and stats.bad and location is not None:
            first = {
                "first_bad_flat_idx": location.flat_index,
                "first_bad_row": location.row,
                "first_bad_col": location.column,
                "first_bad_value": _json_number(location.value),
            }
            text += f", {json.dumps(first)[1:-1]}"
        if seen.extra:
            text += f", {json.dumps(dict(seen.extra), allow_nan=False)[1:-1]}"
        return text


def fingerprint(trace: StepTrace, seq: int) -> dict[str, Any]:
    """What is said of the first bad observation: the stock logger's five fields, and what tells the place apart."""
    seen = trace.observations[seq]
    return {
        "step": trace.step,
        "layer": seen.site.layer,
        "direction": seen.site.direction,
        "kind": seen.stats.kind,
        "matmul_calls_so_far": seen.calls,
        "role": seen.site.role,
        "param_name": seen.site.param,
        "module_path": seen.site.module_path,
        "tensor_path": seen.site.tensor_path,
        "phase": seen.moment.phase,
        "batch_id": seen.moment.batch_id,
        "checkpoint": seen.moment.checkpoint or None,
        "invocation": seen.moment.invocation,
        "optimizer_step": seen.moment.optimizer_step,
        **trace.evaluation_fields(),
        "seq": seq,
    }


def uses_tf32(seen: Observation) -> bool:
    """Whether a matmul of this tensor may use TF32."""
    return seen.dtype is torch.float32 and tf32_allowed()


def tf32_allowed() -> bool:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:
        return False  # torch refuses to say once a program has used its newer fp32_precision setting


def _text(value: float | None) -> str:
    return "null" if value is None else repr(value)


def _json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no Inf: they are named, as the stock logger names them."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
