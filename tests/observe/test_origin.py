"""Where a bad value came into being: each stage in the smallest program that shows it, and one that only looks so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.observe.hunting import INF, NAN, Apply, Between, Hunt, at_step, fit, hunting
from tests.observe.watching import two_layers

GOOD = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
BAD = GOOD.clone().index_fill_(1, torch.tensor([2]), NAN)
ZEROS = torch.zeros(3, 4)
TWO = 2  # the step in which things go wrong


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def poisoned(bad: float) -> Callable[[Tensor], Tensor]:
    """A function that returns its input, and `bad` in its first element from the second call on."""
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) < TWO:
            return x
        spoil = torch.zeros_like(x)
        spoil.view(-1)[0] = bad
        return x + spoil

    return function


class Spoil(torch.autograd.Function):
    """The identity, whose backward gives out NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * NAN


def spoiled(x: Tensor) -> Tensor:
    out: Tensor = Spoil.apply(x)  # type: ignore[no-untyped-call]
    return out


def origin(hunt: Hunt) -> dict[str, Any]:
    assert hunt.finder.origin is not None
    return hunt.finder.origin


class TestData:
    """Bad as it enters the root."""

    def test_a_batch(self) -> None:
        with hunting() as hunt:
            fit(two_layers(), at_step(3, BAD, GOOD))
        assert hunt.place == ("data", "(root)", 3)
        assert origin(hunt)["tensor_path"] == "[0]"
        assert origin(hunt)["role"] == "input"
        assert origin(hunt)["nan_count"] == 3

    def test_a_tensor_inside_the_batch(self) -> None:
        model = Apply(lambda batch, *, scale: batch["x"][0] * scale)
        model.weight = nn.Parameter(torch.ones(1))
        with hunting() as hunt:
            model({"x": [GOOD, GOOD]}, scale=GOOD)
            model({"x": [GOOD, BAD]}, scale=GOOD)
        assert hunt.place == ("data", "(root)", 2)
        assert origin(hunt)["tensor_path"] == "[0]['x'][1]"

    def test_a_keyword(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 1)

            def forward(self, *, x: Tensor) -> Tensor:
                out: Tensor = self.layer(x)
                return out

        with hunting() as hunt:
            Net()(x=BAD)
        assert hunt.place == ("data", "(root)", 1)
        assert origin(hunt)["tensor_path"] == "x"

    def test_not_what_the_model_makes_of_a_good_batch(self) -> None:
        class Net(Between):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x / x.abs().sum())

        with hunting() as hunt:
            fit(Net(lambda x: x), at_step(3, ZEROS, GOOD))
        assert hunt.place == ("forward", "(root)", 3)
        assert origin(hunt)["layer_name"] == "first"

    def test_not_a_target_that_only_the_loss_sees(self) -> None:
        target = at_step(3, torch.full((3, 1), NAN), torch.zeros(3, 1))
        model, criterion = two_layers(), nn.MSELoss()
        with hunting() as hunt:
            fit(model, [GOOD] * 4, lambda out: criterion(out, target.pop(0)))
        assert hunt.place == ("loss", "(loss)", 3)


