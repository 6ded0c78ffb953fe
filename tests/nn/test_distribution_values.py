"""Values that are distributions: what an action's is, what a policy's is, for any leading axes and under masks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sb_dqn.nn.heads.categorical import CategoricalValue
from sb_dqn.nn.heads.fraction import FractionValue
from sb_dqn.nn.heads.quantile import QuantileValue
from sb_dqn.nn.heads.scalar import ILLEGAL

LEADING = [(), (4,), (2, 3)]
SUPPORT = torch.tensor([-1.0, 0.0, 2.0])


def categorical(leading: tuple[int, ...]) -> CategoricalValue:
    logits = torch.randn(*leading, 5, 3, generator=torch.Generator().manual_seed(0))
    return CategoricalValue(logits, SUPPORT)


def quantile(leading: tuple[int, ...], weighted: bool = False) -> QuantileValue:
    rng = torch.Generator().manual_seed(0)
    quantiles = torch.randn(*leading, 5, 4, generator=rng)
    weights = torch.rand(*leading, 4, generator=rng).softmax(-1) if weighted else None
    return QuantileValue(quantiles, torch.rand(*leading, 4, generator=rng), weights)


def rows(x: Tensor, axes: int) -> Tensor:
    """All leading axes as one."""
    return x.reshape(-1, *x.shape[x.dim() - axes :])


@pytest.mark.parametrize("leading", LEADING)
def test_what_an_action_is_worth_for_any_leading_axes(leading: tuple[int, ...]) -> None:
    action = (torch.arange(math.prod(leading)) % 5).reshape(leading)
    log_probabilities = categorical(leading).of(action)
    assert log_probabilities.shape == (*leading, 3)
    quantiles = quantile(leading).of(action)
    assert quantiles.shape == (*leading, 4)
    for i, a in enumerate(action.reshape(-1).tolist()):
        logits = rows(categorical(leading).logits, 2)[i, a]
        torch.testing.assert_close(rows(log_probabilities, 1)[i], logits.log_softmax(-1))
        assert torch.equal(rows(quantiles, 1)[i], rows(quantile(leading).quantiles, 2)[i, a])


def test_means_by_worked_numbers() -> None:
    logits = torch.tensor([[0.25, 0.25, 0.5], [1.0, 0.0, 0.0]]).log()
    assert CategoricalValue(logits, SUPPORT).q.tolist() == pytest.approx([0.75, -1.0])
    points, taus = torch.tensor([[1.0, 2.0, 6.0], [0.0, 3.0, 0.0]]), torch.zeros(3)
    assert QuantileValue(points, taus).q.tolist() == [3.0, 1.0]
    # each point counts by the width of its fraction; decoy: all alike, as above
    weighted = QuantileValue(points, taus, torch.tensor([0.5, 0.25, 0.25]))
    assert weighted.q.tolist() == [2.5, 0.75]


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("weighted", [False, True])
def test_masked_actions_lie_below_all_others(leading: tuple[int, ...], weighted: bool) -> None:
    legal = torch.tensor([True, False, True, True, False]).expand(*leading, 5)
    for value in (categorical(leading), quantile(leading, weighted)):
        q = value._replace(legal=legal).q
        assert bool((q[~legal] == ILLEGAL).all())
        torch.testing.assert_close(q[legal], value.q[legal])


def test_a_policy_over_categories_by_worked_numbers() -> None:
    logits = torch.tensor([[0.25, 0.25, 0.5], [1.0, 0.0, 0.0]]).log()
    atoms, masses = CategoricalValue(logits, SUPPORT).soft(torch.tensor([0.8, 0.2]), torch.tensor([0.1, 0.5]))
    assert atoms.tolist() == pytest.approx([-0.9, 0.1, 2.1, -0.5, 0.5, 2.5])
    assert masses.tolist() == pytest.approx([0.2, 0.2, 0.4, 0.2, 0.0, 0.0])
    assert (atoms * masses).sum().item() == pytest.approx(0.8 * (0.75 + 0.1) + 0.2 * (-1.0 + 0.5))


def test_a_policy_over_quantiles_by_worked_numbers() -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    found = QuantileValue(points, torch.tensor([0.25, 0.75])).soft(torch.tensor([0.75, 0.25]), torch.tensor([0.1, 0.5]))
    # .75 * 1.1 + .25 * 3.5, .75 * 2.1 + .25 * 8.5; decoy: the bonus outside of the mean .1 and .5 more
    assert found.tolist() == pytest.approx([1.7, 3.7])


@pytest.mark.parametrize("leading", LEADING)
def test_a_policy_that_never_errs_gives_the_value_of_its_action(leading: tuple[int, ...]) -> None:
    policy = torch.zeros(*leading, 5)
    policy[..., 3] = 1.0
    bonus = torch.full((*leading, 5), 1e9)  # what minus tau log policy is where an action is masked
    bonus[..., 3] = 0.0
    action = torch.full(leading, 3)
    torch.testing.assert_close(quantile(leading).soft(policy, bonus), quantile(leading).of(action))
    atoms, masses = categorical(leading).soft(policy, bonus)
    assert atoms.shape == masses.shape == (*leading, 15)
    assert bool(torch.isfinite(atoms).all())
    mean = (atoms * masses).sum(-1)
    torch.testing.assert_close(mean, categorical(leading).q[..., 3])


def test_fractions_answer_as_their_points_do() -> None:
    points = quantile((2, 3), weighted=True)
    inner = torch.randn(2, 3, 5, 3)
    value = FractionValue(points, torch.rand(2, 3, 3), inner, torch.zeros(2, 3))
    action = torch.tensor([[0, 1, 2], [3, 4, 0]])
    policy, bonus = torch.rand(2, 3, 5), torch.rand(2, 3, 5)
    assert torch.equal(value.q, points.q)
    assert torch.equal(value.of(action), points.of(action))
    assert torch.equal(value.soft(policy, bonus), points.soft(policy, bonus))
    assert value.taus is points.taus
    assert value.weights is points.weights
