"""Memory on a device that outlives a step: tables of small tensors, and scratch areas."""

from __future__ import annotations

import pytest
import torch

from aorta_collectors.observe.device.arena import WORDS
from aorta_collectors.observe.device.launch import Plan
from aorta_collectors.observe.device.scratch import HEADER, PARTS, PROGRAMS, Scratch
from aorta_collectors.observe.device.tables import Tables
from tests.observe.device.fakes import FakeDevice


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def plan(*numbers: int) -> Plan:
    return Plan((*numbers, *range(13 - len(numbers))), (), 1, (32, 2, 0, 0, False, True, 4096, -1), torch.zeros(1))


def table(tables: Tables, *plans: Plan) -> list[list[int]]:
    address = tables.address(plans)
    (found,) = [each for each in tables._tables.values() if each.data_ptr() == address]
    return found.view(-1, WORDS).tolist()


class TestTables:
    def test_a_table_says_what_its_plans_say(self, device: FakeDevice) -> None:
        tables = Tables(device)
        entries = table(tables, plan(7, 8), plan(9))
        assert [entry[:13] for entry in entries] == [list(plan(7, 8).numbers), list(plan(9).numbers)]
        # The first tensor has stayed where it was, the second has not.
        assert table(tables, plan(7, 8), plan(10))[1][0] == 10
        assert table(tables, plan(7, 9), plan(9))[0][1] == 9

    def test_it_is_made_once_for_a_stream(self, device: FakeDevice) -> None:
        tables = Tables(device)
        first = tables.address([plan(1), plan(2)])
        assert tables.address([plan(1), plan(2)]) == first
        with device.on(3):
            assert tables.address([plan(1), plan(2)]) != first

    def test_those_not_used_for_the_longest_time_go(self, device: FakeDevice) -> None:
        tables = Tables(device)
        kept = tables.address([plan(0)])
        for number in range(1, 500):
            tables.address([plan(number)])
            assert tables.address([plan(0)]) == kept
        assert len(tables._tables) <= 64


class TestScratch:
    def test_each_stream_has_an_area_of_its_own(self, device: FakeDevice) -> None:
        scratch = Scratch(device)
        addresses = []
        for stream in (0, 1, 0, 1):
            with device.on(stream):
                addresses.append(scratch.address())
        assert addresses[:2] == addresses[2:]
        assert abs(addresses[0] - addresses[1]) >= 8 * (HEADER + PARTS * PROGRAMS)

    def test_an_area_made_in_advance_is_the_first_to_be_used(self, device: FakeDevice) -> None:
        scratch = Scratch(device)
        area = scratch.prepare()
        made = len(device.made)
        assert scratch.address() == area.data_ptr()
        assert len(device.made) == made
        with device.on(1):
            assert scratch.address() != area.data_ptr()

    def test_ever_new_streams_take_no_ever_more_memory(self, device: FakeDevice) -> None:
        scratch = Scratch(device)
        for stream in range(300):
            with device.on(stream):
                scratch.address()
        assert len(scratch._areas) <= 64
