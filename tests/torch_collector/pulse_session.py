"""What a process of the collector `pulse` observes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta_collectors.observe.files import RecordFile
from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.observe.process.place import Place
from aorta_collectors.observe.process.session import ProcessSession
from tests.torch_collector.pulse import PROCESS, Config


class Session(ProcessSession):
    def __init__(
        self,
        config: Config,
        directory: Callable[[], Path],
        run_id: Callable[[], str | None],
        *,
        to_the_end: bool = False,
    ) -> None:
        super().__init__(
            PROCESS, "pulse", directory, run_id, warnings=config.warnings, flush_s=30.0, to_the_end=to_the_end
        )
        self.config = config
        self.counts: dict[str, int] = {}
        self.lifecycle = Lifecycle(self, lambda path, module: False, gradients=False, forked=self.forked)

    @property
    def in_forked_child(self) -> bool:
        return self.lifecycle.in_forked_child

    def start(self) -> None:
        self.lifecycle.arm()

    def stop(self) -> None:
        self.lifecycle.disarm()

    def opened(self, place: Place) -> None:
        """There is a summary alone."""

    @property
    def record_files(self) -> Sequence[RecordFile]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        return {**self.lifecycle.fields(), "config": self.config.describe(), "pulse": self.counts}

    def last_words(self) -> Iterator[str]:
        yield from ()

    def result(self) -> str:
        return f"{sum(self.counts.values())} point(s)"

    def _count(self, point: str) -> None:
        if point in self.config.points and self.lifecycle.step <= self.config.most:
            self.counts[point] = self.counts.get(point, 0) + 1

    # -- what the lifecycle tells

    def attached(self, label: str) -> None:
        self.open()

    def step_began(self, step: int) -> None:
        self.beat(step)

    def before_forward(self, step: int) -> None:
        self._count("before_forward")

    def entered(self, *told: Any) -> None:
        raise AssertionError("no layer was wanted")

    left = output_gradient = entered

    def after_forward(self, step: int) -> None:
        self._count("after_forward")

    def after_backward(self, step: int, parameters: Any) -> None:
        """Does not count."""

    def after_step(self, step: int, parameters: Any) -> None:
        self._count("after_step")

    def step_ended(self, step: int, is_last: bool) -> None:
        self.write_if_due()
