"""A beacon is found in the process that lit it, as long as it is lit, by its class."""

from __future__ import annotations

import os

import torch

from aorta_collectors.observe.beacon import Beacon
from tests.numerics.forked import in_a_fork


class One(Beacon):
    pass


class Other(Beacon):
    pass


def test_it_is_found_between_light_and_put_out() -> None:
    one, other = One(), Other()
    assert One.find() is None
    one.light()
    other.light()
    try:
        assert (One.find(), Other.find()) == (one, other)
        torch.nn.BatchNorm1d(2)  # registers buffers
        in_a_fork(lambda: os._exit(0 if One.find() is None else 1))
    finally:
        one.put_out()
        other.put_out()
    assert (One.find(), Other.find()) == (None, None)
    one.put_out()
