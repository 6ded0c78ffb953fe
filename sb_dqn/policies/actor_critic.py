"""Policies that draw their actions, and a value beside them: what on-policy methods learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_float, check_int, check_keys
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.action_heads import ActionHead, BernoulliHead, CategoricalHead, GaussianHead, SquashedHead
from sb_dqn.nn.extractors import BaseFeaturesExtractor
from sb_dqn.policies.actor_critic_net import ActorCriticNet, ActorCriticOutput, Towers
from sb_dqn.policies.aliases import OfADict, OfAnImage, OfVectors
from sb_dqn.policies.base import Features
from sb_dqn.policies.drawing import DrawingPolicy
from sb_dqn.policies.keywords import check_activation, check_widths, plan_features, refuse_dict_in_list
from sb_dqn.spaces import Actions, BoxActions, Channels, actions_of

Widths = Sequence[int] | Mapping[str, Sequence[int]]


class ActorCriticPolicy(DrawingPolicy):
    """A distribution over actions and a value, by Stable-Baselines3's keywords.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: Discrete, MultiDiscrete, MultiBinary, or a Box.
        net_arch: widths of the linear layers after the features, for each of the two towers, or `dict(pi=[...],
            vf=[...])`; None: [64, 64], or [] for CnnPolicy, whose CNN has a hidden layer of its own.
        activation_fn: between them.
        ortho_init: orthogonal weights at the start (see `ActorCriticNet`).
        log_std_init: of a Box: log of the deviation at the start, in the action's own units.
        squash_output: of a Box: tanh keeps actions within the bounds, instead of clipping.
        binary_logits: of MultiBinary: outputs for each bit, 1 (sigmoid) or 2 (softmax).
        share_features_extractor: one for policy and value.
        features_extractor_class: None asks the space.
        features_extractor_kwargs: its keyword arguments.
        normalize_images: divide images by 255.
        channels: "first" or "last", for all images or by key of a Dict; None decides by their shape.
        layer_norm: normalise before each activation, in our CNNs too.

    Raises:
        ConfigurationError: a keyword is out of its range.
        SpaceError: the action space is of another kind.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        net_arch: Widths | None = None,
        activation_fn: type[nn.Module] = nn.Tanh,
        ortho_init: bool = True,
        log_std_init: float = 0.0,
        squash_output: bool = False,
        binary_logits: int = 1,
        share_features_extractor: bool = True,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(observation_space, action_space)
        self._features = plan_features(
            observation_space, features_extractor_class, features_extractor_kwargs, normalize_images, channels,
            layer_norm=layer_norm,
        ).with_hidden()  # fmt: skip
        pi, vf = _both(net_arch, self._default_net_arch(features_extractor_class))
        towers = Towers(pi, vf, check_activation(activation_fn), layer_norm)
        logits = check_int("policy_kwargs['binary_logits']", binary_logits, 1, 2)
        one_logit = logits == 1 and isinstance(action_space, spaces.MultiBinary)
        shared = check_bool("policy_kwargs['share_features_extractor']", share_features_extractor)
        self.net = self.make_net(
            [self.make_features() for _ in range(1 if shared else 2)],
            towers,
            partial(_make_head, actions_of(action_space), log_std_init, squash_output, one_logit),
            check_bool("policy_kwargs['ortho_init']", ortho_init),
        )

    def make_net(self, features: list[Features], towers: Towers, make_head: Any, ortho_init: bool) -> Any:
        """New nets; one of two `features` is the value's. For the other arguments see `ActorCriticNet`."""
        own = features[1] if len(features) > 1 else None
        return ActorCriticNet(features[0], own, towers, make_head, ortho_init)

    def make_features(self) -> Features:
        """New features, as the keywords say."""
        return self._features.make()

    @property
    def action_head(self) -> ActionHead:
        head: ActionHead = self.net.action_head
        return head

    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        return self.net.policy(obs, mask)

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """What a rollout keeps beside the value of an observation: name to shape."""
        return {"log_prob": (), **self.action_head.extras}

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of what `act` says beside the actions."""
        return ("value", "log_prob", *self.action_head.extras)

    def act(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor) -> tuple[Tensor, ...]:
        """Drawn actions, and what `answers` names, in that order.

        Args:
            obs: observations of N lanes.
            mask: `[N, (D,) A]` bool, legal actions; None: all.
            drawn: random numbers that `draw` gave.
        """
        return self.drawn_from(self.net(obs, mask), drawn)

    def drawn_from(self, output: ActorCriticOutput, drawn: Tensor) -> tuple[Tensor, ...]:
        """What `act` answers, from what the nets say."""
        policy, value = output
        sample = policy.sample(drawn)
        kept = (sample,) if self.action_head.extras else ()
        return self.action_head.to_action(sample), value, policy.log_prob(sample), *kept

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return [64, 64]


class ActorCriticMlpPolicy(OfVectors, ActorCriticPolicy):
    """For vectors and whole numbers: the observation in one row, an image's pixels too, two layers of 64."""


class ActorCriticCnnPolicy(OfAnImage, ActorCriticPolicy):
    """For one image: the Nature CNN, then the heads."""


class ActorCriticMultiInputPolicy(OfADict, ActorCriticPolicy):
    """For a Dict: each key through its own extractor, side by side."""


def _both(net_arch: Widths | None, default: list[int]) -> tuple[list[int], list[int]]:
    """Widths of the policy's tower and of the value's."""
    if isinstance(net_arch, Mapping):
        given = check_keys("policy_kwargs['net_arch']", net_arch, ("pi", "vf"))
        pi, vf = (
            check_widths(given.get(name, []), default, f"policy_kwargs['net_arch'][{name!r}]") for name in ("pi", "vf")
        )
        return pi, vf
    refuse_dict_in_list(net_arch, ("pi", "vf"))
    widths = check_widths(net_arch, default)
    return widths, list(widths)


def _make_head(
    actions: Actions, log_std_init: float, squash_output: bool, one_logit: bool, in_features: int
) -> ActionHead:
    log_std = check_float("policy_kwargs['log_std_init']", log_std_init, -20.0, 2.0)
    squashed = check_bool("policy_kwargs['squash_output']", squash_output)
    if isinstance(actions, BoxActions):
        return (SquashedHead if squashed else GaussianHead)(in_features, actions, log_std)
    if squashed:
        raise ConfigurationError(
            "policy_kwargs['squash_output']=True keeps the numbers of a Box within bounds; these actions are choices: "
            "leave it out"
        )
    return (BernoulliHead if one_logit else CategoricalHead)(in_features, actions)
