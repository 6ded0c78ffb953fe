"""What every features extractor is, and the simplest one."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError


class BaseFeaturesExtractor(nn.Module):
    """Parent of all extractors, a user's included.

    Args:
        observation_space: after preprocessing: images `[C, H, W]`, whole numbers one-hot; a Dict where there are several.
        features_dim: width of what `forward` returns, `[N, features_dim]`.
    """

    HIDDEN: ClassVar[int]
    """Width of the hidden layer of the class's paper; only our CNNs have one, which the policy builds for them."""

    def __init__(self, observation_space: spaces.Space[Any], features_dim: int = 0) -> None:
        super().__init__()
        if features_dim <= 0:
            raise ConfigurationError(f"features_dim={features_dim} is not allowed: give a whole number from 1 up")
        self._observation_space = observation_space
        self._features_dim = features_dim

    @property
    def features_dim(self) -> int:
        return self._features_dim

    @property
    def reads_bytes(self) -> bool:
        """Whether `forward` takes an image of bytes as it is stored, too, and divides it by 255 itself."""
        return False


class FlattenExtractor(BaseFeaturesExtractor):
    """The observation in one row."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space, spaces.utils.flatdim(observation_space))

    def forward(self, observation: Tensor) -> Tensor:
        return observation.flatten(1) if observation.dim() > 1 else observation.unsqueeze(1)  # one number each
