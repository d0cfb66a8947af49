"""The models of a process: what finds them, sees their outermost calls and counts steps, as one piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from aorta_collectors.observe.builders import BuildWatch
from aorta_collectors.observe.called import Kwargs, Spent
from aorta_collectors.observe.calls import ModuleCalls
from aorta_collectors.observe.clock import StepClock
from aorta_collectors.observe.compiling.inside import InsideWatch
from aorta_collectors.observe.compiling.programs import CompiledPrograms
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.forks import Forks
from aorta_collectors.observe.roots import Roots

R = TypeVar("R", bound=Roots[Any])


class Models(Generic[R]):
    """
    Args:
        entered: Called before each call that no other encloses, with the module, its positional arguments, and how to
            get at its keyword arguments.
        left: Called when such a call has ended.
        compiled_called: Called with a model that only compiled code is about to call.
        in_fork: Called instead of `entered` in a fork of the observed process.
        roots: Makes the roots from the calls and the clock.
        cost: Gets the time that hooks take.
        inside: Looks into compiled code for the origin of bad values, or None.

    Attributes:
        clock, calls, roots, compiled_code: The pieces.
    """

    def __init__(
        self,
        *,
        entered: Callable[[nn.Module, tuple[Any, ...], Kwargs], None],
        left: Callable[[], None],
        compiled_called: Callable[[nn.Module], None],
        in_fork: Callable[[], None],
        roots: Callable[[ModuleCalls, StepClock], R],
        cost: Spent,
        failures: Failures,
        forks: Forks,
        inside: InsideWatch | None = None,
    ) -> None:
        self._on_entered = entered
        self._in_fork = in_fork
        self._guarded = failures.guarded
        self._forks = forks
        self.clock = StepClock()
        self.calls = ModuleCalls(self._entered, left, self._is_part, self._met, cost, self._guarded)
        self.roots = roots(self.calls, self.clock)
        self._builds = BuildWatch(self._built, self._compiled)
        self.compiled_code = CompiledPrograms(
            inside, self.calls.is_running, compiled_called, self.roots.hidden, forks.is_here, self._guarded
        )

    def start(self) -> None:
        self.calls.start()
        self._builds.start()
        self.roots.start()
        self.compiled_code.start()

    def stop(self) -> None:
        self.roots.stop()
        self.calls.stop()
        self._builds.stop()
        self.compiled_code.stop()
        self.clock.forget()

    def _entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> None:
        if self._forks.is_here():
            self._in_fork()
            self._guarded(self._forks.called, module)
        # A parametrized layer computes its weight by calling a module, on its own even while it is built.
        elif not isinstance(module, ParametrizationList):
            self._on_entered(module, args, kwargs)

    def _is_part(self, module: nn.Module) -> bool:
        return self.roots.is_part(module)

    def _met(self, module: nn.Module, running: nn.Module) -> None:
        self._guarded(self.roots.met, module, running)

    def _built(self, module: nn.Module) -> None:
        if not self._forks.is_here():
            self._guarded(self.roots.owner_of, module)

    def _compiled(self, module: nn.Module) -> None:
        self._guarded(self.roots.compiled, module)
        self._guarded(self.calls.watch_compiled, module)