class TestParameter:
    """Bad before any step, or made so by no optimizer."""

    @pytest.mark.parametrize(("name", "role"), [("weight", "weight"), ("bias", "bias")])
    def test_at_the_start(self, name: str, role: str) -> None:
        model = two_layers()
        with torch.no_grad():
            getattr(model[2], name).fill_(NAN)
        with hunting() as hunt:
            fit(model, [GOOD] * 2)
        assert hunt.place == ("parameter", "2", 1)
        assert (origin(hunt)["role"], origin(hunt)["param_name"]) == (role, name)

    def test_a_buffer_at_the_start(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
        model[1].running_var.fill_(NAN)
        with hunting() as hunt:
            fit(model, [GOOD] * 2)
        assert hunt.place == ("parameter", "1", 1)
        assert origin(hunt)["param_name"] == "running_var"

    def test_spoiled_between_two_steps_of_an_evaluation(self) -> None:
        model = two_layers().requires_grad_(False)
        with hunting() as hunt:
            model(GOOD)
            model[0].weight.fill_(NAN)
            model(GOOD)
        assert hunt.place == ("parameter", "0", 2)

    def test_one_that_is_loaded_between_two_steps(self) -> None:
        model = two_layers()
        state = {name: torch.full_like(value, NAN) for name, value in model.state_dict().items()}
        with hunting() as hunt:
            fit(model, [GOOD])
            model.eval()
            model(GOOD)
            model.load_state_dict(state)
            model(GOOD)
        assert hunt.place == ("parameter", "0", 3)

    def test_not_a_running_statistic_that_a_forward_spoils(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        with hunting() as hunt:
            for batch in at_step(3, GOOD * 1e30, GOOD):
                model(batch)
        # The variance of 1e30 is beyond float32, and the output is clean all the same.
        assert hunt.place is not None
        assert hunt.place[0] == "forward"
        assert hunt.place[1:] == ("1", 3)


class TestForward:
    """The first module whose inputs and parameters were clean and whose output was not."""

    def test_a_layer(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)), nn.Linear(4, 1))
        with hunting() as hunt:
            fit(model, [GOOD] * 3)
        assert hunt.place == ("forward", "1", TWO)
        assert origin(hunt)["role"] == "act"
        assert origin(hunt)["kind"] == "nan"

    def test_the_evidence_shows_clean_inputs_and_parameters_and_the_bad_output(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        with torch.no_grad():
            model[1].weight.fill_(3e38)
            model[0].bias.fill_(1e3)
        with hunting() as hunt:
            fit(model, [GOOD])
        assert hunt.place == ("forward", "1", 1)
        evidence = origin(hunt)["evidence"]
        assert [one["role"] for one in evidence] == ["weight", "bias", "input", "act"]
        assert all(one["layer_name"] == "1" for one in evidence)
        assert [one["nan_count"] + one["inf_count"] for one in evidence[:-1]] == [0, 0, 0]
        assert evidence[-1]["inf_count"] == 3
        assert evidence[0]["finite_abs_max"] == pytest.approx(3e38)

    def test_the_innermost_of_nested_modules(self) -> None:
        inner = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(INF)))
        with hunting() as hunt:
            fit(nn.Sequential(nn.Sequential(inner), nn.Linear(4, 1)), [GOOD] * 3)
        assert hunt.place == ("forward", "0.0.1", TWO)

    def test_code_between_two_layers_belongs_to_the_module_around(self) -> None:
        with hunting() as hunt:
            fit(nn.Sequential(nn.Identity(), Between(poisoned(NAN))), [GOOD] * 3)
        assert hunt.place == ("forward", "1", TWO)
        assert origin(hunt)["layer_name"] == "1.second"

    def test_an_edit_in_place_between_two_layers(self) -> None:
        def edit(x: Tensor) -> Tensor:
            return x.div_(x.detach().sub(x.detach()))

        with hunting() as hunt:
            fit(Between(edit), [GOOD])
        assert hunt.place == ("forward", "(root)", 1)

    def test_an_edit_in_place_of_a_layer_on_its_own_input(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(lambda x: x.detach().fill_(NAN)), nn.Linear(4, 1))
        with hunting() as hunt:
            fit(model, [GOOD])
        assert hunt.place == ("forward", "1", 1)

    def test_a_value_that_the_next_layer_hides(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)), Apply(torch.nan_to_num), nn.Linear(4, 1))
        with hunting() as hunt:
            losses = fit(model, [GOOD] * 3)
        assert hunt.place == ("forward", "1", TWO)
        assert "nan" not in losses

    def test_the_second_tensor_of_an_output(self) -> None:
        class Output(NamedTuple):
            mean: Tensor
            spread: Tensor

        model = nn.Sequential(
            nn.Linear(4, 4), Apply(lambda x: Output(x, poisoned_second(x))), Apply(lambda out: out.mean)
        )
        poisoned_second = poisoned(INF)
        with hunting() as hunt:
            fit(model, [GOOD] * 3)
        assert hunt.place == ("forward", "1", TWO)
        assert origin(hunt)["tensor_path"] == "spread"

    def test_a_module_that_is_called_several_times(self) -> None:
        cell = Apply(lambda x: x.square() * 1e5)

        class Recurrent(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode, self.cell = nn.Linear(4, 4), cell

            def forward(self, x: Tensor) -> Tensor:
                x = self.encode(x)
                for _ in range(8):
                    x = self.cell(x)
                return x.clamp(-1, 1)

        with hunting() as hunt:
            fit(Recurrent(), [GOOD])
        assert hunt.place == ("forward", "cell", 1)
        assert 2 <= origin(hunt)["invocation"] < 8

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_under_activation_checkpointing(self, reentrant: bool) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode = nn.Linear(4, 4)
                self.block = nn.Sequential(nn.Linear(4, 4), Apply(torch.log))

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = checkpoint(self.block, self.encode(x), use_reentrant=reentrant)
                return out

        with hunting() as hunt:
            fit(Net(), [GOOD])
        assert hunt.place == ("forward", "block.1", 1)
        assert not origin(hunt)["recompute"]

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_what_only_the_second_forward_of_a_checkpoint_makes(self, reentrant: bool) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), Apply(poisoned(NAN)), nn.Tanh()))
        inner = model[1]
        model[1] = Apply(lambda x: checkpoint(inner, x, use_reentrant=reentrant))
        model[1].inner = inner
        with hunting() as hunt:
            fit(model, [GOOD])
        assert hunt.place == ("forward", "1.inner.1", 1)
        assert origin(hunt)["recompute"]

    def test_without_gradients(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)))
        with torch.inference_mode(), hunting() as hunt:
            for _ in range(3):
                model(GOOD)
        assert hunt.place == ("forward", "1", TWO)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


