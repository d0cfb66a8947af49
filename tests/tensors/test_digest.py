"""Digests are of exactly the bytes that numpy has for the same tensor, whatever its dtype and how it lies in memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aorta_collectors.tensors.digest import digest_of
from aorta_collectors.tensors.elements import elements_of
from aorta_collectors.tensors.observation import Observation
from tests.tensors.left import recorded

NUMPY = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.uint32: np.uint32,
    torch.uint64: np.uint64,
    torch.bool: np.bool_,
}
#: numpy has none of these: bits are what they are made from.
OTHERS = {
    torch.bfloat16: torch.int16,
    torch.complex32: torch.int32,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
    torch.float4_e2m1fn_x2: torch.uint8,
}


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def bits(*shape: int, dtype: torch.dtype) -> Tensor:
    """Any bits; of bool, 0 and 1."""
    generator = torch.Generator().manual_seed(7)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    size = dtype.itemsize
    whole = torch.randint(0, 256, (*shape[:-1], shape[-1] * size), generator=generator, dtype=torch.uint8)
    return whole.view(dtype)


def read(tensor: Tensor) -> Observation:
    (observation,) = recorded(tensor)
    return observation


class TestDtypes:
    @pytest.mark.parametrize("dtype", NUMPY, ids=str)
    def test_as_numpy_has_the_bytes(self, dtype: torch.dtype) -> None:
        tensor = bits(5, 7, dtype=dtype)
        expected = tensor.numpy()
        assert expected.dtype == NUMPY[dtype]
        assert read(tensor).digest == sha256(expected.tobytes())
        assert read(tensor.T).digest == sha256(expected.T.tobytes())
        assert read(tensor[::2, 1:-1]).digest == sha256(expected[::2, 1:-1].tobytes())

    @pytest.mark.parametrize("dtype", OTHERS, ids=str)
    def test_what_numpy_has_not_is_read_by_its_bits(self, dtype: torch.dtype) -> None:
        tensor = bits(5, 7, dtype=dtype)
        same = tensor.view(OTHERS[dtype]).numpy()
        assert read(tensor).digest == sha256(same.tobytes())
        assert read(tensor.t()).digest == sha256(same.T.tobytes())
        assert (read(tensor).numel, read(tensor).shape) == (35, (5, 7))

    def test_bits_count_not_numbers(self) -> None:
        zeros = torch.zeros(3)
        assert read(zeros).digest != read(-zeros).digest
        nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
        assert read(nan[:1]).digest != read(nan[1:]).digest
        assert read(nan[:1]).digest == read(nan[:1].clone()).digest


class TestLayouts:
    def test_no_elements_one_element_and_one_element_many_times(self) -> None:
        assert read(torch.empty(0, 3)).digest == sha256(b"")
        assert read(torch.tensor(2.5)).digest == sha256(np.float32(2.5).tobytes())
        repeated = torch.tensor([1.5]).expand(1000, 3)
        assert read(repeated).digest == sha256(np.full((1000, 3), 1.5, np.float32).tobytes())

    def test_conjugate_and_negative_views_are_resolved(self) -> None:
        tensor = torch.view_as_complex(torch.randn(4, 3, 2))
        assert read(tensor.conj()).digest == sha256(tensor.conj().resolve_conj().numpy().tobytes())
        imaginary = tensor.conj().imag
        assert imaginary.is_neg()
        assert read(imaginary).digest == sha256(imaginary.resolve_neg().numpy().tobytes())

    def test_parameters_buffers_and_what_requires_grad(self) -> None:
        tensor = torch.randn(3, 4)
        expected = sha256(tensor.numpy().tobytes())
        assert read(torch.nn.Parameter(tensor)).digest == expected
        assert read(torch.nn.Parameter(tensor, requires_grad=False)).digest == expected
        assert read(tensor.clone().requires_grad_() * 1.0).digest == expected

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_strides(self, data: st.DataObject) -> None:
        """Permuted, sliced, flipped by an index and expanded, small and beyond what is made contiguous at a time."""
        sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
        tensor = torch.arange(torch.Size(sizes).numel(), dtype=torch.int32).reshape(sizes)
        tensor = tensor.permute(*data.draw(st.permutations(range(len(sizes)))))
        for dim in range(tensor.dim()):
            first = data.draw(st.integers(0, tensor.shape[dim] - 1))
            step = data.draw(st.integers(1, 3))
            tensor = tensor[(slice(None),) * dim + (slice(first, None, step),)]
        if data.draw(st.booleans()):
            tensor = tensor.unsqueeze(0).expand(data.draw(st.integers(1, 4)), *tensor.shape)
        assert digest_of(tensor) == sha256(tensor.contiguous().numpy().tobytes())

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.zeros(3000, 1200, dtype=torch.int32)[:, ::2],
            torch.arange(4_000_000).view(2, -1).T,
            torch.arange(3_000_000).view(1, 1000, 3000)[:, :, ::3],
            torch.ones(1).expand(3, 1_500_000),
        ],
        ids=["rows", "columns", "one", "expanded"],
    )
    def test_large_ones_piece_by_piece(self, tensor: Tensor) -> None:
        assert not tensor.is_contiguous()
        assert digest_of(tensor) == sha256(np.ascontiguousarray(tensor.numpy()).tobytes())

    def test_other_threads_run_meanwhile(self) -> None:
        """hashlib lets go of the interpreter, so that a thread that only counts gets on."""
        tensor, counted, done = torch.zeros(20_000_000), [0], threading.Event()

        def count() -> None:
            while not done.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        digest_of(tensor)
        after = counted[0]
        done.set()
        thread.join()
        assert after - before > 1000


class TestWithoutElements:
    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda: torch.empty(3, device="meta"), "meta"),
            (lambda: torch.eye(3).to_sparse(), "layout sparse_coo"),
            (lambda: torch.eye(3).to_sparse_csr(), "layout sparse_csr"),
            (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
            (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested"),
            (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "quantized"),
            (lambda: torch.nn.UninitializedParameter(), "uninitialized"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    @pytest.mark.filterwarnings("ignore")
    def test_there_is_a_reason(self, make: Callable[[], Tensor], reason: str) -> None:
        observation = read(make())
        assert (observation.digest, observation.unread) == (None, reason)
        observation.line()

    def test_statistics_of_what_is_stored_are_there_all_the_same(self) -> None:
        observation = read((3 * torch.eye(3)).to_sparse())
        assert observation.stats is not None
        assert (observation.stats.finite_min, observation.stats.mean, observation.shape) == (3.0, 3.0, (3, 3))

    def test_fake_tensors_and_what_is_made_while_their_mode_is_on(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = torch.ones(3)
            assert read(fake).unread == "fake"
        assert read(mode.from_tensor(torch.ones(2))).unread == "fake"

    def test_a_shard_is_read_as_what_this_rank_has(self) -> None:
        class Shard(torch.Tensor):
            _local_tensor: Tensor

            @classmethod
            def __torch_dispatch__(
                cls, function: object, types: object, args: object = (), kwargs: object = None
            ) -> None:
                raise AssertionError(f"{function}: the program's class is asked")

        local = torch.randn(2, 3)
        spread = torch.Tensor._make_wrapper_subclass(Shard, (4, 3))  # type: ignore[attr-defined]
        spread._local_tensor = local
        observation = read(spread)
        assert (observation.digest, observation.shape) == (sha256(local.numpy().tobytes()), (2, 3))

    def test_what_is_inside_vmap_is_all_rows(self) -> None:
        found = []

        def inner(row: Tensor) -> Tensor:
            found.append(elements_of(row))
            return row * 2

        rows = torch.randn(3, 2)
        torch.vmap(inner)(rows)
        assert found[0].exact is not None
        assert torch.equal(found[0].exact, rows)
