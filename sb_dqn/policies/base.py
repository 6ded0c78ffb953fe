"""The policy: what a model thinks with. Abstract here; leaves live beside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_mapping
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.extractors import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from sb_dqn.nn.preprocess import Preprocess
from sb_dqn.spaces import is_image


class Policy(nn.Module, ABC):
    """Networks for one pair of spaces.

    Args:
        observation_space: of one lane, as the networks see it (with its frame stack).
        action_space: of one lane.
    """

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space

    @abstractmethod
    def greedy(self, obs: dict[str, Tensor]) -> Tensor:
        """The best action, `[N]` int64 and 0-based, for each observation of a flat dict of `[N, *shape]` tensors."""


class Features(nn.Module):
    """Preprocessing and a features extractor: a flat dict of stored observations to `[N, features_dim]`.

    Args:
        observation_space: of one lane.
        extractor_class: None takes NatureCNN for an image, CombinedExtractor for a Dict, FlattenExtractor else.
        extractor_kwargs: its keyword arguments beside the space.
        normalize_images: divide images by 255.
        channels: "first" or "last" where the shape of an image does not tell.

    Raises:
        ConfigurationError: the extractor refuses its arguments or has no `features_dim`.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        extractor_class: type[BaseFeaturesExtractor] | None,
        extractor_kwargs: Mapping[str, Any] | None,
        normalize_images: bool,
        channels: str | None,
    ) -> None:
        super().__init__()
        self.preprocess = Preprocess(observation_space, normalize_images, channels)
        leaves = self.preprocess.feature_spaces()
        self.is_dict = isinstance(observation_space, spaces.Dict)
        space: spaces.Space[Any] = spaces.Dict(leaves) if self.is_dict else leaves["obs"]
        chosen = extractor_class or (
            CombinedExtractor if self.is_dict else NatureCNN if is_image(space) else FlattenExtractor
        )
        self.extractor = _make_extractor(chosen, space, check_mapping("features_extractor_kwargs", extractor_kwargs))
        self.dtype = torch.float32

    @property
    def features_dim(self) -> int:
        return self.extractor.features_dim

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        x = self.preprocess(obs, self.dtype)
        return self.extractor(x if self.is_dict else x["obs"])  # type: ignore[no-any-return]  # nn.Module.__call__


def _make_extractor(chosen: Any, space: spaces.Space[Any], kwargs: dict[str, Any]) -> BaseFeaturesExtractor:
    if not callable(chosen) or isinstance(chosen, nn.Module):
        raise ConfigurationError(
            f"features_extractor_class={chosen!r} is not allowed: give a subclass of BaseFeaturesExtractor"
        )
    name = getattr(chosen, "__name__", repr(chosen))
    try:
        extractor: BaseFeaturesExtractor = chosen(space, **kwargs)
    except TypeError as error:
        raise ConfigurationError(
            f"features_extractor_class={name} does not take features_extractor_kwargs={kwargs}: {error}"
        ) from error
    if getattr(extractor, "features_dim", None) is None:
        raise ConfigurationError(
            f"features_extractor_class={name} has no features_dim; derive it from BaseFeaturesExtractor and give the "
            f"width of its output to super().__init__(observation_space, features_dim)"
        )
    return extractor
