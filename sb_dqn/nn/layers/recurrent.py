"""Layers that remember: LSTM and GRU, with the whole of their state in one row of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_choice, check_int

KINDS: dict[str, tuple[Any, int]] = {"lstm": (nn.LSTM, 2), "gru": (nn.GRU, 1)}
"""Class, and numbers of state for each unit."""


@dataclass(frozen=True)
class RecurrentConfig:
    """What a recurrent net remembers with, and what it is told beside the observation.

    Args:
        kind: "lstm" (Hochreiter and Schmidhuber 1997) or "gru" (Cho et al. 2014, arXiv 1406.1078).
        hidden_size: units of a layer, H.
        num_layers: L.
        previous_action: it reads the last action, one-hot; zeros where an episode begins.
        previous_reward: it reads the last reward; 0 where an episode begins.

    Raises:
        ConfigurationError: one of them is out of its range.
    """

    kind: str = "lstm"
    hidden_size: int = 256
    num_layers: int = 1
    previous_action: bool = True
    previous_reward: bool = False

    def __post_init__(self) -> None:
        check_choice("policy_kwargs['rnn']", self.kind, KINDS)
        check_int("policy_kwargs['lstm_hidden_size']", self.hidden_size, 1)
        check_int("policy_kwargs['n_lstm_layers']", self.num_layers, 1)
        check_bool("policy_kwargs['previous_action']", self.previous_action)
        check_bool("policy_kwargs['previous_reward']", self.previous_reward)

    @property
    def state_size(self) -> int:
        """Numbers of the state of one lane."""
        return KINDS[self.kind][1] * self.num_layers * self.hidden_size


class RecurrentLayer(nn.Module):
    """An LSTM or a GRU from state rows to state rows; a state of zeros is the beginning.

    The forget gates of an LSTM begin near open (bias 1; Jozefowicz et al. 2015), else nothing is remembered for long before
    it has been learned to.

    Args:
        in_features: E.
        memory: kind and sizes.
    """

    def __init__(self, in_features: int, memory: RecurrentConfig) -> None:
        super().__init__()
        self.memory, self.out_features = memory, memory.hidden_size
        self.core = KINDS[memory.kind][0](in_features, memory.hidden_size, memory.num_layers)
        if memory.kind == "lstm":
            for layer in range(memory.num_layers):  # the gates lie in the order input, forget, cell, output
                nn.init.ones_(getattr(self.core, f"bias_ih_l{layer}").data.chunk(4)[1])

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`[S, N, E]` from `state` `[N, P]` -> what is remembered after each step `[S, N, H]`, and the state `[N, P]`."""
        layers = self.memory.num_layers
        parts = state.view(state.shape[0], -1, self.out_features).transpose(0, 1).contiguous()  # [layers (x 2), N, H]
        if self.memory.kind == "gru":
            out, after = self.core(x, parts)
        else:
            out, pair = self.core(x, (parts[:layers], parts[layers:]))
            after = torch.cat(pair)
        return out, after.transpose(0, 1).flatten(1)

    def burn_in(self, x: Tensor, state: Tensor, begins: Tensor) -> Tensor:
        """The state after `[S, N, E]`, zeroed before each step at which an episode begins.

        Args:
            x: inputs; S may be 0.
            state: `[N, P]`.
            begins: `[S, N]` bool.
        """
        return self.unroll(x, state, begins)[1] if len(x) else state

    def unroll(self, x: Tensor, state: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """What is remembered after each step `[S, N, H]`, S >= 1, and the last state; arguments as of `burn_in`."""
        out, first = [], 0  # whole stretches are fast; between them some episode begins
        for step in begins.any(1).nonzero()[:, 0].tolist():  # a CPU-GPU sync point
            if step > first:
                some, state = self(x[first:step], state)
                out.append(some)
            state, first = zeroed(state, begins[step]), step
        some, state = self(x[first:], state)
        return torch.cat([*out, some]), state


def zeroed(state: Tensor, begins: Tensor) -> Tensor:
    """States `[N, P]`, zeros where `begins` `[N]`."""
    return torch.where(begins.unsqueeze(-1), 0.0, state)


def one_hot_actions(action: Tensor, num_actions: int) -> Tensor:
    """`[N]` or `[N, D]` int64 -> `[N, A]` or `[N, D * A]` float32; -1 stands for no action: zeros."""
    hot = action.unsqueeze(-1) == torch.arange(num_actions, device=action.device)
    return hot.flatten(1).float()


def told_width(memory: RecurrentConfig, action_shape: tuple[int, ...], num_actions: int) -> int:
    """Numbers that `with_told` puts beside the features.

    Args:
        memory: what is told.
        action_shape: of one action, `()`, `(D,)` or that of a Box.
        num_actions: A; 0 for a Box.
    """
    return memory.previous_action * math.prod(action_shape) * (num_actions or 1) + memory.previous_reward


def with_told(x: Tensor, memory: RecurrentConfig, action: Tensor, reward: Tensor, num_actions: int) -> Tensor:
    """Features `[N, E]`, and beside them what else a memory reads: the action that led here, the reward that came with it.

    Args:
        x: features.
        memory: what is told.
        action: `[N]` or `[N, D]` choices, -1: none; or `[N, *shape]` of a Box, zeros: none.
        reward: `[N]`.
        num_actions: A; 0 for a Box.
    """
    read = [x]
    if memory.previous_action:
        read.append(one_hot_actions(action, num_actions) if num_actions else action.flatten(1))
    if memory.previous_reward:
        read.append(reward.unsqueeze(-1))
    return torch.cat(read, -1) if len(read) > 1 else x
