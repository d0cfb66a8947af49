"""One trial that asked for evidence: its collectors, where they write, how they were armed, what was found.

Only rank 0 has a directory from the host. Under torchrun the other ranks write into a directory of their own and hand
their files over when the workload has run (`ranks`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.run.collectors import _reset_output_dir, trusted_collector_anchor

from aorta_collectors.api import Capture, Collector, Expected, Options, Verdict, Verification
from aorta_collectors.environment import SWITCH_VARIABLE
from aorta_collectors.errors import ArtifactError, CollectorsError, LaunchError
from aorta_collectors.evidence.directory import Anchor
from aorta_collectors.evidence.receipt import Receipt, receipt_name
from aorta_collectors.evidence.trial import Checked, check_artifacts
from aorta_collectors.host.attachment import Attachment
from aorta_collectors.host.ranks import RankExchange
from aorta_collectors.host.switch import switched_off
from aorta_collectors.host.verdicts import without_evidence
from aorta_collectors.launch.value import Launch

log = logging.getLogger("aorta.collectors")


@dataclass
class _Request:
    """One collector's part of the trial."""

    collector: Collector
    options: Options
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    launch: Launch | None = None
    shown: Launch | None = None
    refused: str = ""
    checked: Checked | None = None
    run_ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_ids.append(self.run_id)


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
        self._requests = {name: self._request(attachment, name, request) for name in names}
        self._host_request = request
        self._results_dir = Path(results_dir)
        self._off = switched_off(environment)
        self._failed = False
        self._config: dict[str, Any] = {}
        self._ignored: set[str] = set()  # of the caller's variables
        self._set: set[str] = set()  # by our own launches
        self._launch: Launch | None = None
        self._armed: contextlib.ExitStack | None = None
        self._coordinates = f"d{request.dataset_index}_m{request.mitigation_index}_t{trial_idx}"
        self.trial_id = f"{request.workload}_{self._coordinates}"
        self._ranks = RankExchange(f"{request.cell_name or '-'}/{self.trial_id}/{attachment.trials_begun}")

    @staticmethod
    def _request(attachment: Attachment, name: str, request: Any) -> _Request:
        collector = attachment.load(name)
        try:
            return _Request(collector, collector.validate(request.collect_options.get(name)))
        except CollectorsError as error:
            raise ValueError(f"collect.{name}.{error}") from None

    # -- what the rest of the host asks

    @property
    def is_command(self) -> bool:
        return self._host_request.subprocess_argv is not None

    @property
    def active(self) -> tuple[str, ...]:
        return () if self._off else tuple(self._requests)

    def collector(self, name: str) -> Collector:
        return self._requests[name].collector

    # -- before and during the workload

    def begin(self, config: dict[str, Any]) -> None:
        """Learn where the trial's artifacts go, from the configuration that the host gives its workload."""
        self._config = dict(config)  # the workload has the same object, and may change it

    def wrap(self, name: str, argv: list[str], out_dir: Path) -> list[str]:
        """A command's argv with the collector in it. The host takes the environment back after the trial."""
        asked = self._requests[name]
        before = replace(self._launch, argv=tuple(argv)) if self._launch is not None else Launch.of_this_process(argv)
        try:
            launch = asked.collector.plan(before, asked.options, Capture(out_dir, asked.run_id))
        except LaunchError as error:
            asked.refused = str(error)
            raise
        # Only the recipe may switch collectors off, so a switch left over in the operator's shell is taken away.
        launch = launch.with_env({SWITCH_VARIABLE: None})
        self._launch = asked.launch = launch
        asked.shown = launch.without_absent(os.environ)
        for variable, value in launch.env.items():
            inherited = os.environ.get(variable)
            if inherited is not None and inherited != value and variable not in self._set:
                self._ignored.add(variable)
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
                self._set.add(variable)
        return list(launch.argv)

    def arm(self) -> None:
        """Arm the collectors in this process. Raises RuntimeError if the artifact directory cannot be prepared."""
        if self._off:
            return
        self._armed = contextlib.ExitStack()
        for asked in self._requests.values():
            directory = self._directory(asked)
            if directory is not None:
                self._prepare(directory)
            capture = self._ranks.capture_for(asked.collector, directory, asked.run_id)
            self._armed.enter_context(asked.collector.armed(asked.options, capture))

    def disarm(self, error: BaseException | None) -> None:
        """End the observation; `error` is what ended the workload. Safe to call again."""
        armed, self._armed = self._armed, None
        if armed is None:
            return
        # The collectors learn of the error as any context would; it is the caller who goes on raising it.
        try:
            armed.__exit__(type(error) if error is not None else None, error, None)
        except Exception as raised:
            if raised is not error:
                log.warning("collect: a collector failed while it was disarmed: %s: %s", type(raised).__name__, raised)
        if not self._ranks.is_first:
            self._ranks.hand_over(failed=error is not None)

    def _prepare(self, directory: Path) -> None:
        try:
            _reset_output_dir(directory, trusted_collector_anchor(self._config, directory.parent))
        except OSError as error:
            raise RuntimeError(f"collect: cannot prepare the artifact directory {directory}: {error}") from error

    def _directory(self, asked: _Request) -> Path | None:
        root = self._config.get("_aorta_collect_dir")
        return Path(root) / asked.collector.output_subdir if root else None

    # -- after the workload

    def verified(self, name: str) -> dict[str, Any]:
        """Verify one collector's artifacts now, before retention can remove them; returns its metrics."""
        asked = self._requests[name]
        if asked.checked is None:
            asked.checked = self._check(asked)
        return dict(asked.checked.metrics)

    def judge(self, result: Any, exit_status: str) -> tuple[Any, str]:
        """Verify what has not been, write receipts, and turn a pass without evidence into an error."""
        if not self._ranks.is_first:
            return result, exit_status
        self._failed = not result.passed
        for name, asked in self._requests.items():
            self.verified(name)
            if not self.is_command and asked.checked is not None:
                result.metrics.update(asked.checked.metrics)
            receipt = self._receipt(asked, result)
            verdict, reason = Verdict(receipt.verdict), receipt.reason
            try:
                self._write(receipt)
            except ArtifactError as error:
                verdict, reason = Verdict.INVALID, f"the receipt could not be written: {error}"
            if not verdict.satisfied and asked.options.on_missing == "error":
                if self.is_command and result.passed:
                    self._correct_record(result, f"collect:{name}:{verdict.value}")
                result, exit_status = without_evidence(
                    result, exit_status, name, verdict, reason, is_command=self.is_command
                )
        return result, exit_status

    def _correct_record(self, result: Any, detector: str) -> None:
        """Have the command's own result.json say what the matrix says; the host wrote it before verification."""
        path = Path(str(result.metrics.get("result_json_path", "")))
        try:
            with self._anchor().open(path.parent) as directory:
                record = json.loads(directory.read(path.name))
                record["verdict"] = "error"
                record["error_detectors_fired"] = [*record.get("error_detectors_fired", ()), detector]
                directory.write(path.name, json.dumps(record, indent=2).encode())
        except (ArtifactError, ValueError) as error:
            log.warning("%s still says pass: %s", path, error)

    def _check(self, asked: _Request) -> Checked:
        if self._off:
            reason = "the cell switched collectors off (AORTA_COLLECTORS=off) and ran uninstrumented"
            return Checked(Verification(Verdict.OFF, reason))
        if asked.refused:
            return Checked(Verification(Verdict.MISSING, f"the launch was refused: {asked.refused}"))
        directory = self._directory(asked)
        if directory is None:
            return Checked(Verification(Verdict.MISSING, "the host gave the trial no collector directory"))
        world_size = None
        if not self.is_command:
            asked.run_ids += self._ranks.gather(directory, failed=self._failed)
            world_size = self._ranks.world_size
        expected = Expected(asked.options, frozenset(asked.run_ids), self._route(asked), world_size)
        return check_artifacts(asked.collector, self._anchor(), directory, expected)

    def _route(self, asked: _Request) -> str:
        if asked.launch is not None:
            return asked.launch.route
        return "unchanged" if self.is_command or self._off else "in-process"

    def _anchor(self) -> Anchor:
        root = Path(self._config.get("_aorta_results_root") or self._results_dir.parent)
        identity = self._config.get("_aorta_results_root_id")
        return Anchor(root, (int(identity[0]), int(identity[1])) if identity else None)

    def _receipt(self, asked: _Request, result: Any) -> Receipt:
        assert asked.checked is not None
        checked = asked.checked
        verdict, reason = checked.verification.verdict, checked.verification.reason
        # Without a directory of the host, the one that the trial's record would have beside it.
        directory = self._directory(asked) or (
            self._results_dir / f"trial_{self._coordinates}" / asked.collector.output_subdir
        )
        if verdict is Verdict.CAPTURED and self._host_request.probe_extras and self._was_pruned(directory, checked):
            verdict, reason = Verdict.PRUNED, f"captured ({reason}), then removed by the recipe's retain: block"
        if not verdict.satisfied and self.is_command and result.metrics.get("exit_code"):
            reason += f" (the command exited with {result.metrics['exit_code']}; see stderr.log of the trial)"
        shown = asked.shown
        return Receipt(
            collector=asked.collector.name,
            trial=self.trial_id,
            cell=self._host_request.cell_name,
            run_ids=tuple(asked.run_ids),
            verdict=verdict.value,
            reason=reason,
            route=self._route(asked),
            options=dict(asked.options.raw),
            artifacts=f"{directory.parent.name}/{directory.name}",
            files=dict(checked.files),
            sha256=dict(checked.sha256),
            metrics=dict(checked.metrics),
            on_missing=asked.options.on_missing,
            launch={"argv": list(shown.argv), "env": dict(shown.env)} if shown is not None else None,
            details=dict(checked.verification.details),
            ignored_environment=tuple(sorted(self._ignored)),
        )

    def _was_pruned(self, directory: Path, checked: Checked) -> bool:
        if not self._host_request.probe_extras.get("retain"):
            return False
        try:
            with self._anchor().open(directory) as artifacts:
                return bool(set(checked.files) - set(artifacts.sizes()))
        except ArtifactError:
            return True

    def _write(self, receipt: Receipt) -> None:
        with self._anchor().open(self._results_dir) as directory:
            directory.write(receipt_name(self._coordinates, receipt.collector), receipt.to_json())
