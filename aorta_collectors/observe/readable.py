"""Which numbers of a tensor can be read: its strided, real elements in memory, or the name of why there are none.

What is read of a tensor that is more than strided numbers:

* complex: real and imaginary parts, two values an element, along a new last dimension;
* bool: 0 and 1; float8: as float32, on a device as it is; uint16 and uint32: as the next wider signed integer;
  uint64: as it is;
* sparse: the values that are stored, duplicates of an uncoalesced tensor one by one, and none of the implicit zeros;
* nested: the values of all components, in their order; a component's own shape is lost;
* quantized: dequantized; mkldnn: made dense;
* DTensor and what FSDP shards: this rank's shard, without a collective on the program's behalf.

Of what is inside vmap, grad and jvp, the values below are read: all rows of a batch, and no tangents.

Skipped by name: "empty"; "meta"; "fake" (FakeTensor, or anything while its mode is on); "functorch" (inside
functionalize); "collective in flight" (waiting would move the program's own wait, reading without it would race);
"uninitialized" (lazy parameters); "freed" (storage resized away, as FSDP does); "wrapper" (a subclass without memory of
its own); "nested with gaps" on an accelerator; "dtype ..." and "layout ..." where torch cannot compute with them; else
"unreadable (...)" with the error.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from aorta_collectors.observe.precision import is_float8

_PLAIN = (Tensor, torch.nn.Parameter)
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint64)
_AS_IT_IS = frozenset((*_FLOATS, *_INTEGERS))
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_ADDRESS_BITS = 40
_is_functional = torch._is_functional_tensor
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_MKLDNN: torch.layout = torch._mkldnn  # type: ignore[attr-defined]


def is_plain(tensor: Tensor) -> bool:
    """Whether `tensor`, or what detach() makes of it, can be reduced as it is: most tensors of most programs.

    To be asked where no mode of the program answers.
    """
    try:
        return bool(
            type(tensor) in _PLAIN
            and not tensor.is_meta
            and tensor.layout is torch.strided
            and not tensor.is_nested
            and tensor.numel()
            and tensor.dtype in _AS_IT_IS
            and not _is_functional(tensor)
            # A freed storage begins at 0, and its tensor at its offset; most heaps lie beyond any of those. Asking the
            # storage would leave a Python object behind with each tensor.
            and (tensor.data_ptr() >> _ADDRESS_BITS or tensor.untyped_storage().nbytes())
        )
    except Exception:
        return False  # such as the storage of what functorch wraps; `plain_values` has a name for it


def plain_values(tensor: Tensor) -> tuple[Tensor | None, str]:
    """The numbers to reduce for `tensor`, whatever it is. Never raises, waits for nothing, changes nothing.

    Returns:
        (values, ""): strided, detached, never empty, of type Tensor, of a real dtype that torch can reduce or uint64,
            in memory. They share the tensor's memory unless they had to be converted.
        (None, reason): where there is nothing to read; the reasons are those of the module's docstring.
    """
    try:
        # The program's subclass is not to see, nor to answer, what is asked of its tensor here.
        with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
            return _values(tensor)
    except Exception as error:
        return None, f"unreadable ({type(error).__name__})"


def _values(tensor: Tensor) -> tuple[Tensor | None, str]:
    if torch.nn.parameter.is_lazy(tensor):
        return None, "uninitialized"
    if _is_a(tensor, "torch._subclasses.fake_tensor", "FakeTensor") or torch._C._get_dispatch_mode(_FAKE) is not None:
        return None, "fake"
    if _is_a(tensor, "torch.distributed._functional_collectives", "AsyncCollectiveTensor"):
        arrived = getattr(tensor, "completed", False)
        return _values(tensor.elem) if arrived else (None, "collective in flight")  # type: ignore[attr-defined]
    local = getattr(tensor, "_local_tensor", None)
    if isinstance(local, Tensor):
        return _values(local)
    if _is_functional(tensor):
        return None, "functorch"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return _values(torch._C._functorch.get_unwrapped(tensor))
    if tensor.is_meta:
        return None, "meta"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return _structured(tensor)
    if tensor.numel() == 0:
        return None, "empty"
    return _strided(tensor)


def _is_a(tensor: Tensor, module: str, name: str) -> bool:
    """Whether `tensor` is of that class; if its module has not been imported it cannot be."""
    cls = getattr(sys.modules.get(module), name, None)
    return cls is not None and isinstance(tensor, cls)


def _structured(tensor: Tensor) -> tuple[Tensor | None, str]:
    """The values of a sparse, nested or mkldnn tensor."""
    layout = tensor.layout
    if layout is torch.jagged:
        return _jagged(tensor)
    if layout is torch.strided:
        if tensor.is_contiguous():
            return _values(tensor.values())
        return _values(torch.cat([component.reshape(-1) for component in tensor.unbind()]))
    if layout is torch.sparse_coo:
        return _values(tensor._values())
    if layout in _COMPRESSED:
        return _values(tensor.values())
    if layout is _MKLDNN:
        return _values(tensor.to_dense())
    return None, f"layout {str(layout).removeprefix('torch.')}"


def _jagged(tensor: Tensor) -> tuple[Tensor | None, str]:
    """The values of a jagged tensor. Where there are gaps between its components, they hold what is none of them."""
    jagged: Any = tensor
    if jagged._lengths is None:
        return _values(jagged._values)
    if jagged._lengths.device.type != "cpu":
        return None, "nested with gaps"  # where the gaps are is known on the device only, and nothing waits for it
    dim = jagged._ragged_idx - 1
    places = zip(jagged._offsets.tolist(), jagged._lengths.tolist(), strict=False)
    return _values(torch.cat([jagged._values.narrow(dim, start, length) for start, length in places], dim))


def _strided(tensor: Tensor) -> tuple[Tensor | None, str]:
    if type(tensor) not in _PLAIN:
        tensor = tensor.as_subclass(Tensor)
        if _address(tensor) == 0:
            return None, "wrapper" if tensor.untyped_storage().nbytes() else "freed"
    if not tensor.untyped_storage().nbytes():
        return None, "freed"
    return _real(tensor.detach())


def _real(tensor: Tensor) -> tuple[Tensor | None, str]:
    """A detached strided tensor in memory, in a dtype that torch can reduce."""
    if tensor.is_quantized:
        if tensor.dtype is torch.qint32 and tensor.qscheme() is torch.per_channel_affine_float_qparams:
            return None, "dtype qint32"  # torch 2.13 dies of an illegal instruction when it dequantizes that
        tensor = tensor.dequantize()
    dtype = tensor.dtype
    if dtype in _AS_IT_IS:
        return tensor, ""
    if dtype.is_complex:
        return torch.view_as_real(tensor.resolve_conj().resolve_neg()), ""
    if dtype is torch.bool:
        return tensor.view(torch.uint8), ""
    if dtype in _WIDER:
        return tensor.to(_WIDER[dtype]), ""
    if is_float8(dtype):
        return tensor.float() if tensor.is_cpu else tensor, ""
    return None, f"dtype {str(dtype).removeprefix('torch.')}"


def _address(tensor: Tensor) -> int:
    """Where the tensor's storage begins; 0 where it has no memory."""
    return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
