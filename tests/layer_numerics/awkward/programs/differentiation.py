"""Unusual ways through autograd: recomputing, transforms, modes, optimizers that step inside of backward."""

from __future__ import annotations

from typing import Any

import torch
from shared import BAD_STEP, Log, batch, main, say, two_layers
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Blocks(nn.Module):
    """Three blocks; the middle one can be made to go bad."""

    def __init__(self, around: Any) -> None:
        super().__init__()
        self.log = Log()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), self.log), nn.Linear(4, 1)])
        self.around = around

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.around(block, x)
        return x


def _train_blocks(model: Blocks, bad: bool) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        model.log.is_bad = bad and step == BAD_STEP
        optimizer.zero_grad()
        loss = model(batch(False).requires_grad_()).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)


def checkpointed(bad: bool) -> None:
    _train_blocks(Blocks(lambda block, x: checkpoint(block, x, use_reentrant=False)), bad)


def checkpointed_reentrant(bad: bool) -> None:
    _train_blocks(Blocks(lambda block, x: checkpoint(block, x, use_reentrant=True)), bad)


def checkpointed_sequence(bad: bool) -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        x = batch(bad and step == BAD_STEP).requires_grad_()
        loss = checkpoint_sequential(layers, 2, x, use_reentrant=False).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)


def optimizer_in_backward(bad: bool) -> None:
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there."""
    model = two_layers()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step_now(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_now)
    for step in range(1, 5):
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        say(loss)


def applied_in_backward(bad: bool) -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward

    model = two_layers()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    for step in range(1, 5):
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        say(loss)


def anomaly_detection(bad: bool) -> None:
    """sqrt at 0 has an infinite gradient, and autograd itself ends the program where that becomes NaN."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autograd.detect_anomaly(check_nan=True):
        for step in range(1, 5):
            optimizer.zero_grad()
            out = model(batch(False))
            loss = (out * 0.0).abs().sqrt().sum() if bad and step == BAD_STEP else out.square().mean()
            say(loss)
            loss.backward()
            optimizer.step()


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def _under(mode: Any, bad: bool) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mode:
        for step in range(1, 5):
            optimizer.zero_grad()
            loss = model(batch(bad and step == BAD_STEP)).square().mean()
            loss.backward()
            optimizer.step()
            say(loss)
    print(len(mode.calls), *mode.calls, sep="\n")


def function_mode(bad: bool) -> None:
    """Every call of torch is written down."""
    _under(Counting(), bad)


def dispatch_mode(bad: bool) -> None:
    """Every operation is written down."""
    _under(Operations(), bad)


def profiled(bad: bool) -> None:
    """FLOPs are counted."""
    from torch.utils.flop_counter import FlopCounterMode

    model = two_layers()
    for step in range(1, 5):
        with FlopCounterMode(display=False) as counter:
            loss = model(batch(bad and step == BAD_STEP)).square().mean()
            loss.backward()
        say(loss)
        print(counter.get_total_flops(), flush=True)


def functional_call(bad: bool) -> None:
    model = two_layers()
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step in range(1, 5):
        leaves = {name: parameter.requires_grad_() for name, parameter in parameters.items()}
        loss = torch.func.functional_call(model, leaves, (batch(bad and step == BAD_STEP),)).square().mean()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        parameters = {
            name: (parameter - 0.1 * gradient).detach()
            for (name, parameter), gradient in zip(leaves.items(), gradients, strict=True)
        }
        say(loss)


def per_sample_gradients(bad: bool) -> None:
    """vmap of grad of a functional call."""
    model = two_layers()
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def loss_of(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(model, parameters, (x,))
        return out.square().mean()

    per_sample = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))
    for step in range(1, 5):
        gradients = per_sample(parameters, batch(bad and step == BAD_STEP))
        parameters = {name: parameters[name] - 0.1 * gradients[name].mean(0) for name in parameters}
        say(parameters["2.bias"])


def forward_derivative(bad: bool) -> None:
    model = two_layers()
    for step in range(1, 5):
        x = batch(bad and step == BAD_STEP)
        out, tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))
        say(out)
        say(tangent)


def ensemble(bad: bool) -> None:
    """vmap over the stacked parameters of three models."""
    models = [two_layers() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    base = models[0]
    one = lambda p, b, x: torch.func.functional_call(base, (p, b), (x,))  # noqa: E731
    for step in range(1, 5):
        say(torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, batch(bad and step == BAD_STEP)))


def second_derivative(bad: bool) -> None:
    """A gradient penalty."""
    model = two_layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, 5):
        x = batch(bad and step == BAD_STEP).requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.mean() + (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)


def deprecated_arguments(bad: bool) -> None:
    """Warnings of torch that name the caller's line."""
    import warnings

    model = two_layers()
    model.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(1, 5):
            loss = model(batch(bad and step == BAD_STEP)).square().mean()
            torch.autograd.grad(loss, list(model.parameters()), only_inputs=True, retain_graph=True)
            torch.autograd.grad(loss, list(model.parameters()), only_inputs=False, retain_graph=True)
            loss.backward()
            say(loss)
    for one in caught:
        print(one.category.__name__, one.filename.rpartition("/")[2], one.lineno, str(one.message)[:60])


if __name__ == "__main__":
    main(globals())
