"""The net of a Q-agent that remembers: features, an LSTM or GRU, and then a net like all others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.norms import SpectralLinear
from sb_dqn.nn.layers.recurrent import RecurrentConfig, RecurrentLayer, told_width, with_told, zeroed
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.policies.base import Features
from sb_dqn.policies.q_network import QNetwork, QNetworkConfig, Torso
from sb_dqn.spaces import ActionShape


class Remembered(nn.Module):
    """The features of the net behind the memory: what is remembered, as it is.

    Args:
        features_dim: H.
        key: where it stands.
    """

    def __init__(self, features_dim: int, key: str = "memory") -> None:
        super().__init__()
        self.features_dim, self.key = features_dim, key

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return obs[self.key]


class Recalled(NamedTuple):
    """What a net remembers along a batch of sequences."""

    trained: Tensor
    """`[T, N, H]` after each trained step."""
    beyond: Tensor | None
    """`[n, N, H]` after the steps beyond, no gradient; None if nobody asked."""


class RecurrentQNetwork(nn.Module):
    """Features, hidden layers and a memory, then hidden layers and a head.

    Layers before the memory are never noisy: a stored state is then a function of the weights alone, and noise explores
    without being remembered.

    Args:
        features: from observations to a row of numbers.
        encoder: hidden layers before the memory.
        memory: LSTM or GRU, and what else it reads.
        torso: hidden layers behind it.
        actions: what the head answers for.
        design: dueling, noisy, distribution.
    """

    def __init__(
        self,
        features: Features,
        encoder: Torso,
        memory: RecurrentConfig,
        torso: Torso,
        actions: ActionShape,
        design: QNetworkConfig,
    ) -> None:
        super().__init__()
        self.features, self.design, self.num_actions = features, design, actions.num_actions
        linear = SpectralLinear if encoder.spectral_norm else Linear
        self.encoder = HiddenLayers(
            features.features_dim, encoder.widths, encoder.activation_fn, linear, layer_norm=encoder.layer_norm
        )
        told = told_width(memory, actions.shape, actions.num_actions)
        self.memory = RecurrentLayer(self.encoder.out_features + told, memory)
        self.answer = QNetwork(Remembered(memory.hidden_size), torso, actions, design)
        self.make_noise, self.learning_noise = self.answer.make_noise, self.answer.learning_noise

    def encode(self, obs: dict[str, Tensor], action: Tensor, reward: Tensor) -> Tensor:
        """What the memory reads of N rows: `[N, E]`.

        Args:
            obs: flat dict of `[N, *shape]`.
            action: `[N]` or `[N, D]` int64, the one that led here; -1: none.
            reward: `[N]` that came with `obs`.
        """
        return with_told(self.encoder(self.features(obs)).float(), self.memory.memory, action, reward, self.num_actions)

    def step(
        self,
        obs: dict[str, Tensor],
        action: Tensor,
        reward: Tensor,
        state: Tensor,
        mask: Tensor | None = None,
        noise: Noise | None = None,
        acting: bool = False,
    ) -> tuple[Any, Tensor]:
        """One step of N lanes: a value object, and the next state `[N, P]`."""
        out, state = self.memory(self.encode(obs, action, reward).unsqueeze(0), state)
        return self.answer({"memory": out.squeeze(0)}, mask, noise, acting), state

    def recall(
        self, obs: dict[str, Tensor], extra: Mapping[str, Tensor], warmup: int, length: int, beyond: bool = True
    ) -> Recalled:
        """What is remembered along N sequences; gradients flow through the trained steps alone.

        Args:
            obs: `[(W + T + n) * N, ...]`, time-major.
            extra: of `SequenceView.gather`.
            warmup, length: W and T.
            beyond: the steps after the trained ones too.
        """
        rows, action, reward = (extra[name] for name in ("begins", "previous_action", "previous_reward"))
        count = extra["end"].shape[0] // length
        begins = rows.view(-1, count)

        def encoded(first: int, last: int) -> Tensor:
            some = slice(first * count, last * count)
            part = {key: column[some] for key, column in obs.items()}
            read = self.encode(part, action[some], reward[some])
            return read.view(last - first, count, read.shape[-1])

        with torch.no_grad():
            state = (
                extra["state"] if "state" in extra else action.new_zeros((count, self.memory.memory.state_size)).float()
            )
            if warmup:
                state = self.memory.burn_in(encoded(0, warmup), state, begins[:warmup])
            state = zeroed(state, begins[warmup])
        trained, state = self.memory(encoded(warmup, warmup + length), state)
        if not beyond:
            return Recalled(trained, None)
        with torch.no_grad():
            return Recalled(trained, self.memory(encoded(warmup + length, len(begins)), state.detach())[0])

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Any:
        """A value object for what is remembered, `{"memory": [N, H]}`."""
        return self.answer(obs, mask, noise)

    def make_apart(self, flat: Tensor) -> FractionOptimizer | None:
        """What steps the parameters that have a rate of their own, if any; `flat` is what all are views of."""
        return self.design.distribution.make_apart(self, flat)

    def twin(self, dtype: torch.dtype) -> RecurrentQNetwork:
        """A copy whose layers before the memory compute in `dtype`.

        The rest is shared and stays float32: in the state of a memory errors would add up along a sequence.
        """
        twin = copy.deepcopy(self).to(dtype)
        twin.features.dtype = dtype
        twin.memory, twin.answer = self.memory, self.answer
        twin.make_noise, twin.learning_noise = self.make_noise, self.learning_noise
        return twin