class TestMasks:
    """-inf by design is expected, as long as nothing worse comes of it."""

    class Attention(nn.Module):
        """Scores, a mask on them, a softmax."""

        def __init__(self, mask: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
            self.mask = Apply(mask)
            self.softmax = nn.Softmax(-1)

        def forward(self, x: Tensor, allowed: Tensor | None = None) -> Tensor:
            scores = self.query(x) @ self.key(x).T
            masked = self.mask(scores) if allowed is None else self.mask(scores, allowed)
            out: Tensor = self.softmax(masked)
            return out

    CAUSAL = torch.full((3, 3), -INF).triu(1)

    def test_an_additive_mask_that_comes_with_the_batch(self) -> None:
        model = self.Attention(lambda scores, mask: scores + mask)
        with hunting() as hunt:
            fit(model, [(GOOD, self.CAUSAL)] * 3)
        assert hunt.place is None
        assert hunt.finder.expected["mask"]["steps"] == 3
        assert hunt.finder.expected["mask"]["first"]["step"] == 1
        assert hunt.finder.expected["mask"]["first"]["module"] == "(root)"

    def test_an_additive_mask_that_is_a_buffer(self) -> None:
        model = self.Attention(lambda scores: scores + model.triangle)
        model.register_buffer("triangle", self.CAUSAL.clone())
        with hunting() as hunt:
            fit(model, [GOOD] * 3)
        assert hunt.place is None
        assert "mask" in hunt.finder.expected

    def test_scores_that_a_boolean_input_masks(self) -> None:
        model = self.Attention(lambda scores, allowed: scores.masked_fill(~allowed, -INF))
        with hunting() as hunt:
            fit(model, [(GOOD, torch.eye(3, dtype=torch.bool))] * 3)
        assert hunt.place is None
        assert "mask" in hunt.finder.expected

    def test_a_row_that_is_masked_altogether_is_no_design(self) -> None:
        model = self.Attention(lambda scores, allowed: scores.masked_fill(~allowed, -INF))
        nothing = torch.tensor([[True] * 3, [False] * 3, [True] * 3])
        with hunting() as hunt:
            fit(model, at_step(3, (GOOD, nothing), (GOOD, torch.eye(3, dtype=torch.bool))))
        assert hunt.place == ("forward", "softmax", 3)

    def test_positive_infinity_is_no_mask(self) -> None:
        model = self.Attention(lambda scores, mask: scores + mask)
        with hunting() as hunt:
            fit(model, [(GOOD, -self.CAUSAL)] * 3)
        assert hunt.place == ("data", "(root)", 1)

    def test_negative_infinity_that_no_mask_made_is_where_the_nan_after_it_comes_from(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Apply(torch.log), Apply(lambda x: x - x.amax()))
        with torch.no_grad():
            model[0].bias.fill_(-100.0)
        with hunting() as hunt:
            fit(model, [GOOD])
        assert hunt.place == ("forward", "2", 1)
        assert "mask" not in hunt.finder.expected

    @pytest.mark.parametrize(("high", "is_fault"), [(60000.0, True), (100.0, False)])
    def test_negative_overflow_beside_values_near_the_dtypes_end_is_no_mask(self, high: float, is_fault: bool) -> None:
        """The softmax takes the -inf in its stride; what grew on both sides is on its way to NaN all the same."""
        model = nn.Sequential(Apply(lambda x: x.half()), nn.Softmax(-1))
        scores = torch.tensor([[1.0, high, -1.0, -70000.0]])
        with hunting() as hunt:
            fit(model, [scores.requires_grad_()] * 2, lambda out: out.float().sum())
        assert hunt.place == (("forward", "Sequential.0", 1) if is_fault else None)


class TestLoss:
    """Made between the modules and backward()."""

    def test_code_after_the_model(self) -> None:
        with hunting() as hunt:
            fit(two_layers(), [GOOD] * 2, lambda out: (out - out).log().sum() * 0)
        assert hunt.place == ("loss", "(loss)", 1)
        assert origin(hunt)["role"] == "loss"

    def test_a_criterion_outside_the_model(self) -> None:
        criterion = nn.CrossEntropyLoss()
        labels = at_step(3, torch.full((3,), -100), torch.zeros(3, dtype=torch.long))
        with hunting() as hunt:
            fit(nn.Sequential(nn.Linear(4, 3)), [GOOD] * 4, lambda out: criterion(out, labels.pop(0)))
        assert hunt.place == ("loss", "(loss)", 3)
        assert origin(hunt)["invocation"] == 1

    def test_a_tree_of_criteria(self) -> None:
        criterion = nn.Sequential(Apply(lambda out: out - out), Apply(lambda out: (out / out).mean()))
        with hunting() as hunt:
            fit(two_layers(), [GOOD], criterion)
        assert hunt.place == ("loss", "(loss)", 1)

    def test_one_whose_gradients_are_taken_without_backward(self) -> None:
        model = two_layers()
        with hunting() as hunt:
            for factor in (1.0, NAN):
                torch.autograd.grad(model(GOOD).mean() * factor, list(model.parameters()))
        assert hunt.place == ("loss", "(loss)", 2)

    def test_not_a_loss_that_the_model_computes(self) -> None:
        class Net(Between):
            def forward(self, x: Tensor) -> Tensor:
                out = super().forward(x)
                return F.cross_entropy(out, torch.full((3,), -100))

        with hunting() as hunt:
            fit(Net(lambda x: x), [GOOD], lambda out: out)
        assert hunt.place == ("forward", "(root)", 1)

    def test_not_a_criterion_that_is_a_part_of_the_model(self) -> None:
        class Net(Between):
            def __init__(self) -> None:
                super().__init__(lambda x: x)
                self.criterion = nn.CrossEntropyLoss()

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = self.criterion(super().forward(x), torch.full((3,), -100))
                return out

        with hunting() as hunt:
            fit(Net(), [GOOD], lambda out: out)
        assert hunt.place == ("forward", "criterion", 1)

    def test_not_what_a_metric_beside_it_makes_when_the_model_has_made_it(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)))
        criterion = nn.MSELoss()
        with hunting() as hunt:
            fit(model, [GOOD] * 3, lambda out: criterion(out, torch.zeros(3, 4)))
        assert hunt.place == ("forward", "1", TWO)

    def test_a_loss_that_is_never_given_to_backward_is_not_seen(self) -> None:
        with hunting() as hunt:
            two_layers()(GOOD).sum() * NAN
        assert hunt.place is None


