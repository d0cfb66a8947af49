"""Seeing what torch.compile runs: whose code, each compiled region's inputs and outputs, and what made a bad value.

Hooks of modules do not run inside compiled code. So where Dynamo hands a captured graph to the compiler, the graph is
copied, and the function that comes back is called through one that reports its inputs and outputs. The compiler gets
what it always gets and its function runs as it always does. Only when a caller asks, the copy is run again, operation
by operation, on the same inputs.

What a replay is exact about: inputs as they were before the run (those that the graph writes to are copied first),
the random numbers of the backends "eager" and "aot_eager", autocast. What it is not: inductor draws other random
numbers and keeps more precision between fused operations, so a value that overflows in one of them may not in the
other; then there is no answer, or another operation of the same overflow. A bad value that does not reach the region's
outputs is not seen.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.compiling.inlined import Inlined, Run
from aorta_collectors.observe.compiling.region import Inputs, Region
from aorta_collectors.observe.compiling.scope import Names

_GRAPHS = "torch._dynamo.output_graph"
_COPY_LIMIT = 64 * 2**20


class CompiledRegions:
    """Reports every run of a region that is compiled between `start` and `stop`. torch._dynamo is never imported.

    Args:
        ran: Called after each run with the region, its inputs and its outputs. What is to be asked of the region must
            be asked before `ran` returns: later the optimizer, or the next replay of a CUDA graph, has changed the
            tensors. Keep none of them beyond that. None: nothing is kept for a replay, and a run costs next to nothing.
        begins: Called before each run of a region that holds the code of modules, with these.
        copy_limit: Bytes of inputs that are copied before a run since the graph writes to them. Beyond, as with a
            compiled optimizer, nothing is copied and `Inputs.complete` is False.

    Attributes:
        supported: Whether this torch has what is needed here; True until shown otherwise.
        unwatched: Regions compiled while started that cannot be reported.
        first_error: The first exception of `ran` or of this class itself.
    """

    def __init__(
        self,
        ran: Callable[[Region, Inputs, Any], None] | None,
        copy_limit: int = _COPY_LIMIT,
        begins: Callable[[Run], None] | None = None,
    ) -> None:
        self.supported = True
        self.unwatched = 0
        self.first_error: str | None = None
        self._ran = ran
        self._begins = begins
        self._copy_limit = copy_limit
        self._active = False
        self._watch: ImportWatch | None = None
        self._patched: Any = None

    def start(self) -> None:
        """Report from now on. Regions compiled in an earlier start of this object are heard again too."""
        if not self._active:
            self._active = True
            self._watch = ImportWatch(_GRAPHS, self._patch)
            self._watch.start()

    def stop(self) -> None:
        """Report nothing any more; compiled functions go on as they are."""
        self._active = False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        graphs = _output_graph()
        # Somebody may have wrapped the method after us: then ours stays below and does nothing.
        if self._patched is not None and vars(graphs).get("call_user_compiler") is self._patched:
            graphs.call_user_compiler = self._patched.__wrapped__
            self._patched = None

    def unseen(self) -> list[str]:
        """What cannot be looked into, in words."""
        if not self.supported:
            return ["compiled code (this version of torch is not known)"]
        failed = [f"compiled code ({self.first_error})"] if self.first_error is not None else []
        return failed + ([f"{self.unwatched} compiled region(s)"] if self.unwatched else [])

    def _patch(self) -> None:
        if self._patched is not None:
            return
        graphs = _output_graph()
        original: Any = vars(graphs).get("call_user_compiler") if graphs is not None else None
        try:
            # (self, gm) in torch 2.4, (self, gm, example_inputs) since 2.6
            self.supported = list(inspect.signature(original).parameters)[:2] == ["self", "gm"]
        except (TypeError, ValueError):
            self.supported = False
        if not self.supported:
            return

        @functools.wraps(original)
        def call_user_compiler(graph: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            region, inlined = self._captured(graph, gm) if self._active else (None, None)
            compiled = original(graph, gm, *args, **kwargs)
            return compiled if region is None and not inlined else self._reporting(region, inlined, compiled)

        self._patched = graphs.call_user_compiler = call_user_compiler

    def _captured(self, graph: Any, gm: Any) -> tuple[Region | None, Inlined | None]:
        try:
            if graph.export:
                return None, None  # nothing that the program will run
            # What is precompiled is stored, and must be what the compiler returned.
            if getattr(graph, "package", None) is None:
                caller = graph.root_tx
                names = Names(caller.f_locals, caller.f_globals)
                inlined = Inlined(gm.graph, caller.f_code, names) if self._begins is not None else None
                return Region(gm, caller.f_code) if self._ran is not None else None, inlined
        except Exception as error:
            self._failed(error)
        self.unwatched += 1
        return None, None

    def _reporting(self, region: Region | None, inlined: Inlined | None, compiled: Any) -> Callable[..., Any]:
        compiled = unlazy(compiled)

        def run(*args: Any, **kwargs: Any) -> Any:
            inputs = self._before(region, inlined, args) if self._active and not kwargs and _computes() else None
            outputs = compiled(*args, **kwargs)
            if inputs is not None and region is not None and self._ran is not None:
                try:
                    self._ran(region, inputs, outputs)
                except Exception as error:
                    self._failed(error)
            return outputs

        return run

    def _before(self, region: Region | None, inlined: Inlined | None, args: Sequence[Any]) -> Inputs | None:
        try:
            if inlined and self._begins is not None:
                self._begins(inlined.run(args))
            return region.before(args, self._copy_limit) if region is not None else None
        except Exception as error:
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        if self.first_error is None:
            self.first_error = f"{type(error).__name__}: {error}"


def watch_compiled_call(
    module: nn.Module,
    before: Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], None],
    after: Callable[[nn.Module, Any], None],
) -> Callable[[], None] | None:
    """Look at the outermost call of a module whose `compile()` has been called.

    Such a module's call goes straight to compiled code. The attribute that holds it is wrapped; torch leaves that
    attribute out when the module is copied or pickled. Inside another compiled region nothing is looked at.

    Args:
        before: Called with the module, positional and keyword arguments. Must not raise.
        after: Called with the module and its output, None if it raised. Must not raise.

    Returns:
        A function that takes the wrapper off again; None if `compile()` has not been called.
    """
    original: Any = vars(module).get("_compiled_call_impl")
    if original is None:
        return None

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        before(module, args, kwargs)
        output = None
        try:
            output = original(*args, **kwargs)
            return output
        finally:
            after(module, output)

    # Whoever keeps the function must not keep the module alive by it, and `original` refers to the module.
    weak_module, weak_call = weakref.ref(module), weakref.ref(call)

    def undo() -> None:
        module, ours = weak_module(), weak_call()
        if module is not None and ours is not None and vars(module).get("_compiled_call_impl") is ours:
            vars(module)["_compiled_call_impl"] = vars(ours)["__wrapped__"]

    vars(module)["_compiled_call_impl"] = call
    return undo


def _output_graph() -> Any:
    return getattr(sys.modules.get(_GRAPHS), "OutputGraph", None)


def _computes() -> bool:
    """Whether values may be read now: not while tracing, and not where the program itself watches each operation."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if _get_current_dispatch_mode() is not None:
        return False
    on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


def unlazy(compiled: Any) -> Any:
    """Dynamo replaces the forward of a graph that writes its code when first called; behind ours it could not."""
    owner: Any = getattr(compiled, "__self__", None)
    if getattr(compiled, "__name__", "") == "_lazy_forward" and hasattr(owner, "real_recompile"):
        owner.real_recompile()
        return owner.forward
    return compiled
