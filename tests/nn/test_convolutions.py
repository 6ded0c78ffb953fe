"""Our CNNs: shapes, parameter counts of the papers, memory format, twins, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import HadamaxCNN, ImpalaCNN, MinAtarCNN, NatureCNN
from sb_dqn.nn.layers.convolution import StridedConv2d
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.norms import ImageLayerNorm, SpectralConv2d
from sb_dqn.nn.parameters.flat import flatten_parameters
from sb_dqn.nn.torsos.convolutions import ImageExtractor
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.features import (
    EXTRACTORS,
    NATURE_PIXELS,
    CombinedExtractor,
    default_cnn,
    default_extractor,
)
from sb_dqn.nn.torsos.hadamax import HadamaxBlock
from sb_dqn.nn.torsos.impala import ResidualBlock

BTR: dict[str, Any] = {"width": 2, "spectral_norm": True, "adaptive_pool": (6, 6)}
ATARI = (4, 84, 84)
CNNS: dict[str, tuple[type[ImageExtractor], dict[str, Any]]] = {
    "nature": (NatureCNN, {}),
    "rlpyt": (NatureCNN, {"paddings": (0, 1, 1)}),
    "max-pool": (NatureCNN, {"use_maxpool": True, "paddings": (0, 1, 1)}),
    "pqn": (NatureCNN, {"layer_norm": True}),
    "pqn channels": (NatureCNN, {"layer_norm": "channels", "use_maxpool": True}),
    "nature spectral": (NatureCNN, {"spectral_norm": True}),
    "impala": (ImpalaCNN, {}),
    "btr": (ImpalaCNN, {**BTR, "layer_norm": True}),
    "impoola": (ImpalaCNN, {"width": 2, "pool": "avg"}),
    "impoola channels": (ImpalaCNN, {"pool": "avg", "layer_norm": "channels", "spectral_norm": True}),
    "hadamax": (HadamaxCNN, {}),
    "hadamax whole": (HadamaxCNN, {"layer_norm": True}),
    "hadamax plain": (HadamaxCNN, {"layer_norm": False, "kernels": (5, 3), "channels": (8, 8), "pools": (3, 2), "strides": (2, 2)}),
    "minatar": (MinAtarCNN, {}),
}  # fmt: skip


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def bools(*shape: int) -> spaces.Box:
    return spaces.Box(0, 1, shape, bool)  # type: ignore[arg-type]  # gymnasium takes it, its annotations do not say so


def make(name: str, features_dim: int | None, shape: tuple[int, int, int] = (3, 45, 51)) -> ImageExtractor:
    extractor, kwargs = CNNS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return extractor(image(*shape), features_dim=features_dim, **kwargs)


def pictures(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", CNNS)
def test_flat_features_and_a_hidden_layer(name: str) -> None:
    flat, hidden = make(name, None), make(name, 7)
    assert flat(pictures(2, 3, 45, 51)).shape == (2, flat.features_dim)
    assert hidden(pictures(2, 3, 45, 51)).shape == (2, hidden.features_dim) == (2, 7)
    norm = 2 * 7 if CNNS[name][1].get("layer_norm", "hadamax" in name) else 0
    assert count(hidden) == count(flat) + 7 * flat.features_dim + 7 + norm


@pytest.mark.parametrize(("side", "pooled"), [(84, 6), (56, 4), (45, 4)])
def test_an_adaptive_pool_has_torchs_windows(side: int, pooled: int) -> None:
    """By strides where the windows are even; the last of these cases needs `AdaptiveMaxPool2d`."""
    cnn = ImpalaCNN(image(1, side, side), None, widths=(2, 2, 2), adaptive_pool=(pooled, pooled))
    pool, size = cnn.cnn[-2], (side + 7) // 8
    x = torch.rand(3, 2, size, size, generator=torch.Generator().manual_seed(0), requires_grad=True)
    expected = nn.functional.adaptive_max_pool2d(x, pooled)
    towards = torch.rand(expected.shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((found * towards).sum(), x)[0] for found in (pool(x), expected)]
    assert torch.equal(pool(x), expected)
    torch.testing.assert_close(*gradients)
    assert isinstance(pool, nn.AdaptiveMaxPool2d) is (side == 45)


@pytest.mark.parametrize("name", CNNS)
def test_every_layer_keeps_channels_last(name: str) -> None:
    cnn, seen = make(name, None), []

    def look(module: nn.Module, arguments: Any, output: Tensor) -> None:
        if output.dim() == 4:
            seen.append(type(module))
            assert output.is_contiguous(memory_format=torch.channels_last), module

    for part in cnn.modules():
        part.register_forward_hook(look)
    for dtype in (torch.float32, torch.bfloat16):
        cnn.to(dtype)(pictures(2, 3, 45, 51).to(dtype))
    assert len(seen) >= 4


@pytest.mark.parametrize("name", CNNS)
def test_a_bfloat16_twin_answers_nearly_the_same(name: str) -> None:
    cnn = make(name, 16)
    twin = copy.deepcopy(cnn).to(torch.bfloat16)
    flatten_parameters(list(cnn.parameters()))
    flatten_parameters(list(twin.parameters()), torch.bfloat16)
    expected, found = cnn(pictures(4, 3, 45, 51)), twin(pictures(4, 3, 45, 51).bfloat16())
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("name", CNNS)
def test_every_parameter_gets_a_gradient_and_a_loaded_net_is_the_same(name: str) -> None:
    cnn = make(name, 16)
    flatten_parameters(list(cnn.parameters()))
    out = cnn(pictures(4, 3, 45, 51))
    grads = torch.autograd.grad(out.square().sum(), list(cnn.parameters()))
    assert all(torch.isfinite(grad).all() and grad.abs().max() > 0 for grad in grads)
    other = make(name, 16)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    flatten_parameters(list(other.parameters()))
    other.load_state_dict(cnn.state_dict())
    torch.testing.assert_close(other(pictures(4, 3, 45, 51)), out, rtol=0, atol=0)
    assert list(cnn.buffers()) == []


@pytest.mark.parametrize("name", CNNS)
def test_heads_of_papers_are_said_by_each_class(name: str) -> None:
    extractor = CNNS[name][0]
    assert vars(extractor)["HIDDEN"] == {NatureCNN: 512, ImpalaCNN: 256, HadamaxCNN: 512, MinAtarCNN: 128}[extractor]
    assert extractor(image(*ATARI)).features_dim == vars(extractor)["HIDDEN"]  # type: ignore[call-arg]  # each class its own
    assert EXTRACTORS[extractor.__name__] is extractor


@pytest.mark.parametrize(
    ("extractor", "kwargs", "shape", "width", "parameters"),
    [
        (NatureCNN, {}, ATARI, 64 * 7 * 7, 8_224 + 32_832 + 36_928),
        # rlpyt's AtariDqnModel: 3,620,518 in all with 6 actions
        (NatureCNN, {"paddings": (0, 1, 1)}, (4, 104, 80), 6912, 3_620_518 - 6912 * 512 - 512 - 512 * 6 - 6),
        # CleanRL's PQN: layer norms over 32 x 20 x 20, 64 x 9 x 9, 64 x 7 x 7
        (NatureCNN, {"layer_norm": True}, ATARI, 3136, 77_984 + 2 * (12_800 + 5_184 + 3_136)),
        # purejaxql's: over the channels
        (NatureCNN, {"layer_norm": "channels"}, ATARI, 3136, 77_984 + 2 * (32 + 64 + 64)),
        (NatureCNN, {"spectral_norm": True}, ATARI, 3136, 77_984),
        (ImpalaCNN, {}, ATARI, 32 * 11 * 11, 592 + 4 * 2_320 + 4_640 + 4 * 9_248 + 9_248 + 4 * 9_248),
        (ImpalaCNN, BTR, ATARI, 2304, 1_184 + 4 * 9_248 + 18_496 + 4 * 36_928 + 36_928 + 4 * 36_928),
        # BTR-LN: layer norms over 32 x 84 x 84, 64 x 42 x 42, 64 x 21 x 21
        (ImpalaCNN, {**BTR, "layer_norm": True}, ATARI, 2304, 389_024 + 2 * (225_792 + 112_896 + 28_224)),
        (ImpalaCNN, {"width": 2, "pool": "avg"}, ATARI, 64, 389_024),
        (HadamaxCNN, {}, ATARI, 64 * 11 * 11, 2 * (8_224 + 32_832 + 36_928 + 2 * (32 + 64 + 64))),
        (MinAtarCNN, {}, (4, 10, 10), 16 * 8 * 8, 4 * 16 * 9 + 16),
    ],
)
def test_numbers_of_the_papers(
    extractor: Any, kwargs: dict[str, Any], shape: tuple[int, int, int], width: int, parameters: int
) -> None:
    cnn = extractor(image(*shape), features_dim=None, **kwargs)
    assert cnn.features_dim == width
    assert count(cnn) == parameters


def test_nature_as_a_whole() -> None:
    assert count(NatureCNN(image(*ATARI))) + 512 * 6 + 6 == 1_687_206


def test_max_pooling_is_that_of_rlpyt() -> None:
    cnn = NatureCNN(image(3, 45, 51), None, paddings=(0, 1, 1), use_maxpool=True)
    x = pictures(2, 3, 45, 51)
    convolutions = [part for part in cnn.modules() if isinstance(part, nn.Conv2d)]
    assert [part.stride for part in convolutions] == [(1, 1)] * 3
    expected = x
    for part, pool in zip(convolutions, (4, 2, 1), strict=True):
        expected = functional.max_pool2d(functional.relu(part(expected)), pool)  # there ReLU comes first
    torch.testing.assert_close(cnn(x), expected.flatten(1))


def test_layer_norm_comes_between_convolution_and_activation() -> None:
    cnn = NatureCNN(image(*ATARI), 512, layer_norm=True)
    kinds = [type(part) for part in cnn.cnn]
    assert kinds == [StridedConv2d, ImageLayerNorm, nn.ReLU] * 3 + [nn.Flatten]
    assert [type(part) for part in cnn.linear] == [Linear, nn.LayerNorm, nn.ReLU]


def test_a_residual_block_adds_to_its_input() -> None:
    block, x = ResidualBlock(4, False), pictures(2, 4, 6, 6) - 0.5
    expected = x + block.second(functional.relu(block.first(functional.relu(x))))
    torch.testing.assert_close(block(x), expected)
    with torch.no_grad():
        for parameter in block.second.parameters():
            parameter.zero_()
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)


def test_spectral_norm_is_that_of_the_residual_blocks() -> None:
    cnn = ImpalaCNN(image(*ATARI), None, **BTR)
    kinds = [type(part) for part in cnn.modules() if isinstance(part, nn.Conv2d)]
    assert kinds == [nn.Conv2d, *[SpectralConv2d] * 4] * 3


def test_the_last_map_is_rectified_before_it_is_pooled() -> None:
    assert [type(part) for part in ImpalaCNN(image(*ATARI), None, **BTR).cnn][-3:] == [
        nn.ReLU, nn.MaxPool2d, nn.Flatten,
    ]  # fmt: skip


def spikes() -> tuple[Tensor, dict[str, Any]]:
    """An image whose four windows of max-pooling have the maxima -4, 1, 2 and 5, and the options of a net of one channel."""
    x = torch.full((1, 1, 4, 4), -4.0)
    x[0, 0, 0, 3], x[0, 0, 3, 0], x[0, 0, 3, 3] = 1.0, 2.0, 5.0
    return x, {"features_dim": None, "widths": (1,)}


def plain_stage(cnn: ImpalaCNN) -> ImpalaCNN:
    """The net with a first convolution that changes nothing, and residual blocks that add nothing."""
    with torch.no_grad():
        for conv in (part for part in cnn.modules() if isinstance(part, nn.Conv2d)):
            conv.weight.zero_()
            assert conv.bias is not None
            conv.bias.zero_()
        first = next(part for part in cnn.modules() if isinstance(part, nn.Conv2d))
        first.weight[0, 0, 1, 1] = 1.0
    return cnn


def test_the_average_is_of_the_rectified_map() -> None:
    """(0 + 1 + 2 + 5) / 4 = 2; the average before ReLU would be 1, and the largest is 5."""
    x, options = spikes()
    assert plain_stage(ImpalaCNN(image(1, 4, 4), **options))(x).tolist() == [[0.0, 1.0, 2.0, 5.0]]
    assert plain_stage(ImpalaCNN(image(1, 4, 4), **options, pool="avg"))(x).tolist() == [[2.0]]


def test_layer_norm_of_a_stage_comes_before_its_max_pooling() -> None:
    """The sixteen pixels have mean -2.75 and variance 7.3125; the four maxima would have 1 and 10.5."""
    x, options = spikes()
    found = plain_stage(ImpalaCNN(image(1, 4, 4), **options, layer_norm=True))(x)
    expected = torch.tensor([[0.0, 3.75, 4.75, 7.75]]) / (7.3125 + 1e-5) ** 0.5
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, torch.tensor([[0.0, 0.0, 1.0, 4.0]]) / 10.5**0.5, atol=0.1)  # the decoy


@pytest.mark.parametrize("size", [36, 84])
def test_the_hidden_layer_after_an_average_does_not_depend_on_the_size_of_the_image(size: int) -> None:
    cnn = ImpalaCNN(image(4, size, size + 3), pool="avg")
    assert count(cnn.linear) == 32 * 256 + 256


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_impala_takes_images_of_any_size(size: int) -> None:
    cnn = ImpalaCNN(image(2, size, size + 3), None)
    assert cnn(pictures(1, 2, size, size + 3)).shape == (1, cnn.features_dim)


def test_a_hadamax_block_multiplies_two_branches() -> None:
    block, x = HadamaxBlock((3, 9, 10), 4, 4, 2, 2, "channels"), pictures(2, 3, 9, 10)
    branches = []
    for branch in block.branches:
        conv, norm = branch[0], branch[1]  # type: ignore[index]  # a Sequential
        y = functional.conv2d(functional.pad(x, (1, 2, 1, 2)), conv.weight, conv.bias)
        branches.append(functional.gelu(norm(y), approximate="tanh"))
    expected = functional.max_pool2d(branches[0] * branches[1], 2, ceil_mode=True)
    torch.testing.assert_close(block(x), expected)
    assert block(x).shape[1:] == block.shape == (4, 5, 5)


@pytest.mark.parametrize("pool", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_hadamax_foresees_the_shape_of_what_it_pools(pool: int, stride: int) -> None:
    for size in (pool, 7, 10, 11):
        block = HadamaxBlock((1, size, size + 1), 2, 3, pool, stride, False)
        assert block(pictures(1, 1, size, size + 1)).shape[1:] == block.shape


def test_hadamax_starts_without_biases_and_with_xavier_weights() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        cnn = HadamaxCNN(image(*ATARI), None)
    for part in cnn.modules():
        if isinstance(part, nn.Conv2d):
            fans = (part.in_channels + part.out_channels) * part.kernel_size[0] ** 2
            assert part.weight.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.05)
            assert part.bias is not None
            assert not part.bias.any()


def test_the_cnn_for_the_size_at_hand() -> None:
    assert default_cnn(image(*ATARI)) is NatureCNN
    assert default_cnn(image(4, NATURE_PIXELS, NATURE_PIXELS)) is NatureCNN
    assert default_cnn(image(4, NATURE_PIXELS - 1, 84)) is MinAtarCNN
    assert default_cnn(bools(4, 10, 10)) is MinAtarCNN
    with pytest.raises(ConfigurationError, match="36 x 36 or larger"):
        NatureCNN(image(4, NATURE_PIXELS - 1, 84))


def test_small_and_large_images_in_a_dict() -> None:
    space = spaces.Dict({"map": bools(4, 10, 10), "camera": image(1, 36, 36)})
    extractor = CombinedExtractor(space, cnn_output_dim=8)
    assert [type(part) for part in extractor.parts] == [NatureCNN, MinAtarCNN]
    found = extractor({"map": pictures(2, 4, 10, 10), "camera": pictures(2, 1, 36, 36)})
    assert found.shape == (2, 16)


def test_minatar_from_the_stored_observation_to_features() -> None:
    space = bools(10, 10, 7)
    assert default_extractor(space) is MinAtarCNN
    assert default_extractor(image(84, 84, 3)) is NatureCNN
    features = Features(space, default_extractor(space), {"features_dim": None}, normalize_images=True, channels=None)
    x = torch.rand(3, 10, 10, 7, generator=torch.Generator().manual_seed(0)) > 0.5
    (conv,) = (part for part in features.modules() if isinstance(part, nn.Conv2d))
    expected = functional.relu(functional.conv2d(x.permute(0, 3, 1, 2).float(), conv.weight, conv.bias)).flatten(1)
    torch.testing.assert_close(features({"obs": x}), expected)
