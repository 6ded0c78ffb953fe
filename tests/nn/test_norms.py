"""Spectral norm as a pure function of the weights, and layer norm that keeps the memory format."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor  # here, since it warns when it is first imported
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.norms import (
    ImageLayerNorm,
    SpectralConv2d,
    SpectralLinear,
    SpectralWeights,
    check_layer_norm,
    image_norm,
    spectral_norm,
    spectrally_normalized,
)
from sb_dqn.nn.parameters.flat import flatten_parameters
from tests.marks import SLOW
from tests.modes import MODES


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact(weight: Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.detach().double().flatten(1), 2))


SHAPES = [(64, 64, 3, 3), (32, 4, 8, 8), (16, 3), (3, 16), (64, 64), (128, 200), (1, 5), (5, 1), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_singular_value(shape: tuple[int, ...]) -> None:
    for seed in range(3):
        weight = torch.randn(shape, generator=rng(seed))
        assert float(spectral_norm(weight)) == pytest.approx(exact(weight), rel=5e-3)
        assert exact(spectrally_normalized(weight)) == pytest.approx(1.0, rel=5e-3)


def several(weights: list[Tensor]) -> tuple[list[nn.Parameter], SpectralWeights]:
    """Parameters of spectral layers with these values, which are normalized together."""
    layers: list[Any] = [
        SpectralConv2d(weight.shape[1], weight.shape[0], weight.shape[2])
        if weight.dim() == 4
        else SpectralLinear(weight.shape[1], weight.shape[0])
        for weight in weights
    ]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = nn.Parameter(weight)
    network = nn.ModuleList(layers)
    return [layer.weight for layer in layers], SpectralWeights(network)


def normalized_together(weights: SpectralWeights) -> list[Tensor]:
    with weights.computed():
        return [layer.normalized_weight for layer in weights.layers]


def test_several_at_once_are_the_same_as_one_by_one() -> None:
    """Values and gradients, of matrices that are padded in both directions, turned or not."""
    parameters, weights = several([torch.randn(shape, generator=rng(i)) for i, shape in enumerate(SHAPES)])
    found, expected = normalized_together(weights), [spectrally_normalized(each) for each in parameters]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    towards = [torch.randn(shape, generator=rng(100 + i)) for i, shape in enumerate(SHAPES)]

    def gradients(normalized: list[Tensor]) -> tuple[Tensor, ...]:
        total = sum((one * other).sum() for one, other in zip(normalized, towards, strict=True))
        return torch.autograd.grad(total, parameters)  # type: ignore[arg-type]  # a tensor, since there are weights

    for gradient, reference in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-3, atol=1e-4)
    # decoy: the next weight's value is another one
    sizes = torch.stack([weight.abs().max() for weight in found])
    assert not torch.isclose(sizes, sizes.roll(1), rtol=0.01).all()


def test_worked_cases_at_once() -> None:
    _, weights = several(
        [
            torch.tensor(weight)
            for weight in ([[1.0], [2.0], [2.0]], [[0.0, 0.0]], [[3.0, 4.0]], [[1.0, -1.0], [-1.0, 1.0]])
        ]
    )
    found = [weight.flatten().tolist() for weight in normalized_together(weights)]
    for values, expected in zip(
        found, ([1 / 3, 2 / 3, 2 / 3], [0, 0], [0.6, 0.8], [0.5, -0.5, -0.5, 0.5]), strict=True
    ):
        assert values == pytest.approx(expected)


def test_any_scale_and_memory_format() -> None:
    weight = torch.randn(8, 6, 3, 3, generator=rng())
    sigma = spectral_norm(weight)
    torch.testing.assert_close(spectral_norm(weight.to(memory_format=torch.channels_last)), sigma)
    for scale in (1e-8, 1e8):
        torch.testing.assert_close(spectral_norm(scale * weight), scale * sigma)
        torch.testing.assert_close(spectrally_normalized(scale * weight), spectrally_normalized(weight))
    last = spectrally_normalized(weight.to(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_directions_that_a_fixed_start_would_miss() -> None:
    torch.testing.assert_close(spectral_norm(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])), torch.tensor(2.0))
    torch.testing.assert_close(spectral_norm(torch.diag(torch.tensor([0.1, 0.2, 3.0]))), torch.tensor(3.0))
    torch.testing.assert_close(spectral_norm(torch.eye(4)), torch.tensor(1.0))  # all equal


def test_singular_values_that_lie_close_together() -> None:
    basis, _ = torch.linalg.qr(torch.randn(64, 64, generator=rng()))
    weight = basis * torch.linspace(0.9, 1.0, 64) @ basis.T
    assert 0.99 < float(spectral_norm(weight)) <= 1.0 + 1e-5


@SLOW
@pytest.mark.parametrize(("rows", "worst"), [(64, 0.009), (512, 0.0151)])
def test_the_worst_that_it_falls_short_by(rows: int, worst: float) -> None:
    """One direction stands out a little, seen evenly from all columns, and all others are alike."""
    even = torch.full((rows, 1), rows**-0.5)
    axis = even.clone()
    axis[0] -= 1.0
    basis = torch.eye(rows) - 2.0 * axis @ axis.T / axis.square().sum()  # Householder's: its first column is `even`
    short = []
    for gap in torch.linspace(0.005, 0.06, 23):
        values = torch.full((rows,), 1.0 - float(gap))
        values[0] = 1.0
        short.append(1.0 - float(spectral_norm(basis * values)))
    assert 0.5 * worst < max(short) < worst


def test_a_weight_of_zeros_stays_finite() -> None:
    weight = torch.zeros(4, 3, requires_grad=True)
    normalized = spectrally_normalized(weight)
    assert normalized.tolist() == [[0.0] * 3] * 4
    (grad,) = torch.autograd.grad(normalized.sum(), weight)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (4, 3, 2, 2)])
def test_the_gradient_is_that_of_the_exact_norm(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, generator=rng(1), requires_grad=True)
    towards = torch.randn(shape, generator=rng(2))
    sigma = torch.linalg.matrix_norm(weight.flatten(1), 2)
    (expected,) = torch.autograd.grad((weight / sigma * towards).sum(), weight)
    (found,) = torch.autograd.grad((spectrally_normalized(weight) * towards).sum(), weight)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


def make_net(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(SpectralConv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), SpectralLinear(8 * 25, 6))


def make_input(seed: int = 0) -> Tensor:
    return torch.randn(4, 2, 5, 5, generator=rng(seed)).to(memory_format=torch.channels_last)


def test_layers_act_with_the_normalized_weight() -> None:
    conv, linear = SpectralConv2d(3, 8, 3, 2, 1), SpectralLinear(5, 7)
    x, row = torch.randn(2, 3, 9, 9, generator=rng()), torch.randn(2, 5, generator=rng())
    expected = functional.conv2d(x, conv.weight / exact(conv.weight), conv.bias, 2, 1)
    torch.testing.assert_close(conv(x), expected, rtol=1e-3, atol=1e-3)
    expected = functional.linear(row, linear.weight / exact(linear.weight), linear.bias)
    torch.testing.assert_close(linear(row), expected, rtol=1e-3, atol=1e-3)


def test_nothing_is_kept_and_nothing_changes() -> None:
    net = make_net()
    plain = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(200, 6))
    assert list(net.buffers()) == []
    assert net.state_dict().keys() == plain.state_dict().keys()
    before = copy.deepcopy(net.state_dict())
    first = net(make_input())
    for _ in range(3):
        torch.testing.assert_close(net(make_input()), first, rtol=0, atol=0)
    net.eval()
    torch.testing.assert_close(net(make_input()), first, rtol=0, atol=0)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_copies_and_loaded_nets_answer_the_same_bit_for_bit() -> None:
    net, other = make_net(0), make_net(1)
    flatten_parameters(list(net.parameters()))
    flatten_parameters(list(other.parameters()))
    other.load_state_dict(net.state_dict())
    expected = net(make_input())
    for same in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(same(make_input()), expected, rtol=0, atol=0)


def test_parameters_in_one_flat_tensor() -> None:
    net = make_net()
    before = net(make_input())
    flat = flatten_parameters(list(net.parameters()))
    torch.testing.assert_close(net(make_input()), before)
    flat[: -6 - 1200] *= 7.0  # the convolution, its bias too: the weight acts as before
    with torch.no_grad():
        net.get_parameter("0.bias").div_(7.0)
    torch.testing.assert_close(net(make_input()), before)


def test_a_bfloat16_twin() -> None:
    net = make_net()
    twin = copy.deepcopy(net).to(torch.bfloat16)
    low = flatten_parameters(list(twin.parameters()), torch.bfloat16)
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.bfloat16}
    found = twin(make_input().bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), net(make_input()), rtol=0.05, atol=0.05)
    assert exact(spectrally_normalized(twin.get_parameter("0.weight"))) == pytest.approx(1.0, rel=5e-3)
    flat = flatten_parameters(list(net.parameters()))
    flat.add_(torch.randn(flat.shape, generator=rng(5)))
    low.copy_(flat)  # as after each step of the optimizer: nothing else has to follow
    torch.testing.assert_close(twin(make_input().bfloat16()).float(), net(make_input()), rtol=0.05, atol=0.1)


def learning(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """A gradient in one row, as the learner takes it."""

    def gradient(x: Tensor) -> Tensor:
        found = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
        return torch.cat([part.reshape(-1) for part in found])

    return gradient


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])
def test_traces_follow_the_weights(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(SpectralConv2d(2, 8, 3), nn.ReLU())
    if mode == "traced":  # never done with convolutions
        net = nn.Sequential(nn.Flatten(), SpectralLinear(50, 9), nn.ReLU(), SpectralLinear(9, 12))
    flat = flatten_parameters(list(net.parameters()))
    before = flat.clone()
    run = accelerate(learning(net), (make_input(),), mode)
    assert torch.equal(flat, before)
    for seed in range(2):
        with torch.no_grad():
            flat.copy_(torch.randn(flat.shape, generator=rng(seed)))
        torch.testing.assert_close(run(make_input(seed)), learning(net)(make_input(seed)), rtol=1e-3, atol=1e-4)
    assert "torch.compile failed" not in capsys.readouterr().err


@pytest.mark.parametrize("over", [True, "channels"])
def test_layer_norm_of_images(over: Any) -> None:
    norm, x = ImageLayerNorm((5, 4, 3), over), torch.randn(2, 5, 4, 3, generator=rng())
    axes = (1, 2, 3) if over is True else (1,)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(norm.weight.shape, generator=rng(1)))
        norm.bias.copy_(torch.rand(norm.bias.shape, generator=rng(2)))
    scale, shift = (p.permute(2, 0, 1) if over is True else p[:, None, None] for p in (norm.weight, norm.bias))
    mean, spread = x.mean(axes, keepdim=True), x.var(axes, keepdim=True, unbiased=False)
    expected = (x - mean) / (spread + 1e-5).sqrt() * scale + shift
    for given in (x, x.to(memory_format=torch.channels_last)):
        found = norm(given)
        torch.testing.assert_close(found, expected)
        assert found.is_contiguous(memory_format=torch.channels_last)


def test_how_many_weights_a_layer_norm_has() -> None:
    assert sum(p.numel() for p in ImageLayerNorm((5, 4, 3)).parameters()) == 2 * 60
    assert sum(p.numel() for p in ImageLayerNorm((5, 4, 3), "channels").parameters()) == 2 * 5
    assert image_norm((5, 4, 3), False) == []


@pytest.mark.parametrize("value", ["channel", 1, None, np.ones(2)])
def test_what_is_no_layer_norm(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="layer_norm must be True, False or 'channels', got"):
        check_layer_norm(value)
