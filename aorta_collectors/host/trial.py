"""One trial that asked for evidence: its collectors, where they write, how they were armed, what was found.

Only rank 0 has a directory from the host. Under torchrun the other ranks write into a directory of their own and hand
their files over when the workload has run (`ranks`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.run.collectors import (
    _reset_output_dir,
    summarize_collectors,
    trusted_collector_anchor,
    wrap_argv_for_collectors,
)

from aorta_collectors.api import Capture, Expected, Verdict, Verification, WorkloadStopped
from aorta_collectors.environment import SWITCH_VARIABLE, TRIAL_VARIABLE, switched_off
from aorta_collectors.errors import ArtifactError, LaunchError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.receipt import Receipt
from aorta_collectors.evidence.trial import Checked, check_artifacts
from aorta_collectors.host.asked import Asked, validated
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.env_file import EnvFile
from aorta_collectors.host.ranks import Lacking, RankExchange
from aorta_collectors.host.retention import Retention
from aorta_collectors.host.trial_place import TrialPlace, results_anchor
from aorta_collectors.host.verdicts import correct_record, killed_by, saw_bad, without_evidence
from aorta_collectors.host.wrapping import Wrapping, takes_the_script
from aorta_collectors.launch.value import Launch

log = logging.getLogger("aorta.collectors")


class Trial:
    """A trial from before its workload is made to after its receipts are written.

    Args:
        names: The collectors of ours that the trial asked for.
        environment: What the recipe sets for the trial: environment, mitigations, extra_env.
    """

    def __init__(
        self,
        attachment: Attachment,
        names: tuple[str, ...],
        request: Any,
        trial_idx: int,
        results_dir: Path,
        environment: Mapping[str, str],
    ) -> None:
        # In a process of its own the trial has its id from the parent, which looks for it in the receipts.
        given = os.environ.pop(TRIAL_VARIABLE, None)
        self._asked: dict[str, Asked] = {}
        for name in names:
            collector = attachment.load(name)
            options = validated(collector, request.collect_options)
            self._asked[name] = Asked(collector, options, [given or uuid.uuid4().hex])
        self._host_request = request
        self._off = switched_off(environment)
        self._launched = False
        self._failed = False
        self._config: dict[str, Any] = {}
        self._inherited: dict[str, str] = {}
        self._ignored: set[str] = set()  # of the caller's variables
        self._armed: contextlib.ExitStack | None = None
        self._retention, self._env_file = Retention(None), EnvFile(None)
        self.place = TrialPlace.of(request, trial_idx, results_dir, Anchor(Path(results_dir).parent))
        self._script_taken = takes_the_script(request.collect, request.collect_options)
        self._wrapping = self._wrapping_of(Launch(()))
        self.trial_id = self.place.trial_id
        self._ranks = RankExchange(f"{request.cell_name or '-'}/{self.trial_id}/{attachment.trials_begun}")

    # -- what the rest of the host asks

    @property
    def in_probe_flow(self) -> bool:
        """Whether the host runs the command, and keeps its verdict and its logs in the ways of that flow."""
        return self._host_request.subprocess_argv is not None

    @property
    def active(self) -> tuple[str, ...]:
        return () if self._off else tuple(self._asked)

    def wrapped_specs(self, registry: Mapping[str, Any]) -> dict[str, Any]:
        """The host's collectors, by name, as they attach to this trial's command."""
        return self._wrapping.specs(registry, {name: self._asked[name].collector.output_subdir for name in self.active})

    # -- before and during the workload

    def begin(self, config: dict[str, Any]) -> None:
        """Learn where the trial's artifacts go, from the configuration that the host gives its workload."""
        self._config = dict(config)  # the workload has the same object, and may change it
        self._inherited = dict(os.environ)
        self.place = replace(self.place, anchor=results_anchor(config) or self.place.anchor)
        extras = config.get("_aorta_probe_extras")
        self._retention, self._env_file = Retention(extras), EnvFile(extras)
        self._wrapping = self._wrapping_of(Launch.of_this_process(()))

    def _wrapping_of(self, launch: Launch) -> Wrapping:
        return Wrapping(launch, self._plan, script_taken=self._script_taken)

    def plan_command(self, launch: Launch) -> Launch:
        """For a workload that runs a command itself: its launch with all that was asked for in it.

        The artifact directories are there and empty then. What is to be set in the command's environment is part of
        the launch; this process's own does not change.

        Raises:
            LaunchError: A collector cannot be attached to such a launch.
            RuntimeError: A profiler of the host cannot, or an artifact directory cannot be prepared.
        """
        self._launched = True
        self._inherited = {**os.environ, **{name: value for name, value in launch.env.items() if value is not None}}
        self._wrapping = self._wrapping_of(launch)
        wrap_argv_for_collectors(self._config, launch.argv)
        return self._wrapping.launch

    def _plan(self, name: str, launch: Launch, out_dir: Path) -> Launch:
        asked = self._asked[name]
        try:
            planned = asked.collector.plan(launch, asked.options, Capture(out_dir, asked.run_id))
        except LaunchError as error:
            asked.refused = str(error)
            raise
        # Only the recipe may switch collectors off, so a switch left over in the operator's shell is taken away.
        asked.launch = planned = planned.with_env({SWITCH_VARIABLE: None})
        for variable, value in planned.env.items():
            inherited = self._inherited.get(variable, value)
            # A search path that was put behind ours is passed on.
            if inherited != value and not f"{value}".endswith(f"{os.pathsep}{inherited}"):
                self._ignored.add(variable)
        if not self._launched:
            self._hand_on(planned.env)
        return planned

    def _hand_on(self, env: Mapping[str, str | None]) -> None:
        """Set what the host's command inherits. The host takes it back after the trial."""
        for variable, value in env.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
        self._env_file.add(env)

    def arm(self) -> None:
        """Arm the collectors in this process. Raises RuntimeError if the artifact directory cannot be prepared."""
        if self._off:
            return
        self._armed = contextlib.ExitStack()
        for asked in self._asked.values():
            directory = self._directory(asked)
            if directory is not None:
                self._prepare(directory)
            capture = self._ranks.capture_for(asked.collector, directory, asked.run_id)
            self._armed.enter_context(asked.collector.armed(asked.options, capture))

    def disarm(self, error: BaseException | None) -> WorkloadStopped | None:
        """End the observation; `error` is what ended the workload. Returns what did, if a collector has ended it."""
        armed, self._armed = self._armed, None
        if armed is None:
            return None
        # The collectors learn of the error as any context would; it is the caller who goes on raising it.
        try:
            armed.__exit__(type(error) if error is not None else None, error, None)
        except WorkloadStopped as stopped:
            return stopped
        except Exception as raised:
            if raised is not error:
                log.warning("collect: a collector failed while it was disarmed: %s: %s", type(raised).__name__, raised)
        return None

    def _prepare(self, directory: Path) -> None:
        try:
            _reset_output_dir(directory, trusted_collector_anchor(self._config, directory.parent))
        except OSError as error:
            raise RuntimeError(f"collect: cannot prepare the artifact directory {directory}: {error}") from error

    def _directory(self, asked: Asked) -> Path | None:
        root = self._config.get("_aorta_collect_dir")
        return Path(root) / asked.collector.output_subdir if root else None

    # -- after the workload

    def verified(self, name: str) -> Checked:
        """Verify one collector's artifacts now, before retention can remove them."""
        asked = self._asked[name]
        if asked.checked is None:
            asked.checked = self._check(asked)
            self._retention.prepare(self.place, self._asked.values())
            if asked.required and not asked.checked.verification.verdict.satisfied:
                self._retention.treat_pass_as_error()
        return asked.checked

    def judge(self, result: Any, exit_status: str) -> tuple[Any, str]:
        """Verify what has not been, write receipts, and turn a pass without evidence into an error."""
        # Where the workload raised, other ranks may have ended.
        self._failed = exit_status in ("workload_setup_failed", "infrastructure_failed")
        if self._ranks.is_first:
            lacking = self._settle(result)
            self._ranks.tell(lacking, failed=self._failed)
        else:
            self._ranks.hand_over(failed=self._failed)
            lacking = self._ranks.hear(failed=not result.passed)
        for name, verdict, reason in lacking:
            result, exit_status = without_evidence(
                result, exit_status, name, Verdict(verdict), reason, is_command=self.in_probe_flow
            )
        return result, exit_status

    def _settle(self, result: Any) -> list[Lacking]:
        """Write the receipts; returns the requests that a pass may not go without."""
        lacking: list[Lacking] = []
        for name, asked in self._asked.items():
            checked = self.verified(name)
            if not self.in_probe_flow:
                result.metrics.update(checked.metrics)
            receipt = self._receipt(asked, result)
            verdict, reason = Verdict(receipt.verdict), receipt.reason
            try:
                self.place.write(receipt)
            except ArtifactError as error:
                verdict, reason = Verdict.INVALID, f"the receipt could not be written: {error}"
            if not verdict.satisfied and asked.required:
                if self.in_probe_flow and result.passed:
                    correct_record(self.place.anchor, result, f"collect:{name}:{verdict.value}")
                lacking.append(Lacking(name, verdict.value, reason))
        if self._launched:
            # In the probe flow the host asks its profilers for their metrics itself.
            result.metrics.update(summarize_collectors(self._config))
        self._retention.restore()
        self._env_file.restore()
        return lacking

    def _check(self, asked: Asked) -> Checked:
        if self._off:
            reason = "the cell switched collectors off (AORTA_COLLECTORS=off) and ran uninstrumented"
            return Checked(Verification(Verdict.OFF, reason))
        if asked.refused:
            return Checked(Verification(Verdict.MISSING, f"the launch was refused: {asked.refused}"))
        directory = self._directory(asked)
        if directory is None:
            return Checked(Verification(Verdict.MISSING, "the host gave the trial no collector directory"))
        world_size = None
        if not self.in_probe_flow and not self._launched:
            asked.run_ids += self._ranks.gather(directory, failed=self._failed)
            world_size = self._ranks.world_size
        expected = Expected(asked.options, frozenset(asked.run_ids), self._route(asked), world_size)
        return check_artifacts(asked.collector, self.place.anchor, directory, expected)

    def _route(self, asked: Asked) -> str:
        if asked.launch is not None:
            return asked.launch.route
        return "unchanged" if self.in_probe_flow or self._launched or self._off else "in-process"

    def _receipt(self, asked: Asked, result: Any) -> Receipt:
        assert asked.checked is not None
        verdict, reason = asked.checked.verification.verdict, asked.checked.verification.reason
        signal_name = killed_by(result.metrics) if verdict is Verdict.CAPTURED else ""
        if signal_name and not saw_bad(asked.collector.name, asked.checked.metrics):
            # In its last moments: whether it had run its course then is more than the evidence can tell.
            verdict, reason = Verdict.INCOMPLETE, f"{reason}, but then the command was ended by {signal_name}"
        may_be_gone = self._retention.removes(str(result.metrics.get("verdict")))
        if verdict is Verdict.CAPTURED and may_be_gone and self._was_pruned(asked, asked.checked):
            verdict, reason = Verdict.PRUNED, f"captured ({reason}), then removed by the recipe's retain: block"
        if verdict is Verdict.MISSING and asked.launch is not None and asked.launch.route == "environment":
            reason += f" (how the launch was understood: {asked.launch.note})"
        if not verdict.satisfied and self.in_probe_flow and result.metrics.get("exit_code"):
            reason += f" (the command exited with {result.metrics['exit_code']}; see stderr.log of the trial)"
        launch: dict[str, Any] = {}
        if asked.launch is not None:
            shown = self._wrapping.launch.without_absent(self._inherited)
            launch = {"launch": {"argv": list(shown.argv), "env": dict(shown.env)}, "note": asked.launch.note}
        return self.place.receipt(
            asked,
            asked.checked,
            verdict,
            reason,
            route=self._route(asked),
            ignored_environment=tuple(sorted(self._ignored)),
            **launch,
        )

    def _was_pruned(self, asked: Asked, checked: Checked) -> bool:
        try:
            with self.place.anchor.open(self.place.artifacts(asked)) as artifacts:
                return bool(set(checked.files) - set(artifacts.sizes()))
        except ArtifactError:
            return True
