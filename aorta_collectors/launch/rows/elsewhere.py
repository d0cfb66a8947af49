"""Rows of what starts a program in another place, which a collector cannot follow: such a launch is refused."""

from __future__ import annotations

from aorta_collectors.launch.row import NO_OPTIONS, Does, Launcher

_THERE = (
    "the program runs where neither the collector nor its directory is; run `aorta sweep` there, or take the one file "
    "of `aorta-collectors pack` there"
)
_RUNNING = (
    "the container is running already, so that nothing can be mounted into it; use `run`, or run `aorta sweep` inside"
)

ELSEWHERE = (
    Launcher("ssh", Does.LEAVE, NO_OPTIONS, aliases=("autossh", "mosh", "pdsh"), why=_THERE),
    Launcher("kubectl", Does.LEAVE, NO_OPTIONS, aliases=("oc",), why=_THERE),
    Launcher("ray job submit", Does.LEAVE, NO_OPTIONS, why=_THERE),
    Launcher(
        "docker exec",
        Does.LEAVE,
        NO_OPTIONS,
        aliases=("docker container exec", "podman exec"),
        why=_RUNNING,
    ),
    Launcher(
        "sbatch",
        Does.LEAVE,
        NO_OPTIONS,
        why="it returns before the job has begun; use `srun`, or run `aorta sweep` in the batch script",
    ),
)
