"""Policies of soft actor-critic, by Stable-Baselines3's keywords."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_int, check_keys
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.nn.action_heads import ActionHead
from sb_dqn.nn.extractors import BaseFeaturesExtractor
from sb_dqn.nn.mlp import Hidden
from sb_dqn.policies.aliases import OfADict, OfAnImage, OfVectors
from sb_dqn.policies.base import Features
from sb_dqn.policies.drawing import DrawingPolicy
from sb_dqn.policies.keywords import check_activation, check_widths, plan_features, refuse_dict_in_list
from sb_dqn.policies.soft_actor_critic_net import (
    Actor,
    BoxNet,
    ChoiceNet,
    Critics,
    SoftActorCriticNet,
    Stacks,
    Temperature,
    make_head,
)
from sb_dqn.spaces import BoxActions, Channels, actions_of

Widths = Sequence[int] | Mapping[str, Sequence[int]]


class SACPolicy(DrawingPolicy):
    """An actor, critics and their targets.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: a Box, or Discrete.
        net_arch: widths of the linear layers after the features, of actor and critics alike, or `dict(pi=[...],
            qf=[...])`; None: [256, 256], or [] for CnnPolicy, whose CNN has a hidden layer of its own.
        activation_fn: between them.
        n_critics: of which the smallest is believed, >= 1.
        share_features_extractor: the actor reads the critics' features, which learn from the critics' loss alone.
        features_extractor_class: None asks the space.
        features_extractor_kwargs: its keyword arguments.
        normalize_images: divide images by 255.
        channels: "first" or "last", for all images or by key of a Dict; None decides by their shape.
        layer_norm: normalise before each activation, in our CNNs too.
        design: the temperature; the algorithm's `ent_coef`, not for `policy_kwargs`.

    Raises:
        ConfigurationError: a keyword is out of its range.
        SpaceError: the action space is of another kind.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        net_arch: Widths | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
        design: Temperature | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        if not isinstance(action_space, (spaces.Box, spaces.Discrete)):
            raise SpaceError(
                f"action space {action_space} is not supported by SAC; allowed: Box(low, high, ...) with finite bounds, and "
                f"Discrete(n, start=...). For several choices at once take PPO, or a DQN"
            )
        self.actions = actions_of(action_space)
        self._features = plan_features(
            observation_space, features_extractor_class, features_extractor_kwargs, normalize_images, channels,
            layer_norm=layer_norm,
        ).with_hidden()  # fmt: skip
        self._widths = _both(net_arch, self._default_net_arch(features_extractor_class))
        self._hidden = partial(Hidden, activation_fn=check_activation(activation_fn), layer_norm=layer_norm)
        self._count = check_int("policy_kwargs['n_critics']", n_critics, 1)
        self._shares = check_bool("policy_kwargs['share_features_extractor']", share_features_extractor)
        self.nets = self.make_nets(design or Temperature())
        self.critics_target = copy.deepcopy(self.nets.critics)
        self.critics_target.requires_grad_(False)

    def make_nets(self, temperature: Temperature) -> SoftActorCriticNet:
        """New nets."""
        pi, qf = self._widths
        box = isinstance(self.actions, BoxActions)
        features = self.make_features()
        width = features.features_dim + (self.actions.low.size if isinstance(self.actions, BoxActions) else 0)
        critics = Critics(features, Stacks(width, qf, self._count, self.actions.num_actions or 1, self._hidden))
        own = None if self._shares else self.make_features()
        tower = self._hidden((own or features).features_dim, pi)
        actor = Actor(own, tower, make_head(self.actions, tower.out_features))
        return (BoxNet if box else ChoiceNet)(critics, actor, temperature)

    def make_features(self) -> Features:
        """New features, as the keywords say."""
        return self._features.make()

    @property
    def action_head(self) -> ActionHead:
        return self.nets.actor.head

    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        return self.nets.policy(obs, mask)

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return [256, 256]


class SACMlpPolicy(OfVectors, SACPolicy):
    """For vectors and whole numbers: the observation in one row, an image's pixels too, two layers of 256."""


class SACCnnPolicy(OfAnImage, SACPolicy):
    """For one image: the Nature CNN, then the heads."""


class SACMultiInputPolicy(OfADict, SACPolicy):
    """For a Dict: each key through its own extractor, side by side."""


def _both(net_arch: Widths | None, default: list[int]) -> tuple[list[int], list[int]]:
    """Widths of the actor's layers and of the critics'.

    Raises:
        ConfigurationError: neither a list nor a dict of `pi` and `qf`.
    """
    if isinstance(net_arch, Mapping):
        given = check_keys("policy_kwargs['net_arch']", net_arch, ("pi", "qf"))
        if set(given) != {"pi", "qf"}:
            raise ConfigurationError(
                f"policy_kwargs['net_arch']={net_arch!r} lacks an entry; give a list, or dict(pi=[...], qf=[...])"
            )
        pi, qf = (check_widths(given[name], default, f"policy_kwargs['net_arch'][{name!r}]") for name in ("pi", "qf"))
        return pi, qf
    refuse_dict_in_list(net_arch, ("pi", "qf"))
    widths = check_widths(net_arch, default)
    return widths, list(widths)
