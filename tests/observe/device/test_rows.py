"""Rows from being queued to being read, on a device that objects to what a real one would not bear."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.observe.device.launch import Kernels
from aorta_collectors.observe.device.rows import DeviceRows, SealedRows, UnwatchedCaptureError
from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.reduce import Stats, read_rows, reduce_later
from tests.observe.device.fakes import FakeDevice

LIMITS = Limits(100.0, low=-5.0)


def no_kernels() -> Kernels:
    raise ImportError("no Triton here")


def rows_on(device: FakeDevice | None, log: list[str] | None = None) -> DeviceRows:
    lines = log if log is not None else []
    return DeviceRows(lines.append, device_of=lambda _: device, kernels=no_kernels)


def expected(values: torch.Tensor, limits: Limits = LIMITS, locate: bool = False) -> Stats:
    return read_rows([(values.numel(), reduce_later(values, limits, locate))])[0]


def sealed(rows: DeviceRows) -> SealedRows:
    found = rows.seal()
    assert found is not None
    return found


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


class TestResults:
    """What is queued comes back, whatever the device."""

    @given(
        st.lists(
            st.tuples(st.lists(st.floats(width=32), min_size=1, max_size=5), st.integers(0, 2), st.booleans()),
            max_size=12,
        ),
        st.booleans(),
    )
    @settings(max_examples=50, deadline=None, derandomize=True)
    def test_rows_come_back_by_number_from_any_stream(
        self, queued: list[tuple[list[float], int, bool]], own: bool
    ) -> None:
        device = FakeDevice()
        rows = rows_on(device if own else None)
        tensors = [torch.tensor(values).nan_to_num(nan=7e9) for values, _, _ in queued]
        numbers = []
        with device.no_waiting():
            for tensor, (_, stream, locate) in zip(tensors, queued, strict=True):
                with device.on(stream):
                    numbers.append(rows.queue(tensor, LIMITS, locate))
            result = rows.seal()
        assert numbers == list(range(len(queued)))
        if not queued:
            assert result is None
            return
        assert result is not None
        assert result.stats() == [expected(t, LIMITS, how[2]) for t, how in zip(tensors, queued, strict=True)]
        assert rows.seal() is None

    def test_several_at_once_are_numbered_in_their_order(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        rows.queue(torch.zeros(1), LIMITS, False)
        tensors = [torch.tensor([float(i), math.inf]) for i in range(5)]
        assert rows.queue_many([(tensor, LIMITS) for tensor in tensors], True) == [1, 2, 3, 4, 5]
        assert sealed(rows).stats()[1:] == [expected(tensor, LIMITS, True) for tensor in tensors]

    @pytest.mark.parametrize("own", [True, False], ids=["with streams", "without"])
    def test_sums_come_back_where_they_were_asked_for(self, own: bool, device: FakeDevice) -> None:
        rows = rows_on(device if own else None)
        values = torch.tensor([[3.0, math.nan], [-4.0, math.inf]])
        rows.queue(values, LIMITS, False, True)
        rows.queue(values, LIMITS, True, True)
        rows.queue(values, LIMITS, True)
        rows.queue_many([(values, LIMITS), (values * 2, LIMITS)], False, True)
        found = sealed(rows).stats()
        assert [stats.moments for stats in found] == [(-1.0, 25.0), (-1.0, 25.0), None, (-1.0, 25.0), (-2.0, 100.0)]
        located = str(expected(values, LIMITS, True))  # a NaN is not equal to itself
        assert [str(stats._replace(moments=None)) for stats in found[1:3]] == [located] * 2

    def test_a_float8_is_read_though_torch_has_no_reductions_for_it(self, device: FakeDevice) -> None:
        values = torch.tensor([[1.0, math.nan], [448.0, -3.0]]).to(torch.float8_e4m3fn)
        rows = rows_on(device)
        rows.queue(values, Limits(400.0), True, True)
        (found,) = sealed(rows).stats()
        assert found.moments == (446.0, 448.0**2 + 10.0)
        assert found[:9] == Stats(4, 1, 0, 1, 3, -3.0, 448.0)[:9]
        assert found.location is not None
        assert found.location[:4] == (2, 1, 0, 1)

    def test_a_row_holds_the_values_as_they_were(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        values = torch.ones(4)
        rows.queue(values, LIMITS, False)
        values.fill_(math.inf)
        assert sealed(rows).stats() == [Stats.clean(4, 1.0, 1.0)]

    @pytest.mark.parametrize("context", [torch.inference_mode, torch.enable_grad, lambda: torch.device("meta")])
    def test_what_the_program_has_switched_on_changes_nothing(self, device: FakeDevice, context: object) -> None:
        rows = rows_on(device)
        values = torch.ones(3, requires_grad=True).detach()
        with context():  # type: ignore[operator]
            rows.queue(values, LIMITS, False)
            first = sealed(rows)
        rows.queue(values, LIMITS, False)
        with context():  # type: ignore[operator]
            assert first.stats() == sealed(rows).stats() == [Stats.clean(3, 1.0, 1.0)]


class TestWaiting:
    """Nothing waits within a step; reading waits only for what has not arrived."""

    def test_a_step_waits_for_nothing_and_a_step_later_neither_does_reading(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        earlier: SealedRows | None = None
        for step in range(50):
            with device.no_waiting():
                rows.queue(torch.full((2,), float(step)), Limits(), False)
                current = sealed(rows)
                if earlier is not None:
                    assert earlier.is_ready()
                    assert earlier.stats() == [Stats.clean(2, step - 1.0, step - 1.0)]
                assert not current.is_ready()
            device.advance()
            earlier = current
        assert device.waits == 0

    def test_reading_early_waits(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        rows.queue(torch.ones(2), LIMITS, False)
        result = sealed(rows)
        assert not result.is_ready()
        assert result.stats() == [Stats.clean(2, 1.0, 1.0)]
        assert device.waits == 1
        assert result.is_ready()

    def test_a_device_that_lags_is_waited_for_before_its_rows_are_used_again(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        results = []
        for step in range(9):
            rows.queue(torch.full((2,), float(step)), Limits(), False)
            results.append(sealed(rows))
        assert 0 < device.waits < 9
        for step, result in enumerate(results):
            assert result.stats() == [Stats.clean(2, float(step), float(step))]

    def test_memory_stays_bounded_and_is_reused(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        for _ in range(20):
            for number in range(300):  # more than the first block has
                rows.queue(torch.full((1,), float(number)), Limits(), False)
            result = sealed(rows)
            device.advance()
            assert [entry.finite_max for entry in result.stats()] == [float(number) for number in range(300)]
        assert len(device.made) < 10

    def test_streams_that_are_used_no_more_keep_no_memory(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        for stream in range(100):
            with device.on(stream):
                rows.queue(torch.ones(1), Limits(), False)
            sealed(rows)
            device.advance()
        (reader,) = rows._devices.values()
        assert reader is not None
        assert sum(len(buffer.blocks) for buffer in reader.arena._buffers) <= 2 * len(reader.arena._buffers)


class TestFailure:
    def test_without_kernels_torch_reads_and_it_is_said_once(self, device: FakeDevice) -> None:
        log: list[str] = []
        rows = rows_on(device, log)
        for _ in range(3):
            rows.queue(torch.ones(2), LIMITS, False)
        assert len(log) == 1
        assert "no Triton here" in log[0]

    def test_a_kernel_that_fails_loses_no_row(self, device: FakeDevice) -> None:
        class Failing(Kernels):
            def __init__(self) -> None:
                self.asked = 0
                self.interpreted = False

            def format(self, dtype: torch.dtype) -> None:
                self.asked += 1
                raise RuntimeError("cannot compile")

        log: list[str] = []
        kernels = Failing()
        rows = DeviceRows(log.append, device_of=lambda _: device, kernels=lambda: kernels)
        for values in (torch.ones(2), torch.ones(2), torch.ones(2).half()):
            rows.queue(values, LIMITS, False)
        assert rows.queue_many([(torch.ones(2), LIMITS)] * 2, False) == [3, 4]
        assert sealed(rows).stats() == [Stats.clean(2, 1.0, 1.0)] * 5
        assert kernels.asked == 2
        assert [line.split()[2] for line in log] == ["torch.float32", "torch.float16"]

    def test_threads_get_numbers_of_their_own(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        found: dict[int, int] = {}

        def work(start: int) -> None:
            for value in range(start, start + 50):
                found[rows.queue(torch.tensor([float(value)]), Limits(), False)] = value

        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = sealed(rows).stats()
        assert len(stats) == 200
        assert [entry.finite_max for entry in stats] == [float(found[number]) for number in range(200)]


class TestCapture:
    """While a graph is captured the device is asked for nothing, and the graph's rows are its own."""

    def test_rows_of_a_graph_come_with_each_replay(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        rows.queue(torch.full((1,), 5.0), Limits(), False)
        before = sealed(rows)
        capture = rows.begin_capture(torch.device("cpu"))
        assert capture is not None
        device.capturing = True
        assert [rows.queue(torch.full((1,), float(i)), Limits(), False) for i in range(3)] == [0, 1, 2]
        assert rows.seal() is None
        assert not before.is_ready()
        device.capturing = False
        rows.end_capture()
        assert device.allocated_in_capture == 0
        for replay in range(3):
            rows.about_to_replay(capture)
            capture._blocks[0].memory.view(torch.float64)[1, 5:7] = 70.0 + replay  # as a kernel of the graph would
            result = rows.replayed(capture)
            assert result is not None
            with device.no_waiting():
                assert not result.is_ready()
            assert [entry.finite_max for entry in result.stats()] == [0.0, 70.0 + replay, 2.0]
        assert before.stats()[0].finite_max == 5.0

    def test_a_replay_on_another_stream_follows_the_copies_of_the_last_one(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        capture = rows.begin_capture(torch.device("cpu"))
        assert capture is not None
        device.capturing = True
        rows.queue(torch.ones(1), Limits(), False)
        device.capturing = False
        rows.end_capture()
        for stream in (0, 0, 3, 3, 0):
            with device.on(stream):
                rows.about_to_replay(capture)
                rows.replayed(capture)
        assert [stream for stream, _ in device.follows] == [3, 0]

    def test_rows_of_other_streams_wait_for_the_end_of_the_capture(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        rows.queue(torch.ones(1), Limits(), False)
        rows.begin_capture(torch.device("cpu"))
        device.capturing = True
        result = sealed(rows)
        assert not result.is_ready()
        device.capturing = False
        rows.end_capture()
        assert not result.is_ready()
        device.advance()
        assert result.is_ready()
        assert result.stats() == [Stats.clean(1, 1.0, 1.0)]

    def test_a_capture_of_which_nothing_is_known_is_refused(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        rows.queue(torch.ones(1), Limits(), False)
        device.capturing = True
        with pytest.raises(UnwatchedCaptureError):
            rows.queue(torch.ones(1), Limits(), False)
        device.capturing = False
        assert len(sealed(rows).stats()) == 1

    def test_a_graph_may_have_more_rows_than_were_made_for_it(self, device: FakeDevice) -> None:
        rows = rows_on(device)
        capture = rows.begin_capture(torch.device("cpu"))
        assert capture is not None
        device.capturing = True
        for number in range(1500):
            rows.queue(torch.full((1,), float(number)), Limits(), False)
        device.capturing = False
        rows.end_capture()
        result = rows.replayed(capture)
        assert result is not None
        assert [entry.finite_max for entry in result.stats()] == [float(number) for number in range(1500)]
        assert device.allocated_in_capture == 1
