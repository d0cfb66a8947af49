"""The hooks through which a module's input gradients are looked at, on nodes of the graph or on tensors."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from aorta_collectors.observe.contributions import SingleUse
from aorta_collectors.observe.cost import Cost
from aorta_collectors.observe.input_gradient import KeptHooks
from aorta_collectors.observe.observation import Moment, Site
from aorta_collectors.observe.reader import Reader
from aorta_collectors.observe.trace import Token


class GradientEye(Protocol):
    """What the hooks report to (the observer)."""

    @property
    def cost(self) -> Cost: ...
    @property
    def reader(self) -> Reader: ...
    def gradient_read(self, token: Token, index: int | None, grad: Tensor) -> None: ...
    def failed(self, error: Exception) -> None: ...


class InputGradients:
    """Of one module.

    Args:
        used_once: Whether its forward uses its first argument once.
    """

    def __init__(self, eye: GradientEye, *, used_once: bool) -> None:
        self._eye = eye
        self._use = SingleUse() if used_once else None
        self._on_inputs = KeptHooks()  # an input may be a learned prompt, say

    def at_use(self, tensor: Tensor, output: Tensor, site: Site, moment: Moment, token: Token | None) -> bool:
        """Look at what the one use of `tensor` contributes to its gradient; False if that is not found in the graph."""
        found = self._use.find(tensor, output) if self._use is not None else None
        if found is None:
            return False
        node, position = found
        node.register_hook(_AtNode(self._eye, site, moment, position, token))
        return True

    def at_tensor(self, tensor: Tensor, site: Site, moment: Moment) -> None:
        """Look at the gradient of `tensor` from all its uses."""
        self._on_inputs.put(tensor, _AtTensor(self._eye, site, moment))

    def release(self) -> None:
        """Take the hooks off inputs that live on."""
        self._on_inputs.clear()


class _Hook:
    """One object a call, and nothing else: what lives through a step is what Python's garbage collector walks over."""

    __slots__ = ("_eye", "_moment", "_site")

    def __init__(self, eye: GradientEye, site: Site, moment: Moment) -> None:
        self._eye = eye
        self._site = site
        self._moment = moment


class _AtNode(_Hook):
    """Looks at one of the gradients that a node hands on. It refers to no node, so that the graph is freed as ever."""

    __slots__ = ("_position", "_token")

    def __init__(self, eye: GradientEye, site: Site, moment: Moment, position: int, token: Token | None) -> None:
        super().__init__(eye, site, moment)
        self._position = position
        self._token = token

    def __call__(self, grad_inputs: Any, _grad_outputs: Any) -> None:
        if torch.compiler.is_compiling():  # as compiled autograd does
            return
        started = perf_counter()
        eye, grad = self._eye, grad_inputs[self._position]
        if grad is not None:
            try:
                index = eye.reader.observe(self._site, grad, self._moment)
                if self._token is not None:
                    eye.gradient_read(self._token, index, grad)
            except Exception as error:
                eye.failed(error)
        eye.cost.hook_s += perf_counter() - started


class _AtTensor(_Hook):
    """Looks at the gradient of a tensor."""

    __slots__ = ()

    def __call__(self, grad: Tensor) -> None:
        started = perf_counter()
        eye = self._eye
        try:
            eye.reader.observe(self._site, grad, self._moment)
        except Exception as error:
            eye.failed(error)
        eye.cost.hook_s += perf_counter() - started
