"""Reading the tensors of a step: what is found in them, what is kept, what is counted, and what is passed over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aorta_collectors.observe.observation import Moment, Site
from aorta_collectors.observe.reader import Reader

NAN, INF = float("nan"), float("inf")
NOW = Moment()
ACT = Site("a", "fwd", "act")
INPUT = Site("a", "fwd", "input")
SILENT = Site("a", "fwd", "act", recorded=False, is_flow=False)
VALUES = st.sampled_from([0.0, 1.0, -3.0, 5e9, 2e10, NAN, INF, -INF])


class TestOneStep:
    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.lists(VALUES, max_size=4), max_size=6))
    def test_observations_come_out_in_order_with_the_numbers_of_each_tensor(self, rows: list[list[float]]) -> None:
        reader = Reader(1e10)
        indices = [reader.observe(ACT, torch.tensor(row), NOW) for row in rows]
        seen, _ = reader.take().settle()
        kept = [row for row in rows if row]
        assert [index for index in indices if index is not None] == list(range(len(kept)))
        assert [index is None for index in indices] == [not row for row in rows]
        assert reader.calls == len(kept)
        for observation, row in zip(seen, kept, strict=True):
            finite = [value for value in row if abs(value) < INF]
            stats = observation.stats
            assert stats.nan_count == sum(value != value for value in row)
            assert stats.inf_count == row.count(INF) + row.count(-INF)
            assert stats.huge_count == row.count(2e10)
            assert stats.finite_min == (min(finite) if finite else None)
            assert stats.finite_max == (max(finite) if finite else None)
            assert observation.is_bad == (stats.nan_count + stats.inf_count + stats.huge_count > 0)
            assert (observation.reduced is None) != observation.is_bad

    def test_a_drained_reader_begins_anew(self) -> None:
        reader = Reader(1e10)
        reader.observe(ACT, torch.ones(1), NOW)
        assert len(reader.take().settle()[0]) == 1
        assert reader.take().settle() == ([], {})
        assert reader.observe(ACT, torch.ones(1), NOW) == 0
        assert reader.calls == 2

    def test_shape_and_dtype_are_those_of_the_programs_tensor(self) -> None:
        reader = Reader(1e10)
        for tensor in (torch.ones(2, 3).half(), torch.ones(2, dtype=torch.complex64), torch.ones(3).bool()):
            reader.observe(ACT, tensor, NOW)
        shapes = [(list(seen.shape), seen.dtype, seen.numel) for seen in reader.take().settle()[0]]
        assert shapes == [([2, 3], torch.float16, 6), ([2], torch.complex64, 4), ([3], torch.bool, 3)]

    def test_what_nobody_asked_for_counts_neither_as_call_nor_as_observed(self) -> None:
        reader = Reader(1e10)
        for site in (SILENT, INPUT, ACT, SILENT):
            reader.observe(site, torch.ones(1), NOW)
        reader.take().settle()
        assert (reader.calls, sum(reader.observed.values())) == (1, 2)

    def test_nothing_of_the_program_is_kept_or_changed(self) -> None:
        reader = Reader(1e10, keep=True)
        tensor = torch.tensor([1.0, NAN], requires_grad=True)
        reader.observe(ACT, tensor, NOW)
        with torch.no_grad():
            tensor.fill_(1.0)
        (seen,), kept = reader.take().settle()
        assert seen.is_bad
        assert kept[0].isnan().any()
        assert not kept[0].requires_grad
        assert tensor._version == 1


class TestPassedOver:
    def test_they_are_counted_by_reason_with_the_first_layers(self) -> None:
        reader = Reader(1e10)
        for layer in range(30):
            site = Site(f"layer{layer}", "fwd", "act")
            assert reader.observe(site, torch.empty(0), NOW) is None
            assert reader.observe(site, torch.empty(0), NOW) is None
        assert reader.observe(ACT, torch.empty(1, device="meta"), NOW) is None
        count, layers = reader.skipped["empty"]
        assert count == 60
        assert layers == [f"layer{number}" for number in range(20)]
        assert reader.skipped["meta"] == (1, ["a"])
        assert reader.num_skipped == 61
        assert (reader.calls, sum(reader.observed.values())) == (0, 0)


class TestLimits:
    def test_each_site_has_its_own_range_in_each_dtype(self) -> None:
        reader = Reader(1e10)
        narrow, wide = Site("n", "fwd", "act", bounds=(0.0, 1.0)), Site("w", "fwd", "act", bounds=(-9.0, 9.0))
        for site in (narrow, wide, ACT):
            for dtype in (torch.float32, torch.float16, torch.int64):
                reader.observe(site, torch.tensor([0, 5, -2]).to(dtype), NOW)
        counts = [seen.stats.oob_count for seen in reader.take().settle()[0]]
        assert counts == [2, 2, 2, 0, 0, 0, 0, 0, 0]

    def test_headroom_is_measured_in_the_dtype_of_each_tensor(self) -> None:
        reader = Reader(1e10, headroom=1.0)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int32):
            reader.observe(ACT, torch.tensor([40000.0]).to(dtype), NOW)
        assert [seen.stats.huge_count for seen in reader.take().settle()[0]] == [1, 0, 0, 0]


class TestKeeping:
    def test_the_first_bad_tensor_alone_is_kept(self) -> None:
        reader = Reader(1e10, keep=True)
        for value in (1.0, NAN, INF):
            reader.observe(ACT, torch.tensor([value]), NOW)
        _, kept = reader.take().settle()
        assert list(kept) == [1]
        reader.observe(ACT, torch.tensor([NAN]), NOW)
        assert reader.take().settle()[1] == {}

    def test_what_nobody_asked_for_is_not_kept(self) -> None:
        reader = Reader(1e10, keep=True)
        reader.observe(SILENT, torch.tensor([NAN]), NOW)
        reader.observe(ACT, torch.tensor([INF]), NOW)
        _, kept = reader.take().settle()
        assert list(kept) == [1]

    def test_without_being_asked_nothing_is_kept(self) -> None:
        reader = Reader(1e10)
        reader.observe(ACT, torch.tensor([NAN]), NOW)
        assert reader.take().settle()[1] == {}


class TestExtras:
    def test_addresses_are_those_of_the_tensor_and_of_its_memory(self) -> None:
        reader = Reader(1e10, addresses=True)
        pool = torch.zeros(10, dtype=torch.float64)
        reader.observe(ACT, pool[3:5], NOW, {"keys": 2})
        (seen,) = reader.take().settle()[0]
        assert seen.extra == {
            "keys": 2,
            "data_ptr": hex(pool.data_ptr() + 24),
            "storage_ptr": hex(pool.data_ptr()),
            "storage_offset_bytes": 24,
            "storage_nbytes": 80,
        }

    @pytest.mark.parametrize("locate", [True, False])
    def test_places_of_bad_elements_are_found_where_that_is_asked_for(self, locate: bool) -> None:
        reader = Reader(1e10, locate=locate)
        reader.observe(ACT, torch.tensor([[0.0, 1.0], [NAN, INF]]), NOW)
        (seen,) = reader.take().settle()[0]
        if locate:
            assert seen.stats.location is not None
            assert seen.stats.location[:4] == (1, 2, 1, 0)
        else:
            assert seen.stats.location is None


class TestMoments:
    @staticmethod
    def read(tensor: Tensor, site: Site = INPUT, *, ranged: bool = True, **options: Any) -> Any:
        reader = Reader(1e10, moments=True, **options)
        reader.ranged = ranged
        reader.observe(site, tensor, NOW)
        (seen,) = reader.take().settle()[0]
        return seen.stats.moments

    def test_each_tensor_is_summed_up_clean_or_not(self) -> None:
        for options in ({}, {"locate": True}, {"addresses": True}, {"headroom": 1.0}, {"keep": True}):
            assert self.read(torch.tensor([1.0, -3.0]), **options) == (-2.0, 10.0)
            assert self.read(torch.tensor([1.0, -3.0, NAN, INF]), **options) == (-2.0, 10.0)
        assert self.read(torch.tensor([1 + 2j, -3j])) == (0.0, 14.0)

    def test_not_where_no_record_of_it_can_be_written(self) -> None:
        assert self.read(torch.ones(2), ranged=False) is None
        assert self.read(torch.tensor([1.0, NAN]), ranged=False) == (1.0, 1.0)
        assert self.read(torch.tensor([1.0, NAN]), SILENT) is None
        assert self.read(torch.ones(2), Site("a", "fwd", "act", bounds=(0.0, 5.0)), ranged=False) == (2.0, 2.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
class TestOnAnAccelerator:
    """Nothing is waited for before the drain; the results are those of the host."""

    TENSORS: tuple[Any, ...] = ([1.0, -2.0], [NAN, 3.0], [INF, -INF], [2e10], [0.0])

    @staticmethod
    def read(device: str, **options: Any) -> tuple[list[Any], dict[int, Tensor]]:
        reader = Reader(1e10, **options)
        for row in TestOnAnAccelerator.TENSORS:
            tensor = torch.tensor(row, device=device)
            reader.observe(ACT, tensor, NOW)
            tensor.zero_()
        seen, kept = reader.take().settle()
        return [(one.stats, one.is_bad, one.calls) for one in seen], {at: one.cpu() for at, one in kept.items()}

    def test_the_numbers_are_those_of_the_host(self) -> None:
        assert str(self.read("cuda", locate=True)[0]) == str(self.read("cpu", locate=True)[0])

    def test_copies_of_bad_tensors_are_as_they_were_when_seen(self) -> None:
        _, kept = self.read("cuda", keep=True)
        assert kept[1][0].isnan()
        assert 0 not in kept
        assert 4 not in kept
