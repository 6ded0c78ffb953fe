"""Worked numbers of temporal-difference targets, with decoys where only a mistake would land."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import Function, accelerate
from sb_dqn.losses.td import huber, q_target, squared, weighted_mean

Variant = Callable[[Function, tuple[Tensor, ...]], Function]


@pytest.fixture(params=["eager", "traced"])
def variant(request: pytest.FixtureRequest) -> Variant:
    """A function as it is, or recorded: with other numbers than those it is then asked for."""

    def run(function: Function, arguments: tuple[Tensor, ...]) -> Function:
        return accelerate(function, tuple(torch.zeros_like(argument) for argument in arguments), request.param)

    return run


ONLINE = torch.tensor([[1.0, 3.0, 2.0]] * 3 + [[-7.0, 66.0, 98.0]])
TARGET = torch.tensor([[5.0, 0.5, 4.0]] * 3 + [[99.0, 91.0, -2.0]])
RETURN = torch.tensor([1.0, 1.0, 1.0, 1.0])
DISCOUNT = torch.tensor([0.99, 0.99**3, 0.0, 0.5])


def test_the_target_of_dqn(variant: Variant) -> None:
    arguments = (RETURN, DISCOUNT, TARGET)
    found = variant(q_target, arguments)(*arguments)
    # decoys: by the online net 3.97, double 1.495
    torch.testing.assert_close(found, torch.tensor([5.95, 1 + 5 * 0.99**3, 1.0, 50.5]), rtol=0, atol=1e-6)


def test_the_target_of_double_dqn(variant: Variant) -> None:
    arguments = (RETURN, DISCOUNT, TARGET, ONLINE)
    found = variant(q_target, arguments)(*arguments)
    # decoys of the last row: evaluated by the selector 50, max of the target 50.5, selected by the target -2.5
    torch.testing.assert_close(found, torch.tensor([1.495, 1.4851495, 1.0, 0.0]), rtol=0, atol=1e-6)


def test_a_target_has_no_gradient() -> None:
    q_t = TARGET.clone().requires_grad_()
    assert not q_target(RETURN, DISCOUNT, q_t).requires_grad
    assert not q_target(RETURN, DISCOUNT, q_t, ONLINE.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize(
    ("return_t", "discount_t", "q_t"),
    [
        (torch.zeros(3), torch.zeros(4), torch.zeros(3, 2)),
        (torch.zeros(3), torch.zeros(3), torch.zeros(4, 2)),
        (torch.zeros(3, 1), torch.zeros(3, 1), torch.zeros(3, 2)),  # [N, 1] would broadcast to [N, N] in silence
        (torch.zeros(2), torch.zeros(2), torch.zeros(2)),
    ],
)
def test_shapes_that_would_broadcast_are_refused(return_t: Tensor, discount_t: Tensor, q_t: Tensor) -> None:
    with pytest.raises(ValueError, match=r"do not belong together: give \[N\], \[N\] and \[N, A\]"):
        q_target(return_t, discount_t, q_t)


ERROR = torch.tensor([0.5, 1.0, 2.0, -3.0])


@pytest.mark.parametrize(("kappa", "expected"), [(1.0, [0.125, 0.5, 1.5, 2.5]), (2.0, [0.125, 0.5, 2.0, 4.0])])
def test_huber(variant: Variant, kappa: float, expected: list[float]) -> None:
    def function(error: Tensor) -> Tensor:
        return huber(error, kappa)

    torch.testing.assert_close(variant(function, (ERROR,))(ERROR), torch.tensor(expected), rtol=0, atol=1e-6)


def test_half_of_the_square(variant: Variant) -> None:
    # decoy: without the half 0.25, 1, 4, 9
    expected = torch.tensor([0.125, 0.5, 2.0, 4.5])
    torch.testing.assert_close(variant(squared, (ERROR,))(ERROR), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("loss", "expected"), [(huber, [0.5, 1.0, 1.0, -1.0]), (squared, [0.5, 1.0, 2.0, -3.0])])
def test_gradients_of_the_losses(variant: Variant, loss: Callable[[Tensor], Tensor], expected: list[float]) -> None:
    def gradient(error: Tensor) -> Tensor:
        leaf = error.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf).sum(), leaf)[0]

    torch.testing.assert_close(variant(gradient, (ERROR,))(ERROR), torch.tensor(expected), rtol=0, atol=1e-6)


def test_the_mean_counts_rows_of_weight_alone(variant: Variant) -> None:
    loss = torch.tensor([2.0, torch.nan, 4.0, torch.inf])
    weight = torch.tensor([1.0, 0.0, 0.5, 0.0])
    found = variant(weighted_mean, (loss, weight))(loss, weight)
    assert found.item() == 2.0  # (2 + 0.5 * 4) / 2; decoys: / 4 rows 1.0, / sum of weights 2.667


def test_rows_of_weight_0_pass_no_gradient() -> None:
    loss = torch.tensor([2.0, torch.nan, 4.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(weighted_mean(loss, torch.tensor([1.0, 0.0, 0.5])), loss)
    assert gradient.tolist() == [0.5, 0.0, 0.25]


def test_the_mean_of_nothing_is_0(variant: Variant) -> None:
    arguments = (torch.tensor([torch.nan, 3.0]), torch.zeros(2))
    assert variant(weighted_mean, arguments)(*arguments).item() == 0.0
