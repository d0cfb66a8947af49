"""Where an activation is saturated: near an end of what it can give out, where its derivative has all but vanished.

Taken for saturated are elements whose slope is below 1 % of the steepest that the function has: a gradient that comes
through them is a hundredth of what it was. That is, with y for the output:

    sigmoid       y (1 - y) < 0.01 / 4      below 0.0025 or above 0.9975
    tanh          1 - y y < 0.01            beyond 0.995 in either direction
    softsign      (1 - |y|)^2 < 0.01        beyond 0.9 in either direction
    softmax       y (1 - y) < 0.01 / 4      above 0.9975 alone: of many classes most are near 0, and rightly so
    hard ones     slope 0                   at their ends exactly; ReLU6 at 6 alone, since 0 is what a ReLU is for, and
                                            told by the fraction of zeros

What is none of these is saturated where it reaches the ends of its dtype's finite range.
"""

from __future__ import annotations

import math

from torch import nn

from aorta_collectors.observe.tensor_stats import Ends

_SIGMOID = 0.5 * (1.0 - math.sqrt(1.0 - 0.01))
_TANH = math.sqrt(1.0 - 0.01)
_SOFTSIGN = 1.0 - math.sqrt(0.01)


def ends_of_module(module: nn.Module | None) -> Ends | None:
    """The ends of a module's outputs; None for one that is no bounded activation."""
    if isinstance(module, nn.Sigmoid):
        return Ends(_SIGMOID, 1.0 - _SIGMOID)
    if isinstance(module, nn.Tanh):
        return Ends(-_TANH, _TANH)
    if isinstance(module, nn.Softsign):
        return Ends(-_SOFTSIGN, _SOFTSIGN)
    if isinstance(module, (nn.Softmax, nn.Softmax2d)):
        return Ends(-math.inf, 1.0 - _SIGMOID)
    if isinstance(module, nn.Hardsigmoid):
        return Ends(0.0, 1.0)
    if isinstance(module, nn.ReLU6):
        return Ends(-math.inf, module.max_val)
    if isinstance(module, nn.Hardtanh):
        return Ends(module.min_val, module.max_val)
    return None
