"""What dtypes can hold, held against torch."""

from __future__ import annotations

import pytest
import torch

from aorta_collectors.analysis.dtypes import LIMITS


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_are_those_of_torch(name: str) -> None:
    info = torch.finfo(getattr(torch, name.removeprefix("torch.")))
    assert LIMITS[name] == (info.max, info.eps, info.tiny)


def test_no_floating_point_dtype_of_a_record_is_missing() -> None:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    known = {str(dtype) for dtype in dtypes if dtype.is_floating_point and dtype.itemsize <= 8}
    # Without a sign, a mantissa or half of a byte: no layer computes in these.
    assert known - set(LIMITS) <= {"torch.float8_e8m0fnu", "torch.float4_e2m1fn_x2"}
