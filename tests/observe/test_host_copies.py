"""Copies in host memory: at once, or on their way and there when what was sealed behind them is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aorta_collectors.observe.host_copies import HostCopies, bits_of
from tests.observe.device.fakes import FakeDevice


def test_host_memory_is_copied_at_once_without_gaps() -> None:
    copies = HostCopies()
    tensor = torch.randn(4, 6)[:, ::2]
    copied = copies.copy(tensor)
    assert copied is not None
    expected = tensor.clone()
    tensor.zero_()
    assert copied.is_contiguous()
    assert torch.equal(copied, expected)
    assert copies.seal().is_there()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.bfloat16,
        torch.float8_e5m2,
        torch.complex32,
        torch.complex128,
        torch.uint16,
        torch.float4_e2m1fn_x2,
    ],
    ids=str,
)
def test_any_dtype_is_copied_bit_for_bit_without_a_word(dtype: torch.dtype) -> None:
    whole = torch.randint(0, 2, (5, 3 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    for device in (None, FakeDevice()):
        copies = HostCopies() if device is None else HostCopies(lambda _: device, host=())  # noqa: B023
        copied = copies.copy(whole.T)
        assert copied is not None
        assert (copied.dtype, copied.shape) == (dtype, (3, 5))
        assert torch.equal(bits_of(copied), bits_of(whole.T))


def test_what_the_program_turns_on_is_not_met() -> None:
    with torch.inference_mode():
        copied = HostCopies().copy(torch.ones(3))
    assert copied is not None
    assert not copied.is_inference()


class TestOnADevice:
    def copies(self, device: FakeDevice) -> HostCopies:
        given: Any = lambda _: device  # noqa: E731
        return HostCopies(given, host=())

    def test_one_arrival_stands_for_all_streams(self) -> None:
        device = FakeDevice()
        copies = self.copies(device)
        with device.no_waiting():
            copies.copy(torch.ones(3))
            with device.on(1):
                copies.copy(torch.ones(3))
            first = copies.seal()
            copies.copy(torch.ones(3))
            second = copies.seal()
            assert not first.is_there()
        device.advance(until=second._marks[0])  # type: ignore[arg-type]
        assert first.is_there()
        assert second.is_there()

    def test_waiting_for_it(self) -> None:
        device = FakeDevice()
        copies = self.copies(device)
        copies.copy(torch.ones(3))
        arrival = copies.seal()
        assert arrival.wait()
        assert device.waits == 1
        assert arrival.wait()
        assert device.waits == 1

    def test_while_a_graph_is_captured_nothing_is_copied_and_no_device_asked(self) -> None:
        device = FakeDevice()
        copies = self.copies(device)
        copies.copy(torch.ones(3))
        device.capturing = True
        assert copies.copy(torch.ones(3)) is None
        arrival = copies.seal()
        assert not arrival.is_there()
        assert not arrival.wait()
        device.capturing = False
        assert arrival.wait()
