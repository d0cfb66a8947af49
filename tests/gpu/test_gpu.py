"""The checks of check.py, one test a part, where there is a GPU; and that the script says so where there is none."""

from __future__ import annotations

import pytest
import torch

from tests.support import PYTHON, ROOT, run

SCRIPT = str(ROOT / "tests" / "gpu" / "check.py")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["results", "waiting", "graphs", "steps", "speed", "cost"])
def test_a_part_of_the_checks_holds(part: str) -> None:
    ran = run([PYTHON, SCRIPT, "--only", part], ROOT, timeout=900)
    print(ran.out)
    ran.ok()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_script_says_so() -> None:
    ran = run([PYTHON, SCRIPT], ROOT)
    assert ran.code == 2
    assert "no GPU" in ran.out
