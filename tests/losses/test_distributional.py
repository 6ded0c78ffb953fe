"""Losses of categories: worked numbers with decoys, a naive projection, and what projecting must keep."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.losses.distributional import cross_entropy, entropy, kl_divergence, project
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
    found = run((return_ + discount * FIVE).unsqueeze(0), HUMP.unsqueeze(0))
    torch.testing.assert_close(found, torch.tensor([expected]), rtol=0, atol=1e-6)


def test_clipping_moves_the_mean() -> None:
    found = project(0.3 + 0.9 * FIVE, HUMP, FIVE)
    assert (found @ FIVE).item() == pytest.approx(0.28, abs=1e-6)  # that of the distribution itself is 0.3


def test_projection_on_51_atoms() -> None:
    support = torch.linspace(-10, 10, 51)
    point = torch.zeros(51)
    point[25] = 1.0
    found = project(1.0 + 0.99 * support, point, support)
    assert found[27:29].tolist() == pytest.approx([0.5, 0.5], abs=1e-5)
    found = project(1.0 + 0.99**3 * support, torch.full((51,), 1 / 51), support)
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[25].item() == pytest.approx(0.0201902157, abs=1e-6)
    assert found[50].item() == pytest.approx(0.0552328824, abs=1e-6)
    assert (found @ support).item() == pytest.approx(0.9800419529, abs=1e-5)


def naive_projection(atoms: list[float], probabilities: list[float], support: list[float]) -> list[float]:
    """One atom after another, by the formula of the paper."""
    step = (support[-1] - support[0]) / (len(support) - 1)
    found = [0.0] * len(support)
    for x, p in zip(atoms, probabilities, strict=True):
        x = min(max(x, support[0]), support[-1])
        for i, z in enumerate(support):
            found[i] += min(max(1 - abs(x - z) / step, 0), 1) * p
    return found


@st.composite
def distributions(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    low = draw(st.floats(-100, 100, width=32))
    width = draw(st.floats(0.125, 200, width=32))
    support = torch.linspace(low, low + width, draw(st.integers(2, 12)), dtype=torch.float64).tolist()
    anywhere = st.one_of(st.sampled_from(support), st.floats(low - width, low + 2 * width))
    atoms = draw(st.lists(anywhere, min_size=1, max_size=8))
    masses = draw(st.lists(st.floats(0, 1), min_size=len(atoms), max_size=len(atoms)))
    return atoms, masses, support


@settings(max_examples=150, deadline=None)
@given(distributions())
def test_projection_keeps_mass_and_mean(drawn: tuple[list[float], list[float], list[float]]) -> None:
    atoms, masses, support = drawn
    x, p, z = (torch.tensor(numbers, dtype=torch.float64) for numbers in drawn)
    found = project(x, p, z)
    assert found.sum().item() == pytest.approx(sum(masses), abs=1e-9)
    assert found.min().item() >= -1e-12
    inside = x.clamp(support[0], support[-1])
    assert (found @ z).item() == pytest.approx((p @ inside).item(), rel=1e-6, abs=1e-6)
    assert found.tolist() == pytest.approx(naive_projection(atoms, masses, support), abs=1e-6)


def test_projection_of_many_rows_is_that_of_each() -> None:
    rng = torch.Generator().manual_seed(0)
    atoms, masses = 30 * torch.randn(3, 4, 9, generator=rng), torch.rand(3, 4, 9, generator=rng)
    support = torch.linspace(-10, 30, 7)
    found = project(atoms, masses, support)
    assert found.shape == (3, 4, 7)
    for i in range(3):
        for j in range(4):
            expected = naive_projection(atoms[i, j].tolist(), masses[i, j].tolist(), support.tolist())
            assert found[i, j].tolist() == pytest.approx(expected, abs=1e-5)


def test_what_is_not_finite_shows_and_does_no_harm() -> None:
    found = project(torch.tensor([[math.nan, 0.0], [math.inf, 0.0]]), torch.full((2, 2), 0.5), FIVE)
    assert bool(found[0].isnan().any())  # an index made of NaN would lie outside
    assert found[1].tolist() == [0.0, 0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("atoms", "masses", "support"),
    [((3, 5), (3, 4), (5,)), ((3, 5), (5,), (5,)), ((5,), (5,), (1,)), ((5,), (5,), (1, 5))],
)
def test_shapes_of_a_projection(atoms: tuple[int, ...], masses: tuple[int, ...], support: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"do not belong together: give \[..., M\]"):
        project(torch.zeros(atoms), torch.zeros(masses), torch.zeros(support))


TRUTH = torch.tensor([0.02, 0.14, 0.30, 0.34, 0.20])
UNIFORM = torch.full((5,), math.log(0.2))


@pytest.mark.parametrize("mode", MODES)
def test_cross_entropy_and_divergence(mode: Mode) -> None:
    def function(p: Tensor, log_q: Tensor) -> tuple[Tensor, ...]:
        return cross_entropy(p, log_q), entropy(p), kl_divergence(p, log_q)

    found = accelerate(function, (torch.ones(5), torch.zeros(5)), mode)(TRUTH, UNIFORM)
    expected = [1.6094379124, 1.4033709685, 0.2060669438]
    assert [number.item() for number in found] == pytest.approx(expected, abs=1e-6)
    # decoy: the divergence the other way round
    assert abs(kl_divergence(UNIFORM.exp(), TRUTH.log()).item() - expected[2]) > 0.1


def test_nothing_has_no_entropy() -> None:
    point = torch.tensor([0.0, 1.0, 0.0])
    assert entropy(point).item() == 0.0
    assert kl_divergence(point, torch.tensor([0.1, 0.8, 0.1]).log()).item() == pytest.approx(-math.log(0.8))
    rounded = torch.softmax(torch.randn(1000, 51, generator=torch.Generator().manual_seed(0)), -1)
    assert kl_divergence(rounded, rounded.log()).min().item() >= 0.0  # a priority below 0 would have no power


def test_the_two_rank_differently() -> None:
    """A right prediction of a fair coin against a wrong one of a certainty."""
    truth = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    predicted = torch.tensor([[0.5, 0.5], [0.6, 0.4]]).log()
    assert cross_entropy(truth, predicted).argmax().item() == 0
    assert kl_divergence(truth, predicted).argmax().item() == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=6))
def test_gradients_of_logits_are_finite(numbers: list[float]) -> None:
    logits = torch.tensor([numbers]).requires_grad_()
    truth = torch.full((1, len(numbers)), 1.0 / len(numbers))
    for loss in (cross_entropy, kl_divergence):
        (gradient,) = torch.autograd.grad(loss(truth, logits.log_softmax(-1)).sum(), logits)
        assert bool(torch.isfinite(gradient).all())
        assert float(gradient.abs().max()) <= 1.0
