"""Names of layers where it is not at once clear which module is the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.observe.hunting import Apply, hunting
from tests.observe.watching import EVERYTHING, two_layers, watching

X = torch.ones(2, 4)


def test_a_module_without_parameters_that_is_called_first_leaves_the_short_names_to_the_model() -> None:
    with watching(EVERYTHING) as (_, seen):
        prepare, model = Apply(lambda x: x * 2), two_layers()
        model(prepare(X))
    assert {name for root in seen.roots for name in root.watched_names} == {"Apply.(root)", "(root)", "0", "1", "2"}


def test_a_model_without_parameters_has_the_short_names_itself() -> None:
    with watching(EVERYTHING) as (_, seen):
        nn.Sequential(nn.ReLU(), nn.Tanh())(X)
    assert seen.roots[-1].watched_names == ("(root)", "0", "1")


def test_of_what_prepares_a_batch_the_origin_has_its_own_name() -> None:
    def spoil(x: Tensor) -> Tensor:
        return x * float("nan")

    with hunting() as hunt:
        prepare, model = Apply(spoil), two_layers()
        model(prepare(X)).sum().backward()
    assert hunt.place == ("forward", "Apply.(root)", 1)


def test_a_module_between_two_models_is_no_loss_in_either_direction() -> None:
    class Root(torch.autograd.Function):
        """The square root of zero: its gradient is infinite."""

        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
            return grad * float("inf")

    for function in (lambda x: x * float("nan"), Root.apply):
        with hunting() as hunt:
            encoder, between, decoder = nn.Linear(4, 4), Apply(function), nn.Linear(4, 1)
            nn.MSELoss()(decoder(between(encoder(X))), torch.zeros(2, 1)).backward()
        assert hunt.place is not None
        assert hunt.place[1].startswith("Apply")


def test_lazy_and_scripted_layers_are_of_the_kind_that_they_become_or_were() -> None:
    with watching() as (_, seen):
        nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1))(X)
    assert seen.roots[-1].watched_names == ("0", "1")
