"""The workload `script`: a command of the user's in the workload flow, with cells, step times and a verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.workloads import Workload, WorkloadResult

from aorta_collectors.errors import OptionsError
from aorta_collectors.evidence.trial import Checked
from aorta_collectors.host.trial_place import results_anchor
from aorta_collectors.launch.value import Launch
from aorta_collectors.workloads.config import ScriptConfig
from aorta_collectors.workloads.output import Output
from aorta_collectors.workloads.processes import Command
from aorta_collectors.workloads.verdict import Ending, judge

PLACE = "recipe.workload_config"


class ScriptWorkload(Workload):  # type: ignore[misc]
    """Runs workload_config.argv once a trial.

    Attributes:
        runs_command: Tells the host's side that collectors go into a command, not into this process.
    """

    runs_command = True

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._plan: Callable[[Launch], Launch] = lambda launch: launch
        self._verified: Callable[[], Sequence[Checked]] = tuple
        self._script: ScriptConfig | None = None
        self._launch: Launch | None = None
        self._output: Output | None = None
        self._command: Command | None = None

    # -- what the host's side calls

    @classmethod
    def check_config(cls, config: Mapping[str, Any], place: str) -> None:
        """Raise OptionsError if the configuration cannot be honoured; `place` is where it stands in the recipe."""
        _script(config, place)

    @classmethod
    def planned_launch(cls, config: Mapping[str, Any]) -> Launch:
        """The command that a trial with this configuration runs, before collectors. Raises OptionsError."""
        return cls._launch_of(ScriptConfig.of(config), config)

    @staticmethod
    def _launch_of(script: ScriptConfig, config: Mapping[str, Any]) -> Launch:
        # What a cell varies has precedence over what all cells have in common.
        varied = config.get("_aorta_trial_env", {})
        env = {name: value for name, value in script.env.items() if name not in varied}
        return Launch.of_this_process(script.argv, env, script.cwd)

    def launch_through(self, plan: Callable[[Launch], Launch], verified: Callable[[], Sequence[Checked]]) -> None:
        """Have collectors take part; called before setup().

        Args:
            plan: Gives the launch with all of them in it.
            verified: Verifies their evidence once the command has ended.
        """
        self._plan, self._verified = plan, verified

    # -- what the host calls

    def setup(self) -> None:
        self._script = script = _script(self.config, PLACE)
        if not os.path.isdir(script.cwd):
            raise OptionsError(f"{PLACE}.cwd", f"{script.cwd} is not a directory")
        self._launch = self._plan(self._launch_of(script, self.config))
        stem = self.config.get("_aorta_log_prefix")
        if stem is None:
            raise RuntimeError(
                f"aorta keeps nothing of this process's trials, since RANK={os.environ.get('RANK')}; unset RANK"
            )
        anchor = results_anchor(self.config)
        assert anchor is not None  # the host gives the stem below it
        self._output = Output(anchor, Path(stem))

    def run(self) -> WorkloadResult:
        assert self._script is not None
        ending = self._run_command(self._script)
        return judge(self._script, ending, self._verified())

    def cleanup(self) -> None:
        """End what an interruption may have left."""
        if self._command is not None:
            self._command.end(now=True)
        if self._output is not None:
            self._output.close()

    def _run_command(self, script: ScriptConfig) -> Ending:
        assert self._launch is not None
        assert self._output is not None
        launch, output = self._launch, self._output
        env = {**os.environ, **launch.env}
        started = time.monotonic()
        present = {name: value for name, value in env.items() if value is not None}
        self._command = command = Command()
        with _ended_in_order():
            try:
                try:
                    command.start(launch.argv, script.cwd, present, output.out, output.err)
                except OSError as error:
                    what = f"{PLACE}.argv: {launch.argv[0]} cannot be started: {error.strerror}"
                    raise RuntimeError(what) from error
                timed_out = not command.wait(script.timeout_s)
                tail = output.tail()  # before what it may say of being ended
                left_over = command.end(now=timed_out)
            except BaseException:
                command.end(now=True)
                raise
        return Ending(
            command.exit_code,
            timed_out,
            time.monotonic() - started,
            tail,
            () if timed_out else left_over,
        )


def _script(config: Mapping[str, Any], place: str) -> ScriptConfig:
    """What is to run. Raises OptionsError with the path from `place` on."""
    try:
        return ScriptConfig.of(config)
    except OptionsError as error:
        raise error.below(place) from None


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Have a signal that would end this process at once raise SystemExit, so that the command ends before it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
