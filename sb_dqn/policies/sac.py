"""Policies of soft actor-critic, with the keywords of Stable-Baselines3."""

from __future__ import annotations

import copy
from functools import partial

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.errors import SpaceError
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.heads.distributions import ActionDistribution
from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.policies.policy_kwargs import (
    Widths,
    check_activation,
    extractor_of_kind,
    features_maker,
    sde_settings,
    tower_widths,
)
from sb_dqn.policies.sac_network import (
    Actor,
    BoxNet,
    ChoiceNet,
    Critics,
    SoftActorCriticNet,
    Stacks,
    Temperature,
    make_head,
)
from sb_dqn.spaces import BoxActions, Channels, Space, actions_of
from sb_dqn.types import Kwargs, Settings


class SACPolicy(StochasticPolicy):
    """Policy of SAC: an actor, critics, and the target networks of the critics.

    Args:
        observation_space: space of one lane, as the networks see it.
        action_space: a Box, or Discrete.
        net_arch: widths of the linear layers after the features, for actor and critics, or `dict(pi=[...], qf=[...])`. If
            None, it is [256, 256], or [] for a CnnPolicy, whose CNN has a hidden layer of its own.
        activation_fn: activation after each layer.
        n_critics: number of critics, from 1; targets use the smallest of their values.
        share_features_extractor: True if the actor reads the critics' features, which only the critics' loss trains.
        features_extractor_class: class of the features extractor. If None, the observation space determines it.
        features_extractor_kwargs: keyword arguments of the features extractor.
        normalize_images: True divides images by 255.
        channels: "first" or "last", for all images or by key of a Dict. If None, they are chosen by the shapes of the images.
        layer_norm: True for layer norm before each activation, in CNNs of this package too.
        log_std_init, full_std, use_expln: settings of state-dependent exploration, see `StateDependentStd`.
        clip_mean: bound of the mean before tanh with state-dependent exploration; 0 does not bound it.
        use_sde: state-dependent exploration; set by the algorithm, not by `policy_kwargs`.
        config: the temperature; set by the algorithm's `ent_coef`, not by `policy_kwargs`.
        value_bins: values by classification; set by the algorithm's `value_loss`, not by `policy_kwargs`.

    Raises:
        ConfigurationError: a keyword is out of range.
        SpaceError: the action space is not supported.
    """

    actor_class: type[Actor] = Actor
    critics_class: type[Critics] = Critics
    """Classes of the networks that `make_nets` makes."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        net_arch: Widths | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Settings | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
        log_std_init: float = -3.0,
        full_std: bool = True,
        use_expln: bool = False,
        clip_mean: float = 2.0,
        config: Temperature | None = None,
        use_sde: bool = False,
        value_bins: Bins | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        if not isinstance(action_space, (spaces.Box, spaces.Discrete)):
            raise SpaceError(
                f"the action space of SAC must be Box(low, high, ...) with finite bounds or Discrete(n, start=...), "
                f"got {action_space}. For several choices at once use PPO or a DQN."
            )
        self.actions = actions_of(action_space)
        extractor = extractor_of_kind(self.kind, observation_space, features_extractor_class, normalize_images)
        self._make_features, _, _ = features_maker(
            observation_space, extractor, features_extractor_kwargs, normalize_images, channels, layer_norm=layer_norm
        )
        self._widths = tower_widths(net_arch, ("pi", "qf"), [] if self.kind == "image" else [256, 256])
        self._hidden = partial(HiddenLayers, activation_fn=check_activation(activation_fn), layer_norm=layer_norm)
        self.value_bins = value_bins
        self._num_critics = check_int("policy_kwargs['n_critics']", n_critics, 1)
        self._shares_features = check_bool("policy_kwargs['share_features_extractor']", share_features_extractor)
        self._sde: Kwargs | None = sde_settings(use_sde, full_std, use_expln, action_space)
        log_std = check_float("policy_kwargs['log_std_init']", log_std_init, -20.0, 2.0)
        clip = check_float("policy_kwargs['clip_mean']", clip_mean, 0.0)
        if self._sde is not None:
            self._sde |= {"log_std_init": log_std, "clip_mean": clip}
        self.temperature = config or Temperature()
        self.nets = self.make_nets(self.temperature)
        self.critics_target = copy.deepcopy(self.nets.critics)
        self.critics_target.requires_grad_(False)

    def make_nets(self, temperature: Temperature) -> SoftActorCriticNet:
        """Returns new networks."""
        pi, qf = self._widths
        box = isinstance(self.actions, BoxActions)
        features = self.make_features()
        width = features.features_dim + (self.actions.low.size if isinstance(self.actions, BoxActions) else 0)
        outputs = self.actions.num_actions or 1
        stacks = Stacks(width, qf, self._num_critics, outputs, self._hidden, self.value_bins)
        critics = self.critics_class(features, stacks)
        own = None if self._shares_features else self.make_features()
        tower = self._hidden((own or features).features_dim, pi)
        actor = self.actor_class(own, tower, make_head(self.actions, tower.out_features, self._sde))
        return (BoxNet if box else ChoiceNet)(critics, actor, temperature)

    @property
    def networks(self) -> tuple[nn.Module, nn.Module | None]:
        return self.nets, self.critics_target

    def new_networks(self) -> tuple[nn.Module, nn.Module]:
        """Returns networks of the shapes of `networks` with new weights, each drawn on its own; on the CPU."""
        nets, others = self.make_nets(self.temperature), self.make_nets(self.temperature)
        return nets, others.critics

    @property
    def action_head(self) -> ActionHead:
        return self.nets.actor.head

    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActionDistribution:
        distribution: ActionDistribution = self.nets.policy(obs, mask)
        return distribution


class SACMlpPolicy(SACPolicy):
    """Policy that flattens the observation, images too, with two hidden layers of 256 units."""

    kind = "vector"


class SACCnnPolicy(SACPolicy):
    """Policy for one image, with the Nature CNN before the heads."""

    kind = "image"


class SACMultiInputPolicy(SACPolicy):
    """Policy for a Dict, with one features extractor per key and two hidden layers of 256 units on their concatenated
    outputs."""

    kind = "dict"


SAC_POLICIES: dict[str, type[SACPolicy]] = {
    "MlpPolicy": SACMlpPolicy,
    "CnnPolicy": SACCnnPolicy,
    "MultiInputPolicy": SACMultiInputPolicy,
}
