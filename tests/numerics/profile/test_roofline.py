"""The roofline: measured without the program noticing, kept between processes, by one rank at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.numerics.profile import roofline_measure
from aorta_collectors.numerics.profile.free_memory import free_bytes
from aorta_collectors.numerics.profile.others import Others, is_quiet
from aorta_collectors.numerics.profile.roofline import Machine, Roofline
from aorta_collectors.numerics.profile.roofline_cache import RooflineCache
from aorta_collectors.numerics.profile.roofline_measure import Conditions
from tests.numerics.profiled import roofline

CORES = os.cpu_count() or 1
PROFILES, STEPS_ALONE = Config(profile="deferred"), Config()
KEPT = {
    "device": "a machine",
    "flops_per_s": {"float32": 1e9, "bfloat16": 2e9},
    "bytes_per_s": 1e8,
    "launch_us": 1.0,
    "threads": 1,
    "busy_cores": 0.0,
    "measured_at": "2026-01-01T00:00:00+00:00",
}


class Largest(TorchDispatchMode):
    """Sees the largest tensor that is made.

    Attributes:
        num_bytes: Of it.
    """

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.num_bytes = max(self.num_bytes, result.nbytes)
        return result


def brick_of(module: nn.Module) -> Brick:
    return Brick(weakref.ref(module), "(root)", "Linear", "", None, False, True, None, 0)


def machine(config: Config, path: Path, warnings: list[str] | None = None) -> Machine:
    """After the first step of a small model has begun."""
    part = Machine(config, (warnings if warnings is not None else []).append, path)
    module = nn.Linear(2, 2)
    part.entered(brick_of(module), (), {})
    return part


def key() -> str:
    return Conditions.of(torch.device("cpu")).key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "roofline.json"


def keep(path: Path, **changed: object) -> None:
    path.parent.mkdir(exist_ok=True)
    RooflineCache(path).write(key(), {**KEPT, **changed})


class TestMeasuring:
    def test_numbers_are_of_this_machine(self) -> None:
        """A product that is timed here takes as long as the roofline says, or longer."""
        found = roofline()
        left, out = torch.ones(1024, 1024), torch.empty(1024, 1024)
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            torch.mm(left, left, out=out)
            seconds.append(time.perf_counter() - began)
        assert 2 * 1024**3 / min(seconds) < 10 * found.flops_per_s["float32"]
        assert 1e8 < found.bytes_per_s < 1e13
        assert 0.1 < found.launch_us < 1000
        assert found.threads == torch.get_num_threads()

    def test_the_program_notices_nothing(self, path: Path) -> None:
        """It may have anything on: what is the default for it stays, and does not reach the measurement."""
        module = nn.Linear(2, 2, dtype=torch.float64)
        torch.manual_seed(3)
        state = torch.get_rng_state()
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        try:
            with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
                part = Machine(PROFILES, [].append, path)
                part.entered(brick_of(module), (), {})
                assert torch.is_inference_mode_enabled()
                assert torch.is_autocast_enabled("cpu")
                assert torch.empty(1).is_meta
            assert torch.get_default_dtype() is torch.float64
            assert not torch.is_autocast_enabled("cpu")
        finally:
            torch.set_default_dtype(torch.float32)
            torch.use_deterministic_algorithms(False)
        assert torch.equal(torch.get_rng_state(), state)
        assert part.roofline is not None
        # The model's own dtype is among them.
        assert set(part.roofline.flops_per_s) == {"float32", "bfloat16", "float64"}
        assert part.roofline.cached is False

    def test_a_program_that_counts_operations_counts_its_own(self, path: Path) -> None:
        with FlopCounterMode(display=False) as counter:
            assert machine(PROFILES, path).roofline is not None
        assert counter.get_total_flops() == 0

    def test_it_takes_a_part_of_the_memory_that_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(roofline_measure, "free_bytes", lambda device: 8 << 20)
        with Largest() as largest:
            assert roofline_measure.measured(Conditions.of(torch.device("cpu")), ["float32"], None) is not None
        assert 256 * 256 * 4 <= largest.num_bytes <= 1 << 20

    def test_memory_that_is_left_is_what_a_container_may_take(self, tmp_path: Path) -> None:
        host, meminfo = torch.device("cpu"), tmp_path / "meminfo"
        meminfo.write_text("MemTotal: 10 kB\nMemAvailable:    4 kB\n")
        assert free_bytes(host, meminfo, tmp_path) == 4096
        (tmp_path / "memory.current").write_text("1000\n")
        for limit, free in (("max\n", 4096), ("9000\n", 4096), ("1100\n", 100), ("900\n", 0)):
            (tmp_path / "memory.max").write_text(limit)
            assert free_bytes(host, meminfo, tmp_path) == free
        assert free_bytes(host, tmp_path / "none", tmp_path / "none") is None
        assert (free_bytes(host) or 0) > 1 << 20

    def test_a_device_that_computes_nothing_has_none(self, path: Path) -> None:
        warnings: list[str] = []
        part = Machine(PROFILES, warnings.append, path)
        module = nn.Linear(2, 2, device="meta")
        part.entered(brick_of(module), (), {})
        assert part.roofline is None
        assert ["meta" in warning for warning in warnings] == [True]

    def test_steps_alone_are_not_worth_the_seconds(self, path: Path) -> None:
        assert machine(STEPS_ALONE, path).fields() == {"roofline": None}
        assert not path.exists()


class TestCache:
    def test_what_was_measured_before_is_read(self, path: Path) -> None:
        keep(path)
        for config in (PROFILES, STEPS_ALONE):
            part = machine(config, path)
            assert part.fields() == {"roofline": {**KEPT, "cached": True}}
            assert part.peak("bfloat16") == 2e9
            assert part.peak("float64") is None

    def test_a_dtype_that_is_missing_is_measured_and_added(self, path: Path) -> None:
        keep(path, flops_per_s={"float32": 1.0})
        part = machine(PROFILES, path)
        assert part.roofline is not None
        assert part.roofline.flops_per_s["float32"] == 1.0
        assert part.roofline.flops_per_s["bfloat16"] > 1e6
        assert RooflineCache(path).read(key()) == {
            name: value for name, value in part.roofline.fields().items() if name != "cached"
        }

    def test_a_busy_machine_is_measured_again_and_the_better_number_stays(self, path: Path) -> None:
        keep(path, busy_cores=100.0, bytes_per_s=1e15, flops_per_s={"float32": 1.0, "float64": 1.0, "bfloat16": 1e18})
        warnings: list[str] = []
        part = machine(PROFILES, path, warnings)
        found = part.roofline
        assert found is not None
        assert not found.cached
        assert found.bytes_per_s == 1e15
        assert found.flops_per_s["bfloat16"] == 1e18
        assert min(found.flops_per_s["float32"], found.flops_per_s["float64"]) > 1e6
        assert found.busy_cores < 100
        assert ["busy" in warning for warning in warnings] == [True] * (not is_quiet(found.busy_cores))
        counted = []
        for step in (1, 2):  # times of the one in which it was measured do not count
            part.step_ended(trace := StepTrace(step))
            counted.append(trace.is_counted)
        assert counted == [True, False]

    def test_it_is_said_of_a_busy_machine_and_steps_alone_do_not_mind(self, path: Path) -> None:
        warnings: list[str] = []
        keep(path, busy_cores=100.0)
        assert machine(STEPS_ALONE, path, warnings).fields() == {
            "roofline": {**KEPT, "busy_cores": 100.0, "cached": True}
        }
        assert warnings == []

    def test_other_conditions_are_kept_apart(self, path: Path) -> None:
        keep(path)
        RooflineCache(path).write("another", {**KEPT, "bytes_per_s": 5.0})
        cache = RooflineCache(path)
        assert cache.read("another") == {**KEPT, "bytes_per_s": 5.0}
        assert cache.read(key()) == KEPT
        assert cache.read("a third") is None

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", '{"version": 2, "entries": {}}', '{"version": 1, "entries": 3}', "\x00\xff"],
    )
    def test_a_file_that_is_no_cache_is_none(self, path: Path, text: str) -> None:
        path.parent.mkdir()
        path.write_text(text, encoding="latin-1")
        assert RooflineCache(path).read(key()) is None
        keep(path)
        assert RooflineCache(path).read(key()) == KEPT

    @pytest.mark.parametrize(
        "changed", [{"bytes_per_s": 0}, {"launch_us": "1"}, {"flops_per_s": []}, {"more": 1}, {"busy_cores": None}]
    )
    def test_an_entry_that_is_none_is_not_taken(self, path: Path, changed: dict[str, object]) -> None:
        path.parent.mkdir()
        path.write_text(json.dumps({"version": 1, "entries": {key(): {**KEPT, **changed}}}))
        assert RooflineCache(path).read(key()) is None

    def test_a_directory_that_cannot_be_written_to_is_no_fault(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        cache = RooflineCache(tmp_path / "file" / "below" / "roofline.json")
        with cache.locked():
            cache.write("a key", KEPT)
        assert cache.read("a key") is None

    def test_it_lies_where_the_user_keeps_caches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        cache = RooflineCache()
        with cache.locked():
            cache.write("a key", KEPT)
        assert RooflineCache(tmp_path / "aorta-collectors" / "roofline.json").read("a key") == KEPT

    def test_one_measures_and_another_waits_for_it(self, path: Path) -> None:
        """A process holds the lock while it measures; what it leaves is what the next one reads."""
        path.parent.mkdir()
        measures = (
            "import json, sys, time\n"
            "from pathlib import Path\n"
            "from aorta_collectors.numerics.profile.roofline_cache import RooflineCache\n"
            "cache = RooflineCache(Path(sys.argv[1]))\n"
            "with cache.locked():\n"
            "    print(flush=True)\n"
            "    time.sleep(0.5)\n"
            "    cache.write(sys.argv[2], json.loads(sys.argv[3]))\n"
        )
        kept = {**KEPT, "busy_cores": 100.0}  # as busy as that is, two do not measure one after the other
        with subprocess.Popen(
            [sys.executable, "-c", measures, str(path), key(), json.dumps(kept)], stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            part = machine(PROFILES, path)
        assert part.roofline == Roofline(**kept, cached=True)  # type: ignore[arg-type]

    def test_the_lock_is_given_back(self, path: Path) -> None:
        with RooflineCache(path).locked():
            pass
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_processor_time_of_other_processes_is_told_from_our_own() -> None:
    others = Others()
    busy = "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    with_another = others.cores()
    assert with_another > 0.3
    alone, own_s, began = Others(), time.process_time(), time.perf_counter()
    # On all cores, of which others get no more than what is left: with our own among theirs it would be more than all.
    with ThreadPoolExecutor(CORES) as pool:
        for _ in pool.map(lambda _: hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000), range(CORES)):
            pass
    theirs = alone.cores()
    own = (time.process_time() - own_s) / (time.perf_counter() - began)
    assert own > 0.3
    assert theirs + own < CORES + 0.2
    assert is_quiet(0.0)
    assert not is_quiet(CORES)
