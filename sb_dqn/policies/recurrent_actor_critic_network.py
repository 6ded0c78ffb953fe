"""The nets of an actor-critic that remembers: features, a memory for policy and value each or for both, and then nets like
all others."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.recurrent import RecurrentConfig, RecurrentLayer, told_width, with_told
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.policies.actor_critic_network import ActorCriticNet, ActorCriticOutput, Towers, make_orthogonal
from sb_dqn.policies.base import Features
from sb_dqn.policies.recurrent_q_network import Remembered
from sb_dqn.spaces import Actions

NAMES = ("memory", "value_memory")


class RecurrentActorCriticNet(nn.Module):
    """Policy and value of what is remembered.

    Args:
        features: from observations to a row of numbers; a second one is the value's own.
        encoder_arch: widths of the layers between features and memory.
        memory: LSTM or GRU, and what else it reads.
        num_memories: 2: the value has one of its own; 1: both learn from one.
        towers, make_head, ortho_init: of `ActorCriticNet`, behind the memory.
        actions: what the memory may be told of.
    """

    def __init__(
        self,
        features: list[Features],
        encoder_arch: list[int],
        memory: RecurrentConfig,
        num_memories: int,
        towers: Towers,
        make_head: Any,
        ortho_init: bool,
        actions: Actions,
    ) -> None:
        super().__init__()
        self.told, self.num_actions = memory, actions.num_actions
        width = told_width(memory, actions.shape, actions.num_actions)
        self.features = nn.ModuleList(features)
        layers = partial(HiddenLayers, activation_fn=towers.activation_fn, layer_norm=towers.layer_norm)
        self.encoders = nn.ModuleList(
            layers(features[i % len(features)].features_dim, encoder_arch) for i in range(num_memories)
        )
        self.memories = nn.ModuleList(RecurrentLayer(_width(part) + width, memory) for part in self.encoders)
        seen = [Remembered(memory.hidden_size, name) for name in NAMES[:num_memories]]
        self.answer = ActorCriticNet(seen[0], seen[1] if num_memories > 1 else None, towers, make_head, ortho_init)
        if ortho_init:
            for part in (self.features, self.encoders):
                make_orthogonal(part, math.sqrt(2.0))

    @property
    def action_head(self) -> ActionHead:
        return self.answer.action_head

    def remember(
        self,
        obs: dict[str, Tensor],
        action: Tensor | None,
        reward: Tensor | None,
        state: Tensor,
        begins: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What is remembered after each of S steps of N lanes, `[S * N, H]` by name of the memory, and the state `[N, P]`.

        Args:
            obs: flat dict of `[S * N, *shape]`, time-major.
            action, reward: `[S * N, ...]`, see `with_told`; None where the memory reads none.
            state: `[N, P]` before the first step.
            begins: `[S, N]` bool, an episode begins: the state is zeroed before that step. None: S is 1 and nothing begins.
        """
        seen = [part(obs) for part in self.features]
        found, after = {}, []
        for i, before in enumerate(state.chunk(len(self.memories), -1)):
            x = self.encoders[i](seen[i % len(seen)]).float()
            read = with_told(x, self.told, action, reward, self.num_actions)  # type: ignore[arg-type]  # None is not read
            read = read.view(-1, state.shape[0], read.shape[-1])
            memory: Any = self.memories[i]
            out, left = memory(read, before) if begins is None else memory.unroll(read, before, begins)
            found[NAMES[i]] = out.flatten(0, 1)
            after.append(left)
        return found, torch.cat(after, -1)

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActorCriticOutput:
        """Distribution and value for what is remembered, as `remember` gave it."""
        return self.answer(obs, mask)  # type: ignore[no-any-return]  # nn.Module.__call__

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """None: these nets draw no random numbers while learning."""
        return None

    def make_apart(self, flat: Tensor) -> FractionOptimizer | None:
        """None: all parameters have one optimiser."""
        return None

    def twin(self, dtype: torch.dtype) -> RecurrentActorCriticNet:
        """A copy whose layers before the memories compute in `dtype`; the rest is shared and stays float32."""
        twin = copy.deepcopy(self).to(dtype)
        part: Any
        for part in twin.features:
            part.dtype = dtype
        twin.memories, twin.answer = self.memories, self.answer
        return twin


def _width(part: Any) -> int:
    width: int = part.out_features
    return width
