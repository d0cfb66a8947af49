"""Energy by RAPL, from files made for it; and what is said where nothing can be read."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from torch import nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile.energy import Energy, Rapl
from aorta_collectors.schema_check import load_schema

RANGE_UJ = 262_143_328_850


def zone(root: Path, name: str, kind: str, energy_uj: int = 0) -> Path:
    made = root / name
    made.mkdir()
    (made / "name").write_text(f"{kind}\n")
    (made / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (made / "energy_uj").write_text(f"{energy_uj}\n")
    return made


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(root: Path, clock: Clock | None = None) -> Energy:
    """After the first step of a model on the host has begun."""
    module = nn.Linear(2, 2)
    part = Energy(root, clock or Clock())
    part.entered(Brick(weakref.ref(module), "(root)", "Linear", "", None, False, True, None, 0), (), {})
    return part


def told(part: Energy) -> Any:
    fields = part.fields()["energy"]
    validate(fields, load_schema("numerics.summary")["properties"]["energy"])
    return fields


def test_packages_and_their_memory_are_added_up(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", "package-0", 10), zone(tmp_path, "intel-rapl:1", "package-1", 20)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 30)
    others = [
        zone(tmp_path, "intel-rapl:0:0", "core"),  # in its package
        zone(tmp_path, "intel-rapl:2", "psys"),  # holds the packages
        zone(tmp_path, "intel-rapl-mmio:0", "package-0"),  # the first one again
    ]
    part = begun(tmp_path)
    for place, joules in ((first, 5), (second, 7), (memory, 1), *((other, 100) for other in others)):
        before = int((place / "energy_uj").read_text())
        (place / "energy_uj").write_text(str(before + joules * 1_000_000))
    part.step_ended(StepTrace(1))
    assert told(part)["joules"] is None  # steps may be short: it is not read in each
    part.step_ended(StepTrace(2, is_last=True))
    found = told(part)
    assert found["joules"] == pytest.approx(13.0)
    assert found["source"] == "rapl"
    assert [why.partition(":")[0] for why in found["unavailable"]] == ["nvml", "rocm_smi"]


def test_a_sum_that_begins_anew_is_followed(tmp_path: Path) -> None:
    place = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    clock = Clock()
    part = begun(tmp_path, clock)
    for step, energy_uj in enumerate((2_000_000, RANGE_UJ - 1_000_000, 2_000_000), 1):
        clock.now += 10.0
        (place / "energy_uj").write_text(str(energy_uj))
        part.step_ended(StepTrace(step))
    assert told(part)["joules"] == pytest.approx((RANGE_UJ + 3_000_000) * 1e-6)


@given(st.lists(st.integers(0, RANGE_UJ - 1), min_size=1, max_size=20))
def test_it_is_what_was_used_however_often_the_sum_began_anew(tmp_path_factory: Any, used_uj: list[int]) -> None:
    root = tmp_path_factory.mktemp("rapl")
    place = zone(root, "intel-rapl:0", "package-0", 5)
    meter, energy_uj, joules = Rapl(root), 5, 0.0
    for used in used_uj:
        energy_uj = (energy_uj + used) % RANGE_UJ
        (place / "energy_uj").write_text(str(energy_uj))
        joules = meter.joules()
    assert joules == pytest.approx(sum(used_uj) * 1e-6)


def test_what_is_not_there_or_may_not_be_read_is_told(tmp_path: Path) -> None:
    found = told(begun(tmp_path))
    assert (found["joules"], found["source"]) == (None, None)
    assert "no package has a counter" in found["unavailable"][2]
    place = zone(tmp_path, "intel-rapl:0", "package-0")
    (place / "energy_uj").unlink()
    (place / "energy_uj").mkdir()  # root may read any file
    found = told(begun(tmp_path))
    assert found["source"] is None
    assert os.fspath(place / "energy_uj") in found["unavailable"][2]


def test_a_counter_that_goes_away_is_told(tmp_path: Path) -> None:
    place = zone(tmp_path, "intel-rapl:0", "package-0")
    part = begun(tmp_path)
    (place / "energy_uj").unlink()
    part.step_ended(StepTrace(1, is_last=True))
    found = told(part)
    assert (found["joules"], found["source"]) == (None, None)
    assert "FileNotFoundError" in found["unavailable"][2]
