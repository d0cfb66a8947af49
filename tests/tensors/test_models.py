"""Names and how often they come, of models of all kinds; values against what the program itself had in hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aorta_collectors.api import Verdict
from aorta_collectors.tensors.digest import digest_of
from tests.tensors.left import ALL_POINTS, Left, armed


def names_at(left: Left, point: str) -> list[str]:
    return [name.removeprefix(f"{point}:") for name in left.names if name.startswith(f"{point}:")]


class TestAPlainModel:
    def test_each_point_of_two_steps(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        had: dict[tuple[str, int], Tensor] = {}
        with armed(tmp_path, points=ALL_POINTS, keep="values") as left:
            for step in range(2):
                optimizer.zero_grad()
                given = torch.randn(5, 4)
                result = model(given)
                result.retain_grad()
                result.square().sum().backward()
                had["before_forward:(root).input[0]", step] = given
                had["after_forward:(root).output", step] = had["after_forward:2.output", step] = result.detach()
                assert result.grad is not None
                had["after_backward:2.output_grad", step] = result.grad
                for name, parameter in model.named_parameters():
                    assert parameter.grad is not None
                    had[f"after_backward:{name}.grad", step] = parameter.grad.clone()
                optimizer.step()
                for name, parameter in model.named_parameters():
                    had[f"after_step:{name}", step] = parameter.detach().clone()
        for (name, invocation), tensor in had.items():
            line = left.one(name, invocation)
            assert (line["step"], line["digest"]) == (invocation + 1, digest_of(tensor)), name
            assert torch.equal(left.values(line), tensor), name
        assert left.names[:9] == [
            "before_forward:(root).input[0]",
            "before_forward:0.input[0]",
            "after_forward:0.output",
            "before_forward:1.input[0]",
            "after_forward:1.output",
            "before_forward:2.input[0]",
            "after_forward:2.output",
            "after_forward:(root).output",
            "after_backward:2.output_grad",
        ]
        assert names_at(left, "after_step") == ["0.weight", "0.bias", "2.weight", "2.bias"]
        raw = {"points": ",".join(ALL_POINTS), "keep": "values"}
        count = 2 * (4 + 4 + 4 + 4 + 4)
        assert left.told(raw) == (
            Verdict.CAPTURED,
            f"{count} tensor(s) at before_forward, after_forward, after_backward, after_step over 2 step(s), 1 rank(s)",
        )

    def test_only_what_is_in_scope_and_all_of_that(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
        with armed(tmp_path, points=ALL_POINTS, scope=("0.*", "(root)", "none.*")) as left:
            model(torch.randn(2, 4)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert names_at(left, "after_forward") == ["0.0.output", "0.1.output", "(root).output"]
        assert names_at(left, "after_step") == ["0.0.weight", "0.0.bias"]
        assert left.summary["unmatched_scope"] == ["none.*"]

    def test_parameters_of_modules_with_parts_are_observed_by_default(self, tmp_path: Path) -> None:
        model = nn.MultiheadAttention(4, 2)
        with armed(tmp_path, points=("after_backward",)) as left:
            value = torch.randn(3, 1, 4)
            model(value, value, value)[0].sum().backward()
        assert "after_backward:(root).in_proj_weight.grad" in left.names


class TestStructuredValues:
    def test_tuples_mappings_and_keywords(self, tmp_path: Path) -> None:
        class Inner(nn.Module):
            def forward(self, ids: Tensor, *, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
                return ids * 2, {"mask": mask, "sum": ids + mask}

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Inner()
                self.scale = nn.Parameter(torch.ones(1))

            def forward(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
                doubled, rest = self.inner(ids, mask=mask)
                return [doubled * self.scale, rest["sum"]]

        model = Outer()
        with armed(tmp_path, points=("before_forward", "after_forward", "after_backward")) as left:
            model(torch.ones(2), mask=torch.ones(2))[0].sum().backward()
        assert names_at(left, "before_forward") == [
            "(root).input[0]",
            "(root).input.mask",
            "inner.input[0]",
            "inner.input.mask",
        ]
        assert names_at(left, "after_forward") == [
            "inner.output[0]",
            "inner.output[1]['mask']",
            "inner.output[1]['sum']",
            "(root).output[0]",
            "(root).output[1]",
        ]
        assert names_at(left, "after_backward") == ["(root).output_grad[0]", "(root).scale.grad"]

    def test_an_output_of_transformers(self, tmp_path: Path) -> None:
        from transformers.modeling_outputs import CausalLMOutput

        class Head(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(3, 5)

            def forward(self, x: Tensor) -> CausalLMOutput:
                logits = self.linear(x)
                return CausalLMOutput(loss=logits.square().mean(), logits=logits, hidden_states=(x, logits))

        model = Head()
        with armed(tmp_path) as left:
            result = model(torch.randn(2, 3))
            assert result.loss is not None
            result.loss.backward()
        assert names_at(left, "after_forward")[1:] == [
            "(root).output['loss']",
            "(root).output['logits']",
            "(root).output['hidden_states'][0]",
            "(root).output['hidden_states'][1]",
        ]
        assert "after_backward:(root).output_grad['loss']" in left.names


class TestCallsThatComeAgain:
    def test_a_shared_module_is_one_name_with_several_invocations(self, tmp_path: Path) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(3, 3)
                self.again = self.first

            def forward(self, x: Tensor) -> Tensor:
                return self.again(self.first(x))

        model = Twice()
        with armed(tmp_path) as left:
            for _ in range(2):
                model(torch.randn(2, 3)).sum().backward()
        outputs = left.named("after_forward:first.output")
        assert [(line["step"], line["invocation"]) for line in outputs] == [(1, 0), (1, 1), (2, 2), (2, 3)]
        assert len({line["digest"] for line in outputs}) == 4
        assert not left.named("after_forward:again.output")
        assert len(left.named("after_backward:first.weight.grad")) == 2

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_what_checkpointing_runs_again_is_not_told_again(self, tmp_path: Path, reentrant: bool) -> None:
        class Saving(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

            def forward(self, x: Tensor) -> Tensor:
                return checkpoint(self.block, x, use_reentrant=reentrant)  # type: ignore[no-any-return]

        model = Saving()
        with armed(tmp_path) as left:
            model(torch.randn(2, 3, requires_grad=True)).sum().backward()
        assert [line["invocation"] for line in left.named("after_forward:block.1.output")] == [0]
        assert [line["invocation"] for line in left.named("after_backward:block.0.weight.grad")] == [0]

    def test_gradients_accumulate_over_backward_passes(self, tmp_path: Path) -> None:
        model = nn.Linear(3, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        had = []
        with armed(tmp_path, points=("after_backward", "after_step")) as left:
            for number in range(4):
                model(torch.randn(2, 3)).sum().backward()
                assert model.weight.grad is not None
                had.append(digest_of(model.weight.grad))
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
        found = left.named("after_backward:(root).weight.grad")
        assert [line["digest"] for line in found] == had
        assert [line["step"] for line in left.named("after_step:(root).weight")] == [2, 4]
        summary = left.summary
        assert (summary["backward_passes"], summary["optimizer_steps"]) == (4, 2)

    def test_several_models_of_one_step(self, tmp_path: Path) -> None:
        class Generator(nn.Linear):
            pass

        class Discriminator(nn.Linear):
            pass

        generator, discriminator = Generator(2, 3), Discriminator(3, 1)
        with armed(tmp_path, points=("after_forward", "after_step")) as left:
            for _ in range(3):
                for model in (generator, discriminator):
                    model.zero_grad()
                discriminator(generator(torch.randn(4, 2))).sum().backward()
                for model in (generator, discriminator):
                    torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert left.summary["steps_seen"] == 3
        assert left.summary["roots"] == ["Generator", "Discriminator#2"]
        assert names_at(left, "after_forward") == ["(root).output", "Discriminator#2.(root).output"]
        assert [line["step"] for line in left.named("after_step:Discriminator#2.(root).weight")] == [1, 2, 3]

    def test_steps_without_gradients_have_no_backward(self, tmp_path: Path) -> None:
        model = nn.Linear(2, 2)
        with armed(tmp_path) as left, torch.inference_mode():
            model(torch.randn(1, 2))
            model(torch.randn(1, 2))
        assert [(line["name"], line["invocation"]) for line in left.lines] == [
            ("after_forward:(root).output", 0),
            ("after_forward:(root).output", 1),
        ]


def test_a_model_with_thousands_of_tensors_has_a_line_for_each(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(1500)))
    with armed(tmp_path, points=("after_forward", "after_backward")) as left:
        model(torch.randn(1, 2)).sum().backward()
    assert left.summary["lines_written"] == 1501 + 1501 + 3000
