"""Munchausen policy and bonus: worked numbers, and decoys that a wrong formula would give."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.losses.munchausen import bonus, log_policy
from sb_dqn.nn.heads.scalar import ILLEGAL
from tests.modes import MODES

TAU = 0.5
Q = torch.tensor([[TAU * math.log(3.0), 0.0]])
"""Action values with the softmax policy 3/4, 1/4."""


@pytest.mark.parametrize("mode", MODES)
def test_the_policy(mode: Mode) -> None:
    run = accelerate(lambda q: log_policy(q, TAU), (torch.zeros(1, 2),), mode)
    torch.testing.assert_close(run(Q).exp(), torch.tensor([[0.75, 0.25]]))
    # decoy: without the temperature sqrt(3) : 1
    assert log_policy(Q, 1.0).exp()[0, 0].item() == pytest.approx(0.6339746)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("action", "alpha", "clip", "expected"),
    [
        (0, 0.9, -1.0, -0.1294569),  # 0.9 * 0.5 * ln 0.75; decoy: without tau -0.2589139
        (1, 0.9, -1.0, -0.6238325),  # 0.9 * 0.5 * ln 0.25; decoy: log pi clipped before tau -0.45
        (1, 0.9, -0.5, -0.45),  # clipped, then scaled; decoy: scaled, then clipped -0.5
        (1, 1.0, 0.0, 0.0),
        (1, 0.0, -1.0, 0.0),
    ],
)
def test_the_bonus(mode: Mode, action: int, alpha: float, clip: float, expected: float) -> None:
    def function(q: Tensor, a: Tensor) -> Tensor:
        return bonus(q, a, alpha, TAU, clip)

    run = accelerate(function, (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long)), mode)
    assert run(Q, torch.tensor([action])).tolist() == pytest.approx([expected], abs=1e-6)


def test_an_illegal_action_changes_nothing() -> None:
    masked = torch.cat([Q, torch.tensor([[ILLEGAL]])], -1)
    torch.testing.assert_close(log_policy(masked, TAU)[:, :2], log_policy(Q, TAU))
    assert log_policy(masked, TAU)[0, 2].exp().item() == 0.0
    taken = torch.tensor([1])
    torch.testing.assert_close(bonus(masked, taken, 0.9, TAU, -1.0), bonus(Q, taken, 0.9, TAU, -1.0))


def test_log_policy_is_finite_for_distant_values() -> None:
    result = log_policy(torch.tensor([[3000.0, 0.0, -3000.0]]), 0.03)
    assert bool(torch.isfinite(result).all())
    assert result.exp().tolist() == [[1.0, 0.0, 0.0]]


def test_any_leading_axes() -> None:
    q, a = torch.randn(2, 3, 4, 5), torch.randint(5, (2, 3, 4))
    result = bonus(q, a, 0.9, 0.1, -1.0)
    assert result.shape == a.shape
    assert result[1, 2, 3].item() == pytest.approx(bonus(q[1, 2, 3], a[1, 2, 3], 0.9, 0.1, -1.0).item(), rel=1e-5)
