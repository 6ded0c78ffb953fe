"""Categorical losses: worked numbers with decoys, and property tests against a naive projection."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.losses.distributional import cross_entropy, kl_divergence, project
from tests.marks import SLOW
from tests.modes import MODES

FIVE = torch.linspace(-1, 1, 5)
HUMP = torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("return_", "discount", "expected"),
    [
        (0.3, 0.9, [0.02, 0.14, 0.30, 0.34, 0.20]),
        (0.3, 0.0, [0.0, 0.0, 0.4, 0.6, 0.0]),
        (2.0, 0.9, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (0.5, 0.0, [0.0, 0.0, 0.0, 1.0, 0.0]),  # on an atom; decoy: floor and ceiling give nothing at all
        (1.0, 0.0, [0.0, 0.0, 0.0, 0.0, 1.0]),  # on the last atom
        (-7.0, 0.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_projection_by_worked_numbers(mode: Mode, return_: float, discount: float, expected: list[float]) -> None:
    run = accelerate(lambda x, p: project(x, p, FIVE), (torch.zeros(1, 5), torch.zeros(1, 5)), mode)
    result = run((return_ + discount * FIVE).unsqueeze(0), HUMP.unsqueeze(0))
    torch.testing.assert_close(result, torch.tensor([expected]), rtol=0, atol=1e-6)


def test_clipping_moves_the_mean() -> None:
    result = project(0.3 + 0.9 * FIVE, HUMP, FIVE)
    assert (result @ FIVE).item() == pytest.approx(0.28, abs=1e-6)  # decoy: 0.3, the mean before clipping


def test_projection_on_51_atoms() -> None:
    support = torch.linspace(-10, 10, 51)
    point = torch.zeros(51)
    point[25] = 1.0
    result = project(1.0 + 0.99 * support, point, support)
    assert result[27:29].tolist() == pytest.approx([0.5, 0.5], abs=1e-5)
    result = project(1.0 + 0.99**3 * support, torch.full((51,), 1 / 51), support)
    assert result[:2].tolist() == [0.0, 0.0]
    assert result[25].item() == pytest.approx(0.0201902157, abs=1e-6)
    assert result[50].item() == pytest.approx(0.0552328824, abs=1e-6)
    assert (result @ support).item() == pytest.approx(0.9800419529, abs=1e-5)


def naive_projection(atoms: list[float], probabilities: list[float], support: list[float]) -> list[float]:
    """Projects one atom after another, by the formula of the paper."""
    step = (support[-1] - support[0]) / (len(support) - 1)
    result = [0.0] * len(support)
    for x, p in zip(atoms, probabilities, strict=True):
        x = min(max(x, support[0]), support[-1])
        for i, z in enumerate(support):
            result[i] += min(max(1 - abs(x - z) / step, 0), 1) * p
    return result


@st.composite
def distributions(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    low = draw(st.floats(-100, 100, width=32))
    width = draw(st.floats(0.125, 200, width=32))
    support = torch.linspace(low, low + width, draw(st.integers(2, 12)), dtype=torch.float64).tolist()
    anywhere = st.one_of(st.sampled_from(support), st.floats(low - width, low + 2 * width))
    atoms = draw(st.lists(anywhere, min_size=1, max_size=8))
    masses = draw(st.lists(st.floats(0, 1), min_size=len(atoms), max_size=len(atoms)))
    return atoms, masses, support


@SLOW
@settings(max_examples=150)
@given(distributions())
def test_projection_keeps_mass_and_mean(drawn: tuple[list[float], list[float], list[float]]) -> None:
    atoms, masses, support = drawn
    x, p, z = (torch.tensor(numbers, dtype=torch.float64) for numbers in drawn)
    result = project(x, p, z)
    assert result.sum().item() == pytest.approx(sum(masses), abs=1e-9)
    assert result.min().item() >= -1e-12
    inside = x.clamp(support[0], support[-1])
    assert (result @ z).item() == pytest.approx((p @ inside).item(), rel=1e-6, abs=1e-6)
    assert result.tolist() == pytest.approx(naive_projection(atoms, masses, support), abs=1e-6)


def test_rows_are_projected_independently() -> None:
    rng = torch.Generator().manual_seed(0)
    atoms, masses = 30 * torch.randn(3, 4, 9, generator=rng), torch.rand(3, 4, 9, generator=rng)
    support = torch.linspace(-10, 30, 7)
    result = project(atoms, masses, support)
    assert result.shape == (3, 4, 7)
    for i in range(3):
        for j in range(4):
            expected = naive_projection(atoms[i, j].tolist(), masses[i, j].tolist(), support.tolist())
            assert result[i, j].tolist() == pytest.approx(expected, abs=1e-5)


def test_nan_is_propagated_without_an_invalid_index() -> None:
    result = project(torch.tensor([[math.nan, 0.0], [math.inf, 0.0]]), torch.full((2, 2), 0.5), FIVE)
    assert bool(result[0].isnan().any())
    assert result[1].tolist() == [0.0, 0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("atoms", "masses", "support"),
    [((3, 5), (3, 4), (5,)), ((3, 5), (5,), (5,)), ((5,), (5,), (1,)), ((5,), (5,), (1, 5))],
)
def test_shapes_of_a_projection(atoms: tuple[int, ...], masses: tuple[int, ...], support: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must have shapes \[..., M\], \[..., M\] and \[Z\] with Z >= 2, got \(\d"):
        project(torch.zeros(atoms), torch.zeros(masses), torch.zeros(support))


TRUTH = torch.tensor([0.02, 0.14, 0.30, 0.34, 0.20])
UNIFORM = torch.full((5,), math.log(0.2))


@pytest.mark.parametrize("mode", MODES)
def test_cross_entropy_and_divergence(mode: Mode) -> None:
    def function(p: Tensor, log_q: Tensor) -> tuple[Tensor, ...]:
        return cross_entropy(p, log_q), kl_divergence(p, log_q)

    result = accelerate(function, (torch.ones(5), torch.zeros(5)), mode)(TRUTH, UNIFORM)
    expected = [1.6094379124, 0.2060669438]  # the entropy of the truth is 1.4033709685
    assert [number.item() for number in result] == pytest.approx(expected, abs=1e-6)
    # decoy: the reverse divergence
    assert abs(kl_divergence(UNIFORM.exp(), TRUTH.log()).item() - expected[1]) > 0.1


def test_zero_probability_and_rounding() -> None:
    point = torch.tensor([0.0, 1.0, 0.0])
    assert kl_divergence(point, torch.tensor([0.1, 0.8, 0.1]).log()).item() == pytest.approx(-math.log(0.8))
    rounded = torch.softmax(torch.randn(1000, 51, generator=torch.Generator().manual_seed(0)), -1)
    assert kl_divergence(rounded, rounded.log()).min().item() >= 0.0  # a power of a negative priority is NaN


def test_cross_entropy_and_divergence_rank_differently() -> None:
    """Compares a perfect prediction of a fair coin with a wrong prediction of a certain outcome."""
    truth = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    predicted = torch.tensor([[0.5, 0.5], [0.6, 0.4]]).log()
    assert cross_entropy(truth, predicted).argmax().item() == 0
    assert kl_divergence(truth, predicted).argmax().item() == 1


@settings(max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=6))
def test_gradients_of_logits_are_finite(numbers: list[float]) -> None:
    logits = torch.tensor([numbers]).requires_grad_()
    truth = torch.full((1, len(numbers)), 1.0 / len(numbers))
    for loss in (cross_entropy, kl_divergence):
        (gradient,) = torch.autograd.grad(loss(truth, logits.log_softmax(-1)).sum(), logits)
        assert bool(torch.isfinite(gradient).all())
        assert float(gradient.abs().max()) <= 1.0
