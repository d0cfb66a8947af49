"""A workload inside the host's process, observed from its setup to the end of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta_collectors.host.trial import Trial


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
            self._trial.disarm(error)
            raise

    def run(self) -> Any:
        try:
            result = self._workload.run()
        except BaseException as error:
            self._trial.disarm(error)
            raise
        self._trial.disarm(None)
        return result

    def cleanup(self) -> None:
        self._workload.cleanup()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)
