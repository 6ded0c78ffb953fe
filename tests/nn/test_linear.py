"""Noisy layers: worked numbers, rows of their own, and what evaluation sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import Linear, Noisy, NoisyLinear, assign_noise
from sb_dqn.nn.layers.noise import Noise
from tests.modes import Variant


def worked(kind: str, sigma_weight: float, sigma_bias: float) -> NoisyLinear:
    """The layer of the worked numbers."""
    layer = NoisyLinear(2, 2, Noisy(kind))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.5, -0.5]))
        layer.sigma_weight.fill_(sigma_weight)
        layer.sigma_bias.fill_(sigma_bias)
    return layer


X = torch.tensor([[1.0, -1.0]])


def test_factorised_noise_by_worked_numbers(variant: Variant) -> None:
    layer = worked("factorised", 0.1, 0.2)
    normal = torch.tensor([[0.25, -1.0, 4.0, -0.09]])
    of_f = normal.sign() * normal.abs().sqrt()  # .5, -1 and 2, -.3
    run = variant(lambda x, normal: layer(x, Noise(normal, torch.zeros(1, 0))), (X, of_f))
    assert torch.allclose(run(X, of_f), torch.tensor([[0.2, -1.605]]))
    assert not torch.allclose(run(X, normal), torch.tensor([[0.2, -1.605]]), atol=0.1)  # decoy: without f


@pytest.mark.parametrize("kind", ["factorised", "independent"])
def test_evaluation_takes_the_mean_weights(kind: str, variant: Variant) -> None:
    assert torch.allclose(variant(worked(kind, 0.1, 0.2), (X,))(X), torch.tensor([[-0.5, -1.5]]))


def test_independent_noise_by_worked_numbers(variant: Variant) -> None:
    layer, normal = worked("independent", 0.017, 0.017), torch.tensor([[0.5, -1.0, 2.0, 0.1, 1.0, -2.0]])
    run = variant(lambda x, normal: layer(x, Noise(normal, torch.zeros(1, 0), False)), (X, normal))
    assert torch.allclose(run(X, normal), torch.tensor([[-0.4575, -1.5017]]))


def test_renewing_applies_f_to_factorised_noise_alone() -> None:
    shape = (1, 50_000)
    factorised, plain = (
        Noise(torch.zeros(shape), torch.zeros(0, 0)),
        Noise(torch.zeros(shape), torch.zeros(0, 0), False),
    )
    for noise in (factorised, plain):
        noise.renew(torch.Generator().manual_seed(0))
    assert torch.equal(factorised.normal, plain.normal.sign() * plain.normal.abs().sqrt())
    assert factorised.normal.square().mean().item() == pytest.approx(math.sqrt(2 / math.pi), rel=0.02)  # E[f^2]


@pytest.mark.parametrize(
    ("kind", "width", "bound", "sigma"),
    [
        ("factorised", 512, 0.0441941738, 0.0220970869),
        ("factorised", 3136, 0.0178571429, 0.0089285714),
        ("independent", 512, 0.0765465545, 0.017),
        ("independent", 3136, 0.0309294787, 0.017),
    ],
)
def test_initial_weights(kind: str, width: int, bound: float, sigma: float) -> None:
    layer = NoisyLinear(width, 64, Noisy(kind))
    assert layer.weight.abs().max().item() <= bound
    assert layer.weight.abs().max().item() > 0.99 * bound
    assert layer.sigma_weight.unique().tolist() == pytest.approx([sigma])
    assert layer.sigma_bias.unique().tolist() == pytest.approx([sigma])


def test_each_row_has_the_weights_of_its_own_draw() -> None:
    layer, rows = NoisyLinear(5, 3, Noisy(sigma=1.0)), 4
    noise = Noise(torch.randn(rows, layer.width), torch.zeros(rows, 0))
    x = torch.randn(rows, 5)
    together = layer(x, noise)
    for row in range(rows):
        of_in, of_out = noise.normal[row].split([5, 3])
        weight = layer.weight + layer.sigma_weight * torch.outer(of_out, of_in)
        assert torch.allclose(together[row], x[row] @ weight.T + layer.bias + layer.sigma_bias * of_out, atol=1e-5)


def test_one_draw_for_all_lies_on_every_axis_between() -> None:
    layer = NoisyLinear(5, 3, Noisy())
    x = torch.randn(4, 7, 5)
    shared = Noise(torch.randn(1, layer.width), torch.zeros(4, 0))
    assert torch.allclose(layer(x, shared)[2, 3], layer(x[2, 3:4], shared)[0], atol=1e-6)
    own = Noise(torch.randn(4, layer.width), torch.zeros(4, 0))
    assert torch.allclose(layer(x, own)[2, 3], layer(x[2:3, 3], Noise(own.normal[2:3], own.uniform))[0], atol=1e-6)


def test_many_rows_of_one_draw_are_as_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = NoisyLinear(5, 3, Noisy(sigma=1.0))
    noise = Noise(torch.randn(1, layer.width), torch.zeros(1, 0))
    x, weights = torch.randn(2, 8, 5), torch.randn(2, 8, 3)
    made: list[list[Tensor]] = []
    for rows in (16, 17):  # the noise within the matrix, then beside it
        monkeypatch.setattr("sb_dqn.nn.layers.linear.ROWS", rows)
        y = layer(x, noise)
        made.append([y, *torch.autograd.grad((y * weights).sum(), list(layer.parameters()))])
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    of_in, of_out = noise.normal[0].split([5, 3])
    weight = layer.weight + layer.sigma_weight * torch.outer(of_out, of_in)
    assert torch.allclose(made[0][0], x @ weight.T + layer.bias + layer.sigma_bias * of_out, atol=1e-5)


def test_layers_read_their_own_slices() -> None:
    net = nn.Sequential(NoisyLinear(2, 3, Noisy()), Linear(3, 3), NoisyLinear(3, 4, Noisy()))
    assert assign_noise(net) == 5 + 7
    assert [layer.start for layer in net if isinstance(layer, NoisyLinear)] == [0, 5]
    assert assign_noise(nn.Sequential(Linear(2, 2))) == 0


def test_the_gradient_reaches_mean_and_spread() -> None:
    layer = NoisyLinear(5, 3, Noisy())
    noise = Noise(torch.randn(1, layer.width), torch.zeros(1, 0))
    gradients: list[Tensor] = list(torch.autograd.grad(layer(torch.randn(6, 5), noise).sum(), list(layer.parameters())))
    assert all(bool((gradient != 0).any()) for gradient in gradients)


@pytest.mark.parametrize(("settings", "message"), [({"kind": "gaussian"}, "factorised"), ({"sigma": -1.0}, "sigma")])
def test_what_noisy_refuses(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Noisy(**settings)  # type: ignore[arg-type]  # on purpose
