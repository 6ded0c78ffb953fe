"""Temporal-difference losses and the weighted mean: worked numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sb_dqn.losses.td import huber, squared, weighted_mean
from tests.marks import SLOW
from tests.modes import Variant

ERROR = torch.tensor([0.5, 1.0, 2.0, -3.0])


@SLOW
@pytest.mark.parametrize(("kappa", "expected"), [(1.0, [0.125, 0.5, 1.5, 2.5]), (2.0, [0.125, 0.5, 2.0, 4.0])])
def test_huber(variant: Variant, kappa: float, expected: list[float]) -> None:
    def function(error: Tensor) -> Tensor:
        return huber(error, kappa)

    torch.testing.assert_close(variant(function, (ERROR,))(ERROR), torch.tensor(expected), rtol=0, atol=1e-6)


@SLOW
def test_squared(variant: Variant) -> None:
    # decoy: without the half 0.25, 1, 4, 9
    expected = torch.tensor([0.125, 0.5, 2.0, 4.5])
    torch.testing.assert_close(variant(squared, (ERROR,))(ERROR), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("loss", "expected"), [(huber, [0.5, 1.0, 1.0, -1.0]), (squared, [0.5, 1.0, 2.0, -3.0])])
def test_gradients_of_the_losses(variant: Variant, loss: Callable[[Tensor], Tensor], expected: list[float]) -> None:
    def gradient(error: Tensor) -> Tensor:
        leaf = error.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf).sum(), leaf)[0]

    torch.testing.assert_close(variant(gradient, (ERROR,))(ERROR), torch.tensor(expected), rtol=0, atol=1e-6)


def test_the_mean_ignores_rows_of_weight_0(variant: Variant) -> None:
    loss = torch.tensor([2.0, torch.nan, 4.0, torch.inf])
    weight = torch.tensor([1.0, 0.0, 0.5, 0.0])
    result = variant(weighted_mean, (loss, weight))(loss, weight)
    assert result.item() == 2.0  # (2 + 0.5 * 4) / 2; decoys: / 4 rows 1.0, / sum of weights 2.667


def test_rows_of_weight_0_pass_no_gradient() -> None:
    loss = torch.tensor([2.0, torch.nan, 4.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(weighted_mean(loss, torch.tensor([1.0, 0.0, 0.5])), loss)
    assert gradient.tolist() == [0.5, 0.0, 0.25]


def test_the_mean_without_weights_is_0(variant: Variant) -> None:
    arguments = (torch.tensor([torch.nan, 3.0]), torch.zeros(2))
    assert variant(weighted_mean, arguments)(*arguments).item() == 0.0
