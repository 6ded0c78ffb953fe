"""Recurrent layers: LSTM and GRU, with the whole of their state in one row of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.checks import check_bool, check_choice, check_float, check_int, set_fields
from sb_dqn.devices import is_host_visible
from sb_dqn.errors import ConfigurationError

KINDS: dict[str, tuple[type[nn.LSTM] | type[nn.GRU], int]] = {"lstm": (nn.LSTM, 2), "gru": (nn.GRU, 1)}
"""Class of the layer, and number of state values per unit."""

FEATURES = "features"
VALUE_FEATURES = "value_features"
"""Keys of recurrent features `[N, H]` in the observations of a recurrent network's `forward`; the second is for a value
with a recurrent layer of its own."""


@dataclass(frozen=True)
class RecurrentConfig:
    """Recurrent layer of a network and its inputs besides the observation.

    Args:
        kind: "lstm" (Hochreiter and Schmidhuber 1997) or "gru" (Cho et al. 2014, arXiv 1406.1078).
        hidden_size: number H of units of a layer.
        num_layers: number of layers L.
        previous_action: the last action is an input, one-hot; zeros at the start of an episode.
        previous_reward: the last reward is an input; 0 at the start of an episode.
        encoder_arch: widths of the hidden layers between features and recurrent layer.
        shared: True if policy and value of an actor-critic share the recurrent layer; otherwise each has its own.
        dropout: probability of a zero between two layers in updates, [0, 1).
        critic: the value of an actor-critic reads a recurrent layer; False: it reads the features of the observation alone.

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
    dropout: float = 0.0
    critic: bool = True

    def __post_init__(self) -> None:
        set_fields(
            self,
            kind=check_choice("policy_kwargs['rnn']", self.kind, KINDS),
            hidden_size=check_int("policy_kwargs['lstm_hidden_size']", self.hidden_size, 1),
            num_layers=check_int("policy_kwargs['n_lstm_layers']", self.num_layers, 1),
            previous_action=check_bool("policy_kwargs['previous_action']", self.previous_action),
            previous_reward=check_bool("policy_kwargs['previous_reward']", self.previous_reward),
            shared=check_bool("policy_kwargs['shared_lstm']", self.shared),
            dropout=check_float("policy_kwargs['lstm_dropout']", self.dropout, 0.0, 1.0),
            critic=check_bool("policy_kwargs['critic_lstm']", self.critic),
        )
        if self.shared and not self.critic:
            raise ConfigurationError(
                "policy_kwargs['critic_lstm'] must be True with shared_lstm=True, whose layer the value reads, got False. Remove one "
                "of both."
            )
        if self.dropout == 1.0 or (self.dropout and self.num_layers == 1):
            raise ConfigurationError(
                f"policy_kwargs['lstm_dropout'] must be below 1, and 0 with one layer, since it is between layers, got "
                f"{self.dropout}. Remove it, or set n_lstm_layers=2."
            )

    @property
    def state_size(self) -> int:
        """Values in the state of one lane, P."""
        return (1 if self.shared or not self.critic else 2) * KINDS[self.kind][1] * self.num_layers * self.hidden_size

    def num_inputs(self, action_shape: tuple[int, ...], num_actions: int) -> int:
        """Returns the number of inputs besides the features.

        Args:
            action_shape: shape of one action: `()`, `(D,)` or that of a Box.
            num_actions: number of actions A, or 0 for a Box.
        """
        return self.previous_action * math.prod(action_shape) * (num_actions or 1) + self.previous_reward

    def inputs(self, features: Tensor, action: Tensor | None, reward: Tensor | None, num_actions: int) -> Tensor:
        """Returns the inputs of the recurrent layer `[N, E]`: features, previous action and previous reward.

        Args:
            features: `[N, F]`.
            action: previous choices `[N]` or `[N, D]`, -1 for none; or `[N, *shape]` of a Box, zeros for none. None where
                `previous_action` is False.
            reward: `[N]`; None where `previous_reward` is False.
            num_actions: number of actions A, or 0 for a Box.
        """
        parts = [features]
        if self.previous_action:
            assert action is not None
            if num_actions:  # zeros for -1, no action
                hot = action.unsqueeze(-1) == torch.arange(num_actions, device=action.device)
                parts.append(hot.flatten(1).float())
            else:
                parts.append(action.flatten(1))
        if self.previous_reward:
            assert reward is not None
            parts.append(reward.unsqueeze(-1))
        return torch.cat(parts, -1) if len(parts) > 1 else features