class TestBackward:
    """A module whose incoming gradient was clean and whose outgoing gradient was not."""

    def test_a_layer(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            fit(model, [GOOD])
        assert hunt.place == ("backward", "1", 1)
        assert origin(hunt)["role"] == "igrad"

    def test_a_square_root_at_zero(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4, bias=False), Apply(lambda x: x.square().sum(-1, keepdim=True).sqrt()))
        with hunting() as hunt:
            fit(model, at_step(3, ZEROS, GOOD))
        assert hunt.place == ("backward", "1", 3)

    def test_code_between_two_layers_belongs_to_the_module_around(self) -> None:
        with hunting() as hunt:
            fit(nn.Sequential(nn.Linear(4, 4), Between(spoiled)), [GOOD])
        assert hunt.place == ("backward", "1", 1)

    def test_an_edit_in_place_between_two_layers(self) -> None:
        """The same object is another tensor after it, with another gradient."""
        with hunting() as hunt:
            fit(Between(lambda x: x.mul_(0).pow_(0.5)), [GOOD])
        assert hunt.place == ("backward", "(root)", 1)

    def test_code_of_the_loss(self) -> None:
        with hunting() as hunt:
            fit(two_layers(), [GOOD], lambda out: (out - out.detach()).square().sum().sqrt())
        assert hunt.place == ("backward", "(loss)", 1)

    def test_a_criterion(self) -> None:
        criterion = Apply(lambda out: spoiled(out).mean())
        with hunting() as hunt:
            fit(two_layers(), [GOOD], criterion)
        assert hunt.place == ("backward", "(loss)", 1)

    def test_the_gradient_of_a_parameter_alone(self) -> None:
        class Scale(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.ones(4))

            def forward(self, x: Tensor) -> Tensor:
                return x * spoiled(self.scale)

        with hunting() as hunt:
            fit(nn.Sequential(nn.Linear(4, 4), Scale(), nn.Linear(4, 1)), [GOOD])
        assert hunt.place == ("backward", "1", 1)
        assert origin(hunt)["param_name"] == "scale"

    def test_a_cell_that_is_called_several_times(self) -> None:
        class Recurrent(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode, self.cell = nn.Linear(4, 4), Apply(lambda x: torch.tanh(x * 1e20))
                self.grow = Apply(lambda x: x * 1e25)

            def forward(self, x: Tensor) -> Tensor:
                x = self.encode(x) * 1e-30
                return self.grow(self.grow(x))

        with hunting() as hunt:
            fit(Recurrent(), [GOOD], lambda out: (out * 1e-40).sum().mul(1e35))
        assert hunt.place is not None
        assert hunt.place == ("backward", "grow", 1)

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_under_activation_checkpointing(self, reentrant: bool) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encode = nn.Linear(4, 4)
                self.block = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = checkpoint(self.block, self.encode(x), use_reentrant=reentrant)
                return out

        with hunting() as hunt:
            fit(Net(), [GOOD])
        assert hunt.place == ("backward", "block.1", 1)

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_code_between_layers_under_activation_checkpointing(self, reentrant: bool) -> None:
        class Part(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x: Tensor) -> Tensor:
                out: Tensor = checkpoint(lambda y: self.second(spoiled(self.first(y))), x, use_reentrant=reentrant)
                return out

        with hunting() as hunt:
            fit(nn.Sequential(nn.Linear(4, 4), Part(), nn.Linear(4, 1)), [GOOD])
        assert hunt.place == ("backward", "1", 1)

    def test_the_innermost_of_nested_modules(self) -> None:
        inner = nn.Sequential(nn.Sequential(Apply(spoiled)), nn.Linear(4, 4))
        with hunting() as hunt:
            fit(nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(4, 1)), [GOOD])
        assert hunt.place == ("backward", "1.0.0", 1)

    def test_a_residual_around_the_layer(self) -> None:
        class Residual(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.spoil, self.last = nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1)

            def forward(self, x: Tensor) -> Tensor:
                x = self.first(x)
                out: Tensor = self.last(x + self.spoil(x))
                return out

        with hunting() as hunt:
            fit(Residual(), [GOOD])
        assert hunt.place == ("backward", "spoil", 1)

    @pytest.mark.parametrize("bad", ["left", "right"])
    def test_of_two_modules_that_use_a_tensor_the_one_that_made_it(self, bad: str) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.left = Apply(spoiled if bad == "left" else torch.sin)
                self.right = Apply(spoiled if bad == "right" else torch.sin)

            def forward(self, x: Tensor) -> Tensor:
                x = self.first(x)
                out: Tensor = self.left(x) + self.right(x)
                return out

        with hunting() as hunt:
            fit(Net(), [GOOD])
        assert hunt.place is not None
        assert hunt.place == ("backward", bad, 1) or hunt.place[0] == "unknown"

    def test_a_gradient_taken_without_backward(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            torch.autograd.grad(model(GOOD).sum(), list(model.parameters()))
        assert hunt.place == ("backward", "1", 1)

    def test_not_a_gradient_that_a_bad_loss_brings(self) -> None:
        with hunting() as hunt:
            fit(two_layers(), [GOOD], lambda out: out.sum() * INF)
        assert hunt.place == ("loss", "(loss)", 1)

    def test_of_two_roots_the_one_that_made_it(self) -> None:
        first = nn.Sequential(nn.Linear(4, 4))
        second = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            second(first(GOOD)).sum().backward()
        assert hunt.place == ("backward", "Sequential#2.1", 1)


class TestOptimizer:
    """Clean gradients, and a bad parameter after the step."""

    def test_a_division_of_zero_by_zero(self) -> None:
        with hunting() as hunt:
            fit(two_layers(), [ZEROS] * 2, optimizer=lambda params: torch.optim.Adam(params, eps=0.0))
        assert hunt.place is not None
        assert hunt.place[0] == "optimizer"
        assert hunt.place[2] == 1

    def test_a_step_that_is_far_too_long(self) -> None:
        with hunting() as hunt:
            fit(nn.Linear(4, 1), [GOOD * 1e4] * 2, lambda out: out.sum(), lambda ps: torch.optim.SGD(ps, lr=1e38))
        assert hunt.place == ("optimizer", "(root)", 1)
        assert origin(hunt)["role"] == "weight"
        assert origin(hunt)["kind"] == "inf"

    @pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
    def test_a_fused_or_foreach_optimizer(self, options: dict[str, bool]) -> None:
        with hunting() as hunt:
            fit(nn.Linear(4, 1), [GOOD], lambda out: out.sum(), lambda ps: torch.optim.SGD(ps, lr=INF, **options))
        assert hunt.place == ("optimizer", "(root)", 1)

    def test_gradients_that_only_their_sum_spoils(self) -> None:
        """Of several micro-batches, each with finite gradients: no optimizer has touched them yet."""
        model = nn.Linear(4, 1, bias=False).half()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
        with hunting() as hunt:
            for _ in range(2):
                for _ in range(3):
                    backward((model(torch.ones(1, 4).half()) * 30000).sum())
                optimizer.step()
                optimizer.zero_grad()
        assert hunt.place == ("backward", "(root)", 3)

    def test_gradients_edited_between_backward_and_step(self) -> None:
        def clip(model: nn.Module) -> None:
            for parameter in model[2].parameters():
                parameter.grad.mul_(0.0).div_(0.0)

        with hunting() as hunt:
            fit(two_layers(), [GOOD], between=clip)
        assert hunt.place == ("optimizer", "2", 1)
        assert origin(hunt)["role"] == "wgrad"

    def test_gradients_that_come_from_other_ranks_are_not_decided_here(self) -> None:
        def reduce(model: nn.Module) -> None:
            model[2].weight.grad.fill_(NAN)

        with hunting(world_size=2) as hunt:
            fit(two_layers(), [GOOD], between=reduce)
        assert hunt.place == ("unknown", "2", 1)

    @pytest.mark.parametrize("steps", [1, 3])
    def test_an_update_by_hand(self, steps: int) -> None:
        """Of the last step as well, after which no other begins."""
        model = two_layers()
        with hunting() as hunt:
            for batch in at_step(steps, ZEROS, GOOD, steps=steps):
                model(batch).square().sum().backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        assert parameter.grad is not None
                        parameter -= 1e-3 * parameter.grad / parameter.grad.norm()
                        parameter.grad = None
        assert hunt.place == ("optimizer", "0", steps)
        assert origin(hunt)["param_name"] == "weight"

    def test_not_a_step_with_bad_gradients(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            fit(model, [GOOD] * 2)
        assert hunt.place is not None
        assert hunt.place[0] == "backward"

    def test_gradients_made_by_hand(self) -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with hunting() as hunt:
            with torch.no_grad():
                model(GOOD)
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, NAN)
            optimizer.step()
        assert hunt.place is not None
        assert hunt.place[0] != "parameter"


class TestScaler:
    """A step that a GradScaler skips is expected, if it finds a scale that works."""

    @staticmethod
    def train(model: nn.Module, batches: list[Tensor], scale: float, **options: Any) -> torch.amp.GradScaler:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for batch in batches:
            optimizer.zero_grad()
            scaler.scale(model(batch).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
        return scaler

    def test_the_search_for_a_scale(self) -> None:
        with hunting() as hunt:
            scaler = self.train(two_layers(), [GOOD * 10] * 6, 2.0**127)
        assert scaler.get_scale() < 2.0**127, "it skipped nothing"
        assert hunt.place is None
        assert hunt.finder.expected["scaler_skip"]["first"]["step"] == 1

    def test_a_single_step_that_is_skipped_in_the_middle(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        with hunting() as hunt:
            self.train(model, at_step(3, GOOD * 1e18, GOOD, steps=5), 2.0**30)
        assert hunt.place is None
        assert hunt.finder.expected["scaler_skip"]["first"]["step"] == 3

    def test_one_that_never_recovers_is_an_origin(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            self.train(model, [GOOD] * 5, 1024.0)
        assert hunt.place == ("backward", "1", 1)

    def test_a_forward_that_is_bad_is_an_origin_whatever_the_scaler_does(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)), nn.Linear(4, 1))
        with hunting() as hunt:
            self.train(model, [GOOD] * 5, 1024.0)
        assert hunt.place == ("forward", "1", TWO)

    def test_a_loss_that_is_bad_before_it_is_scaled(self) -> None:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        with hunting() as hunt:
            for factor in (1.0, 1.0, NAN, 1.0):
                optimizer.zero_grad()
                scaler.scale(model(GOOD).mean() * factor).backward()
                scaler.step(optimizer)
                scaler.update()
        assert hunt.place == ("loss", "(loss)", 3)

    def accumulate(self, model: nn.Module, batches: list[Tensor], scale: float, every: int) -> torch.amp.GradScaler:
        """The step is taken or skipped one or more forwards after the gradients were computed."""
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for number, batch in enumerate(batches, start=1):
            backward(scaler.scale(model(batch).square().mean()))
            if number % every == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        return scaler

    def test_the_search_for_a_scale_with_accumulated_gradients(self) -> None:
        with hunting() as hunt:
            scaler = self.accumulate(two_layers(), [GOOD * 10] * 12, 2.0**127, every=3)
        assert scaler.get_scale() < 2.0**127, "it skipped nothing"
        assert hunt.place is None
        assert "scaler_skip" in hunt.finder.expected

    def test_accumulated_gradients_that_never_recover(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(spoiled), nn.Linear(4, 1))
        with hunting() as hunt:
            self.accumulate(model, [GOOD] * 8, 1024.0, every=2)
        assert hunt.place == ("backward", "1", 1)

    def test_a_gradient_that_is_unscaled_and_clipped_first(self) -> None:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        with hunting() as hunt:
            for _ in range(6):
                optimizer.zero_grad()
                backward(scaler.scale(model(GOOD * 10).square().mean()))
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
        assert hunt.place is None
        assert "scaler_skip" in hunt.finder.expected

    def test_an_optimizer_that_skips_by_itself(self) -> None:
        """A fused one is called in any case, and leaves the parameters alone."""
        with hunting() as hunt:
            self.train(two_layers(), [GOOD * 10] * 6, 2.0**127, fused=True)
        assert hunt.place is None
        assert "scaler_skip" in hunt.finder.expected


class TestBesideTheModel:
    """Modules without parameters that the program calls on its own: not all of them are criteria."""

    @pytest.mark.parametrize("place", ["batch", "module"])
    def test_one_that_prepares_the_batch(self, place: str) -> None:
        prepare = Apply(lambda x: (x - x.mean()) / x.std())
        model = two_layers()
        bad = BAD if place == "batch" else ZEROS
        with hunting() as hunt:
            for batch in at_step(3, bad, GOOD):
                model(prepare(batch)).sum().backward()
        assert hunt.place is not None
        assert hunt.place[0] in (("data",) if place == "batch" else ("data", "forward"))
        assert hunt.place[2] in (2, 3)

    def test_a_metric_in_an_evaluation(self) -> None:
        model, metric = two_layers(), Apply(lambda out, labels: (out - labels).abs().mean() / labels.sum())
        with hunting() as hunt, torch.no_grad():
            for labels in at_step(3, torch.zeros(3, 1), torch.ones(3, 1)):
                metric(model(GOOD), labels)
        assert hunt.place == ("loss", "(loss)", 3)


class TestRoots:
    """Programs of several models."""

    def test_a_layer_of_the_second(self) -> None:
        first, second = two_layers(), nn.Sequential(nn.Linear(1, 1), Apply(poisoned(NAN)))
        with hunting() as hunt:
            for _ in range(3):
                second(first(GOOD)).sum().backward()
        assert hunt.place == ("forward", "Sequential#2.1", TWO)

    def test_what_the_code_between_two_models_makes(self) -> None:
        first, second = two_layers(), nn.Sequential(nn.Linear(1, 1))
        spoil = poisoned(NAN)
        with hunting() as hunt:
            for _ in range(3):
                second(spoil(first(GOOD))).sum().backward()
        assert hunt.place == ("forward", "(between roots)", TWO)

    def test_a_batch_of_the_second_that_is_bad_in_itself(self) -> None:
        first, second = two_layers(), two_layers()
        with hunting() as hunt:
            for batch in at_step(3, BAD, GOOD):
                (first(GOOD) + second(batch)).sum().backward()
        assert hunt.place == ("data", "Sequential#2.(root)", 3)


class TestCleanRuns:
    """No alarm."""

    @pytest.mark.parametrize(
        "program",
        [
            lambda: fit(two_layers(), [GOOD] * 4),
            lambda: fit(two_layers(), [GOOD] * 4, optimizer=lambda params: torch.optim.AdamW(params)),
            lambda: fit(two_layers().double(), [GOOD.double() * 1e200], lambda out: (out * 1e-200).mean()),
            lambda: fit(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 1)), [torch.arange(9)] * 3),
            lambda: fit(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), [GOOD[None]] * 3),
            lambda: fit(nn.Sequential(nn.LSTM(4, 3), Apply(lambda out: out[0])), [GOOD[None]] * 3),
        ],
    )
    def test_no_origin_and_nothing_expected(self, program: Callable[[], Any]) -> None:
        with hunting() as hunt:
            program()
        assert hunt.place is None
        assert hunt.finder.expected == {}

    def test_extremes_that_nothing_has_been_compared_with_yet(self) -> None:
        """The smallest value so far begins as Inf: an observer for quantization, a metric."""

        class Range(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("smallest", torch.tensor(INF))
                self.register_buffer("largest", torch.tensor(-INF))
                self.layer = nn.Linear(4, 1)

            def forward(self, x: Tensor) -> Tensor:
                self.smallest = torch.minimum(self.smallest, x.min())
                self.largest = torch.maximum(self.largest, x.max())
                out: Tensor = self.layer(x)
                return out

        with hunting() as hunt:
            fit(Range(), [GOOD] * 3)
        assert hunt.place is None

    def test_the_first_origin_stays(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Apply(poisoned(NAN)), nn.Linear(4, 1))
        with hunting() as hunt:
            fit(model, [GOOD, GOOD, BAD])
        assert hunt.place == ("forward", "1", TWO)
