"""What a recorder takes: values at that moment, names and how often they came, statistics, and what does not fit."""

from __future__ import annotations

import hashlib
import math
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.observation import Observation
from aorta_collectors.tensors.recorder import Recorder
from tests.tensors.left import Kept, recorded

FLOATS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=8), elements=st.floats(width=32))


def sha256(tensor: Tensor) -> str:
    return f"sha256:{hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()}"


class TestStatistics:
    @settings(max_examples=80, deadline=None)
    @given(FLOATS)
    def test_as_float64_has_them_of_the_finite_elements(self, array: Any) -> None:
        (observation,) = recorded(torch.from_numpy(array.copy()))
        line = observation.line()
        finite = array[np.isfinite(array)].astype(np.float64)
        assert line["nan_count"] == np.isnan(array).sum()
        assert line["inf_count"] == np.isinf(array).sum()
        assert line["numel"] == array.size
        if not finite.size:
            assert (line["min"], line["max"], line["mean"], line["std"]) == (None, None, None, None)
            return
        assert (line["min"], line["max"]) == (finite.min(), finite.max())
        scale = max(abs(finite.min()), abs(finite.max()))
        assert line["mean"] == pytest.approx(finite.mean(), rel=1e-6, abs=1e-6 * scale)
        assert line["std"] == pytest.approx(finite.std(), rel=1e-5, abs=1e-6 * scale)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int16, torch.float64])
    def test_of_other_dtypes(self, dtype: torch.dtype) -> None:
        tensor = (torch.randn(50, 40) * 10).to(dtype)
        (observation,) = recorded(tensor)
        wide, line = tensor.double(), observation.line()
        assert (line["min"], line["max"]) == (wide.min().item(), wide.max().item())
        assert line["mean"] == pytest.approx(wide.mean().item(), rel=1e-5, abs=1e-6)
        assert line["std"] == pytest.approx(wide.std(correction=0).item(), rel=1e-5)

    def test_real_and_imaginary_parts_are_elements_of_their_own(self) -> None:
        line = recorded(torch.tensor([1 + 5j, complex(math.nan, 2)]))[0].line()
        assert (line["min"], line["max"], line["nan_count"], line["numel"]) == (1.0, 5.0, 1, 2)

    def test_a_number_that_json_has_not_is_none_of_a_line(self) -> None:
        largest = torch.finfo(torch.float64).max
        line = recorded(torch.tensor([largest, -largest, largest], dtype=torch.float64))[0].line()
        assert all(line[key] is None or math.isfinite(line[key]) for key in ("min", "max", "mean", "std"))


