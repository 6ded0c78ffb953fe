"""What the aliases of every family of policies have in common: which observations they are for."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from sb_dqn.nn.torsos.features import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.policies.base import Policy
from sb_dqn.policies.policy_kwargs import check_dict, check_one_image


class OfVectors(Policy):
    """Put before a family: the observation in one row, an image's pixels too."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        if kwargs.get("features_extractor_class") is None and not isinstance(observation_space, spaces.Dict):
            kwargs["features_extractor_class"] = FlattenExtractor
        super().__init__(observation_space, action_space, **kwargs)


class OfAnImage(Policy):
    """Put before a family: one image, whose CNN has a hidden layer of its own."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        check_one_image(observation_space, kwargs)
        super().__init__(observation_space, action_space, **kwargs)

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return []


class OfADict(Policy):
    """Put before a family: each key of a Dict through its own extractor, side by side."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        check_dict(observation_space)
        super().__init__(observation_space, action_space, **kwargs)
