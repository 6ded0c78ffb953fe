"""Policies with a distribution over actions and a value: actor-critics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.heads.distributions import ActionDistribution
from sb_dqn.nn.heads.policy_heads import ActionHead, BernoulliHead, CategoricalHead, GaussianHead, SquashedHead
from sb_dqn.nn.heads.state_dependent import SquashedStateDependentHead, StateDependentHead
from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor, Features
from sb_dqn.policies.actor_critic_network import ActorCriticNetwork, ActorCriticOutput, TowersConfig
from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.policies.policy_kwargs import (
    Widths,
    check_activation,
    check_widths,
    extractor_of_kind,
    features_maker,
    sde_settings,
    tower_widths,
)
from sb_dqn.spaces import Actions, BoxActions, Channels, Space, actions_of
from sb_dqn.types import Settings


class ActorCriticPolicy(StochasticPolicy):
    """A distribution over actions and a value, with the keywords of Stable-Baselines3.

    Args:
        observation_space: space of one lane, as the networks see it.
        action_space: Discrete, MultiDiscrete, MultiBinary, or a Box.
        net_arch: widths of the linear layers after the features, for each of the two towers, or `dict(pi=[...],
            vf=[...])`. If None, it is [64, 64], or [] for a CnnPolicy, whose CNN has a hidden layer of its own.
        activation_fn: activation after each layer.
        ortho_init: orthogonal initial weights (see `ActorCriticNetwork`).
        log_std_init: for a Box: initial log standard deviation, in the units of the action.
        squash_output: for a Box: keep actions within the bounds by tanh instead of clipping.
        full_std: with state-dependent exploration, True learns one standard deviation for each weight, False one for each
            feature.
        use_expln: with state-dependent exploration: standard deviations that grow more slowly than exp, see `StateDependentStd`.
        binary_logits: for MultiBinary: outputs for each bit, 1 (sigmoid) or 2 (softmax).
        share_features_extractor: one features extractor for policy and value.
        features_extractor_class: class of the features extractor. If None, the observation space determines it.
        features_extractor_kwargs: keyword arguments of the features extractor.
        normalize_images: True divides images by 255.
        channels: "first" or "last", for all images or by key of a Dict. If None, they are chosen by the shapes of the images.
        layer_norm: True for layer norm before each activation, in CNNs of this package too.
        recurrent_config: recurrent layers; set by `RecurrentActorCriticPolicy`, not by `policy_kwargs`.
        use_sde: state-dependent exploration; set by the algorithm, not by `policy_kwargs`.
        value_bins: values by classification; set by the algorithm's `value_loss`, not by `policy_kwargs`.

    Raises:
        ConfigurationError: a keyword is out of range.
        SpaceError: the action space is not supported.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        net_arch: Widths | None = None,
        activation_fn: type[nn.Module] = nn.Tanh,
        ortho_init: bool = True,
        log_std_init: float = 0.0,
        squash_output: bool = False,
        full_std: bool = True,
        use_expln: bool = False,
        binary_logits: int = 1,
        share_features_extractor: bool = True,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Settings | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
        recurrent_config: RecurrentConfig | None = None,
        use_sde: bool = False,
        value_bins: Bins | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        extractor = extractor_of_kind(self.kind, observation_space, features_extractor_class, normalize_images)
        self._make_features, _, _ = features_maker(
            observation_space, extractor, features_extractor_kwargs, normalize_images, channels, layer_norm=layer_norm
        )
        pi, vf = tower_widths(net_arch, ("pi", "vf"), [] if self.kind == "image" else [64, 64], whole=False)
        self.net_arch = {"pi": pi, "vf": vf}
        towers = TowersConfig(pi, vf, check_activation(activation_fn), layer_norm)
        logits = check_int("policy_kwargs['binary_logits']", binary_logits, 1, 2)
        sde = sde_settings(use_sde, full_std, use_expln, action_space)
        one_logit = logits == 1 and isinstance(action_space, spaces.MultiBinary)
        shared = check_bool("policy_kwargs['share_features_extractor']", share_features_extractor)
        self.recurrent_config = recurrent_config
        self.value_bins = value_bins
        if recurrent_config is not None and recurrent_config.shared and not shared:
            raise ConfigurationError(
                "policy_kwargs['share_features_extractor'] must be True with shared_lstm=True, whose layer reads one row of "
                "features, got False. Give shared_lstm=False."
            )
        self.net = self.make_net(
            [self.make_features() for _ in range(1 if shared else 2)],
            towers,
            partial(_make_head, actions_of(action_space), log_std_init, squash_output, one_logit, sde),
            check_bool("policy_kwargs['ortho_init']", ortho_init),
        )

    @property
    def networks(self) -> tuple[nn.Module, nn.Module | None]:
        net: nn.Module = self.net
        return net, None

    def make_net(
        self, features: list[Features], towers: TowersConfig, make_head: Callable[[int], ActionHead], ortho_init: bool
    ) -> Any:
        """Returns a new network; a second entry of `features` is for the value. See `ActorCriticNetwork`."""
        value_features = features[1] if len(features) > 1 else None
        actions = actions_of(self.action_space)
        return ActorCriticNetwork(
            features[0], value_features, towers, make_head, ortho_init, actions, self.recurrent_config, self.value_bins
        )

    @property
    def action_head(self) -> ActionHead:
        head: ActionHead = self.net.action_head
        return head

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """Shapes, by name, of what a rollout stores with each action besides the value."""
        extras: dict[str, tuple[int, ...]] = {"log_prob": (), **self.action_head.extras}
        if self.recurrent_config is not None:
            extras |= {"begins": (), "state": (self.state_size,)}
            if self.recurrent_config.previous_action:
                extras["previous_action"] = actions_of(self.action_space).shape
            if self.recurrent_config.previous_reward:
                extras["previous_reward"] = ()
        return extras

    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActionDistribution:
        outputs = self.distribution_step(obs, mask, *self.initial_inputs(obs)) if self.recurrent else None
        distribution: ActionDistribution = self.net.policy(obs, mask) if outputs is None else outputs[0]
        return distribution

    def distribution_step(self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Any, ...]:
        if not inputs:
            return (self.distribution(obs, mask),)
        features, state = self.net.unroll(obs, *inputs)
        return self.net.policy(features, mask), state

    def value_step(self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns values `[N]`; of a recurrent policy also the next state. `mask` is not used."""
        if not inputs:
            return (self.net.value(obs),)
        features, state = self.net.unroll(obs, *inputs)
        return self.net.value(features), state

    @property
    def output_names(self) -> tuple[str, ...]:
        names = ("value", "log_prob", *self.action_head.extras)
        return (*names, "next_state") if self.recurrent else names

    def act(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        state: tuple[Tensor, ...] = ()
        if inputs:
            obs, *state = self.net.unroll(obs, *inputs)
        output: ActorCriticOutput = self.net(obs, mask)
        sample = output.policy.sample(drawn)
        extras = (sample,) if self.action_head.extras else ()
        log_prob = output.policy.log_prob(sample)
        return self.action_head.to_action(sample), output.value, log_prob, *extras, *state


class RecurrentActorCriticPolicy(ActorCriticPolicy):
    """An actor-critic with an LSTM or GRU between features and towers.

    Args:
        observation_space: space of one lane, as the networks see it.
        action_space: Discrete, MultiDiscrete, MultiBinary, or a Box.
        rnn: "lstm" or "gru".
        lstm_hidden_size: units of the LSTM or GRU.
        n_lstm_layers: layers of the LSTM or GRU.
        lstm_dropout: probability of a zero between two layers in updates, [0, 1).
        shared_lstm: True if policy and value share one recurrent layer; otherwise each has its own.
        critic_lstm: if False, the value has no recurrent layer and reads the observation alone.
        encoder_arch: widths of the layers between features and recurrent layer. If None, there are none.
        previous_action: True if the last action is an input of the recurrent layer.
        previous_reward: True if the last reward is an input of the recurrent layer; `predict` then needs it.
        kwargs: keywords of `ActorCriticPolicy`. `net_arch` are the layers behind the recurrent layer.

    Raises:
        ConfigurationError: a keyword is out of range.
        SpaceError: the action space is not supported.
    """

    recurrent = True

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        rnn: str = "lstm",
        lstm_hidden_size: int = 256,
        n_lstm_layers: int = 1,
        shared_lstm: bool = False,
        encoder_arch: Sequence[int] | None = None,
        previous_action: bool = False,
        previous_reward: bool = False,
        lstm_dropout: float = 0.0,
        critic_lstm: bool = True,
        **kwargs: Any,
    ) -> None:
        encoder = tuple(check_widths(encoder_arch, [], "policy_kwargs['encoder_arch']"))
        config = RecurrentConfig(
            rnn,
            lstm_hidden_size,
            n_lstm_layers,
            previous_action,
            previous_reward,
            encoder_arch=encoder,
            shared=shared_lstm,
            dropout=lstm_dropout,
            critic=critic_lstm,
        )
        super().__init__(observation_space, action_space, recurrent_config=config, **kwargs)


class ActorCriticMlpPolicy(ActorCriticPolicy):
    """Flattens the observation, images too; two layers of 64 for each of policy and value."""

    kind = "vector"


class ActorCriticCnnPolicy(ActorCriticPolicy):
    """Policy for one image: the Nature CNN, then the heads."""

    kind = "image"


class ActorCriticMultiInputPolicy(ActorCriticPolicy):
    """Policy for a Dict: one features extractor per key, their outputs concatenated; two layers of 64."""

    kind = "dict"


class ActorCriticMlpLstmPolicy(RecurrentActorCriticPolicy):
    """Flattens the observation, images too; the recurrent layer, then two layers of 64 for each of policy and value."""

    kind = "vector"


class ActorCriticCnnLstmPolicy(RecurrentActorCriticPolicy):
    """Policy for one image: the Nature CNN with its linear layer, the recurrent layer, then the heads."""

    kind = "image"


class ActorCriticMultiInputLstmPolicy(RecurrentActorCriticPolicy):
    """Policy for a Dict: one features extractor per key, their outputs concatenated, then the recurrent layer."""

    kind = "dict"


ACTOR_CRITIC_POLICIES: dict[str, type[ActorCriticPolicy]] = {
    "MlpPolicy": ActorCriticMlpPolicy,
    "CnnPolicy": ActorCriticCnnPolicy,
    "MultiInputPolicy": ActorCriticMultiInputPolicy,
    "MlpLstmPolicy": ActorCriticMlpLstmPolicy,
    "CnnLstmPolicy": ActorCriticCnnLstmPolicy,
    "MultiInputLstmPolicy": ActorCriticMultiInputLstmPolicy,
}


def _make_head(
    actions: Actions,
    log_std_init: float,
    squash_output: bool,
    one_logit: bool,
    sde: dict[str, bool] | None,
    in_features: int,
) -> ActionHead:
    """Returns the head of the policy for an action space."""
    log_std = check_float("policy_kwargs['log_std_init']", log_std_init, -20.0, 2.0)
    squashed = check_bool("policy_kwargs['squash_output']", squash_output)
    if isinstance(actions, BoxActions):
        if sde is not None:
            head = SquashedStateDependentHead if squashed else StateDependentHead
            return head(in_features, actions, log_std, **sde)
        return (SquashedHead if squashed else GaussianHead)(in_features, actions, log_std)
    if squashed:
        raise ConfigurationError(
            "policy_kwargs['squash_output'] must be False for discrete actions, got True. Leave it out."
        )
    return (BernoulliHead if one_logit else CategoricalHead)(in_features, actions)
