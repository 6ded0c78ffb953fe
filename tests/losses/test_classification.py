"""Values as classes: worked numbers of HL-Gauss and two-hot targets, with what they are mistaken for."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.losses.distributional import hl_gauss, two_hot
from sb_dqn.losses.transforms import symexp
from tests.modes import Variant

EDGES = torch.linspace(-2.0, 2.0, 5, dtype=torch.float64)  # four bins of width 1, with centers -1.5, -0.5, 0.5, 1.5


def exactly(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def by_definition(y: float, edges: list[float], sigma: float) -> list[float]:
    """Returns the target one bin after the other, by the normal distribution of the standard library."""
    y = min(max(y, edges[0]), edges[-1])
    cdf = [NormalDist(y, sigma).cdf(edge) for edge in edges]
    return [(after - before) / (cdf[-1] - cdf[0]) for before, after in pairwise(cdf)]


def test_worked_hl_gauss(variant: Variant) -> None:
    """y = 0.2, sigma = 0.75: Phi at -2.9333, -1.6, -0.2667, 1.0667, 2.4 is 0.001677, 0.054799, 0.394863, 0.856939, 0.991802."""
    found = variant(lambda y: hl_gauss(y, EDGES, 0.75), (exactly(0.2),))(exactly(0.2))
    torch.testing.assert_close(found, exactly(0.053652, 0.343455, 0.466684, 0.136209).view(1, 4), rtol=0, atol=1e-6)
    mirrored = exactly(*reversed(found[0].tolist()))  # centers of the wrong sign, as in a published version
    assert (found[0] - mirrored).abs().max() > 0.1
    assert (
        abs(float(found[0] @ exactly(-1.5, -0.5, 0.5, 1.5)) - 0.2) < 0.04
    )  # the range is short: 2.4 sigmas to its end


@settings(max_examples=100)
@given(
    y=st.floats(-12, 12),
    bins=st.integers(3, 60),
    sigma=st.floats(0.3, 3.0),
)
def test_hl_gauss_is_its_definition(y: float, bins: int, sigma: float) -> None:
    edges = torch.linspace(-10.0, 10.0, bins + 1, dtype=torch.float64)
    found = hl_gauss(exactly(y), edges, sigma)[0]
    torch.testing.assert_close(found, exactly(*by_definition(y, edges.tolist(), sigma)), rtol=1e-6, atol=1e-9)
    assert float(found.sum()) == pytest.approx(1.0)


def test_the_mean_of_hl_gauss_is_the_value_inside_the_range() -> None:
    edges = torch.linspace(-10.0, 10.0, 52)
    centers = 0.5 * (edges[1:] + edges[:-1])
    y = torch.linspace(-9.0, 9.0, 301)
    mean = hl_gauss(y, edges, 0.75 * 20 / 51) @ centers
    assert float((mean - y).abs().max()) < 2e-3
    assert float((hl_gauss(torch.tensor([10.0]), edges, 0.75 * 20 / 51) @ centers)[0]) < 9.9  # low at the end


def test_worked_two_hot_with_decoys(variant: Variant) -> None:
    centers = exactly(-1.0, 0.0, 2.0, 6.0)
    y = exactly(-5.0, -1.0, 0.5, 2.0, 5.0, 6.0, 7.0)
    found = variant(lambda x: two_hot(x, centers), (y,))(y)
    expected = [
        [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.75, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.25, 0.75],
        [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0],
    ]  # fmt: skip
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    swapped = [0.0, 0.25, 0.75, 0.0]  # the weight of a neighbor by its own distance
    assert found[2].tolist() != swapped


@settings(max_examples=100)
@given(y=st.floats(-2e4, 2e4), bins=st.integers(2, 70))
def test_the_mean_of_two_hot_is_the_value(y: float, bins: int) -> None:
    centers = symexp(torch.linspace(-10.0, 10.0, bins, dtype=torch.float64))
    found = two_hot(exactly(y), centers)[0]
    assert int((found > 0).sum()) <= 2
    assert float(found.sum()) == pytest.approx(1.0)
    assert float(found @ centers) == pytest.approx(y, rel=1e-9, abs=1e-6)
