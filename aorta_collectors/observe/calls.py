"""Every module call passes here: the outermost ones begin steps, those of watched modules are looked at.

Uses torch's global module hooks, so that nothing is hung on a module itself: a model can be pickled, copied, scripted
and shared as if it were not watched. While a model runs, a call of an unwatched part costs a few comparisons.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.compiler import is_compiling
from torch.nn.modules import module as torch_module

from aorta_collectors.observe.called import Called, Kwargs, Spent
from aorta_collectors.observe.compiling.own_hooks import is_own
from aorta_collectors.observe.compiling.regions import watch_compiled_call
from aorta_collectors.observe.modes import out_of_modes
from aorta_collectors.observe.trace import in_backward

_tracing_state = torch._C._get_tracing_state
_dispatch_modes = torch._C._len_torch_dispatch_stack
_TABLES: tuple[Any, Any] = (torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks)
_HAS_HOOKS = "_has_any_global_hook"
_TORCHS_OWN = "__wrapped__"  # of the function that stands in its place


class ModuleCalls:
    """Calls `entered` before each module call that no other encloses, and the watched modules' own methods.

    An outermost call that ended by KeyboardInterrupt, or another exception that is no Exception, passes torch's hooks
    by; the stack tells then whether it is still running. A call inside a backward pass, where activation
    checkpointing runs parts of a model again, is never an outermost one.

    Args:
        entered: Called with a module, its positional arguments, and how to get at its keyword arguments.
        left: Called when such a call has ended.
        is_part: Whether a module is known to be part of a larger one.
        met: Called with a module that is not, inside an outermost call: it may have been put into the running model.
        cost: Gets the time that hooks take here.
        guarded: Calls a function, and keeps what it raises.
    """

    def __init__(
        self,
        entered: Callable[[nn.Module, tuple[Any, ...], Kwargs], None],
        left: Callable[[], None],
        is_part: Callable[[nn.Module], bool],
        met: Callable[[nn.Module, nn.Module], None],
        cost: Spent,
        guarded: Callable[..., None],
    ) -> None:
        self._guarded = guarded
        self._cost = cost
        self._entered = entered
        self._left = left
        self._is_part = is_part
        self._met = met
        self._watched: dict[int, Called] = {}
        # Parts of models that nobody watches, most of all there are: known by one look into a dictionary.
        self._passed_over: dict[int, weakref.ref[nn.Module]] = {}
        # Modules whose compiled call is running, the innermost last.
        self._compiled: list[nn.Module] = []
        self._current: nn.Module | None = None
        self._frame: FrameType | None = None
        self._handles: list[Any] = []
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        self._handles = [
            torch_module.register_module_forward_pre_hook(self._before),
            torch_module.register_module_forward_hook(self._after, always_call=True),
        ]
        # torch.compile warns of global hooks at each call, and a program that runs with -W error would end by that.
        # Ours do nothing while a program is compiled. The function serves this warning alone (torch 2.4 to 2.13).
        torchs_own = getattr(torch_module, _HAS_HOOKS, None)
        if torchs_own is not None and not hasattr(torchs_own, _TORCHS_OWN):
            setattr(torch_module, _HAS_HOOKS, _others_have_hooks_instead_of(torchs_own))

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        for undo in self._undo:
            undo()
        self._undo = []
        torchs_own = getattr(getattr(torch_module, _HAS_HOOKS, None), _TORCHS_OWN, None)
        if torchs_own is not None and not any(is_own(hook) for table in _TABLES for hook in table.values()):
            setattr(torch_module, _HAS_HOOKS, torchs_own)
        for watched in self._watched.values():
            watched.release()
        self._handles = []
        self._watched, self._passed_over = {}, {}
        self._current = self._frame = None

    def watch(self, module: nn.Module, watched: Called) -> None:
        """From now on `watched` sees the calls of `module`, which it refers to weakly."""
        self._watched[id(module)] = watched

    def pass_over(self, module: nn.Module) -> None:
        """Nobody watches `module`, which is part of a larger one."""
        self._passed_over[id(module)] = weakref.ref(module)

    def watch_compiled(self, module: nn.Module) -> None:
        """See the calls of `module`, whose compile() has been called: torch's hooks do not."""
        undo = watch_compiled_call(module, self._compiled_begins, self._compiled_ended)
        if undo is not None:
            self._undo.append(undo)

    def of(self, module: nn.Module) -> Called | None:
        watched = self._watched.get(id(module))
        # An id may have been given to another object since.
        return watched if watched is not None and watched.module() is module else None

    def path_of(self, module: nn.Module) -> str | None:
        """The module's path, without what wrappers add; None if it isn't watched."""
        watched = self.of(module)
        return watched.module_path if watched is not None else None

    def forget_dead(self) -> list[str]:
        """Let go of watched modules that are gone; returns the layers of which no call was seen."""
        dead = [watched.path for watched in self._watched.values() if watched.module() is None and watched.unseen]
        self._watched = {key: watched for key, watched in self._watched.items() if watched.module() is not None}
        self._passed_over = {key: part for key, part in self._passed_over.items() if part() is not None}
        return dead

    def unseen(self) -> list[str]:
        """Layers whose calls were to be looked at, and were not so far."""
        return [watched.path for watched in self._watched.values() if watched.unseen]

    def _before(self, module: nn.Module, args: Any) -> None:
        # The compiler must not see what comes after this question: it would track the running model a second time.
        if is_compiling() or (self._compiled and self._compiled[-1] is module):
            return  # the second one: the compiler runs as it is what it has been given to compile
        watched = self._watched.get(id(module))
        current = self._current
        if current is not None and current is not module and watched is None and self._is_passed_over(module):
            return
        if watched is not None and watched.module() is not module:
            watched = None  # an id may have been given to another object since
        if watched is not None and watched.is_plain_part and current is not None and current is not module:
            # So most calls of most programs: all that is to be seen is there when they have ended.
            if len(args) == 1 and not module._forward_pre_hooks and not module._forward_hooks:
                return
        elif is_recording_program() or (watched is None and _is_compilers_own(module)):
            return
        started = perf_counter()
        if current is None or module is current or not (self._is_part(module) if watched is None else watched.is_part):
            if self._is_outermost():
                self._guarded(self._come_last)
                frame = sys._getframe(1)
                self._current, self._frame = module, frame.f_back
                self._cost.hook_s += perf_counter() - started
                self._entered(module, args, functools.partial(_keywords, frame))  # adds its own
                started = perf_counter()
            elif current is not None:
                self._met(module, current)
            watched = self.of(module)
        # Of a plain part that has not been asked yet.
        if watched is not None and not (watched.is_plain_part and is_recording_program()):
            out_of_modes(watched.before, args, functools.partial(_keywords, sys._getframe(1)), started)
            if module._forward_hooks:
                self._guarded(watched.defer, module)
        self._cost.hook_s += perf_counter() - started

    def _is_passed_over(self, module: nn.Module) -> bool:
        part = self._passed_over.get(id(module))
        return part is not None and part() is module

    def _come_last(self) -> None:
        """What another tool's hook replaces, after ours, would go unseen."""
        for table, handle in zip(_TABLES, self._handles, strict=False):  # none of ours once another thread disarms
            if handle.id not in table:
                continue
            for key in reversed(table):
                if key == handle.id:
                    break
                # Of another collector of this package: both would come last in turn.
                if not is_own(table[key]):
                    table.move_to_end(handle.id)
                    break

    def _after(self, module: nn.Module, args: Any, result: Any) -> None:
        if is_compiling():
            return
        watched = self._watched.get(id(module))
        if watched is None and self._current is not module and self._is_passed_over(module):
            return
        if is_recording_program() or (self._compiled and self._compiled[-1] is module):
            return
        started = perf_counter()
        if watched is None:
            if _is_compilers_own(module):
                return
        elif not watched.deferred and watched.module() is module:
            out_of_modes(watched.after, args, result, started)
        if self._current is module:
            # After an exception torch calls from one frame further out.
            frame = sys._getframe(1)
            if frame.f_back is self._frame or frame is self._frame:
                self._current = self._frame = None
                self._left()
        self._cost.hook_s += perf_counter() - started

    def _compiled_begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._handles:
            return  # stopped, below a wrapper that somebody has put around ours
        if self._current is None and not in_backward():
            self._current, self._frame = module, sys._getframe(1)
            self._entered(module, args, lambda: kwargs)  # adds its own
        started = perf_counter()
        self._compiled.append(module)
        watched = self.of(module)
        if watched is not None:
            out_of_modes(watched.before, args, lambda: kwargs, started)
        self._cost.hook_s += perf_counter() - started

    def _compiled_ended(self, module: nn.Module, result: Any) -> None:
        started = perf_counter()
        if self._compiled and self._compiled[-1] is module:
            self._compiled.pop()
        watched = self.of(module)
        if watched is not None:
            out_of_modes(watched.after, (), result, started)
        if self._current is module and self._frame is sys._getframe(1):
            self._current = self._frame = None
            self._left()
        self._cost.hook_s += perf_counter() - started

    def is_running(self) -> bool:
        """Whether a call that has been told of is going on in this thread, or a backward pass."""
        return not self._is_outermost()

    def _is_outermost(self) -> bool:
        if in_backward():
            return False
        if self._current is None:
            return True
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame is self._frame:
                return False
            frame = frame.f_back
        return True


