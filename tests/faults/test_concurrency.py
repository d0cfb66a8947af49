"""Several things at once, and clocks that jump: sweeps into one output, verification meanwhile, time that goes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.sweeps import EVERY_STEP, PROGRAM, Verified, held, let_go, started, until, verified
from tests.host.support import cell, mitigations, probe_recipe, read_json, workload_recipe
from tests.support import run, summary

pytestmark = pytest.mark.sweep

At = Callable[[int], dict[str, str]]

AORTA = ["aorta", "sweep", "run", "--recipe", "r.yaml", "--output", "out"]


def test_a_second_sweep_into_one_output_is_refused_and_verification_meanwhile_vouches_for_nothing_unfinished(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    mitigations(tmp_path / "m.json", {"slow": {"HELD": "1"}})
    probe_recipe(tmp_path / "r.yaml", ["none", "slow"], collect=EVERY_STEP)
    (tmp_path / "hold_at").write_text("step")
    run_dir = tmp_path / "out" / "T-1"
    sweep = [*AORTA, "--mitigations-file", "m.json", "--", "python", "train.py"]
    with started(sweep, tmp_path) as first:
        (pid,) = until(lambda: held(tmp_path), "the program does not come to its step", first)
        before = {path: path.read_bytes() for path in run_dir.rglob("*.json")}
        second = run(sweep, tmp_path)
        assert second.code != 0
        assert "Traceback" not in second.err
        assert str(first.pid) in second.err
        assert {path: path.read_bytes() for path in run_dir.rglob("*.json")} == before

        meanwhile = verified(run_dir, tmp_path)
        assert (meanwhile.code, meanwhile.verdicts) == (1, {"none-none": "captured", "slow-none": "missing"})
        assert "still running" in meanwhile.reason("slow-none")
        let_go(tmp_path, pid)
        during: list[Verified] = []
        while first.poll() is None:
            during.append(verified(run_dir, tmp_path))
        assert first.wait() == 0, (tmp_path / "command.log").read_text()
    assert all(found.verdicts["none-none"] == "captured" for found in during)
    # The host writes a trial's record in place, so half of one may be seen.
    assert {found.verdicts["slow-none"] for found in during} <= {"missing", "captured", "invalid"}

    with ExitStack() as stack:
        verify = ["aorta-collectors", "verify", str(run_dir), "--json"]
        places = [tmp_path / "a", tmp_path / "b"]
        for place in places:
            place.mkdir()
        both = [stack.enter_context(started(verify, place)) for place in places]
        assert [process.wait(60) for process in both] == [0, 0]
    assert len({(place / "command.log").read_text() for place in places}) == 1


def test_two_sweeps_of_a_workload_in_the_same_second_have_a_directory_each(tmp_path: Path) -> None:
    workload_recipe(tmp_path / "r.yaml", "inference", steps=2, cells=[cell("baseline")], collect=EVERY_STEP)
    with ExitStack() as stack:
        places = [tmp_path / "a", tmp_path / "b"]
        for place in places:
            place.mkdir()
        command = ["aorta", "sweep", "run", "--recipe", "../r.yaml", "--output", "../out"]
        both = [stack.enter_context(started(command, place)) for place in places]
        codes = [process.wait(100) for process in both]
    assert codes == [0, 0], [(place / "command.log").read_text() for place in places]
    run_dirs = sorted(path.parent for path in (tmp_path / "out").glob("*/*/*/matrix.json"))
    assert len(run_dirs) == 2
    for run_dir in run_dirs:
        assert verified(run_dir, tmp_path).verdicts == {"baseline": "captured"}
    receipts = [read_json(path) for path in (tmp_path / "out").rglob("receipt_*.json")]
    assert len({tuple(receipt["run_ids"]) for receipt in receipts}) == 2


#: Stands before the C library's clocks. A clock that is set does not move the monotonic one, so neither does this.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long days(void) {
    char text[32] = "";
    const char *path = getenv("CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += days() * 86400;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}
"""


@pytest.fixture
def at(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """Sets the clock by days; what runs with the environment that it returns sees that at once."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    (tmp_path / "clock.c").write_text(CLOCK)
    build = ["cc", "-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"]
    run(build, tmp_path).ok()
    env = {"LD_PRELOAD": str(tmp_path / "clock.so"), "CLOCK": str(tmp_path / "clock")}

    def at(days: int) -> dict[str, str]:
        (tmp_path / "clock").write_text(str(days))
        return env

    return at


class TestClock:
    """The clock on the wall decides nothing."""

    def test_it_jumps_during_trials_and_between_them(self, tmp_path: Path, at: At) -> None:
        (tmp_path / "train.py").write_text(PROGRAM)
        jump = "open(os.environ['CLOCK'], 'w').write('{}')"
        bundles = {"back": {"AT_3": jump.format(-400)}, "forth": {"AT_3": jump.format(4000)}}
        file = mitigations(tmp_path / "m.json", bundles)
        probe_recipe(tmp_path / "r.yaml", list(bundles), collect=EVERY_STEP)
        words = [*AORTA, "--mitigations-file", str(file), "--", "python", "train.py"]
        run(words, tmp_path, at(0)).ok()
        run_dir = tmp_path / "out" / "T-1"
        first = [read_json(path) for path in sorted(run_dir.rglob("receipt_*.json"))]
        assert [receipt["verdict"] for receipt in first] == ["captured", "captured"]
        assert first[0]["verified_at"] < first[1]["verified_at"]
        years = [receipt["verified_at"][:4] for receipt in first]
        assert int(years[1]) - int(years[0]) > 5  # the clock did jump

        run(["aorta-collectors", "verify", str(run_dir)], tmp_path, at(4000)).ok()
        assert "2 resumed from a prior run" in run(words, tmp_path, at(-4000)).ok().out
        assert [read_json(path) for path in sorted(run_dir.rglob("receipt_*.json"))] == first
        assert (tmp_path / "runs_").read_text() == "xx"

    def test_a_launch_of_the_past_replaces_files_of_the_future(self, tmp_path: Path, at: At) -> None:
        (tmp_path / "train.py").write_text(PROGRAM)
        alone = ["python", "-m", "aorta_collectors.layer_numerics", "train.py"]
        run_ids = []
        for days in (30, -30):
            run(alone, tmp_path, {**at(days), "NANLOG_DIR": "out"}).ok()
            found = summary(tmp_path / "out")
            assert (found["status"], found["steps_seen"]) == ("complete", 5)
            assert {path.name for path in (tmp_path / "out").iterdir()} == {"layers_rank0.jsonl", "summary_rank0.json"}
            run_ids.append(found["run_id"])
        assert run_ids[0] != run_ids[1]
