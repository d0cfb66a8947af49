"""What stands in the records of real programs: which tensor, which call, how much room is left, and where it lies."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.observe.limits import Bound
from aorta_collectors.observe.watch import WatchGroup
from tests.layer_numerics.armed import ALL, armed

NAN, INF = float("nan"), float("inf")
GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
IDENTITY_FIELDS = ("layer_name", "role", "tensor_path", "invocation", "step", "param_name")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Both:
    left: Any
    right: Any


class ModelOutput(OrderedDict[str, Any]):
    pass


class Fork(nn.Module):
    """Gives out its input and twice that, in some container."""

    def __init__(self, wrap: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(x * self.scale, x * self.scale * 2)


class Join(nn.Module):
    def forward(self, given: Any) -> Tensor:
        parts = [given["left"], given["right"]] if isinstance(given, dict) else list(_fields(given))
        return torch.add(*parts)


def _fields(given: Any) -> Any:
    return (given.left, given.right) if isinstance(given, Both) else given


CONTAINERS: dict[str, tuple[Callable[[Any, Any], Any], list[str]]] = {
    "tuple": (lambda left, right: (left, right), ["[0]", "[1]"]),
    "list": (lambda left, right: [left, right], ["[0]", "[1]"]),
    "namedtuple": (Pair, ["left", "right"]),
    "dataclass": (Both, ["left", "right"]),
    "dict": (lambda left, right: {"left": left, "right": right}, ["['left']", "['right']"]),
    "model output": (lambda left, right: ModelOutput(left=left, right=right), ["['left']", "['right']"]),
}


class TestStructuredValues:
    """Each tensor of an input or output is a record of its own; the first keeps the stock logger's place."""

    @pytest.mark.parametrize("kind", CONTAINERS)
    def test_each_tensor_has_a_record_under_its_own_path(self, kind: str, tmp_path: Path) -> None:
        wrap, paths = CONTAINERS[kind]
        with armed(tmp_path) as left:
            nn.Sequential(Fork(wrap), Join())(GOOD).sum().backward()
        acts = left.of("0", "act")
        assert [record["tensor_path"] for record in acts] == paths
        assert [record["finite_max"] for record in acts] == [1.0, 2.0]
        given = left.of("1", "input")
        assert [record["tensor_path"] for record in given] == [f"[0]{_joined(path)}" for path in paths]
        assert [record["finite_max"] for record in given] == [1.0, 2.0]
        gradients = left.of("1", "igrad")
        assert sorted(record["tensor_path"] for record in gradients) == sorted(f"[0]{_joined(path)}" for path in paths)

    @pytest.mark.parametrize("kind", CONTAINERS)
    def test_the_call_counter_is_the_stock_loggers(self, kind: str, tmp_path: Path) -> None:
        wrap, _ = CONTAINERS[kind]
        watch = WatchGroup(types=("Fork", "Join"), channels=("input", "act"))
        with armed(tmp_path, watch) as left:
            nn.Sequential(Fork(wrap), Join())(GOOD)
        # The stock logger counts the value itself or the first of a tuple, and does not open anything else.
        opened = 1 if kind in ("tuple", "list", "namedtuple") else 0
        assert [(record["role"], record["matmul_calls_so_far"]) for record in left.records] == [
            ("input", 0),
            ("act", opened),
            ("act", opened),
            ("input", opened),
            ("input", opened),
            ("act", opened + 1),
        ]
        assert left.summary["matmul_calls_total"] == opened + 1

    def test_a_bad_second_tensor_is_the_first_bad(self, tmp_path: Path) -> None:
        with armed(tmp_path, WatchGroup(types=("Fork",), channels=("act",))) as left:
            nn.Sequential(Fork(lambda first, second: {"left": first, "right": second / 0}), Join())(GOOD.abs() + 1)
        first = left.summary["first_bad"]
        assert (first["layer"], first["tensor_path"], first["kind"]) == ("0", "['right']", "inf")

    def test_keywords_and_tensors_inside_of_them(self, tmp_path: Path) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, x: Tensor, *, extra: dict[str, Any]) -> Tensor:
                out: Tensor = x * self.scale + extra["bias"][0]
                return out

        with armed(tmp_path) as left:
            Net()(GOOD, extra={"bias": (torch.ones(1),), "name": "a"})
        assert [record["tensor_path"] for record in left.of("(root)", "input")] == ["[0]", "extra['bias'][0]"]

    def test_the_records_of_a_step_can_be_told_apart(self, tmp_path: Path) -> None:
        model = nn.Sequential(Fork(Pair), Join(), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with armed(tmp_path, origin=True) as left:
            for _ in range(2):
                (model(GOOD) + model[2](GOOD)).sum().backward()
                optimizer.step()
        keys = [tuple(record[name] for name in IDENTITY_FIELDS) for record in left.records]
        assert len(set(keys)) == len(keys)


def _joined(path: str) -> str:
    return path if path.startswith("[") else f".{path}"


class TestIdentity:
    def test_calls_of_one_module_are_numbered_anew_in_each_step(self, tmp_path: Path) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell, self.once = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x: Tensor) -> Tensor:
                for _ in range(3):
                    x = self.cell(x)
                out: Tensor = self.once(x)
                return out

        model = Net()
        with armed(tmp_path) as left:
            for _ in range(2):
                model(GOOD).sum().backward()
        for step in (1, 2):
            assert [record["invocation"] for record in left.of("cell", "act", step)] == [1, 2, 3]
            assert [record["invocation"] for record in left.of("once", "act", step)] == [1]
            # Backward comes to the last call first.
            assert [record["invocation"] for record in left.of("cell", "igrad", step)] == ([3, 2])
            assert [record["invocation"] for record in left.of("cell", "weight", step)] == [0]

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_a_second_forward_of_activation_checkpointing_says_so(self, reentrant: bool, tmp_path: Path) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode, self.block = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = checkpoint(self.block, self.encode(x), use_reentrant=reentrant)
                return out

        model = Net()
        with armed(tmp_path) as left:
            for _ in range(2):
                model(GOOD).sum().backward()
        for step in (1, 2):
            acts = left.of("block.0", "act", step)
            assert [record.get("recompute", False) for record in acts] == [False, True]
            assert [record["invocation"] for record in acts] == [1, 1]
            assert acts[0]["finite_max"] == acts[1]["finite_max"]
            assert not any(record.get("recompute") for record in left.of("encode", "act", step))
        assert left.summary["steps_seen"] == 2

    def test_optimizer_steps_are_counted_through_accumulated_gradients(self, tmp_path: Path) -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with armed(tmp_path) as left:
            for step in range(1, 7):
                model(GOOD).sum().backward()
                if step % 2 == 0:
                    optimizer.step()
        acts = [left.of("(root)", "act", step)[0]["optimizer_step"] for step in range(1, 7)]
        assert acts == [0, 0, 1, 1, 2, 2]
        assert left.summary["optimizer_steps"] == 3

    def test_seq_is_the_order_of_observation_within_the_step(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        with armed(tmp_path) as left:
            for _ in range(2):
                model(GOOD).sum().backward()
        for step in (1, 2):
            mine = [record for record in left.records if record["step"] == step]
            assert [record["seq"] for record in mine] == list(range(len(mine)))
            assert [record["t"] for record in mine] == sorted(record["t"] for record in mine)
            order = [record["layer_name"] for record in mine if record["role"] == "act"]
            assert order == ["0", "1", "(root)"]

    def test_seq_does_not_depend_on_what_is_written(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        with armed(tmp_path / "all") as everything:
            model(GOOD * NAN)
        with armed(tmp_path / "bad", sample_every=100) as bad:
            model(GOOD * NAN)
        every = {(record["layer_name"], record["role"]): record["seq"] for record in everything.records}
        few = {(record["layer_name"], record["role"]): record["seq"] for record in bad.records}
        assert few
        assert len(few) < len(every)
        assert all(every[key] == seq for key, seq in few.items())

    def test_the_short_path_stands_beside_the_raw_name(self, tmp_path: Path) -> None:
        model = torch.optim.swa_utils.AveragedModel(nn.Sequential(nn.Linear(4, 1)))
        with armed(tmp_path) as left:
            model(GOOD)
        assert {(record["layer_name"], record["module_path"]) for record in left.records} >= {
            ("module.0", "0"),
            ("module", "(root)"),
            ("(root)", "(root)"),
        }


class TestHeadroom:
    @pytest.mark.parametrize(
        ("dtype", "value", "bits"),
        [
            (torch.float16, 65504.0, 0.0),
            (torch.float16, 16376.0, 2.0),
            (torch.bfloat16, 1.0, 128.0),
            (torch.float8_e4m3fn, 448.0, 0.0),
            (torch.float8_e4m3fn, 7.0, 6.0),
            (torch.float8_e5m2, 57344.0, 0.0),
        ],
    )
    def test_a_low_precision_tensor_has_it(self, dtype: torch.dtype, value: float, bits: float, tmp_path: Path) -> None:
        given = torch.full((3,), value).to(dtype)
        with armed(tmp_path) as left:
            Scaled()(given)
        (record,) = left.of("(root)", "input")
        assert record["dtype"] == str(dtype)
        assert record["finite_abs_max"] == value
        assert record["headroom"] == pytest.approx(bits, abs=0.01)

    @pytest.mark.parametrize("given", [torch.ones(2), torch.ones(2).long(), torch.zeros(2).half()])
    def test_others_and_zeros_have_none(self, given: Tensor, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            Scaled()(given)
        (record,) = left.of("(root)", "input")
        assert "headroom" not in record

    @pytest.mark.parametrize(
        ("dtype", "largest"), [(torch.float16, 65504.0), (torch.bfloat16, 3.3e38), (torch.float8_e4m3fn, 448.0)]
    )
    def test_huge_is_relative_to_the_dtype_where_that_is_asked_for(
        self, dtype: torch.dtype, largest: float, tmp_path: Path
    ) -> None:
        given = torch.tensor([largest / 8, largest / 3, 1.0]).to(dtype)
        with armed(tmp_path / "off", huge_threshold=INF) as off:
            Scaled()(given)
        with armed(tmp_path / "on", huge_threshold=INF, huge_headroom=2.0) as on:
            Scaled()(given)
        assert [record["huge_count"] for record in off.of("(root)", "input")] == [0]
        assert [record["huge_count"] for record in on.of("(root)", "input")] == [1]
        assert off.summary["first_bad"] is None
        assert on.summary["first_bad"]["kind"] == "huge"

    def test_the_threshold_goes_on_holding(self, tmp_path: Path) -> None:
        with armed(tmp_path, huge_threshold=100.0, huge_headroom=1.0) as left:
            Scaled()(torch.tensor([150.0, 50.0]).half())
        assert [record["huge_count"] for record in left.of("(root)", "input")] == [1]


class Scaled(nn.Module):
    """Takes any tensor and gives out an ordinary one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, given: Any) -> Tensor:
        return self.scale * 1


class TestBounds:
    MODEL = (Bound("second", -0.5, 0.5), Bound("s", -10.0, 10.0))

    @staticmethod
    def model() -> nn.Module:
        parts = OrderedDict(first=nn.ReLU(), second=nn.Identity(), other=nn.Identity())
        model = nn.Sequential(parts)
        model.register_parameter("unused", nn.Parameter(torch.ones(1)))
        return model

    def test_the_first_pattern_that_is_in_the_layers_name_holds(self, tmp_path: Path) -> None:
        watch = WatchGroup(types=("ReLU", "Identity"), channels=("act",))
        with armed(tmp_path, watch, bounds=self.MODEL) as left:
            self.model()(torch.tensor([1.0, 20.0, -1.0]))
        counts = {record["layer_name"]: record["oob_count"] for record in left.records}
        assert counts == {"first": 1, "second": 2, "other": 0}
        assert left.summary["oob_records"] == 2
        first = left.summary["first_oob"]
        assert (first["layer"], first["step"], first["oob_count"], first["phase"]) == ("first", 1, 1, "forward")
        assert left.summary["first_bad"]["kind"] == "oob"

    def test_the_widest_range_is_that_of_tensors_with_bounds(self, tmp_path: Path) -> None:
        watch = WatchGroup(types=("ReLU", "Identity"), channels=("act",))
        model = self.model()
        with armed(tmp_path, watch, bounds=(Bound("first", 0.0, 5.0),)) as left:
            for given in ([1.0, 2.0], [4.0, NAN], [3.0, INF]):
                model(torch.tensor(given))
        assert (left.summary["peak_finite_min"], left.summary["peak_finite_max"]) == (1.0, 4.0)
        assert left.summary["oob_records"] == 0, "NaN and Inf are not out of bounds, but bad in themselves"

    def test_an_empty_pattern_holds_for_all(self, tmp_path: Path) -> None:
        with armed(tmp_path, bounds=(Bound("", -0.5, 0.5),)) as left:
            nn.Linear(4, 1)(GOOD)
        (record,) = left.of("(root)", "input")
        assert record["oob_count"] == int((GOOD.abs() > 0.5).sum())

    def test_without_bounds_no_record_counts_them(self, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            nn.Linear(4, 1)(GOOD)
        assert all("oob_count" not in record for record in left.records)
        assert left.summary["first_oob"] is None
        assert left.summary["peak_finite_max"] is None


class TestSkipped:
    """What could not be read is counted under its reason, with the layers."""

    def test_each_reason_has_its_count_and_layers(self, tmp_path: Path) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = Scaled()

            def forward(self, given: Any) -> Tensor:
                out: Tensor = self.part(given)
                return out

        watch = WatchGroup(names=("part",), channels=("input",))
        given = [torch.empty(0), torch.empty(2, device="meta"), torch.empty(0, 3), torch.ones(2)]
        with armed(tmp_path, watch) as left:
            for _ in range(2):
                Net()(given)
        assert left.summary["tensors_skipped"] == {
            "empty": {"count": 4, "layers": ["part", "Net#2.part"]},
            "meta": {"count": 2, "layers": ["part", "Net#2.part"]},
        }
        assert left.summary["tensors_unreadable"] == 6
        assert [record["tensor_path"] for record in left.records] == ["[0][3]", "[0][3]"]

    def test_a_tensor_that_is_passed_over_takes_no_number(self, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            Scaled()([torch.empty(0), torch.ones(1), torch.empty(0), torch.ones(1)])
        assert [record["seq"] for record in left.records] == list(range(len(left.records)))

    def test_of_one_in_a_structure_the_counter_stays_with_the_first(self, tmp_path: Path) -> None:
        with armed(tmp_path, WatchGroup(types=("Fork",), channels=("act",))) as left:
            Fork(lambda first, second: (torch.empty(0), first))(GOOD)
        assert left.summary["matmul_calls_total"] == 0
        assert len(left.records) == 1


class TestDiagnostics:
    def test_addresses_find_memory_that_is_shared(self, tmp_path: Path) -> None:
        """The analysis that the specification hands its users."""

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.take, self.reuse, self.apart = nn.Identity(), nn.Identity(), nn.Identity()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, pool: Tensor) -> Tensor:
                self.take(pool[4:8])
                self.apart(torch.ones(3))
                out: Tensor = self.reuse(pool[6:9])
                return out * self.scale

        pool = torch.ones(16)
        pool[5] = NAN
        watch = WatchGroup(types=("Identity",), channels=("input",))
        with armed(tmp_path, watch, diagnostics=frozenset({"addr"})) as left:
            Net()(pool)
        recorded = left.records
        bad = next(record for record in recorded if record["bad"] and record["role"] == "input")
        begin = int(bad["storage_ptr"], 16)
        end = begin + bad["storage_nbytes"]
        sharing = [
            record["layer_name"]
            for record in recorded
            if record is not bad
            and int(record["storage_ptr"], 16) < end
            and begin < int(record["storage_ptr"], 16) + record["storage_nbytes"]
        ]
        assert bad["layer_name"] == "take"
        assert sharing == ["reuse"]
        assert begin == pool.untyped_storage().data_ptr()
        assert bad["storage_nbytes"] == 64
        assert bad["storage_offset_bytes"] == 16
        assert int(bad["data_ptr"], 16) == pool.data_ptr() + 16

    def test_without_it_there_are_no_addresses(self, tmp_path: Path) -> None:
        with armed(tmp_path) as left:
            nn.Linear(4, 1)(GOOD)
        assert not any("storage_ptr" in record or "data_ptr" in record for record in left.records)

    @pytest.mark.parametrize("diagnostics", [{"locate"}, {"bad_values"}, {"locate", "bad_values"}])
    def test_rows_and_the_first_bad_value_are_each_told_where_asked_for(
        self, diagnostics: set[str], tmp_path: Path
    ) -> None:
        given = torch.zeros(4, 3)
        given[1, 2], given[3, 0], given[3, 1] = -INF, NAN, 1e12
        with armed(tmp_path, diagnostics=frozenset(diagnostics)) as left:
            Scaled()(given)
            Scaled()(torch.zeros(4, 3))
        bad, good = (record for record in left.records if record["role"] == "input")
        expected = {"first_bad_flat_idx": 5, "first_bad_row": 1, "first_bad_col": 2, "first_bad_value": "-Inf"}
        named = {name: value for name, value in bad.items() if name.startswith("first_bad")}
        assert named == (expected if "bad_values" in diagnostics else {})
        assert not any(name.startswith("first_bad") for name in good)
        if "locate" in diagnostics:
            assert (bad["bad_rows"], good["bad_rows"]) == (2, 0)
        else:
            assert "bad_rows" not in bad

    @pytest.mark.parametrize(
        ("value", "named"), [(NAN, "NaN"), (INF, "Inf"), (-INF, "-Inf"), (1e12, pytest.approx(1e12))]
    )
    def test_a_value_that_json_lacks_is_named(self, value: float, named: Any, tmp_path: Path) -> None:
        with armed(tmp_path, diagnostics=frozenset({"bad_values"})) as left:
            Scaled()(torch.tensor([0.0, value]))
        (record,) = left.of("(root)", "input")
        assert record["first_bad_value"] == named

    def test_the_mean_and_the_typical_magnitude_of_what_is_finite(self, tmp_path: Path) -> None:
        given = torch.tensor([[3.0, NAN], [-4.0, INF]])
        with armed(tmp_path, diagnostics=frozenset({"moments"})) as left:
            for values in (given, given[:, :1], given[:, 1:], given[:, :1].double() * 1e200):
                Scaled()(values)
        told = [(record["finite_mean"], record["finite_rms"]) for record in left.records if record["role"] == "input"]
        rms = math.sqrt(12.5)
        assert told == [(-0.5, rms), (-0.5, rms), (None, None), (pytest.approx(-0.5e200), None)]
        assert all("finite_mean" in record and "finite_rms" in record for record in left.records)

    def test_the_run_up_tells_them_too(self, tmp_path: Path) -> None:
        options = {"diagnostics": frozenset({"moments"}), "sample_every": 1000, "pre_context": 2}
        with armed(tmp_path, WatchGroup(names=("",), channels=("input",)), **options) as left:
            for value in (1.0, 10.0, 100.0, INF):
                Scaled()(torch.tensor([value, 5.0]))
        told = [(record["step"], record["finite_rms"]) for record in left.records]
        assert told == [(2, math.sqrt(62.5)), (3, math.sqrt(5012.5)), (4, 5.0)]

    def test_without_it_they_are_not_there(self, tmp_path: Path) -> None:
        with armed(tmp_path, diagnostics=frozenset({"locate"})) as left:
            Scaled()(torch.tensor([1.0, NAN]))
        assert not any("finite_rms" in record or "finite_mean" in record for record in left.records)

    def test_a_value_out_of_bounds_is_located_too(self, tmp_path: Path) -> None:
        options = {"bounds": (Bound("", 0.0, 60.0),), "diagnostics": frozenset({"bad_values", "locate"})}
        with armed(tmp_path, WatchGroup(names=("",), channels=("input",)), **options) as left:
            Scaled()(torch.tensor([[1.0, 2.0], [3.0, 61.0]]))
        (record,) = left.records
        assert (record["first_bad_row"], record["first_bad_col"], record["first_bad_value"]) == (1, 1, 61.0)
        assert record["bad_rows"] == 1
        assert math.isclose(record["finite_max"], 61.0)


class TestOnlyWhatWasAskedFor:
    @pytest.mark.parametrize("channel", ALL.channels)
    def test_with_an_origin_no_other_channel_writes_records(self, channel: str, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = WatchGroup(names=("2",), channels=(channel,))
        with armed(tmp_path, watch, origin=True) as left:
            for _ in range(3):
                model(GOOD).sum().backward()
                optimizer.step()
        places = [(record["step"], record["layer_name"], record["role"]) for record in left.records]
        wanted = [(step, *place) for step in (1, 2, 3) for place in (("2", channel), ("(loss)", "loss"))]
        assert sorted(places) == sorted(wanted)


class TestJagged:
    """torchrec's containers are opened, and do not shift the stock logger's count, which leaves them closed."""

    @pytest.mark.filterwarnings("ignore")
    def test_what_lies_inside_has_records_and_is_not_counted(self, tmp_path: Path) -> None:
        from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor

        class Ranker(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                table = EmbeddingBagConfig(name="t", embedding_dim=4, num_embeddings=8, feature_names=["f"])
                self.tables, self.over = EmbeddingBagCollection(tables=[table]), nn.Linear(4, 1)

            def forward(self, sparse: Any) -> Tensor:
                out: Tensor = self.over(self.tables(sparse).values())
                return out

        sparse = KeyedJaggedTensor(
            ["f"], torch.tensor([1, 2, 3]), torch.tensor([0.5, NAN, 2.0]), torch.tensor([2, 1], dtype=torch.int32)
        )
        watch = WatchGroup(names=("tables", "over"), types=("Ranker",), channels=("input", "act"))
        with armed(tmp_path, watch, WatchGroup(types=("Ranker",), channels=("input", "act"))) as left:
            Ranker()(sparse)
        assert [(record["tensor_path"], record["nan_count"]) for record in left.of("tables", "input")] == [
            ("[0].values()", 0),
            ("[0].weights()", 1),
        ]
        assert [record["tensor_path"] for record in left.of("tables", "act")] == ["values()"]
        counted = [record for record in left.records if record["role"] == "act" and record["tensor_path"] != "values()"]
        assert left.summary["matmul_calls_total"] == len(counted)
