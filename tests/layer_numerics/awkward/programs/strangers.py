"""Other tools' hooks on the same model, before ours and after, and models that other tools have made."""

from __future__ import annotations

from typing import Any

import torch
from shared import BAD_STEP, batch, main, say, two_layers
from torch import Tensor, fx, nn
from torch.nn.modules import module as hooks
from torch.nn.utils import parametrizations


def _train(model: nn.Module, bad: bool, begin: Any = lambda step: None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        begin(step)
        optimizer.zero_grad()
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)


def _nan(x: Tensor) -> Tensor:
    return x * float("nan")


def replacing_outputs(bad: bool) -> None:
    """A hook on a layer replaces its output: from the third step on by NaN."""
    model, state = two_layers(), {"step": 0}
    model[0].register_forward_hook(
        lambda module, args, out: _nan(out) if bad and state["step"] == BAD_STEP else out * 1.5
    )
    _train(model, False, lambda step: state.update(step=step))


def replacing_inputs(bad: bool) -> None:
    """A pre-hook on a layer replaces its input."""
    model, state = two_layers(), {"step": 0}
    model[2].register_forward_pre_hook(
        lambda module, args: (_nan(args[0]) if bad and state["step"] == BAD_STEP else args[0] * 1.5,)
    )
    _train(model, False, lambda step: state.update(step=step))


def replacing_keywords(bad: bool) -> None:
    model, state = two_layers(), {"step": 0}

    def replace(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return (), {"input": _nan(args[0]) if bad and state["step"] == BAD_STEP else args[0] * 1.5}

    model[2].register_forward_pre_hook(replace, with_kwargs=True)
    _train(model, False, lambda step: state.update(step=step))


def global_hooks(bad: bool) -> None:
    """A tool of the program stands at every module: one that is installed after ours, and one each step anew."""
    model, calls = two_layers(), [0]

    def count(module: nn.Module, args: Any, *out: Any) -> None:
        calls[0] += 1

    kept = [hooks.register_module_forward_pre_hook(count), hooks.register_module_forward_hook(count)]
    kept.append(hooks.register_module_full_backward_hook(count))

    def anew(step: int) -> None:
        kept.pop(0).remove()
        kept.append(hooks.register_module_forward_hook(count))

    _train(model, bad, anew)
    print(calls)


def global_hook_replaces(bad: bool) -> None:
    """A global hook of the program replaces what every Linear gives out."""
    model, state = two_layers(), {"step": 0}

    def replace(module: nn.Module, args: Any, out: Any) -> Any:
        if isinstance(module, nn.Linear):
            return _nan(out) if bad and state["step"] == BAD_STEP else out * 1.5
        return None

    hooks.register_module_forward_hook(replace)
    _train(model, False, lambda step: state.update(step=step))


def hooks_made_in_forward(bad: bool) -> None:
    """A model that hangs a hook on its layer while it runs, for one call alone; the third time for the worse."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head, self.calls = nn.Linear(4, 4), nn.Linear(4, 1), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            factor = float("nan") if bad and self.calls == BAD_STEP else 1.5
            handle = self.layer.register_forward_hook(lambda module, args, out: (handle.remove(), out * factor)[1])
            out: Tensor = self.head(self.layer(x))
            return out

    model = Model()
    _train(model, False)
    print(len(model.layer._forward_hooks))


def full_backward_hooks(bad: bool) -> None:
    model = two_layers()
    for part in (model, model[0], model[2]):
        part.register_full_backward_pre_hook(lambda module, out: tuple(grad * 2 for grad in out))
        part.register_full_backward_hook(
            lambda module, given, out: tuple(g * 0.5 if g is not None else g for g in given)
        )
    _train(model, bad)


def _halve(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def tensor_hooks(bad: bool) -> None:
    """Parameters have hooks that clip their gradients, and others that edit the sums in place."""
    model = two_layers()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        parameter.register_post_accumulate_grad_hook(_halve)
    _train(model, bad)


def normalised_weights(bad: bool) -> None:
    """weight_norm in its old and its new form, and spectral_norm in both."""
    old = torch.nn.utils.weight_norm  # deprecated, and in use
    model = nn.Sequential(
        old(nn.Linear(4, 4)),
        parametrizations.weight_norm(nn.Linear(4, 4)),
        torch.nn.utils.spectral_norm(nn.Linear(4, 4)),
        parametrizations.spectral_norm(nn.Linear(4, 1)),
    )
    _train(model, bad)


def symbolically_traced(bad: bool) -> None:
    _train(fx.symbolic_trace(two_layers()), bad)


def scripted(bad: bool) -> None:
    """A scripted part of an eager model."""
    _train(nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 1)), bad)


def called_by_forward(bad: bool) -> None:
    """The model's forward is called past its hooks."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = model.forward(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)


def pruned(bad: bool) -> None:
    import torch.nn.utils.prune as prune

    model = two_layers()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    _train(model, bad)


def forward_is_replaced(bad: bool) -> None:
    """A tool wraps the forward of each layer on the instance, as some offloading libraries do."""
    model = two_layers()
    for part in model:
        part.forward = (lambda inner: lambda *args, **kwargs: inner(*args, **kwargs) * 1.0)(part.forward)
    _train(model, bad)


if __name__ == "__main__":
    main(globals())
