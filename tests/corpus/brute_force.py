"""Finds the place where a script's first NaN or Inf comes into being, by looking at every value at once.

Needs torch alone. Each module call, each gradient, each parameter and each loss is tested on the spot, which is slow
and leaves nothing to infer. It replaces functions of torch in its own process, and is for small scripts only.

    python brute_force.py [--masks] DIRECTORY script.py

Every process of the script that finds something leaves DIRECTORY/<pid>.json: {stage, module, step, rank}. Compiled code
shows no module, so that torch.compile is disabled.
"""

from __future__ import annotations

import functools
import json
import multiprocessing.process
import os
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

LOSS = "(loss)"
WRAPPERS = ("_dmp_wrapped_module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def tensors(value: Any, depth: int = 6) -> Iterator[Tensor]:
    """All tensors in a value: containers and the attributes of any object are gone through."""
    if isinstance(value, Tensor):
        yield value
    elif depth and not isinstance(value, (str, bytes, int, float, type, nn.Module)):
        parts: Iterable[Any] = ()
        if isinstance(value, Mapping):
            parts = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        elif hasattr(value, "__dict__"):
            parts = vars(value).values()
        for part in parts:
            yield from tensors(part, depth - 1)


class Watch:
    """Looks at everything in this process and keeps the first finding.

    Args:
        directory: Where <pid>.json is written.
        masks: -inf stands for "masked" in this script, and is as good as any other value.
    """

    def __init__(self, directory: Path, masks: bool) -> None:
        self.file = directory / f"{os.getpid()}.json"
        self.masks = masks
        self.names: dict[nn.Module, str] = {}
        self.owners: dict[Tensor, str] = {}
        self.roots: list[nn.Module] = []
        self.running: list[str] = []
        self.step = 0
        self.scaled = False
        # Parameters with a gradient that no optimizer has used yet.
        self.graded: set[Tensor] = set()
        self.found: dict[str, Any] | None = None
        # What a GradScaler may yet make good by leaving the step out.
        self.pending: dict[str, Any] | None = None

    def install(self) -> None:
        original_call: Any = nn.Module.__call__
        original_backward, original_grad = torch.autograd.backward, torch.autograd.grad
        original_scale = torch.amp.GradScaler.scale

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self.called(original_call, module, args, kwargs)

        def backward(of: Any, *args: Any, **kwargs: Any) -> None:
            outer = not in_backward()
            if outer:
                self.test(of, "loss", LOSS)
            original_backward(of, *args, **kwargs)
            if outer:
                for parameter, owner in self.owners.items():
                    self.test(parameter.grad, "backward", owner)

        def grad(*args: Any, **kwargs: Any) -> Any:
            result = original_grad(*args, **kwargs)
            for tensor in tensors(result):
                self.expect_gradient(tensor, self.running[-1] if self.running else LOSS)
            return result

        def scale(scaler: Any, outputs: Any) -> Any:
            self.scaled = True
            return original_scale(scaler, outputs)

        torch._dynamo.config.disable = True
        replace(nn.Module, "__call__", call)
        replace(torch.autograd, "backward", backward)
        replace(torch.autograd, "grad", grad)
        replace(torch.amp.GradScaler, "scale", scale)
        register_optimizer_step_pre_hook(self.before_update)
        register_optimizer_step_post_hook(self.after_update)

    # -- forward

    def called(self, original: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        again = in_backward()  # activation checkpointing: these values have been seen
        outermost = not self.running and not again
        if outermost:
            if module not in self.names and isinstance(module, ParametrizationList):
                return original(module, *args, **kwargs)  # computes a weight while its layer is built
            self.enter(module)
        name = self.names.get(module, self.running[-1] if self.running else LOSS)
        parent = self.running[-1] if self.running else LOSS
        if again and not self.running and name not in (LOSS, "(root)"):
            parent = name.rpartition(".")[0] or "(root)"
        if not again:
            if name == LOSS:
                self.test((args, kwargs), "loss", LOSS)
            elif outermost:
                self.test((args, kwargs), "data", name)
            else:
                self.test((args, kwargs), "forward", parent)  # its own code, between two children
        seen: dict[int, Tensor] = {}
        args, kwargs = self.aliased(args, name, seen), self.aliased(kwargs, name, seen)
        self.running.append(name)
        try:
            result = original(module, *args, **kwargs)
        finally:
            self.running.pop()
        if not again:
            self.test(result, "loss" if name == LOSS else "forward", name)
        for tensor in tensors(result):
            self.expect_gradient(tensor, parent)
        return result

    def enter(self, module: nn.Module) -> None:
        """An outermost call: a new root, or a step of the first one, begins with a look at its parameters."""
        if module not in self.names and any(True for _ in module.parameters()):
            self.roots.append(module)
        for number, root in enumerate(self.roots, 1):
            prefix = "" if number == 1 else f"{type(root).__name__}#{number}."
            for part, path in walk(root, ""):
                self.names.setdefault(part, prefix + (path or "(root)"))
                for parameter in part.parameters(recurse=False):
                    if parameter not in self.owners:
                        self.owners[parameter] = self.names[part]
                        if parameter.requires_grad:
                            self.hook(parameter, [None, self.names[part]])
        for updated in (one for one in self.owners if one in self.graded):
            self.test(updated, "optimizer", self.owners[updated])  # the script updates by hand
        self.graded.clear()
        if self.roots and module is self.roots[0]:
            self.step += 1
        for part in module.modules():
            own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
            self.test(own, "parameter", self.names.get(part, LOSS))

    # -- backward

    def aliased(self, value: Any, name: str, seen: dict[int, Tensor]) -> Any:
        """The same arguments through aliases, whose gradients are what this one call contributes."""
        if isinstance(value, Tensor):
            if not (value.requires_grad and torch.is_grad_enabled()):
                return value
            if id(value) not in seen:
                seen[id(value)] = value.view_as(value)
                self.hook(seen[id(value)], [None, name])
            return seen[id(value)]
        if type(value) in (list, tuple):
            return type(value)(self.aliased(part, name, seen) for part in value)
        if type(value) is dict:
            return {key: self.aliased(part, name, seen) for key, part in value.items()}
        return value

    def expect_gradient(self, tensor: Tensor, consumer: str) -> None:
        """The gradient of an output comes from who has the tensor next: at last the outermost module to return it."""
        if not tensor.requires_grad or tensor.is_leaf:
            return
        mark = getattr(tensor, "_mark", None)
        if mark is not None and mark[0] is tensor.grad_fn:
            mark[1] = consumer
            return
        mark = tensor._mark = [tensor.grad_fn, consumer]  # type: ignore[attr-defined]
        self.hook(tensor, mark)

    def hook(self, tensor: Tensor, mark: list[Any]) -> None:
        def look(gradient: Tensor) -> None:
            if tensor in self.owners:
                self.graded.add(tensor)
            self.test(gradient, "backward", mark[1])

        tensor.register_hook(look)  # type: ignore[no-untyped-call]

    # -- between backward and the next forward

    def before_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for parameter in parameters(optimizer):
            self.test(parameter.grad, "optimizer", self.owners.get(parameter, LOSS))

    def after_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self.found is None and self.pending is not None:
            self.pending = None
            self.write()
        for parameter in parameters(optimizer):
            self.graded.discard(parameter)
            self.test(parameter, "optimizer", self.owners.get(parameter, LOSS))

    # -- findings

    def test(self, value: Any, stage: str, module: str) -> None:
        if self.found is None and any(self.is_bad(tensor) for tensor in tensors(value)):
            rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
            finding = {"stage": stage, "module": module, "step": self.step, "rank": rank}
            if self.scaled and stage in ("loss", "backward"):
                self.pending = self.pending or finding
            else:
                self.found = finding
            self.write()

    def is_bad(self, tensor: Tensor) -> bool:
        tensor = tensor.detach()
        if hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            return False
        bad = ~torch.isfinite(tensor)
        if self.masks:
            bad &= tensor != -torch.inf
        return bool(bad.any())

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.pending or self.found))


