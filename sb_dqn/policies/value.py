"""Policies that act by the value of each action."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_choice, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.extractors import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.nn.heads import ScalarHead
from sb_dqn.nn.mlp import mlp
from sb_dqn.nn.values import ScalarValue
from sb_dqn.policies.base import Features, Policy
from sb_dqn.spaces import check_action_space, flatten_space, is_image


class QNetwork(nn.Module):
    """Features, a torso of linear layers, and a head.

    Args:
        features: from observations to a row of numbers.
        net_arch: widths of the torso's layers.
        activation_fn: after each of them.
        num_actions: A.
    """

    def __init__(
        self, features: Features, net_arch: Sequence[int], activation_fn: type[nn.Module], num_actions: int
    ) -> None:
        super().__init__()
        self.features = features
        self.torso = mlp(features.features_dim, net_arch, activation_fn)
        self.head = ScalarHead(net_arch[-1] if net_arch else features.features_dim, num_actions)

    def forward(self, obs: dict[str, Tensor]) -> ScalarValue:
        return self.head(self.torso(self.features(obs)))  # type: ignore[no-any-return]  # nn.Module.__call__

    def twin(self, dtype: torch.dtype) -> QNetwork:
        """A copy whose features and torso compute in `dtype`.

        The head is shared and stays float32: near -1 bfloat16 knows steps of 1/256, as large as the differences between
        actions that early learning lives on.
        """
        twin = copy.deepcopy(self).to(dtype)
        twin.features.dtype = dtype
        twin.head = self.head
        return twin


class QPolicy(Policy):
    """An online net and its target.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: Discrete.
        net_arch: widths of the linear layers after the features; None: [64, 64], or [] after a CNN.
        activation_fn: between them.
        features_extractor_class: None asks the space.
        features_extractor_kwargs: its keyword arguments.
        normalize_images: divide images by 255.
        channels: "first" or "last" where the shape of an image does not tell.

    Raises:
        ConfigurationError: a keyword is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        net_arch: Sequence[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        channels: str | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        self.num_actions = int(check_action_space(action_space).n)
        if channels is not None:
            check_choice("policy_kwargs['channels']", channels, ("first", "last"))
        self.net_arch = _widths(net_arch, self._default_net_arch(features_extractor_class))
        self.activation_fn = _activation(activation_fn)
        check_bool("policy_kwargs['normalize_images']", normalize_images)
        self._features = (features_extractor_class, features_extractor_kwargs, normalize_images, channels)
        self.q_net = self.make_q_net()
        self.q_net_target = copy.deepcopy(self.q_net)
        self.q_net_target.requires_grad_(False)

    def make_q_net(self) -> QNetwork:
        """A new net; own policy classes override this."""
        return QNetwork(self.make_features(), self.net_arch, self.activation_fn, self.num_actions)

    def make_features(self) -> Features:
        """New features, as the keywords say."""
        return Features(self.observation_space, *self._features)

    def greedy(self, obs: dict[str, Tensor]) -> Tensor:
        return self.q_net(obs).q.argmax(-1)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        # a lone image ends in the CNN's own linear layer; vectors and mixtures need layers of ours
        return [] if extractor is None and is_image_space(self.observation_space) else [64, 64]


class MlpPolicy(QPolicy):
    """For vectors and whole numbers: the observation in one row, an image's pixels too, two layers of 64."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        if kwargs.get("features_extractor_class") is None and not isinstance(observation_space, spaces.Dict):
            kwargs["features_extractor_class"] = FlattenExtractor
        super().__init__(observation_space, action_space, **kwargs)


class CnnPolicy(QPolicy):
    """For one image: the Nature CNN, then the head."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        if "features_extractor_class" not in kwargs and not is_image_space(observation_space):
            raise ConfigurationError(
                f"CnnPolicy needs one image (uint8, bounds 0..255, three axes), not {observation_space}; use 'MlpPolicy' "
                f"for vectors, 'MultiInputPolicy' for a Dict, or give a features_extractor_class"
            )
        super().__init__(observation_space, action_space, **kwargs)

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return []


class MultiInputPolicy(QPolicy):
    """For a Dict: each key through its own extractor, side by side."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **kwargs: Any) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise ConfigurationError(
                f"MultiInputPolicy needs a Dict observation space, not {observation_space}; use 'CnnPolicy' for one image "
                f"and 'MlpPolicy' for vectors"
            )
        super().__init__(observation_space, action_space, **kwargs)


def is_image_space(space: spaces.Space[Any]) -> bool:
    """Whether an observation space is one image and nothing else."""
    leaves = flatten_space(space)
    return set(leaves) == {"obs"} and is_image(leaves["obs"])


def _widths(given: Sequence[int] | None, default: list[int]) -> list[int]:
    if given is None:
        return default
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise ConfigurationError(
            f"policy_kwargs['net_arch']={given!r} is not allowed: give a list of widths, e.g. [64, 64]"
        )
    return [check_int("policy_kwargs['net_arch'] entry", width, 1) for width in given]


def _activation(given: Any) -> type[nn.Module]:
    if not callable(given) or isinstance(given, nn.Module):
        raise ConfigurationError(
            f"policy_kwargs['activation_fn']={given!r} is not allowed: give a class, e.g. torch.nn.ReLU"
        )
    return given  # type: ignore[no-any-return]  # a class, or a partial of one
