"""Where the range of a clean tensor is not wanted it is not read, and nothing that is told depends on it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.layer_numerics.config import Config
from aorta_collectors.layer_numerics.recorder import Recorder
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.observation import Moment, Observation, Site
from aorta_collectors.observe.step_trace import StepTrace
from tests.layer_numerics.test_recorder import IDENTITY, NAN, clean


class TestRangesWanted:
    @settings(deadline=None)
    @given(
        config=st.fixed_dictionaries(
            {
                "sample_every": st.integers(1, 4),
                "pre_context": st.integers(0, 3),
                "stop_on_first": st.booleans(),
                "max_records": st.sampled_from([0, 3, 7, 1000]),
                "bounds": st.sampled_from([(), (Bound("a", -9.0, 9.0),)]),
                "verbose": st.booleans(),
            }
        ),
        steps=st.lists(st.text("aAbB.", max_size=4), max_size=12),
        late=st.booleans(),
    )
    def test_a_range_that_was_not_wanted_is_never_told(
        self, config: dict[str, Any], steps: list[str], late: bool
    ) -> None:
        """In a step, a and b are clean layers, A and B bad ones, and . is one that nobody wants records of.

        `late`: whether the recorder is asked about a step before it has taken in the one before.
        """
        bounds = (-9.0, 9.0) if config["bounds"] else None
        told: list[tuple[Any, ...]] = []
        with tempfile.TemporaryDirectory() as directory:
            for spoilt in (False, True):
                messages: list[str] = []
                file = RecordFile(Path(directory) / f"{spoilt}.jsonl")
                recorder = Recorder(Config(**config), IDENTITY, file, messages.append)
                waiting: list[StepTrace] = []
                for step, layers in enumerate(steps, start=1):
                    if not late:
                        self._take(recorder, waiting)
                    wanted = recorder.wants_ranges(step)
                    self._take(recorder, waiting)
                    seen = [self._seen(layer, step, bounds) for layer in layers]
                    if spoilt and not wanted:
                        seen = [self._spoilt(one) for one in seen]
                    waiting.append(StepTrace(step, seen))
                self._take(recorder, waiting)
                file.close()
                told.append(
                    (
                        file.path.read_text(),
                        messages,
                        recorder.first_bad,
                        recorder.records_cut,
                        (recorder.peak_finite_min, recorder.peak_finite_max),
                    )
                )
        assert told[0] == told[1]
        assert '"layer_name": "."' not in told[0][0]

    def test_it_is_not_wanted_in_a_step_of_which_nothing_clean_is_written(self, tmp_path: Path) -> None:
        def wanted(steps: int, seen: Observation | None = None, **config: Any) -> list[int]:
            file = RecordFile(tmp_path / "layers.jsonl")
            recorder = Recorder(Config(**config), IDENTITY, file, lambda message: None)
            if seen is not None:
                recorder.step(StepTrace(1, [seen]))
            return [step for step in range(2, steps + 1) if recorder.wants_ranges(step)]

        bad = clean("a")._replace(reduced=NAN)
        assert wanted(9, sample_every=4) == [4, 8]
        assert wanted(5, sample_every=100, pre_context=1) == [2, 3, 4, 5]
        assert wanted(5, bad, sample_every=100, pre_context=1) == [2, 3, 4, 5]
        assert wanted(5, bad, sample_every=1, stop_on_first=True) == []
        assert wanted(5, bad, sample_every=1, max_records=1) == []
        assert wanted(5, sample_every=3, bounds=(Bound("b", 0.0, 1.0),)) == [3]

    def test_nor_after_an_error_of_the_disk(self, tmp_path: Path) -> None:
        file = RecordFile(tmp_path / "gone" / "layers.jsonl")
        assert not Recorder(Config(sample_every=1), IDENTITY, file, lambda message: None).wants_ranges(1)

    @staticmethod
    def _take(recorder: Recorder, waiting: list[StepTrace]) -> None:
        while waiting:
            recorder.step(waiting.pop(0))

    @staticmethod
    def _spoilt(seen: Observation) -> Observation:
        """Of a clean tensor, what nobody may look at; one with bounds is read in full always."""
        if seen.reduced is not None or seen.site.bounds is not None:
            return seen
        return seen._replace(low=1e300, high=2e300, calls=-1, time=-1.0, moment=Moment("copy", 7, "x", 9, True, 9))

    @staticmethod
    def _seen(layer: str, step: int, bounds: tuple[float, float] | None) -> Observation:
        site = Site(layer, "fwd", "act", bounds=bounds if layer in "aA" else None, recorded=layer != ".")
        seen = clean("a")._replace(site=site, low=-float(step), high=step + 1.0)
        return seen._replace(low=0.0, high=0.0, reduced=NAN) if layer.isupper() else seen
