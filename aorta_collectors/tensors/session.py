"""One armed stretch of one process: what happens in its models, the tensors that are recorded of it, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.observe.environment import environment, generator_states
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.session import ProcessSession
from aorta_collectors.tensors.compiled.watch import CompiledTensors
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.graphs.captures import Captures
from aorta_collectors.tensors.graphs.maker import SlotMaker
from aorta_collectors.tensors.names import AFTER_BACKWARD, PROCESS
from aorta_collectors.tensors.observation import Observation
from aorta_collectors.tensors.observing import Observers
from aorta_collectors.tensors.output import Output
from aorta_collectors.tensors.recorder import Recorder
from aorta_collectors.tensors.watching import Watching
from aorta_collectors.torch_collector.told import never_came

_FLUSH_S = 30.0


class Session(ProcessSession):
    """Leaves tensors_rank<N>.jsonl, summary_rank<N>.json and, with keep: values, values_rank<N>_step<M>.safetensors.

    Args:
        directory, run_id, to_the_end: As of any session.
    """

    def __init__(
        self,
        config: Config,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None] = lambda: None,
        *,
        to_the_end: bool = False,
    ) -> None:
        super().__init__(
            PROCESS,
            "tensors",
            directory,
            run_id,
            warnings=config.warnings,
            flush_s=_FLUSH_S,
            to_the_end=to_the_end,
        )
        self._config = config
        self._failures = Failures()
        self._captures = Captures(SlotMaker.of_this_machine(self.warn).make)
        self.recorder = Recorder(config, self, captures=self._captures)
        self._watching = Watching(
            config, self.recorder, self.warn, attached=self._attached, began=self.beat, written=self.write_if_due
        )
        self.lifecycle = Lifecycle(
            self._watching,
            self._watching.wants,
            gradients=AFTER_BACKWARD in config.points,
            log=self.log,
            forked=self.forked,
            graphs=self._captures,
            wants_parameters=self._watching.wants_parameters,
        )
        self.compiled = CompiledTensors(config, self.lifecycle, self.recorder, self.warn, self._failures)
        self._observers = Observers(self.recorder, self.warn, self._run)
        self._seeds: dict[str, Any] = {"armed": None, "first_call": None}
        self._environment: Mapping[str, Any] = {}
        self._output: Output | None = None

    # -- what a session does

    @property
    def in_forked_child(self) -> bool:
        return self.lifecycle.in_forked_child

    def start(self) -> None:
        self._seeds["armed"] = generator_states()
        self.compiled.start()  # before the lifecycle is armed, see there
        self.lifecycle.arm()
        self._observers.light()

    def stop(self) -> None:
        self._observers.put_out()
        self.compiled.stop()
        self.lifecycle.disarm()
        self.compiled.close()
        self._captures.close()
        self._failures.guarded(self.recorder.end, True)  # what a program has observed without a model
        if self.place is not None and self.lifecycle.roots:
            for told in never_came(self._watching.unmatched, self._config.steps, self.lifecycle.step):
                self.warn(told)

    def opened(self, place: Place) -> None:
        self._seeds["first_call"] = generator_states()
        self._environment = environment()
        self._output = Output(place, self.warn)

    @property
    def record_files(self) -> Sequence[RecordFile]:
        return [self._output.lines] if self._output is not None else []

    def last_words(self) -> Iterator[str]:
        told = self.fields()
        if told["hook_errors"]:
            yield f"WARNING: {told['hook_errors']} exception(s) in hooks; the first: {told['first_hook_error']}"
        if told["opaque_names"]:
            yield (
                f"WARNING: torch.compile or TorchScript runs {len(told['opaque_names'])} layer(s), whose calls are not "
                f"seen: {told['opaque_names'][:10]}"
            )
        if told["lines_dropped"]:
            yield f"WARNING: {told['lines_dropped']} tensor(s) were not recorded, since there was no room for them"

    def result(self) -> str:
        told = f"{self.lifecycle.step} step(s), {self.recorder.tally.observed} tensor(s)"
        first = self.recorder.tally.first_bad
        return told if first is None else f"{told}, first non-finite: {first['name']} in step {first['step']}"

    def fields(self) -> Mapping[str, Any]:
        assert self._output is not None
        seen = self.lifecycle.fields()
        return {
            **seen,
            "config": self._config.describe(),
            "environment": self._environment,
            "seeds": self._seeds,
            "backward_passes": self._watching.backward_passes,
            "unmatched_scope": self._watching.unmatched,
            **self.compiled.fields(),
            **self.recorder.tally.fields(),
            **self._output.fields(),
            "hook_errors": seen["hook_errors"] + self._failures.count,
            "first_hook_error": seen["first_hook_error"] or self._failures.first,
        }

    # -- what is reported to it

    def take_in(self, step: int, observations: Sequence[Observation]) -> None:
        self.open()
        assert self._output is not None
        self._output.take_in(step, observations)

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        """On behalf of the program's own calls: as a hook of the lifecycle's is run."""
        self.lifecycle.cost.timed(self._failures.guarded, function, *args)

    def _attached(self, label: str) -> None:
        self.open()
        config = self._config
        told = [f"points={','.join(config.points)}", f"keep={config.keep}"]
        told += [f"scope={','.join(config.scope)}"] if config.scope is not None else []
        told += [f"steps={','.join(config.steps)}"] if config.steps is not None else []
        watched = self.lifecycle.watched_count
        self.log(f"attached to {label}: {', '.join(told)}; {watched} module(s) watched so far")
        self.write_summary()
