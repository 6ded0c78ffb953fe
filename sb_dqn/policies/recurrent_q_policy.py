"""Policies that remember: an LSTM or a GRU between features and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.checks import check_int
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.nn.torsos.features import BaseFeaturesExtractor
from sb_dqn.policies.policy_kwargs import is_image_space
from sb_dqn.policies.q_policy import CnnPolicy, MlpPolicy, MultiInputPolicy, QPolicy
from sb_dqn.policies.recurrent_q_network import RecurrentQNetwork
from sb_dqn.policies.remembering import Remembering


class RecurrentQPolicy(Remembering, QPolicy):
    """An online net and its target, both with a memory.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: Discrete, MultiDiscrete or MultiBinary.
        rnn: "lstm" or "gru".
        lstm_hidden_size: units of the LSTM or GRU; None: 512 behind a lone image, else 128.
        n_lstm_layers: its layers.
        encoder_arch: widths of the layers between features and memory; None: [64], or [] behind a CNN, whose own linear
            layer stands there already.
        previous_action: the memory reads the last action.
        previous_reward: the memory reads the last reward; `predict` must then be told it.
        kwargs: of QPolicy. `net_arch` are the layers behind the memory; None: [512] for a lone image, else [64].

    Raises:
        ConfigurationError: a keyword is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        rnn: str = "lstm",
        lstm_hidden_size: int | None = None,
        n_lstm_layers: int = 1,
        encoder_arch: Sequence[int] | None = None,
        previous_action: bool = True,
        previous_reward: bool = False,
        **kwargs: Any,
    ) -> None:
        image = is_image_space(observation_space, kwargs)
        size = (512 if image else 128) if lstm_hidden_size is None else lstm_hidden_size
        # the parent's constructor makes the nets, so what they are made of is known before it
        self.memory = RecurrentConfig(rnn, size, n_lstm_layers, previous_action, previous_reward)
        first = [] if image else [64]
        self.encoder_arch = first if encoder_arch is None else [_width(width) for width in encoder_arch]
        super().__init__(observation_space, action_space, **kwargs)

    def make_q_net(self) -> Any:
        """A new net; a CNN's own linear layer comes before the memory, `net_arch` behind it."""
        of_cnn = list(self._torso.widths[: len(self._torso.widths) - len(self.net_arch)])
        encoder = replace(self._torso, widths=[*of_cnn, *self.encoder_arch])
        torso = replace(self._torso, widths=self.net_arch)
        return RecurrentQNetwork(self.make_features(), encoder, self.memory, torso, self.actions, self.design)

    def step(
        self,
        obs: dict[str, Tensor],
        mask: Tensor | None,
        action: Tensor,
        reward: Tensor,
        state: Tensor,
        noise: Noise | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What actions are chosen by `[N, (D,) A]`, and the next state.

        Args:
            obs: flat dict of `[N, *shape]`.
            mask: see `Policy.greedy`.
            action: `[N]` or `[N, D]` int64 that led here; -1: none, an episode begins.
            reward: `[N]` float32 that came with it; 0 where an episode begins.
            state: `[N, P]` float32; zeros where an episode begins.
            noise: see `Policy.greedy`.
        """
        net: Any = self.q_net
        value, state = net.step(obs, action, reward, state, mask, noise, acting=True)
        return value.q, state

    def values(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """What actions are chosen by at the beginning of an episode."""
        count = len(next(iter(obs.values())))
        device = next(iter(obs.values())).device
        none = torch.as_tensor(self.no_action(count), device=device)
        return self.step(
            obs,
            mask,
            none,
            torch.zeros(count, device=device),
            torch.zeros(count, self.state_size, device=device),
            noise,
        )[0]

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return [512] if extractor is None and is_image_space(self.observation_space, {}) else [64]


class MlpLstmPolicy(RecurrentQPolicy, MlpPolicy):
    """For vectors and whole numbers: a layer of 64, the memory, a layer of 64."""


class CnnLstmPolicy(RecurrentQPolicy, CnnPolicy):
    """For one image: the Nature CNN with its linear layer, the memory, a layer of 512."""

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        return [512]


class MultiInputLstmPolicy(RecurrentQPolicy, MultiInputPolicy):
    """For a Dict: each key through its own extractor, side by side, then the memory."""


def _width(given: Any) -> int:
    return check_int("policy_kwargs['encoder_arch'] entry", given, 1)
