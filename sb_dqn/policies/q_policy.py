"""Policies that select actions by their values."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor
from sb_dqn.policies.base import Policy
from sb_dqn.policies.policy_kwargs import (
    check_activation,
    check_widths,
    extractor_of_kind,
    features_maker,
    is_image_space,
)
from sb_dqn.policies.q_network import QNetwork, QNetworkConfig, TorsoConfig
from sb_dqn.spaces import ActionShape, Channels, Space
from sb_dqn.types import Settings


class QPolicy(Policy):
    """Policy of Q-learning: an online Q-network and its target network.

    Args:
        observation_space: space of one lane, as the networks see it.
        action_space: Discrete, MultiDiscrete or MultiBinary.
        net_arch: widths of the linear layers after the features. If None, it is [64, 64], or [] after a CNN, whose own linear
            layer is the first hidden one.
        activation_fn: activation after each layer.
        features_extractor_class: class of the features extractor. If None, the observation space determines it.
        features_extractor_kwargs: keyword arguments of the features extractor.
        normalize_images: True divides images by 255.
        channels: "first" or "last", for all images or by key of a Dict. If None, they are chosen by the shapes of the images.
        layer_norm: True for layer norm before each activation, in CNNs of this package too.
        spectral_norm: True divides weights by their largest singular value (Miyato et al. 2018, arXiv 1802.05957): of the
            convolutions of a CNN of this package, or, without one, of the hidden layers.
        scale_trunk_gradient: with dueling, True scales the gradient below the two streams by 1/sqrt(2).
        share_last_layer: with dueling, True gives state value and advantages the same last hidden layer, so that only the output
            layers are two. If False, each has its own.
        xavier_init: True draws the weights of all linear layers and convolutions, those of the features extractor included, from
            Xavier's uniform distribution (Glorot and Bengio 2010), with biases of 0, as the code of BBF does. If False, each layer has
            its own initial weights, in general PyTorch's.
        config: dueling, noisy and distribution; set by the algorithm, not by `policy_kwargs`.
        recurrent_config: recurrent layer; set by `RecurrentQPolicy`, not by `policy_kwargs`.

    Raises:
        ConfigurationError: a keyword is out of range.
    """

    network_class: type[QNetwork] = QNetwork
    """Class of the networks that `make_q_net` makes."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        net_arch: Sequence[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Settings | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
        spectral_norm: bool = False,
        scale_trunk_gradient: bool = False,
        share_last_layer: bool = False,
        xavier_init: bool = False,
        config: QNetworkConfig | None = None,
        recurrent_config: RecurrentConfig | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        extractor = extractor_of_kind(self.kind, observation_space, features_extractor_class, normalize_images)
        self.actions = ActionShape.of(action_space)
        self.config = config or QNetworkConfig()
        for name, value in (("scale_trunk_gradient", scale_trunk_gradient), ("share_last_layer", share_last_layer)):
            if check_bool(f"policy_kwargs['{name}']", value) and not self.config.dueling:
                raise ConfigurationError(
                    f"policy_kwargs['{name}'] must be False without dueling=True, got True. Give both or none."
                )
        if scale_trunk_gradient and share_last_layer:
            raise ConfigurationError(
                "policy_kwargs['scale_trunk_gradient'] must be False with share_last_layer=True, which leaves no two streams, got "
                "True. Give one of them."
            )
        self.net_arch = check_widths(net_arch, self._default_net_arch(extractor))
        self._make_features, kwargs, hidden = features_maker(
            observation_space, extractor, features_extractor_kwargs, normalize_images, channels,
            layer_norm=layer_norm, spectral_norm=spectral_norm,
        )  # fmt: skip
        own_cnn = hidden is not None
        cnn_layers: list[int] = []
        if own_cnn:  # its linear layer is built with the other hidden layers
            hidden = kwargs.pop("features_dim", hidden)
            cnn_layers = [] if hidden is None else [check_int("features_dim", hidden, 1)]
            kwargs["features_dim"] = None
        elif spectral_norm and (self.config.noisy is not None or self.config.ensemble is not None):
            other = (
                "noisy, whose noise changes the weights" if self.config.noisy else "ensemble, whose layers are several"
            )
            raise ConfigurationError(
                f"policy_kwargs['spectral_norm'] must be False with {other}, got True. Give one of them."
            )
        widths = self.net_arch if recurrent_config is not None else [*cnn_layers, *self.net_arch]
        self._torso = TorsoConfig(
            widths, check_activation(activation_fn), layer_norm, spectral_norm and not own_cnn, scale_trunk_gradient,
            share_last_layer, check_bool("policy_kwargs['xavier_init']", xavier_init),
        )  # fmt: skip
        if recurrent_config is not None:
            encoder = (*cnn_layers, *recurrent_config.encoder_arch)
            self.recurrent_config = replace(recurrent_config, encoder_arch=encoder)
        self.q_net = self.make_q_net()
        self.q_net_target = copy.deepcopy(self.q_net)
        self.q_net_target.requires_grad_(False)

    @property
    def networks(self) -> tuple[nn.Module, nn.Module | None]:
        return self.q_net, self._modules.get("q_net_target")

    @property
    def acting_network(self) -> Any:
        return self._modules[self._acting_name]

    @property
    def _acting_name(self) -> str:
        return "q_net_target" if self.config.act_with == "target" else "q_net"

    def new_networks(self) -> tuple[nn.Module, nn.Module]:
        """Returns networks of the shapes of `networks` with new weights, each drawn on its own; on the CPU."""
        return self.make_q_net(), self.make_q_net()

    def make_q_net(self) -> QNetwork:
        """Returns a new network; a custom policy class may override this method."""
        return self.network_class(self.make_features(), self._torso, self.actions, self.config, self.recurrent_config)

    def values(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """Returns action values `[N, (D,) A]`, lowest for illegal actions; at the start of an episode if recurrent.

        Those of an ensemble are the means over its members.
        """
        if self.recurrent:
            return self.values_step(obs, mask, *self.initial_inputs(obs), noise=noise)[0]
        q: Tensor = self.acting_network(obs, mask, noise, acting=True).q
        return q if self.config.ensemble is None else q.view(self.config.ensemble.members, -1, *q.shape[1:]).mean(0)

    def values_of_members(
        self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None
    ) -> tuple[Tensor]:
        """Returns the action values of all members of an ensemble, `[N, K, (D,) A]`."""
        assert self.config.ensemble is not None
        q: Tensor = self.acting_network(obs, mask, noise, acting=True).q
        return (q.view(self.config.ensemble.members, -1, *q.shape[1:]).transpose(0, 1),)

    def values_step(
        self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor, noise: Noise | None = None
    ) -> tuple[Tensor, ...]:
        """Returns action values `[N, (D,) A]`; of a recurrent policy also the next state. See `Policy.greedy_step`."""
        if not inputs:
            return (self.values(obs, mask, noise),)
        action, reward, state = inputs
        value, state = self.acting_network.step(obs, mask, action, reward, state, noise, acting=True)
        return value.q, state

    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        return self.values(obs, mask, noise).argmax(-1)

    def greedy_step(
        self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor, noise: Noise | None = None
    ) -> tuple[Tensor, ...]:
        if not inputs:
            return (self.greedy(obs, mask, noise),)
        q, state = self.values_step(obs, mask, *inputs, noise=noise)
        return q.argmax(-1), state

    def with_net(self, net: nn.Module) -> QPolicy:
        """Returns this policy with another network to act with, for instance a copy in another precision."""
        other = copy.copy(self)
        other._modules = {**self._modules, self._acting_name: net}
        return other

    def make_noise(self, rows: int) -> Noise | None:
        device = next(self.q_net.parameters()).device
        uniform = self.config.distribution.num_acting + (self.config.iterations > 1)  # one to draw a head
        return self.q_net.make_noise(rows, uniform, device, per_row=True)

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        # a single image ends in the linear layer of its CNN; vectors and Dicts need hidden layers
        image = self.kind == "image" or (extractor is None and is_image_space(self.observation_space))
        if self.recurrent:
            return [512] if image else [64]
        return [] if image else [64, 64]


class RecurrentQPolicy(QPolicy):
    """A Q-policy with an LSTM or GRU between features and head, in the online network and in its target.

    Args:
        observation_space: space of one lane, as the networks see it.
        action_space: Discrete, MultiDiscrete or MultiBinary.
        rnn: "lstm" or "gru".
        lstm_hidden_size: units of the LSTM or GRU. If None, it is 512 for a single image and 128 otherwise.
        n_lstm_layers: layers of the LSTM or GRU.
        encoder_arch: widths of the layers between features and recurrent layer. If None, it is [64], or [] after a CNN, whose
            own linear layer comes before the recurrent layer.
        previous_action: True if the last action is an input of the recurrent layer.
        previous_reward: True if the last reward is an input of the recurrent layer; `predict` then needs it.
        kwargs: keywords of `QPolicy`. `net_arch` are the layers behind the recurrent layer. If None, it is [512] for a single
            image and [64] otherwise.

    Raises:
        ConfigurationError: a keyword is out of range.
    """

    recurrent = True

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        rnn: str = "lstm",
        lstm_hidden_size: int | None = None,
        n_lstm_layers: int = 1,
        encoder_arch: Sequence[int] | None = None,
        previous_action: bool = True,
        previous_reward: bool = False,
        **kwargs: Any,
    ) -> None:
        image = is_image_space(observation_space, kwargs.get("normalize_images", True))
        size = (512 if image else 128) if lstm_hidden_size is None else lstm_hidden_size
        encoder = check_widths(encoder_arch, [] if image else [64], "policy_kwargs['encoder_arch']")
        config = RecurrentConfig(rnn, size, n_lstm_layers, previous_action, previous_reward, tuple(encoder))
        super().__init__(observation_space, action_space, recurrent_config=config, **kwargs)


