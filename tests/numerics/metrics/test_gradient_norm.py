"""The norm of all gradients before clipping."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_, clip_grad_value_

from aorta_collectors.numerics.engine.guard import Guard
from aorta_collectors.numerics.metrics.gradient_norm import GradientNorm
from tests.numerics.driving import timeline


@pytest.fixture
def norm() -> Iterator[GradientNorm]:
    warned: list[str] = []
    measured = GradientNorm(Guard(timeline(), warned.append))
    measured.start()
    yield measured
    measured.stop()
    assert warned == []


def parameters(*gradients: torch.Tensor) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = gradient.clone()
    return made


def reference(*gradients: torch.Tensor) -> float:
    return float(torch.cat([gradient.double().reshape(-1) for gradient in gradients]).norm())


GRADIENTS = (torch.tensor([3.0, 4.0]), torch.arange(12.0).reshape(3, 4) - 5)


def test_without_clipping_it_is_taken_when_the_optimizer_is_about_to_step(norm: GradientNorm) -> None:
    norm.optimizer_began(torch.optim.SGD(parameters(*GRADIENTS), lr=0.1))
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)
    assert norm.take().value is None


def test_clipping_by_a_name_bound_before_it_was_armed(norm: GradientNorm) -> None:
    params = parameters(*GRADIENTS)
    returned = clip_grad_norm_(iter(params), 1.0)  # bound when this module was imported
    assert reference(*[param.grad for param in params if param.grad is not None]) == pytest.approx(1.0, rel=1e-4)
    norm.optimizer_began(torch.optim.SGD(params, lr=0.1))
    assert norm.take().value == returned.item()


def test_another_norm_and_clipping_by_value_are_preceded_by_the_2_norm(norm: GradientNorm) -> None:
    clip_grad_norm_(parameters(*GRADIENTS), 1.0, norm_type=math.inf)
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)
    params = parameters(*GRADIENTS)
    clip_grad_value_(params, 0.5)
    norm.optimizer_began(torch.optim.SGD(params, lr=0.1))
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)


def test_clipping_by_value_after_clipping_by_norm_changes_nothing(norm: GradientNorm) -> None:
    params = parameters(*GRADIENTS)
    clip_grad_norm_(params, 1.0)
    clip_grad_value_(params, 0.1)
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)


def test_groups_that_are_clipped_and_optimizers_that_step_are_taken_together(norm: GradientNorm) -> None:
    for gradient in GRADIENTS:
        clip_grad_norm_(parameters(gradient), 1.0)
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)
    optimizers = [torch.optim.SGD(parameters(gradient), lr=0.1) for gradient in GRADIENTS]
    for optimizer in (*optimizers, optimizers[0]):
        norm.optimizer_began(optimizer)
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)


def test_what_a_fused_optimizer_gets_is_unscaled(norm: GradientNorm) -> None:
    optimizer = torch.optim.SGD(parameters(*[gradient * 512 for gradient in GRADIENTS]), lr=0.1)
    optimizer.grad_scale = torch.tensor(512.0)  # type: ignore[attr-defined]
    norm.optimizer_began(optimizer)
    assert norm.take().value == pytest.approx(reference(*GRADIENTS), rel=1e-6)


def test_half_precision_does_not_overflow(norm: GradientNorm) -> None:
    halves = (torch.full((64,), 60000.0, dtype=torch.float16), torch.full((8,), 3e38, dtype=torch.bfloat16))
    norm.optimizer_began(torch.optim.SGD(parameters(halves[0]), lr=0.1))
    assert norm.take().value == pytest.approx(reference(halves[0]), rel=1e-3)
    norm.optimizer_began(torch.optim.SGD(parameters(torch.ones(8, dtype=torch.bfloat16)), lr=0.1))
    assert norm.take().value == pytest.approx(math.sqrt(8), rel=1e-6)


def test_sparse_gradients_count_once_where_rows_repeat(norm: GradientNorm) -> None:
    table = nn.Embedding(10, 4, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    norm.optimizer_began(torch.optim.SGD([table.weight], lr=0.1))
    assert norm.take().value == pytest.approx(reference(gradient.to_dense()), rel=1e-6)
    assert not gradient.is_coalesced()


@pytest.mark.parametrize(("bad", "told"), [(math.nan, math.nan), (math.inf, math.inf)])
def test_bad_gradients_are_told(norm: GradientNorm, bad: float, told: float) -> None:
    params = parameters(torch.tensor([1.0, bad]), torch.ones(2))
    norm.optimizer_began(torch.optim.SGD(params, lr=0.1))
    value = norm.take().value
    assert value is not None
    assert value == told or (math.isnan(value) and math.isnan(told))


def test_gradients_without_values_leave_it_unknown(norm: GradientNorm) -> None:
    params = [nn.Parameter(torch.zeros(3, device="meta")), *parameters(torch.ones(2))]
    params[0].grad = torch.zeros(3, device="meta")
    norm.optimizer_began(torch.optim.SGD(params, lr=0.1))
    assert norm.take().value is None
    norm.optimizer_began(torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1))
    assert norm.take().value is None


def test_what_fsdp_clips_is_as_it_says(norm: GradientNorm) -> None:
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
        told = []
        for norm_type in (2.0, 1.0):
            model(torch.ones(2, 4)).sum().backward()
            told.append((model.clip_grad_norm_(0.5, norm_type).item(), norm.take().value))
            model.zero_grad()
        layer = nn.Linear(4, 4)
        fully_shard(layer)
        layer(torch.ones(2, 4)).sum().backward()
        clip_grad_norm_(layer.parameters(), 0.5)
        reached = norm.take().value
        del model, layer
    finally:
        dist.destroy_process_group()
    assert told[0][0] == told[0][1] == pytest.approx(math.sqrt(20 * 4))
    assert told[1][1] is None
    assert reached == pytest.approx(math.sqrt(20 * 4))


def test_clipping_is_the_same_bit_for_bit_and_undone_afterwards() -> None:
    before = dict(vars(clip_grad))
    results = []
    for armed in (False, True):
        norm = GradientNorm(Guard(timeline(), pytest.fail))
        if armed:
            norm.start()
        params = parameters(*GRADIENTS)
        results.append([clip_grad_norm_(params, 1.0), *[param.grad for param in params]])
        norm.stop()
        assert dict(vars(clip_grad)) == before
    assert all(torch.equal(bare, seen) for bare, seen in zip(*results, strict=True))


def test_compiled_code_clips_without_a_break(norm: GradientNorm) -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def clipped(parameter: nn.Parameter) -> torch.Tensor:
        clip_grad_norm_([parameter], 1.0)
        clip_grad_value_([parameter], 0.5)
        return parameter * 2

    clipped(parameters(GRADIENTS[0])[0])
    assert norm.take().value is None


def test_errors_of_the_program_stay_its_own(norm: GradientNorm) -> None:
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_(parameters(torch.tensor([math.inf])), 1.0, error_if_nonfinite=True)
    assert norm.take().value is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(-(2**50), 2**50, width=32, allow_subnormal=False), min_size=1, max_size=20),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_it_equals_a_reference_in_float64(values: list[list[float]], dtype: torch.dtype) -> None:
    norm = GradientNorm(Guard(timeline(), pytest.fail))
    gradients = [torch.tensor(row, dtype=dtype) for row in values]
    norm.optimizer_began(torch.optim.SGD(parameters(*gradients), lr=0.1))
    assert norm.take().value == pytest.approx(reference(*gradients), rel=1e-5, abs=1e-18)
