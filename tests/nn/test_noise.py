"""One draw fills the noise of noisy layers and the fractions of implicit quantiles."""

from __future__ import annotations

import pytest
import torch

from sb_dqn.nn.layers.noise import Noise

CPU = torch.device("cpu")
COUNT = 20_000


def drawn(normal: int, uniform: int, factorised: bool = True) -> Noise:
    noise = Noise.zeros((1, normal), (COUNT, uniform), CPU, factorised)
    noise.draw(torch.Generator().manual_seed(0))
    return noise.after_draw()


@pytest.mark.parametrize("normal", [0, COUNT])
def test_fractions_are_uniform(normal: int) -> None:
    fractions = drawn(normal, 1).uniform.flatten().sort().values
    assert fractions[0] >= 0.0
    assert fractions[-1] <= 1.0
    expected = (torch.arange(COUNT) + 0.5) / COUNT
    assert (fractions - expected).abs().max() < 1.95 / COUNT**0.5  # Kolmogorov and Smirnov, 0.1 %


@pytest.mark.parametrize("uniform", [0, 1])
@pytest.mark.parametrize("factorised", [False, True])
def test_noise_is_normal_and_factorised_once(uniform: int, factorised: bool) -> None:
    normal = drawn(COUNT, uniform, factorised).normal.flatten()
    numbers = (normal.square() * normal.sign() if factorised else normal).sort().values
    expected = torch.special.ndtri((torch.arange(COUNT) + 0.5) / COUNT)
    assert (torch.special.ndtr(numbers) - torch.special.ndtr(expected)).abs().max() < 1.95 / COUNT**0.5


def test_normal_and_uniform_numbers_are_independent() -> None:
    noise = drawn(COUNT, 1, factorised=False)
    together = torch.stack([noise.normal.flatten(), noise.uniform.flatten()])
    assert torch.corrcoef(together)[0, 1].abs() < 4 / COUNT**0.5


@pytest.mark.parametrize("factorised", [False, True])
@pytest.mark.parametrize(("normal", "uniform"), [(0, 3), (40, 0), (40, 3)])
def test_noise_that_is_renewed_in_place_is_that_of_a_trace(normal: int, uniform: int, factorised: bool) -> None:
    drawn, renewed = (Noise.zeros((1, normal), (50, uniform), CPU, factorised) for _ in range(2))
    drawn.draw(torch.Generator().manual_seed(1))
    renewed.renew(torch.Generator().manual_seed(1))
    assert torch.equal(drawn.after_draw().normal, renewed.normal)
    assert torch.equal(drawn.after_draw().uniform, renewed.uniform)
