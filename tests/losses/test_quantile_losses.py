"""Quantile and fraction losses: worked numbers with decoys, and comparison with naive loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.losses import distributional
from sb_dqn.losses.distributional import CACHE_ELEMENTS, fraction_loss, quantile_huber
from tests.modes import MODES


@pytest.fixture(params=[1, distributional.SORTED_PAIRS], ids=["sorted", "pairs"])
def sorted_pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes from sorted targets, or from all pairs."""
    monkeypatch.setattr(distributional, "SORTED_PAIRS", request.param)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kappa", "expected"),
    [
        # errors: 1 - 0 = 1 and -2 - 0 = -2 at 1/4; 1 - 3 = -2 and -2 - 3 = -5 at 3/4
        # Huber 1: .5, 1.5; 1.5, 4.5. (.25 * .5 + .75 * 1.5) / 2 + (.25 * 1.5 + .25 * 4.5) / 2
        (1.0, 0.625 + 0.75),  # decoy: tau and 1 - tau swapped 2.625; mean over predictions too 0.6875
        # Huber 2: .5, 2; 2, 8, divided by kappa: .25, 1; 1, 4. (.25 * .25 + .75 * 1) / 2 + (.25 * 1 + .25 * 4) / 2
        (2.0, 0.40625 + 0.625),  # decoy: not divided by kappa 2.0625
        (0.0, 1.75),  # (.25 * 1 + .75 * 2) / 2 + (.25 * 2 + .25 * 5) / 2
    ],
)
def test_quantile_huber_by_worked_numbers(mode: Mode, kappa: float, expected: float) -> None:
    def function(predicted: Tensor, taus: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return quantile_huber(predicted, taus, target, kappa)

    arguments = (torch.tensor([[0.0, 3.0]]), torch.tensor([0.25, 0.75]), torch.tensor([[1.0, -2.0]]))
    run = accelerate(function, tuple(torch.zeros_like(argument) for argument in arguments), mode)
    loss, magnitude = run(*arguments)
    assert loss.tolist() == pytest.approx([expected], abs=1e-6)
    assert magnitude.tolist() == [2.5]  # (1 + 2 + 2 + 5) / 4


def naive_quantile_huber(predicted: Tensor, taus: Tensor, target: Tensor, kappa: float, weights: Tensor) -> Tensor:
    """Sums over one pair after another; the gradient comes from autograd."""
    total = predicted.new_zeros(())
    for i in range(len(predicted)):
        for j in range(len(target)):
            u = target[j] - predicted[i]
            size = u.abs()
            if kappa > 0:
                size = (0.5 * u * u if abs(u.item()) <= kappa else kappa * (size - 0.5 * kappa)) / kappa
            total = total + weights[j] * abs(taus[i].item() - float(u.item() < 0)) * size
    return total


@pytest.mark.usefixtures("sorted_pairs")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 5), (6, 2)])
def test_quantile_huber_and_its_gradient_match_a_loop(m: int, n: int, kappa: float, weighted: bool) -> None:
    rng = torch.Generator().manual_seed(m)
    predicted = torch.randn(4, 2, m, generator=rng, dtype=torch.float64).requires_grad_()
    taus = torch.rand(4, 1, m, generator=rng, dtype=torch.float64)
    target = torch.randn(4, 2, n, generator=rng, dtype=torch.float64).requires_grad_()
    weights = torch.rand(4, 1, n, generator=rng, dtype=torch.float64).softmax(-1)
    loss, magnitude = quantile_huber(predicted, taus, target, kappa, weights if weighted else None)
    gradients: list[Any] = list(torch.autograd.grad(loss.sum(), [predicted, target], allow_unused=True))
    gradient, target_gradient = gradients
    assert target_gradient is None
    assert not magnitude.requires_grad
    if not weighted:
        weights = torch.full_like(weights, 1 / n)
    for i in range(4):
        for d in range(2):
            row = predicted[i, d].detach().clone().requires_grad_()
            expected = naive_quantile_huber(row, taus[i, 0], target[i, d].detach(), kappa, weights[i, 0])
            (slope,) = torch.autograd.grad(expected, row)
            assert loss[i, d].item() == pytest.approx(expected.item(), rel=1e-9)
            torch.testing.assert_close(gradient[i, d], slope, rtol=1e-9, atol=1e-12)
            pairs = [abs(y - x) for x in row.tolist() for y in target[i, d].tolist()]
            assert magnitude[i, d].item() == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize("weighted", [False, True])
