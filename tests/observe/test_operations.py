"""Counting operations: by closed formulas, beside torch's own counter, and without the program noticing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop, sdpa_flop

from aorta_collectors.observe.operations import Counts, OperationCounter
from tests.numerics import models

aten = torch.ops.aten


def counted(function: Callable[[], Any]) -> Counts:
    """All that `function` computes."""
    errors: list[Exception] = []
    counter = OperationCounter(lambda: "all", errors.append)
    counter.enter()
    try:
        function()
    finally:
        counter.leave()
    assert errors == []
    assert torch._C._len_torch_dispatch_stack() == 0
    return counter.counts.get("all", Counts())


def of_torch(function: Callable[[], Any]) -> int:
    """FLOPs as torch's counter tells them, with its formulas for the attention of a CPU, which it lacks."""
    on_cpu = {
        aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop.__wrapped__,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop.__wrapped__,
    }
    with FlopCounterMode(display=False, custom_mapping=on_cpu) as counter:
        function()
    return counter.get_total_flops()


sizes = st.integers(1, 9)


class TestFlops:
    @given(batch=sizes, inputs=sizes, outputs=sizes, bias=st.booleans())
    @settings(max_examples=20, deadline=None)
    def test_of_a_linear_layer(self, batch: int, inputs: int, outputs: int, bias: bool) -> None:
        layer, x = nn.Linear(inputs, outputs, bias=bias), torch.ones(batch, inputs, requires_grad=True)
        made: list[torch.Tensor] = []
        assert counted(lambda: made.append(layer(x).sum())).flops == 2 * batch * inputs * outputs
        # One product for the gradient of the input, and one for that of the weight.
        assert counted(made[0].backward).flops == 4 * batch * inputs * outputs

    @given(batch=sizes, heads=sizes, queries=sizes, keys=sizes, width=sizes)
    @settings(max_examples=20, deadline=None)
    def test_of_attention(self, batch: int, heads: int, queries: int, keys: int, width: int) -> None:
        q = torch.ones(batch, heads, queries, width, requires_grad=True)
        k = torch.ones(batch, heads, keys, width, requires_grad=True)
        product = 2 * batch * heads * queries * keys * width
        made: list[torch.Tensor] = []
        assert counted(lambda: made.append(scaled_dot_product_attention(q, k, k).sum())).flops == 2 * product
        # Its scores are computed anew, and then four products for the gradients of what the two multiply.
        assert counted(made[0].backward).flops == 5 * product

    @given(batch=sizes, inputs=sizes, outputs=sizes, kernel=st.integers(1, 3), side=st.integers(3, 8))
    @settings(max_examples=20, deadline=None)
    def test_of_a_convolution(self, batch: int, inputs: int, outputs: int, kernel: int, side: int) -> None:
        layer = nn.Conv2d(inputs, outputs, kernel)
        x = torch.ones(batch, inputs, side, side)
        pixels = (side - kernel + 1) ** 2
        assert counted(lambda: layer(x)).flops == 2 * batch * pixels * outputs * inputs * kernel**2
        assert counted(lambda: layer(x).sum().backward()).flops == of_torch(lambda: layer(x).sum().backward())

    def test_a_lookup_computes_nothing(self) -> None:
        table = nn.Embedding(1000, 16)
        ids = torch.arange(10)
        counts = counted(lambda: table(ids))
        assert counts.flops == 0
        assert counts.operations == 1
        # Of the table, only what is looked up is read; it is written once more as the result.
        assert counts.bytes == 10 * 8 + 2 * 10 * 16 * 4

    def test_of_products_with_a_vector(self) -> None:
        matrix, vector = torch.ones(5, 7), torch.ones(7)
        assert counted(lambda: matrix @ vector).flops == 2 * 5 * 7
        assert counted(lambda: vector @ vector).flops == 2 * 7
        assert counted(lambda: nn.Linear(7, 5)(vector)).flops == 2 * 5 * 7

    @pytest.mark.parametrize("model", ["mlp", "sequence_of_blocks", "dlrm", "gpt2", "llama"])
    def test_of_models_they_are_those_of_torchs_counter(self, model: str) -> None:
        torch.manual_seed(0)
        sample: models.Sample = getattr(models, model)()

        def train() -> None:
            sample.loss().backward()

        assert counted(train).flops == of_torch(train) > 0
        with torch.no_grad():
            assert counted(sample.call).flops == of_torch(sample.call) > 0

    @pytest.mark.parametrize("model", ["mlp", "sequence_of_blocks", "gpt2"])
    def test_inference_mode_hides_none(self, model: str) -> None:
        sample: models.Sample = getattr(models, model)()
        sample.model.eval()
        with torch.no_grad():
            expected = counted(sample.call)
        with torch.inference_mode():
            found = counted(sample.call)
        assert found.flops == expected.flops
        assert found.operations <= expected.operations

    def test_of_an_encoder_layer_that_runs_as_one_operation(self) -> None:
        layer, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), torch.ones(2, 10, 32)
        with torch.no_grad():
            as_one = counted(lambda: layer(x))
        assert as_one.operations == 1
        assert as_one.flops == counted(lambda: layer(x)).flops  # with gradients, piece by piece

    def test_the_dtype_is_that_of_most_flops_and_else_of_most_bytes(self) -> None:
        layer, x = nn.Linear(64, 64), torch.ones(64, 64)
        with torch.autocast("cpu", torch.bfloat16):
            assert counted(lambda: layer(x)).dtype is torch.bfloat16
        assert counted(lambda: x.double().add_(1)).dtype is torch.float64
        assert counted(lambda: torch.arange(4) + 1).dtype is None


