"""Soft actor-critic losses: worked numbers, and decoys that a wrong formula would give."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.losses.soft_actor_critic import critic_loss, expected_soft_value, soft_value, temperature_loss
from sb_dqn.nn.heads.distributions import SquashedGaussian, log_slope
from tests.modes import MODES


@pytest.mark.parametrize("mode", MODES)
def test_log_probability_of_a_squashed_action(mode: Mode) -> None:
    def density(mean: Tensor, log_std: Tensor, drawn: Tensor) -> tuple[Tensor, ...]:
        policy = SquashedGaussian(mean, log_std)
        sample = policy.sample(drawn)
        return sample, sample.tanh(), policy.log_prob(sample), policy.mode()

    example: Any = tuple(torch.zeros(1, 1, dtype=torch.float64) for _ in range(3))
    mean, log_std, drawn = (torch.tensor([[x]], dtype=torch.float64) for x in (0.3, -0.5, 0.7))
    u, action, log_prob, mode_ = accelerate(density, example, mode)(mean, log_std, drawn)
    assert u.item() == pytest.approx(0.7245714618, abs=1e-10)
    assert action.item() == pytest.approx(0.6197329881, abs=1e-10)
    # decoys: without the correction -0.6639385332, with its sign turned -1.1485588298
    assert log_prob.tolist() == pytest.approx([-0.1793182366], abs=1e-10)
    # for actions scaled to the bounds -2 and 2
    assert log_prob.item() - math.log(2.0) == pytest.approx(-0.8724654172, abs=1e-10)
    assert mode_.item() == 0.3


def test_log_probability_sums_over_action_dimensions() -> None:
    policy = SquashedGaussian(torch.tensor([[0.3, 0.3]]), torch.tensor([-0.5, -0.5]))
    log_prob = policy.log_prob(policy.sample(torch.tensor([[0.7, 0.7]])))
    assert log_prob.tolist() == pytest.approx([2 * -0.1793182366], abs=1e-6)


def test_the_correction_is_stable() -> None:
    u = torch.linspace(-4.0, 4.0, 101, dtype=torch.float64)
    torch.testing.assert_close(log_slope(u), (1 - u.tanh() ** 2).log(), atol=1e-12, rtol=0)
    far = torch.tensor([-60.0, 30.0, 60.0], requires_grad=True)  # 1 - tanh^2 is 0 there, its log -inf
    log_slope(far).sum().backward()
    assert log_slope(far).tolist() == pytest.approx(
        [2 * math.log(2) - 120, 2 * math.log(2) - 60, 2 * math.log(2) - 120]
    )
    assert far.grad is not None
    assert far.grad.tolist() == pytest.approx([2.0, -2.0, -2.0])


def test_log_probabilities_sum_to_one() -> None:
    policy = SquashedGaussian(torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64))
    action = torch.linspace(-1 + 1e-9, 1 - 1e-9, 400_001, dtype=torch.float64)
    density = policy.log_prob(action.atanh().unsqueeze(-1)).exp()
    assert torch.trapezoid(density, action).item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("alpha", "terminal", "expected"), [(0.2, 0, 5.0986), (1.0, 0, 5.653), (0.2, 1, 1.0)])
def test_target(mode: Mode, alpha: float, terminal: int, expected: float) -> None:
    run = accelerate(soft_value, (torch.zeros(2, 1), torch.zeros(1), torch.zeros(())), mode)
    # decoys: the mean of the critics 5.5936, the first of them 6.0886, alpha's sign turned 4.8214
    value = run(torch.tensor([[5.0], [4.0]]), torch.tensor([-0.7]), torch.tensor(alpha))
    assert (1.0 + 0.99 * (1 - terminal) * value).tolist() == pytest.approx([expected])


def test_critic_loss() -> None:
    q = torch.tensor([[5.0], [4.5]])
    assert critic_loss(q[:1], torch.tensor([5.0986])).item() == pytest.approx(0.00486098, abs=1e-6)
    # decoys: the mean of the critics 0.09201098, without the half 0.36804392
    assert critic_loss(q, torch.tensor([5.0986])).item() == pytest.approx(0.00486098 + 0.17916098, abs=1e-6)


def test_policy_loss_is_minus_the_soft_value() -> None:
    # decoy: the larger critic -3.14
    value = soft_value(torch.tensor([[3.0], [2.5]]), torch.tensor([-0.7]), torch.tensor(0.2))
    assert (-value).tolist() == pytest.approx([-2.64])


def test_temperature_loss() -> None:
    # log alpha = log 0.2, log pi = -0.7, target -1: -log alpha (log pi + target); decoys: alpha for its log 0.34
    log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
    loss = temperature_loss(log_alpha, torch.tensor([0.7]), -1.0)
    assert loss.tolist() == pytest.approx([-2.7360444511])
    loss.sum().backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(1.7)  # entropy above its target: descent lowers alpha


@pytest.mark.parametrize("mode", MODES)
def test_expectation_over_actions(mode: Mode) -> None:
    run = accelerate(expected_soft_value, (torch.zeros(2, 1, 3), torch.zeros(1, 3), torch.zeros(())), mode)
    q = torch.tensor([[[1.0, 4.0, 99.0]], [[2.0, 3.0, 99.0]]])  # minima 1, 3; the last action is illegal
    logp = torch.tensor([[math.log(0.25), math.log(0.75), -1e9]])
    # 0.25 (1 + 0.5 * 1.3862944) + 0.75 (3 + 0.5 * 0.2876821); decoy: the minimum of the expectations 2.7811676 + ...
    assert run(q, logp, torch.tensor(0.5)).tolist() == pytest.approx([2.5 + 0.5 * 0.5623351446])
    assert run(q, logp, torch.tensor(0.0)).tolist() == pytest.approx([2.5])
