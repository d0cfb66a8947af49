"""Where there is a device, programs that are looked at have used it."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def device_in_use() -> None:
    if torch.cuda.is_available():
        torch.cuda.init()
