"""What there is of a tensor: its elements as they are, which a digest is of, and the numbers that statistics are of.

Elements as they are: those of a strided tensor in its own dtype, whatever that is, a conjugate or negative view
resolved. Of DTensor and what FSDP shards, this rank's shard; of what is inside vmap, all rows of the batch. There are
none of a sparse, nested or quantized tensor, whose bytes alone would not say what it is; their numbers can be read
(observe.readable).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from aorta_collectors.observe.readable import is_plain, plain_values


class Elements(NamedTuple):
    """
    Attributes:
        exact: The elements, of class Tensor, detached, in memory; None where there are none.
        reason: Why there are none; empty where there are.
        numbers: What can be reduced, as `plain_values` gives it; None where there is nothing. Of a tensor with `exact`,
            `plain_values` of that is the same.
    """

    exact: Tensor | None
    reason: str
    numbers: Tensor | None


def elements_of(tensor: Tensor) -> Elements:
    """The elements of any tensor. Never raises, waits for nothing, changes nothing.

    To be called where no mode of the program is on.
    """
    if is_plain(tensor):
        exact = tensor.detach() if tensor.requires_grad else tensor
        exact = exact if type(exact) is Tensor else exact.as_subclass(Tensor)
        return Elements(exact.resolve_neg(), "", exact)
    numbers, reason = plain_values(tensor)
    # Of these there is something in memory all the same: nothing, or what torch has no reductions for.
    if numbers is None and not reason.startswith(("empty", "dtype")):
        return Elements(None, reason, None)
    try:
        with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
            return Elements(*_exact(tensor), numbers)
    except Exception as error:
        return Elements(None, f"unreadable ({type(error).__name__})", numbers)


def _exact(tensor: Tensor) -> tuple[Tensor | None, str]:
    inner = getattr(tensor, "_local_tensor", None)
    if isinstance(inner, Tensor):
        return _exact(inner)
    elem = getattr(tensor, "elem", None)
    if isinstance(elem, Tensor):  # of a collective that is over
        return _exact(elem)
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return _exact(torch._C._functorch.get_unwrapped(tensor))
    if tensor.is_nested:
        return None, "nested"
    if tensor.layout is not torch.strided:
        return None, f"layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_quantized:
        return None, "quantized"
    if type(tensor) is not Tensor:
        tensor = tensor.as_subclass(Tensor)
    return tensor.detach().resolve_conj().resolve_neg(), ""
