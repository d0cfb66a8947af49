"""What is read of each kind of tensor that torch can make, and the name of what cannot be read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.two_tensor import TwoTensor

from aorta_collectors.observe.limits import Limits
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.observe.reduce import Stats, reduce_later, reduce_now
from tests.observe.numbers import FLOAT8
from tests.observe.watching import one_process_group

# Exponent bits, mantissa bits and bias. "fn" has no Inf, "uz" no negative zero, whose code is its only NaN.
_FORMATS = {
    torch.float8_e4m3fn: (4, 3, 7),
    torch.float8_e4m3fnuz: (4, 3, 8),
    torch.float8_e5m2: (5, 2, 15),
    torch.float8_e5m2fnuz: (5, 2, 16),
}
_PACKED = ("int1", "int2", "int3", "int4", "int5", "int6", "int7", "uint1", "uint2", "uint3", "uint4", "uint5", "uint6")
_OPAQUE = (*_PACKED, "uint7", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2")


def read(tensor: Tensor) -> Tensor:
    values, reason = plain_values(tensor)
    assert reason == ""
    assert values is not None
    assert type(values) is Tensor
    assert values.layout is torch.strided
    assert not values.requires_grad
    return values


def skipped(tensor: Tensor) -> str:
    values, reason = plain_values(tensor)
    assert reason
    assert values is None
    return reason


def decoded(code: int, dtype: torch.dtype) -> float:
    """The value of one byte, worked out from the definition of its format."""
    if dtype is torch.float8_e8m0fnu:
        return math.nan if code == 255 else math.ldexp(1.0, code - 127)
    exponent_bits, mantissa_bits, bias = _FORMATS[dtype]
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> mantissa_bits & 2**exponent_bits - 1, code & 2**mantissa_bits - 1
    if "uz" in str(dtype):
        if code == 0x80:
            return math.nan
    elif exponent == 2**exponent_bits - 1:
        if dtype is torch.float8_e5m2:
            return math.nan if mantissa else sign * math.inf
        if mantissa == 2**mantissa_bits - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(1 + mantissa / 2**mantissa_bits, exponent - bias)


def same(left: list[float], right: list[float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(left, right, strict=True))


class Refusing(Tensor):
    """A subclass with memory of its own that does not want to be asked anything."""

    @classmethod
    def __torch_function__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise SystemError("asked through __torch_function__")

    @classmethod
    def __torch_dispatch__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise SystemError("asked through __torch_dispatch__")


class TestStrided:
    @pytest.mark.parametrize(
        "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint64], ids=str
    )
    def test_it_is_read_in_place(self, dtype: torch.dtype) -> None:
        tensor = torch.ones(4, 4, dtype=dtype)[1:, ::2].t()
        values = read(tensor)
        assert values.data_ptr() == tensor.data_ptr()
        assert (values.shape, values.stride(), values.dtype) == (tensor.shape, tensor.stride(), dtype)

    def test_a_parameter_is_read_in_place_and_without_its_graph(self) -> None:
        parameter = nn.Parameter(torch.ones(2))
        assert read(parameter).data_ptr() == parameter.data_ptr()
        assert read(parameter * 2).grad_fn is None

    def test_bool_is_read_in_place_as_zeros_and_ones(self) -> None:
        tensor = torch.tensor([[True, False], [True, True]]).t()
        assert read(tensor).data_ptr() == tensor.data_ptr()
        assert read(tensor).tolist() == [[1, 1], [0, 1]]

    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    @pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
    def test_complex_is_read_in_place_as_two_values_an_element(self, dtype: torch.dtype) -> None:
        tensor = torch.tensor([1 + 2j, 3 - 4j], dtype=dtype)
        assert read(tensor).data_ptr() == tensor.data_ptr()
        assert read(tensor).tolist() == [[1, 2], [3, -4]]
        assert read(tensor.conj()).tolist() == [[1, -2], [3, 4]]

    def test_a_lazy_sign_is_kept(self) -> None:
        negated = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
        assert negated.is_neg()
        assert reduce_now(read(negated), Limits())[:2] == (-2.0, 4.0)

    @pytest.mark.parametrize("dtype", FLOAT8, ids=str)
    def test_every_value_of_a_float8_is_read_exactly(self, dtype: torch.dtype) -> None:
        tensor = torch.arange(256).to(torch.uint8).view(dtype)
        assert same(read(tensor).double().tolist(), [decoded(code, dtype) for code in range(256)])

    @pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
    def test_wide_unsigned_integers_keep_their_values(self, dtype: torch.dtype) -> None:
        top = torch.iinfo(dtype).max
        assert read(torch.tensor([0, top - 1, top], dtype=dtype)).tolist() == [0, top - 1, top]

    @pytest.mark.parametrize("name", _OPAQUE)
    def test_a_dtype_that_torch_cannot_compute_with_is_named(self, name: str) -> None:
        assert skipped(torch.empty(4, dtype=getattr(torch, name))) == f"dtype {name}"

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)], ids=str)
    def test_an_empty_tensor_is_named(self, shape: tuple[int, ...]) -> None:
        assert skipped(torch.empty(shape)) == "empty"

    def test_memory_that_was_taken_away_is_named(self) -> None:
        tensor = torch.ones(4)
        view = tensor[2:]
        flags = tensor.view(torch.uint8)[2:].view(torch.bool)
        tensor.untyped_storage().resize_(0)
        assert {skipped(tensor), skipped(view), skipped(flags), skipped(view.as_subclass(Refusing))} == {"freed"}


@pytest.mark.filterwarnings("ignore")
class TestStructured:
    def test_of_a_sparse_tensor_the_stored_values_are_read(self) -> None:
        dense = torch.tensor([[0.0, 5.0], [-7.0, 0.0]])
        for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            assert sorted(read(dense.to_sparse(layout=layout)).flatten().tolist()) == [-7.0, 5.0]
        for layout in (torch.sparse_bsr, torch.sparse_bsc):
            blocks = read(dense.to_sparse(layout=layout, blocksize=(1, 2)))
            assert sorted(blocks.flatten().tolist()) == [-7.0, 0.0, 0.0, 5.0]

    def test_duplicates_of_an_uncoalesced_tensor_are_values_of_their_own(self) -> None:
        tensor = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1]]), torch.tensor([3e38, 3e38, 1.0]), (2,))
        assert read(tensor).tolist() == torch.tensor([3e38, 3e38, 1.0]).tolist()
        assert math.isinf(read(tensor.coalesce())[0])

    def test_sparse_values_are_read_in_place_and_in_any_dtype(self) -> None:
        tensor = torch.eye(2).to_sparse().requires_grad_()
        assert read(tensor).data_ptr() == tensor.detach()._values().data_ptr()
        assert read(torch.eye(2, dtype=torch.complex64).to_sparse()).tolist() == [[1, 0], [1, 0]]

    def test_a_sparse_tensor_that_stores_nothing_is_empty(self) -> None:
        assert skipped(torch.zeros(3, 3).to_sparse()) == "empty"

    @pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
    def test_of_a_nested_tensor_all_components_are_read(self, layout: torch.layout) -> None:
        parts = [torch.arange(6.0).view(2, 3), torch.arange(6.0, 18.0).view(4, 3)]
        nested = torch.nested.nested_tensor(parts, layout=layout, requires_grad=True)
        for tensor in (nested, nested.transpose(1, 2), nested * 1):
            assert sorted(read(tensor).flatten().tolist()) == list(range(18))

    def test_a_nested_tensor_without_components_is_empty(self) -> None:
        assert skipped(torch.nested.nested_tensor([])) == "empty"

    def test_what_lies_between_the_components_of_a_jagged_tensor_is_not_read(self) -> None:
        base = torch.arange(15.0).view(3, 5)
        starts, lengths = torch.tensor([0, 1, 1]), torch.tensor([2, 1, 4])
        tensor = torch.nested.narrow(base, 1, starts, lengths, layout=torch.jagged)
        assert read(tensor).tolist() == [0, 1, 6, 11, 12, 13, 14]

    def test_a_strided_nested_tensor_with_gaps_is_read_without_them(self) -> None:
        nested = torch.nested.nested_tensor([torch.arange(4.0).view(2, 2), torch.arange(4.0, 8.0).view(2, 2)])
        for tensor in (nested.chunk(2, -1)[0], nested.select(2, 0)):
            assert not tensor.is_contiguous()
            assert read(tensor).flatten().tolist() == [0, 2, 4, 6]

    @pytest.mark.parametrize(
        "dtype", [torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4], ids=str
    )
    def test_a_quantized_tensor_is_read_dequantized(self, dtype: torch.dtype) -> None:
        values, scales = torch.tensor([[0.5, 1.0], [0.25, 0.5]]), torch.tensor([0.5, 0.25])
        zeros = torch.zeros(2, dtype=torch.float32 if "x" in str(dtype) else torch.int64)
        assert read(torch.quantize_per_tensor(values, 0.25, 0, dtype)).flatten()[2] == 0.25
        assert read(torch.quantize_per_channel(values, scales, zeros, 0, dtype)).tolist() == values.tolist()

    def test_a_quantized_tensor_that_torch_would_die_of_is_named(self) -> None:
        tensor = torch._empty_per_channel_affine_quantized(
            (2, 2), scales=torch.ones(2), zero_points=torch.zeros(2), axis=0, dtype=torch.qint32
        )
        assert skipped(tensor) == "dtype qint32"

    def test_a_tensor_of_mkldnn_is_read_dense(self) -> None:
        assert read(torch.eye(2).to_mkldnn()).tolist() == [[1, 0], [0, 1]]


@pytest.mark.filterwarnings("ignore")
class TestWithoutMemory:
    @pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo], ids=str)
    def test_a_meta_tensor_is_named(self, layout: torch.layout) -> None:
        assert skipped(torch.empty(2, 2, device="meta", layout=layout)) == "meta"

    def test_a_fake_tensor_is_named(self) -> None:
        with FakeTensorMode() as mode:
            fake = torch.ones(2)
            parameter = nn.Parameter(torch.ones(2))
            assert skipped(fake) == skipped(parameter) == "fake"
        assert skipped(mode.from_tensor(torch.ones(2))) == "fake"

    @pytest.mark.parametrize("mixed", [False, True], ids=["fake only", "mixed"])
    def test_a_real_tensor_cannot_be_read_while_all_tensors_are_faked(self, mixed: bool) -> None:
        tensors = [torch.ones(2), torch.ones(2).as_subclass(Refusing), torch.eye(2).to_sparse()]
        with FakeTensorMode(allow_non_fake_inputs=mixed):
            assert {skipped(tensor) for tensor in tensors} == {"fake"}

    def test_a_tensor_that_is_functionalized_is_named(self) -> None:
        reasons = []

        def function(x: Tensor) -> Tensor:
            reasons.append(skipped(x))
            return x.sum()

        torch.func.functionalize(function)(torch.ones(2))
        assert reasons == ["functorch"]

    @pytest.mark.parametrize(
        "transform",
        [torch.vmap, torch.func.grad, lambda function: lambda x: torch.func.jvp(function, (x,), (x,))],
        ids=["vmap", "grad", "jvp"],
    )
    def test_inside_a_transform_what_lies_below_is_read(self, transform: Callable[..., Any]) -> None:
        values: list[list[float]] = []

        def function(x: Tensor) -> Tensor:
            values.append(read(x).flatten().tolist())
            return x.sum()

        transform(function)(torch.arange(2.0))
        assert values == [[0.0, 1.0]]

    def test_a_lazy_parameter_is_named(self) -> None:
        module = nn.LazyBatchNorm1d()
        assert isinstance(module.running_mean, nn.UninitializedBuffer)
        assert {skipped(module.weight), skipped(module.running_mean)} == {"uninitialized"}

    def test_a_subclass_without_memory_of_its_own_is_named(self) -> None:
        assert skipped(TwoTensor(torch.ones(2), torch.ones(2))) == "wrapper"
        assert skipped(TwoTensor(torch.ones(3)[1:], torch.ones(3)[1:])) == "wrapper"
        assert skipped(torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))) == "wrapper"


class TestSubclasses:
    def test_one_with_memory_is_read_in_place_and_never_asked(self) -> None:
        plain = torch.ones(3)
        values = read(plain[1:].as_subclass(Refusing))
        assert values.data_ptr() == plain[1:].data_ptr()
        assert reduce_now(values, Limits()) == (1.0, 1.0, None)

    def test_an_error_on_the_way_is_named_and_not_raised(self) -> None:
        class Broken(Tensor):
            @property
            def _local_tensor(self) -> Tensor:
                raise RuntimeError

        assert skipped(torch.ones(2).as_subclass(Broken)) == "unreadable (RuntimeError)"


class TestDistributed:
    """One process, a real process group. No collective is started, and none is waited for."""

    def test_of_a_distributed_tensor_the_local_shard_is_read_in_place(self) -> None:
        with one_process_group():
            tensor = distribute_tensor(torch.tensor([1.0, -5.0]), init_device_mesh("cpu", (1,)), [Shard(0)])
            values = read(tensor)
            assert values.data_ptr() == tensor.to_local().data_ptr()
            assert reduce_now(values, Limits(2.0))[2] == Stats(2, 0, 0, 1, 2, -5.0, 1.0)

    def test_a_collective_in_flight_is_named_and_stays_in_flight(self) -> None:
        with one_process_group():
            tensor = funcol.all_reduce(torch.ones(2), "sum", init_device_mesh("cpu", (1,)))
            assert isinstance(tensor, funcol.AsyncCollectiveTensor)
            assert skipped(tensor) == "collective in flight"
            assert not tensor.completed
            tensor.trigger_wait()
            assert read(tensor).tolist() == [1.0, 1.0]

    def test_a_distributed_tensor_whose_shard_is_in_flight_is_named(self) -> None:
        with one_process_group():
            mesh = init_device_mesh("cpu", (1,))
            reduced = funcol.all_reduce(torch.ones(2), "sum", mesh)
            tensor = DTensor.from_local(reduced, mesh, [Replicate()], run_check=False)
            assert isinstance(tensor._local_tensor, funcol.AsyncCollectiveTensor)
            assert skipped(tensor) == "collective in flight"
            tensor._local_tensor.trigger_wait()
            assert read(tensor).tolist() == [1.0, 1.0]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("generation", [1, 2])
    def test_parameters_that_fsdp_shards_are_read(self, generation: int) -> None:
        with one_process_group():
            model: nn.Module = nn.Linear(2, 2)
            if generation == 1:
                model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
            else:
                fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
            parameters = list(model.parameters())
            assert parameters
            for parameter in parameters:
                local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
                assert read(parameter).data_ptr() == local.data_ptr()


@pytest.mark.parametrize("context", ["meta device", "function mode"])
def test_reading_is_the_same_whatever_mode_the_program_is_in(context: str) -> None:
    class Passing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    tensors = [torch.ones(2), torch.ones(2).bool(), torch.eye(2).to_sparse(), torch.ones(2).as_subclass(Refusing)]
    with torch.device("meta") if context == "meta device" else Passing():
        assert [float(read(tensor).sum()) for tensor in tensors] == [2.0] * 4


def test_reading_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [
            torch.eye(2).to_sparse_csr(),
            torch.nested.nested_tensor([torch.ones(2)]),
            torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            torch.ones(2, dtype=torch.complex32),
            torch.ones(2, requires_grad=True) * 2,
        ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tensor in tensors:
            reduce_later(read(tensor), Limits(), locate=True)
