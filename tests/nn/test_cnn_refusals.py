"""What our CNNs refuse, and the images that are just large enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import HadamaxCNN, ImpalaCNN, MinAtarCNN, NatureCNN
from sb_dqn.nn.torsos.convolutions import ImageExtractor
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.features import CombinedExtractor

ATARI = (4, 84, 84)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def pictures(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)


FLOATS = spaces.Box(0, 1, (3, 45, 51), np.float32)


@pytest.mark.parametrize("extractor", [NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN])
def test_images_that_the_user_has_normalized(extractor: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be an image .*normalize_images=False"):
        extractor(FLOATS)
    cnn = extractor(FLOATS, normalized_image=True)
    assert cnn(pictures(1, 3, 45, 51)).shape == (1, cnn.features_dim)
    found = CombinedExtractor(spaces.Dict({"a": FLOATS}), 8, normalized_image=True)
    assert found.features_dim == 8


@pytest.mark.parametrize(
    ("extractor", "shape", "kwargs", "message"),
    [
        (NatureCNN, (3, 35, 84), {}, "images must be 36 x 36 or larger.*got \\(3, 35, 84\\).*MinAtarCNN"),
        (NatureCNN, (3, 42, 42), {"use_maxpool": True}, "must be 43 x 43 or larger"),
        (NatureCNN, (3, 11, 36), {"paddings": (0, 1, 1)}, "must be 12 x 12 or larger"),
        (MinAtarCNN, (3, 2, 9), {}, "must be 3 x 3 or larger"),
        (NatureCNN, ATARI, {"channels": (8, 8)}, r"must have the same length.*channels=\(8, 8\), kernels=\(8, 4, 3\)"),
        (NatureCNN, ATARI, {"paddings": (0, 1)}, r"must have the same length, .* paddings=\(0, 1\)"),
        (NatureCNN, ATARI, {"channels": (), "kernels": (), "strides": ()}, "must have the same length, one number for each"),
        (NatureCNN, ATARI, {"channels": 32}, "channels must be a list of integers, got 32"),
        (NatureCNN, ATARI, {"kernels": "843"}, "kernels must be a list of integers, got '843'"),
        (NatureCNN, ATARI, {"kernels": (8, 4, 0)}, "kernels entry must be an integer >= 1.* got 0"),
        (NatureCNN, ATARI, {"strides": (4, 2, 1.5)}, "strides entry must be .* got 1.5"),
        (NatureCNN, ATARI, {"paddings": (0, -1, 0)}, "paddings entry must be an integer >= 0.* got -1"),
        (NatureCNN, ATARI, {"use_maxpool": 1}, "use_maxpool must be True or False.* got 1"),
        (NatureCNN, ATARI, {"spectral_norm": "yes"}, "spectral_norm must be True or False.* got 'yes'"),
        (NatureCNN, ATARI, {"layer_norm": "all"}, "layer_norm must be True, False or 'channels', got 'all'"),
        (NatureCNN, ATARI, {"features_dim": 0}, "features_dim must be an integer >= 1.* got 0"),
        (NatureCNN, ATARI, {"normalized_image": 2}, "normalized_image must be .* got 2"),
        (ImpalaCNN, ATARI, {"width": 3}, "width must be 1, 2 or 4, got 3. .* the channels of each stage by widths"),
        (ImpalaCNN, ATARI, {"widths": 16}, "widths must be a list of integers, got 16"),
        (ImpalaCNN, ATARI, {"widths": (16, 0)}, "widths entry must be .* got 0"),
        (ImpalaCNN, ATARI, {"adaptive_pool": 6}, "adaptive_pool must be a list of integers, got 6"),
        (ImpalaCNN, ATARI, {"adaptive_pool": (6, 6, 6)}, r"adaptive_pool must be \(height, width\) or None, got \(6, 6, 6\)"),
        (ImpalaCNN, (4, 36, 84), {"adaptive_pool": (6, 6)}, r"at most the size of its input, 5 x 11, got \(6, 6\). Give at most"),
        (ImpalaCNN, ATARI, {"pool": "mean"}, r"pool must be one of \['avg'\], got 'mean'"),
        (ImpalaCNN, ATARI, {"pool": "avg", "adaptive_pool": (6, 6)}, r"adaptive_pool must be None with pool='avg', .* got \(6, 6\)"),
        (ImpalaCNN, ATARI, {"layer_norm": 1}, "layer_norm must be .*, got 1"),
        (ImpalaCNN, ATARI, {"spectral_norm": None}, "spectral_norm must be .* got None"),
        (HadamaxCNN, ATARI, {"pools": (4, 2)}, r"must have the same length.*pools=\(4, 2\)"),
        (HadamaxCNN, (1, 8, 8), {"pools": (4, 2, 4)}, "pools must be windows within the image"),
        (HadamaxCNN, ATARI, {"layer_norm": None}, "layer_norm must be .*, got None"),
    ],
)  # fmt: skip
def test_what_they_refuse(extractor: Any, shape: tuple[int, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        extractor(image(*shape), **kwargs)


@pytest.mark.parametrize("extractor", [NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN])
def test_unknown_keywords(extractor: type[ImageExtractor]) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"must be arguments of {extractor.__name__}, among \['features_dim'.*got .*'depth'"
    ):
        Features(image(*ATARI), extractor, {"depth": 3}, normalize_images=True, channels=None)


@pytest.mark.parametrize("extractor", [NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN])
def test_vectors_and_mixtures_are_no_images(extractor: Any) -> None:
    for space in (spaces.Box(-1, 1, (4,)), spaces.Dict({"a": image(*ATARI)}), spaces.Discrete(3)):
        with pytest.raises(
            ConfigurationError,
            match=f"must be an image .* for {extractor.__name__}, got .* Use 'MlpPolicy' for vectors",
        ):
            extractor(space)


@pytest.mark.parametrize(
    ("kwargs", "size"), [({}, 36), ({"use_maxpool": True}, 43), ({"paddings": (0, 1, 1)}, 12), ({"paddings": (9, 9, 9)}, 1)]
)  # fmt: skip
def test_the_smallest_images_that_leave_something(kwargs: dict[str, Any], size: int) -> None:
    cnn = NatureCNN(image(1, size, size), None, **kwargs)
    assert cnn(pictures(1, 1, size, size)).shape == (1, cnn.features_dim)
    if size > 1:
        with pytest.raises(RuntimeError):  # torch's own, of the same layers
            cnn(pictures(1, 1, size - 1, size - 1))
