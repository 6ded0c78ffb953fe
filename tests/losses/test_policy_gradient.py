"""Policy-gradient losses: worked numbers, and decoys that a wrong formula would give."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.losses import policy_gradient as pg
from sb_dqn.losses.returns import discounted_sums, lambda_returns
from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.heads.distributions import Categorical

R, TERMINAL = torch.tensor([[1.0], [0.0], [2.0]]), torch.tensor([[0.0], [1.0], [0.0]])
V_TM1, V_T = torch.tensor([[0.5], [0.4], [0.3]]), torch.tensor([[0.4], [0.3], [1.0]])
DISCOUNT = 0.9 * (1 - TERMINAL)
LOGITS, ACTIONS = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0, 1])
ONES = torch.ones(3)


def close(result: Tensor | float, *expected: float) -> bool:
    return bool(torch.as_tensor(result).flatten().tolist() == pytest.approx(expected, abs=1e-6))


def not_none(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient


def policy() -> Categorical:
    return Categorical(LOGITS.log_softmax(-1))


def test_returns_and_advantages_of_the_worked_example() -> None:
    continues = (1 - TERMINAL).expand_as(R)
    returns = lambda_returns(R, DISCOUNT, V_T, continues)
    assert close(returns, 1.0, 0.0, 2.9)
    assert not close(returns, 1.81, 0.9, 2.9)  # the termination ignored
    assert close(returns - V_TM1, 0.5, -0.4, 2.6)
    for lambda_, expected in ((0.95, (0.518, -0.4, 2.6)), (1.0, (0.5, -0.4, 2.6)), (0.0, (0.86, -0.4, 2.6))):
        assert close(lambda_returns(R, DISCOUNT, V_T, lambda_ * continues) - V_TM1, *expected)


def test_log_probabilities_and_entropy_of_the_worked_example() -> None:
    assert close(policy().log_prob(ACTIONS), -0.3132616875, -0.3132616875, -0.6931471806)
    assert close(policy().entropy(), 0.5822031089, 0.5822031089, 0.6931471806)


def test_reinforce_of_the_worked_example() -> None:
    returns = discounted_sums(torch.ones(3, 1), torch.tensor([[0.9], [0.9], [0.0]]))[:, 0]
    assert close(returns, 2.71, 1.9, 1.0)
    loss = pg.policy_gradient(policy().log_prob(ACTIONS), returns)
    assert close(loss.sum(), 2.1372835600)
    assert close(weighted_mean(loss, ONES), 0.7124278534)
    assert not close(weighted_mean(loss, ONES), 1.1001)  # without the discount: G = 3, 2, 1


def test_baselines_of_the_worked_example() -> None:
    returns = torch.tensor([2.71, 1.9, 1.0])
    entropy = policy().entropy().mean()
    centered = returns - pg.mean_baseline(returns, torch.arange(3))
    assert close(centered, 0.84, 0.03, -0.87)
    loss = weighted_mean(pg.policy_gradient(policy().log_prob(ACTIONS), centered), ONES)
    assert close(loss, -0.1101667930)
    assert close(loss - 0.01 * entropy, -0.1163586376)


def test_step_mean_baseline() -> None:
    # episodes of three, one and two steps; decoys: the mean of all is 3.5, of the first episode 2
    returns, step = torch.tensor([3.0, 2.0, 1.0, 7.0, 5.0, 3.0]), torch.tensor([0, 1, 2, 0, 0, 1])
    assert close(pg.step_mean_baseline(returns, step), 5.0, 2.5, 1.0, 5.0, 5.0, 2.5)
    assert close(pg.mean_baseline(returns, step), *[3.5] * 6)


def test_a2c_of_the_worked_example() -> None:
    advantage = torch.tensor([0.5, -0.4, 2.6])
    loss = pg.policy_gradient(policy().log_prob(ACTIONS), advantage)
    mean = weighted_mean(loss, ONES)
    assert close(mean, 0.6111696127)
    entropy, error = policy().entropy().mean(), advantage.square().mean()
    assert close(error, 2.39)
    assert close(mean + 0.5 * error - 0.01 * entropy, 1.7999777681)
    assert not close(mean + 0.25 * error - 0.01 * entropy, 1.7999777681)  # half of the square twice: 1.2024777681
    normalized = pg.normalized(advantage, ONES)
    loss = weighted_mean(pg.policy_gradient(policy().log_prob(ACTIONS), normalized), ONES)
    assert close(loss + 0.5 * error, 1.3348318811)
    assert not close(normalized, *((advantage - advantage.mean()) / advantage.std(correction=0)).tolist())


def test_vpg_of_the_worked_example() -> None:
    logp, entropy = policy().log_prob(ACTIONS), policy().entropy().mean()
    returns = torch.tensor([2.71, 1.9, 1.0])
    assert close(pg.policy_gradient(logp, returns).sum(), 2.13728356)
    assert close(pg.policy_gradient(logp, returns).mean(), 0.7124278534)
    standardised = pg.normalized(returns, ONES, eps=torch.finfo(torch.float32).eps)
    assert close(standardised, 0.9820027365, 0.0350715263, -1.0170742628)
    loss = pg.policy_gradient(logp, standardised).mean()
    assert close(loss, -0.1287905859)
    assert close(loss - 0.01 * entropy, -0.1349824306)
    baseline = pg.policy_gradient(logp, returns - returns.mean()).mean()
    assert close(baseline, -0.110166793)
    assert close(baseline - 0.01 * entropy, -0.1163586376)


def test_the_gradient_is_the_policy_gradient() -> None:
    logp = policy().log_prob(ACTIONS).requires_grad_()
    advantage = torch.tensor([0.5, -0.4, 2.6], requires_grad=True)
    loss = pg.policy_gradient(logp, advantage).sum()
    loss.backward()
    assert close(not_none(logp.grad), -0.5, 0.4, -2.6)
    assert advantage.grad is None


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.1, 2.0, -2.2, -2.2),  # within the range
        (1.5, 2.0, -2.4, 0.0),  # clipped
        (1.5, -2.0, 3.0, 3.0),  # moved against the advantage: not clipped
        (0.5, 2.0, -1.0, -1.0),
        (0.5, -2.0, 1.6, 0.0),
    ],
)
def test_the_clip(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    logp = torch.tensor([math.log(ratio) - 1.0], requires_grad=True)
    result = pg.clipped_surrogate(logp, torch.tensor([-1.0]), torch.tensor([advantage]), torch.tensor(0.2))
    result.sum().backward()
    assert close(result.detach(), loss)
    assert close(not_none(logp.grad), gradient)


def test_a_value_is_clipped() -> None:
    value, old = torch.tensor([1.0, 3.0, -3.0]), torch.tensor([0.9, 1.0, 1.0])
    assert close(pg.clipped_value(value, old, torch.tensor(0.5)), 1.0, 1.5, 0.5)


def test_approximate_kl_and_clip_fraction_ignore_samples_of_weight_0() -> None:
    old, weight = torch.zeros(4), torch.tensor([1.0, 1.0, 1.0, 0.0])
    logp = torch.tensor([0.0, 0.1, -0.5, 9.0])
    kl = sum(math.exp(x) - 1 - x for x in (0.0, 0.1, -0.5)) / 3
    assert close(pg.approximate_kl(logp, old, weight), kl)
    assert not close(
        pg.approximate_kl(logp, old, weight), -sum((0.0, 0.1, -0.5)) / 3
    )  # the estimate that may be negative
    assert close(pg.clip_fraction(logp, old, weight, torch.tensor(0.2)), 1 / 3)
    assert close(pg.clip_fraction(logp, old, weight, torch.tensor(0.05)), 2 / 3)


def test_explained_variance() -> None:
    returns, weight = torch.tensor([1.0, 2.0, 4.0, 100.0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert close(pg.explained_variance(returns, returns, weight), 1.0)
    assert close(pg.explained_variance(returns + 5, returns, weight), 1.0)  # a constant error has no variance
    assert close(pg.explained_variance(torch.zeros(4), returns, weight), 0.0)
    assert float(pg.explained_variance(-returns, returns, weight)) < 0
    assert math.isnan(float(pg.explained_variance(returns, torch.ones(4), weight)))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.booleans()), min_size=1, max_size=12))
def test_normalizing_ignores_samples_of_weight_0(rows: list[tuple[float, bool]]) -> None:
    advantage = torch.tensor([value for value, _ in rows])
    weight = torch.tensor([float(valid) for _, valid in rows])
    result = pg.normalized(torch.where(weight > 0, advantage, 777.0), weight)
    assert bool(torch.isfinite(result).all())
    valid = advantage[weight > 0].double()
    if len(valid) > 1:
        expected = (valid - valid.mean()) / (valid.std() + 1e-8)
        # nearly equal advantages differ by rounding errors only
        if valid.std() > 1e-3 * valid.abs().max():
            torch.testing.assert_close(result[weight > 0].double(), expected, rtol=1e-3, atol=1e-3)
    else:
        assert torch.equal(result[weight > 0], advantage[weight > 0])