def _others_have_hooks_instead_of(torchs_own: Callable[[], bool]) -> Callable[[], bool]:
    @functools.wraps(torchs_own)
    def others_have_hooks() -> bool:
        if any(not is_own(hook) for table in _TABLES for hook in table.values()):
            return True
        return bool(torch_module._global_backward_pre_hooks or torch_module._global_backward_hooks)

    return others_have_hooks


def _keywords(frame: FrameType) -> Any:
    """torch hands a global hook no keyword arguments; they are a variable of the function that calls it."""
    return frame.f_locals.get("kwargs")


def _is_compilers_own(module: nn.Module) -> bool:
    """Whether a module is a graph that Dynamo captured, or that its compiler made of it: no part of the program."""
    if not isinstance(module, fx.GraphModule):
        return False
    # The second is what AOTAutograd calls its graphs; nobody can write such a class. The third frees what it is given,
    # as only graphs of compilers do.
    if "dynamo_flat_name_to_original_fqn" in module.meta or type(module).__name__ == "<lambda>":
        return True
    return type(getattr(module.graph, "_codegen", None)).__name__ == "_BoxedCodeGen"


def is_recording_program() -> bool:
    """Whether torch is turning the program into a graph: what a hook does now would become part of it."""
    if is_compiling() or _tracing_state() is not None:
        return True
    return _dispatch_modes() > 0 and _is_tracing_operations()


def _is_tracing_operations() -> bool:
    """Whether torch.fx writes each operation down, as make_fx does."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
