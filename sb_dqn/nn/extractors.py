"""Features extractors, with Stable-Baselines3's contract: built for a space, they say their `features_dim`."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import is_image


class BaseFeaturesExtractor(nn.Module):
    """Parent of all extractors, a user's included.

    Args:
        observation_space: after preprocessing: images `[C, H, W]`, whole numbers one-hot; a Dict where there are several.
        features_dim: width of what `forward` returns, `[N, features_dim]`.
    """

    def __init__(self, observation_space: spaces.Space[Any], features_dim: int = 0) -> None:
        super().__init__()
        if features_dim <= 0:
            raise ConfigurationError(f"features_dim={features_dim} is not allowed: give a whole number from 1 up")
        self._observation_space = observation_space
        self._features_dim = features_dim

    @property
    def features_dim(self) -> int:
        return self._features_dim


class FlattenExtractor(BaseFeaturesExtractor):
    """The observation in one row."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space, spaces.utils.flatdim(observation_space))

    def forward(self, observation: Tensor) -> Tensor:
        return observation.flatten(1)


class NatureCNN(BaseFeaturesExtractor):
    """Three convolutions and a linear layer (Mnih et al. 2015, doi 10.1038/nature14236).

    Args:
        observation_space: image `[C, H, W]`, at least 36 x 36.
        features_dim: width of the linear layer.
        channels, kernels, strides: of each convolution.
        normalized_image: ignored; kept for code written for Stable-Baselines3.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        features_dim: int = 512,
        channels: tuple[int, ...] = (32, 64, 64),
        kernels: tuple[int, ...] = (8, 4, 3),
        strides: tuple[int, ...] = (4, 2, 1),
        normalized_image: bool = False,
    ) -> None:
        super().__init__(observation_space, features_dim)
        if not is_image(observation_space):
            raise ConfigurationError(
                f"NatureCNN needs an image (uint8, 0..255, three axes), not {observation_space}; use 'MlpPolicy' for "
                f"vectors and 'MultiInputPolicy' for a Dict"
            )
        if not len(channels) == len(kernels) == len(strides):
            raise ConfigurationError(f"channels={channels}, kernels={kernels}, strides={strides} need the same length")
        layers: list[nn.Module] = []
        depth, height, width = observation_space.shape  # type: ignore[misc]  # an image, checked above
        for out, kernel, stride in zip(channels, kernels, strides, strict=True):
            layers += [nn.Conv2d(depth, out, kernel, stride), nn.ReLU()]
            depth, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            raise ConfigurationError(
                f"image {observation_space.shape} is too small for kernels {kernels} with strides {strides}; resize it "
                f"to 36 x 36 or more, or give smaller kernels through features_extractor_kwargs"
            )
        self.cnn = nn.Sequential(*layers, nn.Flatten())
        self.linear = nn.Sequential(nn.Linear(depth * height * width, features_dim), nn.ReLU())

    def forward(self, observation: Tensor) -> Tensor:
        return self.linear(self.cnn(observation))  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped


class CombinedExtractor(BaseFeaturesExtractor):
    """One extractor per key of a Dict, side by side: a CNN for images, the row itself for the rest.

    Args:
        observation_space: Dict of leaves, after preprocessing.
        cnn_output_dim: width of each CNN's features.
        normalized_image: ignored; kept for code written for Stable-Baselines3.
    """

    def __init__(
        self, observation_space: spaces.Dict, cnn_output_dim: int = 256, normalized_image: bool = False
    ) -> None:
        parts: dict[str, BaseFeaturesExtractor] = {
            key: NatureCNN(leaf, cnn_output_dim) if is_image(leaf) else FlattenExtractor(leaf)
            for key, leaf in observation_space.spaces.items()
        }
        super().__init__(observation_space, sum(part.features_dim for part in parts.values()))
        # a module's name may not hold a dot; the paths of nested keys may
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], -1)


EXTRACTORS: dict[str, type[BaseFeaturesExtractor]] = {
    extractor.__name__: extractor for extractor in (FlattenExtractor, NatureCNN, CombinedExtractor)
}
