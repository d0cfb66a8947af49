"""A collector of torch programs, as the sweep knows it: `TorchCollector`. Never imports torch by itself.

Such a collector has a session: what is armed in a process once that has imported torch, and leaves files behind. This
class brings it into both kinds of trials. An author writes, in a package of his own:

* names.py: PROCESS, a `ProcessNames`, and ARM_FUNCTION, "my_package.arming:arm".
* config.py: Config, a `Configuration`, whose fields are the options.
* session.py: Session, an `observe.process.session.ProcessSession` made from a Config. It imports torch, and may watch
  models by an `observe.lifecycle.lifecycle.Lifecycle`.
* arming.py, for a process that a trial's command starts:

      def arm(started_in: str) -> None:
          arm_configured("heat", PROCESS, Config, started_in, _session)

      def _session(config, directory, run_id):
          from my_package.session import Session
          return Session(config, directory, run_id, to_the_end=True)

* collector.py, which the entry point in "aorta.collectors" names:

      class Heat(TorchCollector):
          name = "heat"
          output_subdir = "heat"
          summaries = ("summary_rank*.json",)
          config = Config
          process = PROCESS
          arm_function = ARM_FUNCTION

          def make_session(self, config, directory, run_id):
              from my_package.session import Session
              return Session(config, directory, run_id)

          def verify(self, artifacts, expected): ...

* __main__.py, where it is to run without a sweep: `standalone.CommandLine` gives the command its options.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aorta_collectors.api import Capture, Collector, Launch, Options
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.torch_collector.configuration import Configuration
from aorta_collectors.torch_collector.in_process import armed_in_process

if TYPE_CHECKING:
    from aorta_collectors.observe.process.session import ProcessSession


class TorchCollector(Collector, abstract=True):
    """Attaches a session to trials. What is left to write: `make_session`, `verify`, and what it has to tell.

    Attributes:
        config: Its options: their schema, their variables, and what is in force.
        process: What its files and variables are called.
        arm_function: "module:function", called in each process of a trial's command once that has imported torch.
    """

    config: ClassVar[type[Configuration]]
    process: ClassVar[ProcessNames]
    arm_function: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if hasattr(cls, "config"):
            cls.schema = cls.config.schema()
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def make_session(
        self, config: Any, directory: Callable[[], Path], run_id: Callable[[], str | None]
    ) -> ProcessSession:
        """A session for a workload inside the host's process. Called where torch has been imported.

        Args:
            config: One of `config`.
            directory, run_id: As `ProcessSession` takes them.
        """

    def stopped(self, session: Any) -> str | None:
        """Of a session that is closed: how it has ended the workload, in a sentence; None where it has not."""
        return None

    def validate(self, raw: Mapping[str, str] | None) -> Options:
        return self.config.validated(raw)

    def recall(self, raw: Mapping[str, str]) -> Options:
        return self.config.decoded(raw)

    def plan(self, launch: Launch, options: Options, capture: Capture) -> Launch:
        # The collect: block alone says what is captured: a variable left over in the operator's shell cannot.
        env: dict[str, str | None] = {
            variable: options.raw.get(name) for name, variable in self.config.variables().items()
        }
        env[self.process.directory_variable] = str(capture.artifacts)
        env[self.process.run_id_variable] = capture.run_id
        # Last, since it passes all variables through launchers that would keep them back.
        return launch.with_env(env).armed_with(self.arm_function, capture.artifacts)

    def armed(self, options: Options, capture: Callable[[], Capture]) -> AbstractContextManager[None]:
        make = functools.partial(self.make_session, self.config.of(options.values))
        return armed_in_process(self.name, make, capture, self.stopped)