def replace(owner: Any, name: str, function: Any) -> None:
    setattr(owner, name, function)


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def walk(module: nn.Module, path: str) -> Iterator[tuple[nn.Module, str]]:
    """Modules and their paths, in which wrappers leave no trace."""
    yield module, path
    for name, child in module.named_children():
        wraps = name in WRAPPERS or (name == "module" and isinstance(module, nn.parallel.DistributedDataParallel))
        yield from walk(child, path if wraps else f"{path}.{name}".lstrip("."))


def in_child(directory: Path, masks: bool, target: Any, *args: Any, **kwargs: Any) -> None:
    """What a process that the script starts with multiprocessing runs."""
    Watch(directory, masks).install()
    target(*args, **kwargs)


def run(script: Path, directory: Path, masks: bool) -> None:
    """Run `script` as the main program of this process."""
    original = multiprocessing.process.BaseProcess.__init__

    def init(process: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("target") is not None:
            kwargs["target"] = functools.partial(in_child, directory, masks, kwargs["target"])
        original(process, *args, **kwargs)

    replace(multiprocessing.process.BaseProcess, "__init__", init)
    Watch(directory, masks).install()
    sys.argv = [str(script)]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    # A process that the script starts finds `in_child` by the name of its module, which is not __main__ there.
    import brute_force  # type: ignore[import-not-found]

    *options, folder, program = sys.argv[1:]
    brute_force.run(Path(program), Path(folder), "--masks" in options)