class RecurrentLayer(nn.Module):
    """An LSTM or GRU that maps inputs and a state row to outputs and a state row; a row of zeros is the initial state.

    The forget-gate bias of an LSTM is initialized to 1 (Jozefowicz et al. 2015), so that state persists before training.

    Args:
        in_features: number of inputs E.
        config: kind and sizes.
    """

    def __init__(self, in_features: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.out_features = config.hidden_size
        self.core = KINDS[config.kind][0](
            in_features, config.hidden_size, config.num_layers, dropout=config.dropout
        )  # fmt: skip
        self._closing = _closing(config)
        if config.kind == "lstm":
            for layer in range(config.num_layers):  # the order of the gates is input, forget, cell, output
                nn.init.ones_(getattr(self.core, f"bias_ih_l{layer}").data.chunk(4)[1])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecurrentLayer:
        self._closing = fn(self._closing)  # no buffer, which would be copied from network to network
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's
        return self

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Maps inputs `[S, N, E]` and `state` `[N, P]` to outputs `[S, N, H]` and the last state `[N, P]`."""
        if not is_host_visible(x.device):
            return self._run_layers(x, state, self._gathered())
        layers = self.config.num_layers
        parts = state.view(state.shape[0], -1, self.out_features).transpose(0, 1).contiguous()  # [layers (x 2), N, H]
        if self.config.kind == "gru":
            out, after = self.core(x, parts)
        else:
            out, pair = self.core(x, (parts[:layers], parts[layers:]))
            after = torch.cat(pair)
        return out, after.transpose(0, 1).flatten(1)

    def _gathered(self, idle: bool = False) -> list[list[Tensor]]:
        """Returns the weights of each layer as views of one tensor, from which cuDNN reads them: it would copy them in each call
        otherwise, since the parameters of a model are views of a larger tensor.

        Args:
            idle: the inputs have one more feature, 1 where the state stays zero; see `burn_in`.
        """
        layers = []
        for layer in range(self.config.num_layers):
            weights = [
                getattr(self.core, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if idle:
                weights[0] = torch.cat([weights[0], self._closing], 1)
            sizes = [weight.numel() for weight in weights]
            parts = torch.split(torch.cat([weight.reshape(-1) for weight in weights]), sizes)
            layers.append([part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)])
        return layers

    def _run_layers(
        self, x: Tensor, state: Tensor, layers: list[list[Tensor]], idle: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes `forward` with one call of the kernel for each layer, with gathered weights."""
        before = state.view(len(state), -1, 1, self.out_features).unbind(1)  # of each layer; then the cells of an LSTM
        keeps = self.training and torch.is_grad_enabled()  # intermediate results for the backward pass
        after: list[Tensor] = []
        cells: list[Tensor] = []
        for layer, weights in enumerate(layers):
            if idle is not None:
                x = torch.cat([x, idle], -1)
            hidden = before[layer].transpose(0, 1).contiguous()
            options = True, 1, 0.0, keeps, False, False  # biases, one layer, no dropout, in one direction, time first
            if self.config.kind == "gru":
                x, hidden = torch.gru(x, hidden, weights, *options)
            else:
                cell = before[len(layers) + layer].transpose(0, 1).contiguous()
                x, hidden, cell = torch.lstm(x, (hidden, cell), weights, *options)
                cells.append(cell.squeeze(0))
            after.append(hidden.squeeze(0))
            if self.config.dropout and layer < len(layers) - 1:
                x = functional.dropout(x, self.config.dropout, self.training)
        return x, torch.cat([*after, *cells], -1)

    def burn_in(self, x: Tensor, state: Tensor, begins: Tensor) -> Tensor:
        """Returns the state `[N, P]` after inputs, zeroed where an episode begins.

        Elsewhere than on the CPU, the kernel is called once for all steps. Only those since the last start of an episode
        matter: in the steps before it the state stays zero, because a further input closes the gate to new values.

        Args:
            x: inputs `[S, N, E]`, S >= 1.
            state: `[N, P]` before the first step.
            begins: `[S + 1, N]` bool, True zeroes the state before that step; the last row after the inputs.
        """
        if is_host_visible(x.device):
            return zero_state(self.unroll(x, state, begins[:-1])[1], begins[-1])
        idle = begins[1:].flip(0).cumsum(0).flip(0) > 0
        state = zero_state(state, begins.any(0))
        return self._run_layers(x, state, self._gathered(idle=True), idle.unsqueeze(-1).to(x.dtype))[1]

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
        layers = self._gathered()
        for step, begin in zip(x.chunk(len(x)), begins, strict=True):
            out, state = self._run_layers(step, zero_state(state, begin), layers)
            outputs.append(out)
        return torch.cat(outputs), state


CLOSED = 1e6
"""Input at which a gate is exactly 1, and exactly 0 if it is negative."""


def _closing(config: RecurrentConfig) -> Tensor:
    """Returns weights `[gates * H, 1]` of an input that keeps a state of zeros zero: an LSTM takes nothing into its cells, a
    GRU keeps all of its state."""
    gates = {"lstm": (-CLOSED, 0.0, 0.0, 0.0), "gru": (0.0, CLOSED, 0.0)}[config.kind]
    return torch.tensor(gates).repeat_interleave(config.hidden_size).unsqueeze(-1)


def zero_state(state: Tensor, begins: Tensor) -> Tensor:
    """Returns states `[N, P]`, zero where `begins` `[N]` is True."""
    return torch.where(begins.unsqueeze(-1), 0.0, state)
