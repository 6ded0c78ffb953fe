"""Recurrent layers: LSTM and GRU, with the whole of their state in one row of numbers."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_choice, check_int, set_fields
from sb_dqn.devices import is_host_visible

KINDS: dict[str, tuple[Any, int]] = {"lstm": (nn.LSTM, 2), "gru": (nn.GRU, 1)}
"""Class, and state values per unit."""

FEATURES = "features"
VALUE_FEATURES = "value_features"
"""Keys of recurrent features `[N, H]` in the observations of a recurrent network's `forward`; the second is for a value
with a recurrent layer of its own."""


@dataclass(frozen=True)
class RecurrentConfig:
    """Recurrent layer of a network and its inputs besides the observation.

    Args:
        kind: "lstm" (Hochreiter and Schmidhuber 1997) or "gru" (Cho et al. 2014, arXiv 1406.1078).
        hidden_size: units of a layer, H.
        num_layers: L.
        previous_action: the last action is an input, one-hot; zeros at the start of an episode.
        previous_reward: the last reward is an input; 0 at the start of an episode.
        encoder_arch: widths of the hidden layers between features and recurrent layer.
        shared: in an actor-critic, policy and value share the recurrent layer; False: each has its own.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    kind: str = "lstm"
    hidden_size: int = 256
    num_layers: int = 1
    previous_action: bool = True
    previous_reward: bool = False
    encoder_arch: tuple[int, ...] = ()
    shared: bool = True

    def __post_init__(self) -> None:
        set_fields(
            self,
            kind=check_choice("policy_kwargs['rnn']", self.kind, KINDS),
            hidden_size=check_int("policy_kwargs['lstm_hidden_size']", self.hidden_size, 1),
            num_layers=check_int("policy_kwargs['n_lstm_layers']", self.num_layers, 1),
            previous_action=check_bool("policy_kwargs['previous_action']", self.previous_action),
            previous_reward=check_bool("policy_kwargs['previous_reward']", self.previous_reward),
            shared=check_bool("policy_kwargs['shared_lstm']", self.shared),
        )

    @property
    def state_size(self) -> int:
        """Values in the state of one lane, P."""
        return (1 if self.shared else 2) * KINDS[self.kind][1] * self.num_layers * self.hidden_size

    def num_inputs(self, action_shape: tuple[int, ...], num_actions: int) -> int:
        """Returns the number of inputs besides the features.

        Args:
            action_shape: shape of one action: `()`, `(D,)` or that of a Box.
            num_actions: A; 0 for a Box.
        """
        return self.previous_action * math.prod(action_shape) * (num_actions or 1) + self.previous_reward

    def inputs(self, features: Tensor, action: Tensor | None, reward: Tensor | None, num_actions: int) -> Tensor:
        """Returns the inputs of the recurrent layer `[N, E]`: features, previous action and previous reward.

        Args:
            features: `[N, F]`.
            action: previous choices `[N]` or `[N, D]`, -1 for none; or `[N, *shape]` of a Box, zeros for none. None where
                `previous_action` is False.
            reward: `[N]`; None where `previous_reward` is False.
            num_actions: A; 0 for a Box.
        """
        parts = [features]
        if self.previous_action:
            assert action is not None
            parts.append(one_hot_actions(action, num_actions) if num_actions else action.flatten(1))
        if self.previous_reward:
            assert reward is not None
            parts.append(reward.unsqueeze(-1))
        return torch.cat(parts, -1) if len(parts) > 1 else features


class RecurrentLayer(nn.Module):
    """An LSTM or GRU that maps inputs and a state row to outputs and a state row; a row of zeros is the initial state.

    The forget-gate bias of an LSTM is initialized to 1 (Jozefowicz et al. 2015), so that state persists before training.

    Args:
        in_features: E.
        config: kind and sizes.
    """

    def __init__(self, in_features: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.out_features = config.hidden_size
        self.core = KINDS[config.kind][0](in_features, config.hidden_size, config.num_layers)
        if config.kind == "lstm":
            for layer in range(config.num_layers):  # the order of the gates is input, forget, cell, output
                nn.init.ones_(getattr(self.core, f"bias_ih_l{layer}").data.chunk(4)[1])

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Maps inputs `[S, N, E]` and `state` `[N, P]` to outputs `[S, N, H]` and the last state `[N, P]`."""
        if not x.is_cuda:
            return self._run(x, state)
        with warnings.catch_warnings():
            # cuDNN copies the weights in each call, since they are views of one tensor of all parameters
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            return self._run(x, state)

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        layers = self.config.num_layers
        parts = state.view(state.shape[0], -1, self.out_features).transpose(0, 1).contiguous()  # [layers (x 2), N, H]
        if self.config.kind == "gru":
            out, after = self.core(x, parts)
        else:
            out, pair = self.core(x, (parts[:layers], parts[layers:]))
            after = torch.cat(pair)
        return out, after.transpose(0, 1).flatten(1)

    def unroll(self, x: Tensor, state: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Maps inputs to outputs `[S, N, H]` and the last state, zeroing the state where an episode begins.

        The results of a CPU and of other devices differ by rounding.

        Args:
            x: inputs `[S, N, E]`, S >= 1.
            state: `[N, P]` before the first step.
            begins: `[S, N]` bool, True zeroes the state before that step.
        """
        if not is_host_visible(x.device):  # reading `begins` would wait for it
            return self._unroll_by_steps(x, state, begins)
        outputs = []
        first = 0
        # one call of the kernel for each stretch without an episode start is faster than one for each step
        for step in begins.any(1).nonzero()[:, 0].tolist():
            if step > first:
                out, state = self(x[first:step], state)
                outputs.append(out)
            state = zero_state(state, begins[step])
            first = step
        out, state = self(x[first:], state)
        return torch.cat([*outputs, out]), state

    def _unroll_by_steps(self, x: Tensor, state: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Computes `unroll` one step after another: more calls of the kernel, but none depends on the values of `begins`."""
        outputs = []
        for step, begin in zip(x.chunk(len(x)), begins, strict=True):
            out, state = self(step, zero_state(state, begin))
            outputs.append(out)
        return torch.cat(outputs), state


def zero_state(state: Tensor, begins: Tensor) -> Tensor:
    """Returns states `[N, P]`, zero where `begins` `[N]` is True."""
    return torch.where(begins.unsqueeze(-1), 0.0, state)


def one_hot_actions(action: Tensor, num_actions: int) -> Tensor:
    """Returns actions `[N]` or `[N, D]` int64 as one-hot `[N, A]` or `[N, D * A]` float32; zeros for -1 (no action)."""
    hot = action.unsqueeze(-1) == torch.arange(num_actions, device=action.device)
    return hot.flatten(1).float()
