"""Lambda-returns: worked numbers, and property tests against the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.losses.returns import discounted_sums, lambda_returns
from tests.modes import Variant


def lanes(*columns: list[float]) -> Tensor:
    """Builds `[T, B]` from one list per lane."""
    return torch.tensor(columns).T.contiguous()


def assert_lanes(result: Tensor, *columns: list[float]) -> None:
    torch.testing.assert_close(result, lanes(*columns), rtol=0, atol=1e-5)


# Three transitions, gamma 0.9, lambda 0.5. Lane 0 continues; lane 1 loses a life after the second; lane 2 reaches a time
# limit after the second (its row is the final observation, and the third pair is a reset, no transition).
REWARD = lanes([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 99.0])
DISCOUNT = lanes([0.9, 0.9, 0.9], [0.9, 0.0, 0.9], [0.9, 0.9, 0.0])
VALUE_T = lanes([10.0, 20.0, 30.0], [10.0, 20.0, 30.0], [10.0, 20.0, 77.0])
LAMBDA = lanes([0.5, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.0, 0.0])


def test_lambda_returns_by_hand(variant: Variant) -> None:
    arguments = (REWARD, DISCOUNT, VALUE_T, LAMBDA)
    result = variant(lambda_returns, arguments)(*arguments)
    # lane 0: 3 + .9 * 30 = 30;  2 + .9 (.5 * 20 + .5 * 30) = 24.5;  1 + .9 (.5 * 10 + .5 * 24.5) = 16.525
    # lane 1: 30; 2, without a value after it; 1 + .9 (.5 * 10 + .5 * 2) = 6.4
    # lane 2: 2 + .9 * 20 = 20; 1 + .9 (.5 * 10 + .5 * 20) = 14.5. Decoys: 2 if a time limit were a termination,
    #         2 + .9 (10 + 49.5) = 55.55 if the reset were a transition
    assert_lanes(result[:2], [16.525, 24.5], [6.4, 2.0], [14.5, 20.0])
    assert_lanes(result[2:, :2], [30.0], [30.0])


def test_lambda_0_and_1() -> None:
    one_step = lambda_returns(REWARD, DISCOUNT, VALUE_T, torch.zeros_like(LAMBDA))
    torch.testing.assert_close(one_step, REWARD + DISCOUNT * VALUE_T)
    full_return = lambda_returns(REWARD[:, :1], DISCOUNT[:, :1], VALUE_T[:, :1], torch.ones(3, 1))
    assert_lanes(full_return, [1 + 0.9 * (2 + 0.9 * 30), 2 + 0.9 * 30, 30.0])


def test_advantages_by_hand(variant: Variant) -> None:
    # r 1 0 2, terminated after the second; V .5 .4 .3, then 1; gamma .9, lambda .95
    v = torch.tensor([[0.5], [0.4], [0.3], [1.0]])
    discount, trace = torch.tensor([[0.9], [0.0], [0.9]]), torch.tensor([[0.95], [0.0], [0.95]])
    arguments = (torch.tensor([[1.0], [0.0], [2.0]]), discount, v[1:], trace)
    # decoy: 1.331 if the trace crossed the termination
    assert_lanes(variant(lambda_returns, arguments)(*arguments) - v[:-1], [0.518, -0.4, 2.6])


def test_returns_to_go_by_hand(variant: Variant) -> None:
    arguments = (torch.ones(4, 2), lanes([0.9, 0.9, 0.9, 0.9], [0.9, 0.0, 0.9, 0.0]))
    assert_lanes(variant(discounted_sums, arguments)(*arguments), [3.439, 2.71, 1.9, 1.0], [1.9, 1.0, 1.9, 1.0])


def test_shapes_must_match() -> None:
    with pytest.raises(ValueError, match=r"must all be the same \[T, B\], got .*\(3, 3\).*\(2, 3\)"):
        lambda_returns(REWARD, DISCOUNT, VALUE_T, LAMBDA[:2])


# ---- the definitions, one lane at a time with Python numbers


def naive_sums(x: list[float], decay: list[float]) -> list[float]:
    sums, after = [], 0.0
    for term, factor in zip(reversed(x), reversed(decay), strict=True):
        after = term + factor * after
        sums.append(after)
    return sums[::-1]


def naive_lambda_return(
    t: int, end: int, r: list[float], v: list[float], terminated: bool, gamma: float, lam: float
) -> float:
    """Averages the n-step returns from t to the segment's end; weights (1 - lambda) lambda^(n-1), the rest on the longest."""
    total, rewards = 0.0, 0.0
    for n in range(1, end - t + 1):
        rewards += gamma ** (n - 1) * r[t + n - 1]
        longest = t + n == end
        bootstrap = 0.0 if longest and terminated else gamma**n * v[t + n - 1]
        total += (lam ** (n - 1) if longest else (1 - lam) * lam ** (n - 1)) * (rewards + bootstrap)
    return total


ENDS = st.lists(st.sampled_from(["none", "none", "none", "terminal", "limit"]), min_size=1, max_size=40)


@settings(max_examples=60)
@given(
    ends=ENDS, gamma=st.sampled_from([0.0, 0.9, 1.0]), lam=st.sampled_from([0.0, 0.65, 1.0]), seed=st.integers(0, 99)
)
def test_lambda_returns_match_their_definition(ends: list[str], gamma: float, lam: float, seed: int) -> None:
    rng, count = torch.Generator().manual_seed(seed), len(ends)
    r, v = torch.randn((2, count, 1), dtype=torch.float64, generator=rng)
    discount = torch.tensor([[0.0 if end == "terminal" else gamma] for end in ends], dtype=torch.float64)
    trace = torch.tensor([[lam if end == "none" else 0.0] for end in ends], dtype=torch.float64)
    expected: list[float] = []
    begin = 0
    for t, end in enumerate(ends):
        if end != "none" or t == count - 1:
            expected += [
                naive_lambda_return(s, t + 1, r[:, 0].tolist(), v[:, 0].tolist(), end == "terminal", gamma, lam)
                for s in range(begin, t + 1)
            ]
            begin = t + 1
    result = lambda_returns(r, discount, v, trace)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64)[:, None])


@settings(max_examples=40)
@given(count=st.integers(1, 70), seed=st.integers(0, 99))
def test_doubling_matches_a_loop(count: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn((count, 2), dtype=torch.float64, generator=rng)
    decay = torch.rand((count, 2), dtype=torch.float64, generator=rng) * (torch.rand((count, 2), generator=rng) < 0.9)
    expected = [naive_sums(x[:, b].tolist(), decay[:, b].tolist()) for b in range(2)]
    torch.testing.assert_close(discounted_sums(x, decay), torch.tensor(expected, dtype=torch.float64).T)


def test_no_gradient_flows_into_a_target() -> None:
    value = VALUE_T.clone().requires_grad_()
    assert not lambda_returns(REWARD, DISCOUNT, value, LAMBDA).requires_grad
