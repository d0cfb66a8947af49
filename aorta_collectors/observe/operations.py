"""Counting what torch computes: floating-point operations, bytes moved and operations, by who asked for them.

A mode of torch's dispatcher sees each operation with its real operands and results, which it hands on untouched. FLOPs
are those of torch.utils.flop_counter's formulas: matrix products, convolutions and attention; all other arithmetic
counts as none, as is usual. Bytes are those of the operands and results, each once for each operation: what would cross
the memory bus if nothing stayed in a cache between two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

aten = torch.ops.aten

#: Operations that read of their first tensor only what they return.
_LOOKUPS = frozenset(("embedding", "index_select", "gather", "index", "take"))
#: The same, summed over bags: what the indices of their second tensor name.
_BAGS = frozenset(("_embedding_bag", "_embedding_bag_forward_only"))
#: They write their first tensor without reading it.
_WRITERS = frozenset(
    (
        *("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"),
        *("exponential_", "log_normal_", "geometric_", "cauchy_"),
    )
)
#: Memory that is reserved, not written.
_ALLOCATIONS = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized"),
        *("new_empty", "new_empty_strided", "resize_", "set_"),
    )
)
#: Communication is counted by itself, and a profiler's marks compute nothing.
_NO_COMPUTATION = frozenset(("prim", "profiler", "c10d", "_c10d_functional", "c10d_functional"))


# As those of torch.utils.flop_counter: given the operands as they are and, as `out_val`, what came out of them.
Formula = Callable[..., Any]


@dataclass
class Counts:
    """What was computed for one key.

    Attributes:
        flops: Floating-point operations; a multiplication and its addition are two.
        bytes: Read and written.
        operations: Those that compute something: views are free.
        seconds: That they took on the host; on a device they go on after that.
        on_device: Whether any was for a device.
        flops_by_dtype: FLOPs by the dtype of what was multiplied.
        bytes_by_dtype: Bytes of floating-point tensors.
    """

    flops: int = 0
    bytes: int = 0
    operations: int = 0
    seconds: float = 0.0
    on_device: bool = False
    flops_by_dtype: dict[torch.dtype, int] = field(default_factory=dict)
    bytes_by_dtype: dict[torch.dtype, int] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype | None:
        """Of most of the FLOPs; of most of the bytes where there are none."""
        tally = self.flops_by_dtype or self.bytes_by_dtype
        return max(tally, key=lambda dtype: tally[dtype]) if tally else None


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts between `enter` and `leave`. Changes no result, draws no random number, keeps no tensor.

    Args:
        key: Says for whom the operation at hand is done; asked before each.
        failed: Told of an error of ours; the operation itself has been done by then.

    Attributes:
        counts: By key.
    """

    supports_higher_order_operators = True

    def __init__(self, key: Callable[[], Hashable], failed: Callable[[Exception], None] = lambda error: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key = key
        self._failed = failed
        self._formulas: Mapping[Any, Formula] | None = None
        self._kinds: dict[Any, tuple[bool, Formula | None]] = {}
        self.counts: dict[Hashable, Counts] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile goes on as without it."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch would import its compiler for the first operation: a second or two."""
        return False

    def enter(self) -> None:
        """See what this thread, and a backward pass that it begins, computes from now on."""
        if self._formulas is None:
            self._formulas = _formulas()
        self.__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """See nothing more on this thread. Modes that were entered since and are still on stay so."""
        if not any(self is mode for mode in _modes()):
            return
        above: list[Any] = []
        while (mode := _modes()[-1]) is not self:
            above.append(_pop_mode(getattr(mode, "_mode_key", None)))
        self.__exit__(None, None, None)
        for mode in reversed(above):
            _push_mode(mode)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_composite, formula = self._kind_of(func)
        if is_composite and formula is None and torch.is_inference_mode_enabled():
            # Outside of inference mode autograd has taken it apart before it comes here. This runs the same kernel.
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        key = self._asked()
        began = perf_counter()
        result = func(*args, **kwargs)
        seconds = perf_counter() - began
        try:
            counts = self._count(key, func, formula, args, kwargs, result)
            if counts is not None:
                counts.seconds += seconds
        except Exception as error:
            self._failed(error)
        return result

    def _asked(self) -> Hashable:
        try:
            return self._key()
        except Exception as error:
            self._failed(error)
            return None

    def _kind_of(self, func: Any) -> tuple[bool, Formula | None]:
        """Whether an operation is made of others and nothing else, and its formula."""
        if (known := self._kinds.get(func)) is not None:
            return known
        formulas = self._formulas or {}
        formula = formulas.get(getattr(func, "_overloadpacket", func))
        kind = (isinstance(func, torch._ops.OpOverload) and _is_made_of_others(func), formula)
        self._kinds[func] = kind
        return kind

    def _count(
        self, key: Hashable, func: Any, formula: Formula | None, args: Any, kwargs: Mapping[str, Any], result: Any
    ) -> Counts | None:
        """Adds to what `key` has; None where nothing was computed."""
        flops = _flops(formula, args, kwargs, result) if formula is not None else 0
        is_operation = isinstance(func, torch._ops.OpOverload)
        if not flops and (not is_operation or _is_free(func, args, kwargs, result)):
            return None
        counts = self.counts.setdefault(key, Counts())
        counts.operations += 1
        counts.flops += flops
        operands = list(_tensors((args, kwargs)))
        if flops:
            dtype = next((tensor.dtype for tensor in operands if tensor.dtype.is_floating_point), torch.float32)
            counts.flops_by_dtype[dtype] = counts.flops_by_dtype.get(dtype, 0) + flops
        for tensor, size in _moved(func, operands, list(_tensors(result))):
            counts.bytes += size
            counts.on_device = counts.on_device or tensor.device.type != "cpu"
            if tensor.dtype.is_floating_point:
                counts.bytes_by_dtype[tensor.dtype] = counts.bytes_by_dtype.get(tensor.dtype, 0) + size
        return counts


def _modes() -> list[Any]:
    """Those that are on, on this thread; the one that sees operations first is the last."""
    return [torch._C._get_dispatch_stack_at(index) for index in range(torch._C._len_torch_dispatch_stack())]


def _formulas() -> Mapping[Any, Formula]:
    """torch's, and those that it lacks."""
    from torch.utils import flop_counter as torchs

    added: Any = {
        aten._scaled_dot_product_flash_attention_for_cpu: torchs.sdpa_flop,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: torchs.sdpa_backward_flop,
        aten.mv: lambda matrix, vector, out_val=None: 2 * matrix.numel(),
        aten.addmv: lambda added, matrix, vector, out_val=None, **scales: 2 * matrix.numel(),
        aten.dot: lambda left, right, out_val=None: 2 * left.numel(),
        aten._transformer_encoder_layer_fwd: _encoder_layer_flops,
    }
    return {**added, **torchs.flop_registry}


def _encoder_layer_flops(source: Tensor, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Of the one operation that nn.TransformerEncoderLayer is without gradients, source (batch, tokens, width).

    Each of its four matrices multiplies each token; a token's query meets each key, and its weights each value.
    """
    batch, tokens, width = source.shape
    matrices = sum(tensor.numel() for tensor in _tensors((args, kwargs)) if tensor.dim() == 2 and width in tensor.shape)
    return 2 * batch * tokens * matrices + 4 * batch * tokens * tokens * width


def _flops(formula: Formula, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """None are counted for operands that a formula of torch does not expect, such as nested tensors."""
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except Exception:
        return 0


def _is_made_of_others(func: torch._ops.OpOverload[..., Any]) -> bool:
    """Whether its kernel for every device of ours does nothing but call other operations."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()  # type: ignore[no-untyped-call]
    if not torch._C._dispatch_has_kernel(name):  # as of prim.device, which TorchScript knows alone
        return False
    return has_kernel(name, "CompositeImplicitAutograd") and not any(has_kernel(name, key) for key in ("CPU", "CUDA"))


def _is_free(func: torch._ops.OpOverload[..., Any], args: Any, kwargs: Any, result: Any) -> bool:
    """Whether it computes nothing: it makes a view, reserves memory, or looks at a tensor's metadata."""
    name = func._schema.name.partition("::")[2]
    if func.namespace in _NO_COMPUTATION or name in _ALLOCATIONS:
        return True
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return True
    results = list(_tensors(result))
    if not results:
        return torch.Tag.data_dependent_output not in func.tags and not func._schema.is_mutable
    if func._schema.is_mutable:
        return False
    places = {_place(tensor) for tensor in _tensors((args, kwargs))} - {None}
    return all(_place(tensor) in places for tensor in results)


def _moved(func: Any, operands: list[Tensor], results: list[Tensor]) -> Iterator[tuple[Tensor, int]]:
    """Each tensor that is read, each that is written, and its bytes."""
    name = func._schema.name.partition("::")[2] if isinstance(func, torch._ops.OpOverload) else ""
    written = sum(_bytes_of(tensor) for tensor in results)
    seen: set[int] = set()
    for index, tensor in enumerate(operands):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        size = _bytes_of(tensor)
        if index == 0:
            if name in _WRITERS:
                continue
            if name in _LOOKUPS:
                size = min(size, written)
            elif name in _BAGS and len(operands) > 1 and tensor.dim() == 2:
                size = min(size, operands[1].numel() * tensor.shape[1] * tensor.element_size())
        yield tensor, size
    for tensor in results:
        yield tensor, _bytes_of(tensor)


def _bytes_of(tensor: Tensor) -> int:
    """Of its distinct elements: an expanded dimension is one element in memory."""
    if tensor.layout != torch.strided:
        return tensor.numel() * tensor.element_size() if tensor.layout != torch.sparse_coo else _sparse_bytes(tensor)
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride or not size:
            elements *= size
    return elements * tensor.element_size()


def _sparse_bytes(tensor: Tensor) -> int:
    return sum(part.numel() * part.element_size() for part in (tensor._values(), tensor._indices()))


def _place(tensor: Tensor) -> int | None:
    """Where its memory begins; None where it has none of its own, such as a sparse tensor."""
    if tensor.layout != torch.strided or type(tensor) not in (Tensor, torch.nn.Parameter):
        return None
    return int(tensor.untyped_storage()._cdata)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
