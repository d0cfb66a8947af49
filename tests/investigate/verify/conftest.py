"""An investigation that is complete, with its report: whatever is wrong with it, a test has made wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from aorta_collectors.investigate.design import Design
from tests.investigate.made import Made, layers
from tests.investigate.test_report import report_of


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Two repetitions and a report of them."""
    found = Made(tmp_path, design=Design.of("values", repetitions=2, observer_effect=False))
    found.all({"baseline": layers(1, 2), "candidate": layers(1, 3)})
    report_of(found)
    return found