class TestBytes:
    x = torch.ones(8, 16)
    SIZE = 8 * 16 * 4

    @pytest.mark.parametrize(
        ("name", "function", "tensors"),
        [
            ("one in, one out", lambda x: x.relu(), 2),
            ("two in, one out", lambda x: x + x.clone(), 2 + 3),
            ("the same twice", lambda x: x + x, 2),
            ("in place", lambda x: x.clone().add_(1), 2 + 2),
            ("written without reading", lambda x: torch.empty_like(x).fill_(1), 1),
            ("copied", lambda x: torch.empty_like(x).copy_(x), 2),
            ("a list", lambda x: torch.cat([x, x.clone()]), 2 + 4),
        ],
    )
    def test_each_operand_and_each_result_once(self, name: str, function: Callable[[Any], Any], tensors: int) -> None:
        assert counted(lambda: function(self.x)).bytes == tensors * self.SIZE

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: x.view(-1)[3:].unsqueeze(0),
            lambda x: x.t().expand(3, 16, 8),
            lambda x: x.contiguous().detach().reshape(4, 32),
            lambda x: x.to(torch.float32),
            lambda x: torch.empty(100),
            lambda x: x.is_contiguous(),
        ],
    )
    def test_what_only_looks_at_memory_in_another_way_is_free(self, function: Callable[[Any], Any]) -> None:
        assert counted(lambda: function(self.x)) == Counts()

    def test_an_expanded_operand_is_as_large_as_in_memory(self) -> None:
        assert counted(lambda: self.x[:1].expand(1000, 16) + 0).bytes == 16 * 4 + 1000 * 16 * 4

    def test_reading_a_number_is_an_operation(self) -> None:
        assert counted(self.x[0, 0].item).operations == 1


class TestSeenByTheProgram:
    def test_nothing_changes(self) -> None:
        """Parameters, gradients and the state of the generator are those of a run without it, bit for bit."""

        def trained(counting: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
            torch.manual_seed(0)
            sample = models.gpt2(dropout=0.1)
            optimizer = torch.optim.Adam(sample.model.parameters())
            counter = OperationCounter(lambda: None)
            for _ in range(3):
                optimizer.zero_grad()
                if counting:
                    counter.enter()
                sample.loss().backward()
                counter.leave()
                optimizer.step()
            return [parameter.detach() for parameter in sample.model.parameters()], torch.get_rng_state()

        (bare, bare_state), (ours, our_state) = trained(False), trained(True)
        assert all(torch.equal(one, other) for one, other in zip(bare, ours, strict=True))
        assert torch.equal(bare_state, our_state)

    def test_an_exception_passes_through(self) -> None:
        with pytest.raises(RuntimeError, match="shape"):
            counted(lambda: torch.ones(2, 3) @ torch.ones(2, 3))
        assert torch._C._len_torch_dispatch_stack() == 0

    def test_fake_tensors_stay_fake(self) -> None:
        """What they are asked for on the way is known to TorchScript alone."""
        counter = OperationCounter(lambda: "all")
        with FakeTensorMode():
            layer, x = nn.Linear(4, 4), torch.ones(2, 4)
            counter.enter()
            made = layer(x)
            counter.leave()
        assert isinstance(made, FakeTensor)
        assert counter.counts["all"].flops == 2 * 2 * 4 * 4

    def test_a_key_that_cannot_be_told_is_none_and_is_told_of(self) -> None:
        errors: list[Exception] = []
        counter = OperationCounter(lambda: 1 / 0, errors.append)
        counter.enter()
        torch.ones(2) + 1
        counter.leave()
        assert {type(error) for error in errors} == {ZeroDivisionError}
        assert counter.counts[None].operations == 2

    def test_operations_go_to_whoever_is_running(self) -> None:
        running = ["first"]
        counter = OperationCounter(lambda: running[-1])
        x = torch.ones(3, 3)
        counter.enter()
        x @ x
        running.append("second")
        x + x
        counter.leave()
        x @ x
        assert {key: (counts.flops, counts.operations) for key, counts in counter.counts.items()} == {
            "first": (54, 1),
            "second": (0, 1),
        }

    def test_modes_that_were_entered_later_stay_when_it_leaves(self) -> None:
        class Operations(TorchDispatchMode):
            seen = 0

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                self.seen += 1
                return func(*args, **(kwargs or {}))

        counter = OperationCounter(lambda: "all")
        counter.enter()
        with Operations() as theirs:
            torch.ones(1)
            counter.leave()
            torch.ones(1)
            assert torch._C._len_torch_dispatch_stack() == 1
        assert theirs.seen == 2
        assert counter.counts["all"].operations == 1
        assert torch._C._len_torch_dispatch_stack() == 0

    def test_torchs_compiler_is_not_imported(self) -> None:
        """As torch does for other modes at their first operation: seconds, in a program that does not compile."""
        program = (
            "import sys, torch\n"
            "from aorta_collectors.observe.operations import OperationCounter\n"
            "counter = OperationCounter(lambda: 0)\n"
            "counter.enter()\n"
            "torch.nn.Linear(2, 2)(torch.ones(2, 2)).sum().backward()\n"
            "counter.leave()\n"
            "assert counter.counts[0].flops == 32, counter.counts\n"
            "assert 'torch._dynamo' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

    def test_leaving_without_having_entered_is_nothing(self) -> None:
        OperationCounter(lambda: None).leave()