class TestTheMoment:
    def test_what_is_changed_in_place_later_is_as_it_was(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(keep="values"), kept)
        tensor = torch.randn(4)
        before = tensor.clone()
        recorder.take_user("t", tensor)
        tensor.mul_(2)
        recorder.take_user("t", tensor)
        tensor.data.zero_()  # no version of a tensor tells of this
        recorder.take_user("t", tensor)
        recorder.end(True)
        digests = [observation.digest for observation in kept.observations]
        assert digests == [sha256(before), sha256(before * 2), sha256(torch.zeros(4))]
        values = [observation.values for observation in kept.observations]
        assert values[0] is not None
        assert torch.equal(values[0], before)

    def test_nothing_is_held_changed_or_drawn(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(), kept)
        tensor = torch.randn(4, requires_grad=True) * 2
        version, state = tensor._version, torch.get_rng_state()
        alive = weakref.ref(tensor)
        recorder.take_user("t", tensor)
        assert tensor._version == version
        assert torch.equal(state, torch.get_rng_state())
        del tensor
        assert alive() is None

    def test_modes_of_the_program_see_nothing(self) -> None:
        class Functions(TorchFunctionMode):
            def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                raise AssertionError(function)

        class Dispatched(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                raise AssertionError(function)

        kept, tensor = Kept(), torch.randn(3, 4).T
        recorder = Recorder(Config(keep="values"), kept)
        with Functions(), Dispatched():
            recorder.take_user("t", tensor)
            recorder.end(True)
        with torch.inference_mode():
            recorder.take_user("t", tensor)
        recorder.end(True)
        assert [observation.digest for observation in kept.observations] == [sha256(tensor)] * 2

    def test_a_subclass_of_the_program_is_not_asked(self) -> None:
        class Asked(Tensor):
            @classmethod
            def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                raise AssertionError(function)

        plain = torch.randn(3, 4)
        (observation,) = recorded(plain.as_subclass(Asked), keep="values")
        assert observation.digest == sha256(plain)
        assert type(observation.values) is Tensor

    def test_threads_take_side_by_side(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(), kept)
        tensors = [torch.full((100,), float(number)) for number in range(8)]

        def take(number: int) -> None:
            for _ in range(50):
                recorder.take_user(f"t{number}", tensors[number])

        threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.end(True)
        found = kept.observations
        assert [observation.order for observation in found] == list(range(400))
        assert {observation.digest for observation in found} == {sha256(tensor) for tensor in tensors}
        for number in range(8):
            mine = [observation.invocation for observation in found if observation.subject.label == f"t{number}"]
            assert mine == list(range(50))


def taken(recorder: Recorder, tensor: Tensor, path: str = "") -> None:
    recorder.take("after_forward", "h.0", "Block", "output", path, tensor)


class TestNames:
    @pytest.mark.parametrize(
        ("given_as", "name"),
        [
            (("before_forward", "(root)", "M", "input", "[0]"), "before_forward:(root).input[0]"),
            (("before_forward", "(root)", "M", "input", "ids"), "before_forward:(root).input.ids"),
            (("after_forward", "layers.0", "L", "output", "[1]"), "after_forward:layers.0.output[1]"),
            (("after_forward", "(root)", "M", "output", "logits"), "after_forward:(root).output.logits"),
            (("after_forward", "emb", "E", "output", "['a'].values()"), "after_forward:emb.output['a'].values()"),
            (("after_backward", "layers.0", "L", "output_gradient", ""), "after_backward:layers.0.output_grad"),
            (("after_backward", "layers.0", "L", "gradient", "weight"), "after_backward:layers.0.weight.grad"),
            (("after_step", "(root)", "M", "parameter", "scale"), "after_step:(root).scale"),
        ],
    )
    def test_of_each_kind(self, given_as: tuple[str, str, str, str, str], name: str) -> None:
        kept = Kept()
        recorder = Recorder(Config(), kept)
        recorder.take(*given_as, torch.ones(2))
        recorder.end(True)
        (observation,) = kept.observations
        assert observation.subject.name == name
        line = observation.line()
        assert [line[key] for key in ("point", "layer", "module_type", "kind")] == list(given_as[:4])

    def test_two_that_are_called_the_same_are_told_apart_by_their_number(self) -> None:
        """An attribute `output` of what `a` returns, and what the module `a.output` returns."""
        kept = Kept()
        recorder = Recorder(Config(), kept)
        recorder.take("after_forward", "a.output", "Linear", "output", "", torch.ones(2))
        recorder.take("after_forward", "a", "Block", "output", "output", torch.ones(2))
        recorder.end(True)
        found = [(observation.subject.name, observation.invocation) for observation in kept.observations]
        assert found == [("after_forward:a.output.output", 0), ("after_forward:a.output.output", 1)]

    def test_steps_that_are_not_observed_count_and_nothing_of_them_is_read(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(steps=("2", "4-5", "8-")), kept)
        taken(recorder, torch.ones(1))
        for step in range(1, 10):
            recorder.begin(step)
            for _ in range(3):
                taken(recorder, torch.full((1,), float(step)))
            recorder.end(step == 9)
        found = [(each.step, each.invocation, each.order) for each in kept.observations]
        assert [step for step, _, _ in found] == [step for step in (2, 4, 5, 8, 9) for _ in range(3)]
        assert [invocation for _, invocation, _ in found] == [
            1 + 3 * (step - 1) + i for step in (2, 4, 5, 8, 9) for i in range(3)
        ]
        assert [order for _, _, order in found] == list(range(15))
        assert recorder.tally.fields()["points"] == {"after_forward": 15}


class TestWhatDoesNotFit:
    def test_values_beyond_max_bytes_are_told_of_and_read_all_the_same(self) -> None:
        found = recorded(torch.ones(10), torch.ones(100), torch.ones(10), keep="values", max_bytes=100)
        assert [(each.keeps, each.left_out) for each in found] == [(True, None), (False, "max_bytes"), (True, None)]
        assert found[1].digest == sha256(torch.ones(100))
        assert found[1].values is None

    def test_values_that_there_are_none_of(self) -> None:
        (observation,) = recorded(torch.eye(2).to_sparse(), keep="values")
        assert observation.left_out == "layout sparse_coo"

    def test_lines_are_no_more_than_there_is_room_for(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(), kept, most_lines=5)
        for number in range(12):
            recorder.take_user(f"t{number}", torch.ones(1))
        recorder.end(True)
        assert len(kept.observations) == 5
        fields = recorder.tally.fields()
        assert (fields["tensors_observed"], fields["lines_dropped"], fields["points"]) == (5, 7, {"user": 12})

    def test_a_step_that_never_ends_is_handed_on_in_parts(self) -> None:
        kept = Kept()
        recorder = Recorder(Config(), kept)
        tensor = torch.ones(1)
        for _ in range(10_001):
            recorder.take_user("t", tensor)
        assert [len(stretch) for _, stretch in kept.stretches] == [10_000]
        recorder.end(True)
        assert [len(stretch) for _, stretch in kept.stretches] == [10_000, 1]


class TestWhatIsNotFinite:
    def test_the_first_and_the_last_are_told(self) -> None:
        recorder = Recorder(Config(), Kept())
        for step, number in enumerate([1.0, math.nan, math.inf, 1.0], 1):
            recorder.begin(step)
            taken(recorder, torch.tensor([1.0, number]))
            recorder.end(step == 4)
        fields = recorder.tally.fields()
        assert fields["tensors_nonfinite"] == 2
        first = fields["first_nonfinite"]
        assert (first["step"], first["name"], first["nan_count"]) == (2, "after_forward:h.0.output", 1)
        assert (fields["last_nonfinite_step"], fields["last_observed_step"]) == (3, 4)

    def test_minus_infinity_that_a_mask_put_there_is_none_and_that_of_a_logarithm_is(self) -> None:
        recorder = Recorder(Config(), Kept())
        scores = torch.randn(3, 3, requires_grad=True)
        taken(recorder, scores.masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf))
        assert recorder.tally.first_bad is None
        taken(recorder, torch.log(scores * 0))
        assert recorder.tally.first_bad is not None

    def test_a_gradient_has_no_mask(self) -> None:
        recorder = Recorder(Config(), Kept())
        recorder.take("after_backward", "a", "Linear", "gradient", "weight", torch.tensor([-math.inf, 1.0]))
        assert recorder.tally.first_bad is not None


def test_an_observation_knows_the_code_that_had_run() -> None:
    kept = Kept()
    recorder = Recorder(Config(), kept)
    recorder.take_user("a", torch.ones(1), graph=2, replay=5)
    recorder.take_user("b", torch.ones(1), compiled=True)
    recorder.end(True)
    lines: list[Observation] = kept.observations
    told = [(line["graph"], line["replay"], line["compiled"]) for line in (each.line() for each in lines)]
    assert told == [(2, 5, False), (None, None, True)]
