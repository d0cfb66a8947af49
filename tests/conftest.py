"""Fixtures that restore the world (the environment, and torch's global hooks), and a verified run to be spoiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.spoiled import Run


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with three trials of two ranks, all captured; not to be changed."""
    from tests.faults.spoiled import built

    return built(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run directory of a name in tests/captured/runs.py; not to be changed."""
    from tests.captured.runs import captured as of_name

    return lambda name: of_name(tmp_path_factory, name)


@pytest.fixture
def spoilt(good: Path, tmp_path: Path) -> Run:
    """A copy of it, of which a test spoils the second trial."""
    from tests.faults.spoiled import copied

    return copied(good, tmp_path)


@pytest.fixture(autouse=True)
def _restored_environment() -> Iterator[None]:
    """No test leaves a variable behind, and none sees a variable of ours from the developer's shell."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("NANLOG_", "NUMERICS_", "TENSORS_", "MEMORY_", "AORTA_COLLECTORS", "TRACEPARENT")):
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