def test_many_pairs_are_processed_in_blocks(weighted: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    rows, m = 3 * CACHE_ELEMENTS // (2 * 70 * 70), 70  # several blocks, the last one incomplete
    predicted, target = (torch.randn(rows, 2, m, generator=rng) for _ in range(2))
    taus, weights = torch.rand(m, generator=rng), torch.rand(rows, 1, m, generator=rng).softmax(-1)
    predicted.requires_grad_()
    whole, magnitude = quantile_huber(predicted, taus, target, 1.0, weights if weighted else None)
    (gradient,) = torch.autograd.grad(whole.sum(), predicted)
    for i in (0, rows // 2, rows - 1):
        row = predicted[i].detach().clone().requires_grad_()
        loss, size = quantile_huber(row, taus, target[i], 1.0, weights[i] if weighted else None)
        torch.testing.assert_close(whole[i], loss)
        torch.testing.assert_close(magnitude[i], size)
        torch.testing.assert_close(gradient[i], torch.autograd.grad(loss.sum(), row)[0])


@settings(max_examples=60)
@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=6),
    st.lists(st.integers(-8, 8), min_size=1, max_size=6),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([0.0, 1e6]),
)
def test_sorting_sums_the_same_pairs(predicted: list[int], target: list[int], kappa: float, offset: float) -> None:
    """Integers put targets on the borders between linear and quadratic loss, an offset makes squares cancel."""
    rows = torch.tensor([predicted], dtype=torch.float32) + offset, torch.tensor([target], dtype=torch.float32) + offset
    taus = torch.linspace(0.1, 0.9, len(predicted)).unsqueeze(0)
    weights = torch.arange(1.0, len(target) + 1).unsqueeze(0) / sum(range(len(target) + 1))
    for given_weights in (None, weights):
        found = distributional._by_sorting(rows[0], taus, rows[1], given_weights, kappa)
        expected = distributional._pairwise(rows[0], taus, rows[1], given_weights, kappa)
        for x, y in zip(found, expected, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_sorting_can_be_traced(weighted: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    predicted, target, weights = (torch.randn(2, 128, generator=rng) for _ in range(3))
    taus, weights = torch.rand(128, generator=rng), weights.softmax(-1)

    def function(predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return quantile_huber(predicted, taus, target, 1.0, weights if weighted else None)

    run = accelerate(function, (torch.zeros_like(predicted), torch.zeros_like(target)), "traced")
    for found, expected in zip(run(predicted, target), function(predicted, target), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("m", "kappa", "expected"), [(128, 1.0, True), (127, 1.0, False), (128, 0.0, False)])
def test_rows_with_many_pairs_are_sorted(m: int, kappa: float, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return by_sorting(*arguments)

    by_sorting = distributional._by_sorting
    monkeypatch.setattr(distributional, "_by_sorting", counted)
    quantile_huber(torch.zeros(1, m), torch.zeros(1, m), torch.zeros(1, 128), kappa)
    assert bool(calls) == expected


def test_quantile_regression_converges_to_quantiles() -> None:
    """Minimizes the loss with kappa 0, which has its minimum at the quantiles of the samples."""
    samples = torch.arange(101, dtype=torch.float32).unsqueeze(0)
    taus = torch.tensor([0.1, 0.5, 0.9])
    result = torch.full((1, 3), 50.0)
    for rate in torch.linspace(40, 0.1, 400):
        leaf = result.clone().requires_grad_()
        loss, _ = quantile_huber(leaf, taus, samples, 0.0)
        result -= rate * torch.autograd.grad(loss.sum(), leaf)[0]
    torch.testing.assert_close(result, torch.tensor([[10.0, 50.0, 90.0]]), rtol=0, atol=0.6)


@settings(max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=6), st.floats(0, 10))
def test_gradients_are_finite(numbers: list[float], kappa: float) -> None:
    predicted = torch.tensor([numbers]).requires_grad_()
    loss, _ = quantile_huber(predicted, torch.full((len(numbers),), 0.5), torch.tensor([numbers[::-1]]), kappa)
    (gradient,) = torch.autograd.grad(loss.sum(), predicted)
    assert bool(torch.isfinite(gradient).all())
    assert float(gradient.abs().max()) <= 1.0


@pytest.mark.parametrize(
    ("predicted", "taus", "target"), [((4, 3), (2,), (4, 5)), ((4, 3), (3,), (5,)), ((4, 3), (3,), (1, 5))]
)
def test_shapes_of_quantiles(predicted: tuple[int, ...], taus: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must have shapes \[..., M\], \[..., M\] and \[..., M'\], got \(4, 3\)"):
        quantile_huber(torch.zeros(predicted), torch.zeros(taus), torch.zeros(target))


def distance(inner: list[float], parts: int = 20_000) -> float:
    """Integrates numerically the 1-Wasserstein distance between F^-1(tau) = tau^2 and its step approximation."""
    ends = torch.tensor([0.0, *inner, 1.0], dtype=torch.float64)
    at = (torch.arange(parts, dtype=torch.float64) + 0.5) / parts
    interval = torch.bucketize(at, ends[1:-1])
    midpoints = (ends[1:] + ends[:-1]) / 2
    return float((at**2 - midpoints[interval] ** 2).abs().mean())


def test_fraction_gradient_is_that_of_the_distance() -> None:
    inner, step = [0.2, 0.6], 0.01
    for i, expected in enumerate(GRADIENT):
        more, less = ([x + sign * step * (k == i) for k, x in enumerate(inner)] for sign in (1, -1))
        assert (distance(more) - distance(less)) / (2 * step) == pytest.approx(expected, abs=2e-3)


GRADIENT = [-0.09, -0.08]
"""2 * .04 - .16 - .01 and 2 * .36 - .64 - .16, of F^-1(tau) = tau^2 at 0, .2, .6, 1 with midpoints .1, .4, .8.

Decoy, with one midpoint each: .07 and .56.
"""


def test_fraction_loss_is_zero_with_a_gradient() -> None:
    inner = torch.tensor([[0.2, 0.6]]).requires_grad_()
    at_fractions = torch.tensor([[0.04, 0.36]]).requires_grad_()
    at_midpoints = torch.tensor([[0.01, 0.16, 0.64]]).requires_grad_()
    loss = fraction_loss(inner, at_fractions, at_midpoints)
    assert loss.tolist() == [0.0]
    result: list[Any] = list(torch.autograd.grad(loss.sum(), [inner, at_fractions, at_midpoints], allow_unused=True))
    assert result[0][0].tolist() == pytest.approx(GRADIENT, abs=1e-6)
    assert result[1:] == [None, None]


@pytest.mark.parametrize(("inner", "at_fractions", "at_midpoints"), [(2, 3, 3), (3, 2, 3), (3, 3, 3)])
def test_shapes_of_fractions(inner: int, at_fractions: int, at_midpoints: int) -> None:
    with pytest.raises(
        ValueError, match=r"at_midpoints must have shapes \[..., M-1\], \[..., M-1\] and \[..., M\], got \(\d,\), "
    ):
        fraction_loss(torch.zeros(inner), torch.zeros(at_fractions), torch.zeros(at_midpoints))
