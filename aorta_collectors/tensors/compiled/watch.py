"""Tensors inside what torch.compile runs: hooks that it traces, its graphs, and what these hand out as they run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from aorta_collectors.import_watch import ImportWatch
from aorta_collectors.observe.beacon import Beacon
from aorta_collectors.observe.calls import is_recording_program
from aorta_collectors.observe.compiling.regions import unlazy
from aorta_collectors.observe.compiling.scope import Names, outermost_module
from aorta_collectors.observe.failures import Failures
from aorta_collectors.observe.input_gradient import KeptHooks, hook_gradient, wants_gradient
from aorta_collectors.observe.lifecycle.lifecycle import Lifecycle
from aorta_collectors.observe.patches import Patches
from aorta_collectors.observe.trace import in_backward
from aorta_collectors.tensors.compiled import operation
from aorta_collectors.tensors.compiled.hooks import TracedHooks
from aorta_collectors.tensors.compiled.keeping import Keeping
from aorta_collectors.tensors.compiled.operation import GRADIENT, OUTPUT, USER_GRADIENT
from aorta_collectors.tensors.compiled.region import Region, Run
from aorta_collectors.tensors.compiled.sites import clear, modules_of, settle, sites_of
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.names import AFTER_BACKWARD, AFTER_FORWARD, BEFORE_FORWARD
from aorta_collectors.tensors.recorder import Recorder

_GRAPHS = "torch._dynamo.output_graph"
_MOST_NOT_SEEN = 1000
_MOST_CHARACTERS = 200


class _Running(threading.local):
    """The runs of regions that are going on in a thread, the innermost last."""

    def __init__(self) -> None:
        self.runs: list[tuple[Region, Run]] = []


class CompiledTensors(Beacon):
    """Observes modules, and the program's own observe() and watch_grad(), inside of compiled code.

    What is observed there is kept in memory by a compiler that may else have fused it away. So the last bits of what it
    computes can differ from those of a run that is not observed.

    Args:
        warn: Told what cannot be observed.

    Attributes:
        regions: Compiled regions that hand out tensors.
    """

    def __init__(
        self,
        config: Config,
        lifecycle: Lifecycle,
        recorder: Recorder,
        warn: Callable[[str], None],
        failures: Failures,
    ) -> None:
        super().__init__()
        self._points = frozenset(config.points)
        self._lifecycle = lifecycle
        self._recorder = recorder
        self._warn = warn
        self._failures = failures
        self._patches = Patches()
        self._watch: ImportWatch | None = None
        self._hooks = TracedHooks()
        self._running = _Running()
        self._leaves: dict[str | tuple[int, int], KeptHooks] = {}
        self._not_seen: dict[str, str] = {}
        self._gradients = False
        self.regions: list[Region] = []

    def start(self) -> None:
        """To be called before the lifecycle is armed, so that a run's model is known where ours begins."""
        self._watch = ImportWatch(_GRAPHS, lambda: self._failures.guarded(self._begin))
        self._watch.start()

    def stop(self) -> None:
        """Observe nothing any more. To be called before the lifecycle is disarmed, and `close` when it has been."""
        self.put_out()
        if self._watch is not None:
            self._watch.stop()
        self._hooks.remove()
        for kept in self._leaves.values():
            kept.clear()

    def close(self) -> None:
        """Take away what the lifecycle's own stands around."""
        self._patches.undo()

    def fields(self) -> dict[str, Any]:
        """Of the summary."""
        return {
            "compiled_observed": any(region.sites for region in self.regions),
            "not_seen": [{"layer": layer, "reason": reason} for layer, reason in self._not_seen.items()],
        }

    def _begin(self) -> None:
        graphs = getattr(sys.modules[_GRAPHS], "OutputGraph", None)
        if not operation.define(_handed_out, _followed) or not hasattr(graphs, "call_user_compiler"):
            self._warn("what torch.compile runs is not observed: this version of torch is not known")
            return
        self._gradients = AFTER_BACKWARD in self._points and operation.hands_out_gradients()
        if AFTER_BACKWARD in self._points and not self._gradients:
            self._warn("gradients inside of compiled code are not observed: this version of torch drops such effects")
        self._patches.put(graphs, "call_user_compiler", self._around_compiler)
        if self._points & {BEFORE_FORWARD, AFTER_FORWARD, AFTER_BACKWARD}:
            self._hooks.hang(inputs=BEFORE_FORWARD in self._points)
            self._lifecycle.sees_compiled = True
        self.light()

    # -- what is compiled

    def _around_compiler(self, original: Any) -> Any:
        def call_user_compiler(graph: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._patches.stand:  # inside of another's that came after us
                return original(graph, gm, *args, **kwargs)
            region = self._settled(graph, gm)
            try:
                compiled = original(graph, gm, *args, **kwargs)
            except Exception as error:
                # Others have the function traced anew, say.
                if region is None or type(error).__name__ != "BackendCompilerFailed":
                    raise
                # It may be ours that the compiler cannot take. If not, it raises again.
                clear(gm)
                compiled = original(graph, gm, *args, **kwargs)
                self._misses(region, getattr(error, "inner_exception", error))
                return compiled
            return compiled if region is None else self._reporting(region, compiled)

        return call_user_compiler

    def _settled(self, graph: Any, gm: fx.GraphModule) -> Region | None:
        """Keep what is to be handed out of a graph; None where nothing is."""
        try:
            # What is exported, or precompiled and stored, is the program's alone.
            if not graph.export and getattr(graph, "package", None) is None:
                return self._region(graph, gm)
        except Exception as error:
            self._failures.add(error)
        clear(gm)
        return None

    def _region(self, graph: Any, gm: fx.GraphModule) -> Region | None:
        found = sites_of(gm)
        caller = graph.root_tx
        names = Names(caller.f_locals, caller.f_globals)
        expressions = modules_of(gm)
        for module in {id(each): each for each in (outermost_module(names, each) for each in expressions)}.values():
            if module is not None:
                self._lifecycle.meet(module)
        number = len(self.regions) + 1
        keeping = Keeping(self._lifecycle, names, expressions)
        sites = settle(gm, found, keeping, number, follow=self._gradients)
        if self._hooks:
            for layer, reason in keeping.missing():
                self._misses_layer(layer, reason)
        if not sites:
            return None
        region = Region(number, caller.f_code, sites, names, self._lifecycle.layer_of)
        region.hands_out_gradients = any(
            site.argument is None and (site.kind == USER_GRADIENT or (self._gradients and site.kind == OUTPUT))
            for site in sites
        )
        self.regions.append(region)
        return region

    def _misses(self, region: Region, error: Exception) -> None:
        why = f"the compiler does not take what hands it out: {type(error).__name__}: {error}"[:_MOST_CHARACTERS]
        for site, owner in zip(region.sites, region.latest.owners, strict=True):
            self._misses_layer(owner.layer if owner.layer is not None else f"{site.kind}:{site.name}", why)
        region.sites = ()

    def _misses_layer(self, layer: str, reason: str) -> None:
        if len(self._not_seen) < _MOST_NOT_SEEN:
            self._not_seen.setdefault(layer, reason)

    # -- what runs

    def _reporting(self, region: Region, compiled: Any) -> Any:
        compiled = unlazy(compiled)

        def run(*args: Any, **kwargs: Any) -> Any:
            begun = self._begins(region, args)
            try:
                outputs = compiled(*args, **kwargs)
            finally:
                if begun is not None:
                    self._running.runs.pop()
            if begun is not None:
                self._failures.guarded(region.ended, begun, outputs)
            return outputs

        return run

    def _begins(self, region: Region, args: tuple[Any, ...]) -> Run | None:
        if type(self).find() is not self or is_recording_program():
            return None
        try:
            run = region.begin()
            for number, site in enumerate(region.sites):
                if site.argument is not None and site.kind in (OUTPUT, USER_GRADIENT):
                    self._await_gradient_of_input(region, run, number, args[site.argument])
        except Exception as error:
            self._failures.add(error)
            return None
        self._running.runs.append((region, run))
        return run

    def _await_gradient_of_input(self, region: Region, run: Run, number: int, tensor: Any) -> None:
        if not isinstance(tensor, Tensor) or not wants_gradient(tensor):
            return
        if not (self._gradients or region.sites[number].kind == USER_GRADIENT):
            return

        def computed(grad: Tensor) -> None:
            self._failures.guarded(self._took_gradient, region, run, number, grad)

        if tensor.is_leaf:
            # It comes again in each step.
            site = region.sites[number]
            key = site.name if site.is_of_program else (region.number, number)
            self._leaves.setdefault(key, KeptHooks()).put(tensor, computed)
        else:
            hook_gradient(tensor, computed)

    def follow(self, value: Tensor, number: int, site: int) -> bool:
        """A tensor of compiled code that autograd itself runs, as backend="eager" has it."""
        for region, run in reversed(self._running.runs):
            if region.number == number:

                def computed(grad: Tensor, region: Region = region, run: Run = run) -> None:
                    self._failures.guarded(self._took_gradient, region, run, site, grad)

                hook_gradient(value, computed)
                return True
        return False

    def take(self, value: Tensor, number: int, site: int, kind: str) -> None:
        """A tensor is handed out."""
        if kind == GRADIENT:
            region = self.regions[number - 1] if 0 < number <= len(self.regions) else None
            if region is not None:
                self._failures.guarded(self._took_gradient, region, region.backward, site, value)
            return
        for region, run in reversed(self._running.runs):
            if region.number == number:
                # What checkpointing computes again, within a run or in a backward pass, is no call of the program's.
                if site not in run.seen and not in_backward():
                    run.seen.add(site)
                    self._failures.guarded(self._took, region, run, site, value)
                return

    def _took(self, region: Region, run: Run, number: int, value: Tensor) -> None:
        site, owner = region.sites[number], run.owners[number]
        if site.is_of_program:
            if site.kind != USER_GRADIENT:
                self._recorder.take_user(site.name, value, path=site.path, compiled=True)
            return
        if owner.layer is None or not self._is_told(run, owner.layer):
            return
        self._lifecycle.seen_inside(owner.layer)
        point, kind = (AFTER_FORWARD, "output") if site.kind == OUTPUT else (BEFORE_FORWARD, "input")
        if point in self._points:
            self._recorder.take(point, owner.layer, owner.module_type, kind, site.path, value, compiled=True)

    def _took_gradient(self, region: Region, run: Run, number: int, grad: Tensor) -> None:
        if type(self).find() is not self:
            return
        site, owner = region.sites[number], run.owners[number]
        if site.is_of_program:
            self._recorder.take_user(site.name, grad, gradient=True, compiled=True)
        elif owner.layer is not None and run.told.get(owner.layer, True):
            self._recorder.take(
                AFTER_BACKWARD, owner.layer, owner.module_type, "output_gradient", site.path, grad, compiled=True
            )

    def _is_told(self, run: Run, layer: str) -> bool:
        if layer not in run.told:
            run.told[layer] = not (self._lifecycle.is_silent or self._lifecycle.is_running(layer))
        return run.told[layer]


def _handed_out(value: Tensor, region: int, site: int, kind: str, *_rest: Any) -> None:
    watch = CompiledTensors.find()
    if watch is not None and not is_recording_program():
        watch.take(value, region, site, kind)


def _followed(value: Tensor, region: int, site: int, *_rest: Any) -> bool:
    watch = CompiledTensors.find()
    return watch is not None and watch.follow(value, region, site)