class MlpPolicy(QPolicy):
    """Policy that flattens the observation, images too, with two hidden layers of 64 units."""

    kind = "vector"


class CnnPolicy(QPolicy):
    """Policy for one image, with the Nature CNN before the head."""

    kind = "image"


class MultiInputPolicy(QPolicy):
    """Policy for a Dict, with one features extractor per key and two hidden layers of 64 units on their concatenated
    outputs."""

    kind = "dict"


class MlpLstmPolicy(RecurrentQPolicy):
    """Policy that flattens the observation, images too, with a layer of 64 units before and after the recurrent layer."""

    kind = "vector"


class CnnLstmPolicy(RecurrentQPolicy):
    """Policy for one image, with the Nature CNN before the recurrent layer and a layer of 512 units after it."""

    kind = "image"


class MultiInputLstmPolicy(RecurrentQPolicy):
    """Policy for a Dict, with one features extractor per key and the recurrent layer on their concatenated outputs."""

    kind = "dict"


VALUE_POLICIES: dict[str, type[QPolicy]] = {
    "MlpPolicy": MlpPolicy,
    "CnnPolicy": CnnPolicy,
    "MultiInputPolicy": MultiInputPolicy,
    "MlpLstmPolicy": MlpLstmPolicy,
    "CnnLstmPolicy": CnnLstmPolicy,
    "MultiInputLstmPolicy": MultiInputLstmPolicy,
}
