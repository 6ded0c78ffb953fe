"""Policies that draw their actions and remember: an LSTM or a GRU between features and towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.checks import check_bool
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.policies.actor_critic_network import ActorCriticOutput, Towers
from sb_dqn.policies.aliases import OfADict, OfAnImage, OfVectors
from sb_dqn.policies.base import Features
from sb_dqn.policies.policy_kwargs import check_widths
from sb_dqn.policies.recurrent_actor_critic_network import RecurrentActorCriticNet
from sb_dqn.policies.remembering import Remembering
from sb_dqn.spaces import actions_of


class RecurrentActorCriticPolicy(Remembering, ActorCriticPolicy):
    """A distribution over actions and a value, both of what is remembered.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: Discrete, MultiDiscrete, MultiBinary, or a Box.
        rnn: "lstm" or "gru".
        lstm_hidden_size: units of the LSTM or GRU.
        n_lstm_layers: its layers.
        shared_lstm: policy and value learn from one memory; False: the value has its own.
        encoder_arch: widths of the layers between features and memory; None: [].
        previous_action: the memory reads the last action.
        previous_reward: the memory reads the last reward; `predict` must then be told it.
        kwargs: of ActorCriticPolicy. `net_arch` are the layers behind the memory.

    Raises:
        ConfigurationError: a keyword is out of its range.
        SpaceError: the action space is of another kind.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        rnn: str = "lstm",
        lstm_hidden_size: int = 256,
        n_lstm_layers: int = 1,
        shared_lstm: bool = False,
        encoder_arch: Sequence[int] | None = None,
        previous_action: bool = False,
        previous_reward: bool = False,
        **kwargs: Any,
    ) -> None:
        # the parent's constructor makes the nets, so what they are made of is known before it
        self.memory = RecurrentConfig(rnn, lstm_hidden_size, n_lstm_layers, previous_action, previous_reward)
        self.num_memories = 1 if check_bool("policy_kwargs['shared_lstm']", shared_lstm) else 2
        self.encoder_arch = check_widths(encoder_arch, [], "policy_kwargs['encoder_arch']")
        super().__init__(observation_space, action_space, **kwargs)

    def make_net(self, features: list[Features], towers: Towers, make_head: Any, ortho_init: bool) -> Any:
        if len(features) > self.num_memories:
            raise ConfigurationError(
                "policy_kwargs: shared_lstm=True with share_features_extractor=False is not allowed: one memory reads one "
                "row of features; give shared_lstm=False"
            )
        parts = (self.encoder_arch, self.memory, self.num_memories)
        return RecurrentActorCriticNet(features, *parts, towers, make_head, ortho_init, actions_of(self.action_space))

    @property
    def state_size(self) -> int:
        """Numbers of the state of one lane, P: of both memories, if there are two."""
        return self.num_memories * self.memory.state_size

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """What a rollout keeps beside the value of an observation: name to shape."""
        read: dict[str, tuple[int, ...]] = {}
        if self.memory.previous_action:
            read["previous_action"] = actions_of(self.action_space).shape
        if self.memory.previous_reward:
            read["previous_reward"] = ()
        return {**super().extras, "begins": (), "state": (self.state_size,), **read}

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of what `act_on` says beside the actions; the last is the next state."""
        return (*super().answers, "after")

    def recalled(
        self, obs: dict[str, Tensor], mask: Tensor | None, action: Tensor, reward: Tensor, state: Tensor
    ) -> tuple[ActorCriticOutput, Tensor]:
        """Distribution and value after one step, and the next state `[N, P]`.

        Args:
            obs: flat dict of `[N, *shape]`.
            mask: see `greedy`.
            action: `[N, ...]` that led here, see `with_told`.
            reward: `[N]` float32 that came with it; 0 where an episode begins.
            state: `[N, P]` float32; zeros where an episode begins.
        """
        remembered, after = self.net.remember(obs, action, reward, state)
        return self.net(remembered, mask), after

    def act_on(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor, *told: Tensor) -> tuple[Tensor, ...]:
        """Drawn actions, and what `answers` names; `told` is action, reward and state of `recalled`."""
        output, after = self.recalled(obs, mask, *told)
        return *self.drawn_from(output, drawn), after

    def greedy_step(self, obs: dict[str, Tensor], mask: Tensor | None, *told: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable actions and the next state."""
        output, after = self.recalled(obs, mask, *told)
        return self.action_head.to_action(output.policy.mode()), after

    def drawn_step(
        self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor, *told: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Drawn actions and the next state."""
        output, after = self.recalled(obs, mask, *told)
        return self.action_head.to_action(output.policy.sample(drawn)), after

    def value_step(self, obs: dict[str, Tensor], mask: Tensor | None, *told: Tensor) -> tuple[Tensor, Tensor]:
        """Values `[N]` and the next state."""
        output, after = self.recalled(obs, None, *told)
        return output.value, after

    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """Over the actions at the beginning of an episode."""
        some = next(iter(obs.values()))
        none = torch.as_tensor(self.no_action(len(some)), device=some.device)
        zeros = torch.zeros(len(some), 1 + self.state_size, device=some.device)
        return self.recalled(obs, mask, none, zeros[:, 0], zeros[:, 1:])[0].policy


class ActorCriticMlpLstmPolicy(OfVectors, RecurrentActorCriticPolicy):
    """For vectors and whole numbers: the memory, then two layers of 64 for each of policy and value."""


class ActorCriticCnnLstmPolicy(OfAnImage, RecurrentActorCriticPolicy):
    """For one image: the Nature CNN with its linear layer, the memory, then the heads."""


class ActorCriticMultiInputLstmPolicy(OfADict, RecurrentActorCriticPolicy):
    """For a Dict: each key through its own extractor, side by side, then the memory."""
