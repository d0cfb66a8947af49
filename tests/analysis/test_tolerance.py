"""The tolerances are torch's, and the coarser the dtype the wider they are."""

from __future__ import annotations

import pytest
import torch
from torch.testing._comparison import default_tolerances

from aorta_collectors.analysis.dtypes import LIMITS
from aorta_collectors.analysis.tolerance import DEFAULTS, tolerances


@pytest.mark.parametrize("name", DEFAULTS)
def test_they_are_those_of_torch_testing_and_follow_eps_where_it_has_none(name: str) -> None:
    dtype = getattr(torch, name.removeprefix("torch."))
    theirs = default_tolerances(dtype, dtype_precisions=None)
    if name.startswith("torch.float8"):
        assert theirs == (0.0, 0.0)
        assert DEFAULTS[name].rtol == 2 * torch.finfo(dtype).eps
    else:
        assert tuple(DEFAULTS[name]) == theirs


def test_there_is_one_for_each_dtype_whose_limits_are_known() -> None:
    assert set(DEFAULTS) == set(LIMITS)


def test_one_number_can_be_replaced_without_the_other() -> None:
    assert {tolerance.rtol for tolerance in tolerances(rtol=0.25).values()} == {0.25}
    assert tolerances(rtol=0.25)["torch.float64"].atol == DEFAULTS["torch.float64"].atol
    assert tolerances(atol=0.0)["torch.float16"] == (1e-3, 0.0)
