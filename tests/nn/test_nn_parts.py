"""Values, heads, stacks of layers, and the extractors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from sb_dqn.nn.heads import ScalarHead
from sb_dqn.nn.mlp import mlp
from sb_dqn.nn.values import ScalarValue


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_the_value_of_an_action_for_any_leading_axes(leading: tuple[int, ...]) -> None:
    q = torch.arange(int(np.prod(leading)) * 5, dtype=torch.float32).reshape(*leading, 5)
    action = (torch.arange(int(np.prod(leading))) % 5).reshape(leading)
    found = ScalarValue(q).of(action)
    assert found.shape == leading
    expected = [row[a] for row, a in zip(q.reshape(-1, 5).tolist(), action.flatten().tolist(), strict=True)]
    assert found.flatten().tolist() == expected


def test_a_head_answers_in_float32_whatever_its_weights() -> None:
    head = ScalarHead(6, 4).to(torch.bfloat16)
    value = head(torch.randn(3, 6).to(torch.bfloat16))
    assert value.q.shape == (3, 4)
    assert value.q.dtype == torch.float32


def test_a_stack_of_layers() -> None:
    stack = mlp(3, [7, 5], nn.Tanh)
    assert [type(layer) for layer in stack] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert stack(torch.zeros(2, 3)).shape == (2, 5)


def test_an_empty_stack_passes_its_input_through() -> None:
    x = torch.randn(2, 3)
    assert mlp(3, [])(x) is x


def test_the_nature_cnn() -> None:
    cnn = NatureCNN(image(4, 84, 84))
    assert cnn.features_dim == 512
    assert cnn(torch.zeros(2, 4, 84, 84)).shape == (2, 512)
    # 4*32*64+32, 32*64*16+64, 64*64*9+64, 3136*512+512 (Mnih et al. 2015, without the head)
    assert sum(parameter.numel() for parameter in cnn.parameters()) == 8_224 + 32_832 + 36_928 + 1_606_144


def test_a_cnn_of_other_sizes() -> None:
    cnn = NatureCNN(image(1, 10, 12), 16, channels=(4,), kernels=(3,), strides=(2,))
    assert cnn(torch.zeros(3, 1, 10, 12)).shape == (3, 16)


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (image(3, 20, 20), {}, "too small for kernels"),
        (image(3, 36, 36), {"channels": (8, 8)}, "need the same length"),
        (spaces.Box(0, 1, (3, 36, 36), np.float32), {}, "needs an image"),
        (spaces.Box(-1, 1, (4,), np.float32), {}, "'MlpPolicy' for vectors"),
        (image(3, 36, 36), {"features_dim": 0}, "features_dim=0 is not allowed"),
    ],
)
def test_what_a_cnn_refuses(space: spaces.Box, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        NatureCNN(space, **kwargs)


def test_36_by_36_is_large_enough() -> None:
    assert NatureCNN(image(1, 36, 36))(torch.zeros(1, 1, 36, 36)).shape == (1, 512)


def test_flattening() -> None:
    extractor = FlattenExtractor(spaces.Box(-1, 1, (2, 3), np.float32))
    assert extractor.features_dim == 6
    assert extractor(torch.arange(12.0).reshape(2, 2, 3)).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_the_parts_of_a_dict_lie_side_by_side() -> None:
    space = spaces.Dict({"b": spaces.Box(-1, 1, (3,), np.float32), "cam/top.left": image(1, 36, 36)})
    extractor = CombinedExtractor(space, cnn_output_dim=8)
    assert extractor.features_dim == 3 + 8
    b = torch.tensor([[1.0, 2.0, 3.0]])
    found = extractor({"cam/top.left": torch.zeros(1, 1, 36, 36), "b": b})
    assert found.shape == (1, 11)
    assert found[:, :3].tolist() == b.tolist()


def test_an_extractor_of_ones_own_must_say_its_width() -> None:
    class Silent(BaseFeaturesExtractor):
        def __init__(self, observation_space: spaces.Space[Any]) -> None:
            super().__init__(observation_space)

    with pytest.raises(ConfigurationError, match="features_dim=0"):
        Silent(image(1, 36, 36))
