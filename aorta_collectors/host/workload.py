"""Workloads: those that run inside the host's process and are armed around, and those that run a command.

A workload that runs a command can have collectors attached to it, as the commands of the probe flow have. It has

- `runs_command = True`, a class attribute;
- `planned_launch(config)`, a class method: the command as `Launch.of_this_process`, before collectors are in it. It is
  asked before anything runs too;
- `launch_through(plan, verified)`, called once before setup(): plan(launch) returns that launch with the collectors in
  it, its environment included, and the workload runs that; verified(), called when the command has ended, returns what
  each collector's evidence holds, for the workload's own verdict. Whether it suffices is decided here;
- `check_config(config, place)`, a class method: raises OptionsError for a configuration that stands at `place`.

In its configuration `_aorta_log_prefix` is always there where results are kept: what the command writes goes into files
whose names begin with it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from aorta.workloads import WorkloadResult

from aorta_collectors.api import WorkloadStopped

if TYPE_CHECKING:
    from aorta_collectors.host.trial import Trial


def command_workload(name: str) -> Any:
    """The class of the workload `name` if it runs a command; None for any other, and for one that cannot be loaded."""
    for entry in entry_points(group="aorta.workloads"):
        # The host's own run in its process, and some import torch when they are loaded.
        if entry.name == name and not entry.value.startswith("aorta."):
            try:
                workload = entry.load()
            except Exception:
                return None  # the host's own complaint comes when it looks for the workload
            return workload if getattr(workload, "runs_command", False) else None
    return None


class ArmedWorkload:
    """Delegates to the workload, with collectors armed from setup(), where models are built, to the end of run()."""

    def __init__(self, workload: Any, trial: Trial) -> None:
        self._workload = workload
        self._trial = trial

    def setup(self) -> None:
        self._trial.arm()
        try:
            self._workload.setup()
        except BaseException as error:
            stopped = self._trial.disarm(error)
            if stopped is not None:
                raise stopped from error
            raise

    def run(self) -> Any:
        try:
            result = self._workload.run()
        except BaseException as error:
            stopped = self._trial.disarm(error)
            if stopped is None:
                raise
        else:
            stopped = self._trial.disarm(None)
        return result if stopped is None else _failed(stopped)

    def cleanup(self) -> None:
        self._workload.cleanup()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)


def _failed(stopped: WorkloadStopped) -> WorkloadResult:
    """What the host takes for a failure of the measured code; an exception would count as one of the machinery."""
    details = {"error": str(stopped), "type": type(stopped).__name__}
    return WorkloadResult(passed=False, failure_count=1, failure_details=[details], main_work_started=True)
