"""Fixtures that restore the world: the environment, and torch's global hooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _restored_environment() -> Iterator[None]:
    """No test leaves a variable behind, and none sees a NANLOG_* of the developer's shell."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("NANLOG_", "AORTA_COLLECTORS")):
            del os.environ[name]
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _no_hook_outlives_a_test() -> Iterator[None]:
    """Observers that a test armed must have been disarmed: torch's global hooks are what they were."""
    yield
    if "torch" not in sys.modules:
        return
    from torch.nn.modules import module as torch_module

    assert not torch_module._global_forward_pre_hooks
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_module_registration_hooks
