"""Action selection while learning: maps the current observation of each lane to an action, and to arrays that are stored with it.

A selector holds networks, exploration and the state of each lane, but no reference to the model, so that it can also run
in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode
from sb_dqn.acting.network_runner import NetworkRunner, Transform
from sb_dqn.acting.recurrent_state import RecurrentState
from sb_dqn.buffers.rollout_buffer import Before
from sb_dqn.exploration import Exploration
from sb_dqn.nn.layers.norms import SpectralWeights
from sb_dqn.policies import QPolicy
from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.spaces import actions_of
from sb_dqn.types import ActionArray, BoolArray, Observation, Rows

Extras = dict[str, npt.NDArray[Any]]
"""Arrays `[B, ...]` by name that are stored with the actions."""

Observe = Callable[[], Any]
"""Returns the observations of the open rows by key, arrays or tensors of the networks' device; called only if the network is
needed."""


class ActionSelector(ABC):
    """Selects the actions of B lanes.

    Args:
        policy: the networks.
        num_lanes: B.
        rng: draws uniform actions and samples.
    """

    def __init__(self, policy: Any, num_lanes: int, rng: np.random.Generator) -> None:
        self.num_lanes = num_lanes
        self.rng = rng
        self.actions = actions_of(policy.action_space)
        self.recurrent_state = RecurrentState(policy, num_lanes) if policy.recurrent else None
        self.extras: Extras = {}
        """Arrays to store with the latest actions."""

    def recurrent_inputs(self, rows: Rows) -> tuple[npt.NDArray[Any], ...]:
        """Returns the recurrent inputs of the network for the open rows; none for a feed-forward policy."""
        return () if self.recurrent_state is None else self.recurrent_state.inputs(rows)

    @abstractmethod
    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        """Returns actions `[B, ...]` for the open rows.

        Args:
            rows: the tick whose rows are open.
            observe: returns their observations.
            uniform: draw the actions uniformly. The recurrent state is updated anyway.
        """

    @abstractmethod
    def bootstrap_values(
        self, obs: Observation, mask: BoolArray | None, before: Before | None = None
    ) -> npt.NDArray[Any]:
        """Returns the values `[N]` of observations where no action is taken, by the current weights.

        Args:
            obs: observations `[N, *shape]` by key.
            mask: legal actions; None: all.
            before: the rows before these, for recurrent policies.
        """

    def advance(self, step: int, horizon: int) -> None:  # noqa: B027  # an empty default, on purpose
        """Moves the exploration schedule to env step `step` of a run of `horizon` steps."""

    def uniform(self, mask: BoolArray | None) -> ActionArray:
        """Returns uniformly drawn actions `[B, ...]`; legal ones where there is a mask."""
        return self.actions.uniform(self.num_lanes, self.rng, mask)


class QActionSelector(ActionSelector):
    """Selects actions by Q-values and an exploration strategy.

    Args:
        policy: the networks.
        exploration: epsilon-greedy, Boltzmann, ...
        num_lanes: B.
        transform: from stored observations to network inputs (normalization).
        noise_generator: draws the noise of noisy layers at each call; None: no noise.
        stores_value: store the value of the best action, for on-policy targets; then the network runs at each tick.
        spectral_weights: cache of the network's normalized weights; None: computed at each call.
        stores_q_values: store the values of the action and of the best one, for initial priorities; then the network runs at
            each tick.
    """

    def __init__(
        self,
        policy: QPolicy,
        exploration: Exploration,
        num_lanes: int,
        transform: Transform,
        noise_generator: torch.Generator | None = None,
        stores_value: bool = False,
        spectral_weights: SpectralWeights | None = None,
        stores_q_values: bool = False,
    ) -> None:
        super().__init__(policy, num_lanes, exploration.rng)
        self.policy: Any = policy
        self.exploration = exploration
        self.exploration.num_lanes = num_lanes
        self.transform = transform
        self.noise_generator = noise_generator
        self.stores_value = stores_value
        self.spectral_weights = spectral_weights
        self.stores_q_values = stores_q_values or policy.recurrent
        self.runs_always = stores_value or self.stores_q_values
        """True if the network runs at each tick, even for uniform actions."""
        self.mode: Mode = "eager"
        self._runner: NetworkRunner | None = None
        self._mode_of_runner: Mode = "eager"

    def advance(self, step: int, horizon: int) -> None:
        self.exploration.advance(step, horizon)

    @property
    def runner(self) -> NetworkRunner:
        """The network wrapped for `mode`; rebuilt when the mode changes."""
        if self._runner is None or self._mode_of_runner != self.mode:
            self._mode_of_runner = self.mode
            self._runner = NetworkRunner(
                self.policy, self._function(), self.mode, self.transform, self.noise_generator, self.spectral_weights
            )
        return self._runner

    def _function(self) -> Callable[..., Any]:
        if self.runs_always:
            return self.policy.values_step  # type: ignore[no-any-return]
        return self.policy.values if self.exploration.needs_values else self.policy.greedy  # type: ignore[no-any-return]

    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        mask = rows.slots[-1].mask
        if not self.runs_always:
            if uniform:
                return self.uniform(mask)
            return self.exploration.select(lambda: self.runner.single(observe(), mask), mask)
        inputs = self.recurrent_inputs(rows)
        q, *state = self.runner(observe(), mask, *inputs)
        values = self.exploration.needs_values
        action = self.uniform(mask) if uniform else self.exploration.select(lambda: q if values else q.argmax(-1), mask)
        if not self.stores_q_values:
            self.extras = {"value": best_value(q)}
            return action
        taken = np.take_along_axis(q, action[..., None], -1)[..., 0]
        self.extras = {"q_taken": taken.astype(np.float32), "q_best": q.max(-1).astype(np.float32)}
        if self.recurrent_state is not None:
            self.extras["state"] = inputs[-1]
            (self.recurrent_state.state,) = state
        return action

    def bootstrap_values(
        self, obs: Observation, mask: BoolArray | None, before: Before | None = None
    ) -> npt.NDArray[Any]:
        return best_value(self.runner(obs, mask)[0])


class SampledActionSelector(ActionSelector):
    """Samples actions from a stochastic policy; stores values and log-probabilities where the policy returns them.

    Args:
        policy: the networks.
        num_lanes: B.
        rng: draws the samples.
        transform: from stored observations to network inputs (normalization).
        mode: how the networks run.
        has_critic: False stores and returns values of 0 (methods without a learned state value).
        spectral_weights: cache of the networks' normalized weights; None: computed at each call.
    """

    def __init__(
        self,
        policy: StochasticPolicy,
        num_lanes: int,
        rng: np.random.Generator,
        transform: Transform,
        mode: Mode,
        has_critic: bool = True,
        spectral_weights: SpectralWeights | None = None,
    ) -> None:
        super().__init__(policy, num_lanes, rng)
        networks: Any = policy
        self.policy = networks
        self.has_critic = has_critic
        self._act = NetworkRunner(policy, policy.act, mode, transform, spectral_weights=spectral_weights)
        self._value = (
            NetworkRunner(policy, networks.value_step, mode, transform, spectral_weights=spectral_weights)
            if has_critic
            else None
        )

    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        mask = rows.slots[-1].mask
        if uniform:
            return self.uniform(mask)
        obs = observe()
        inputs = self.recurrent_inputs(rows)
        drawn = self.policy.draw(self.rng, self.num_lanes)
        action, *outputs = self._act(obs, mask, drawn, *inputs)
        self.extras = dict(zip(self.policy.output_names, outputs, strict=True))
        if self.recurrent_state is not None:
            previous_action, previous_reward, state = inputs
            self.recurrent_state.state = self.extras.pop("next_state")
            self.extras |= {"begins": self.recurrent_state.begins, "state": state}
            if self.policy.recurrent_config.previous_action:
                self.extras["previous_action"] = previous_action
            if self.policy.recurrent_config.previous_reward:
                self.extras["previous_reward"] = previous_reward
        if not self.has_critic and "value" in self.extras:
            self.extras["value"] = np.zeros(self.num_lanes, np.float32)
        return action

    def bootstrap_values(
        self, obs: Observation, mask: BoolArray | None, before: Before | None = None
    ) -> npt.NDArray[Any]:
        if self._value is None:
            return np.zeros(len(next(iter(obs.values()))), np.float32)
        inputs = () if before is None else self._inputs_after(before, self._value)
        return self._value(obs, None, *inputs)[0]

    def _inputs_after(self, before: Before, value: NetworkRunner) -> tuple[npt.NDArray[Any], ...]:
        """Returns the recurrent inputs after the rows `before`, by running one recurrent step from the stored states."""
        if self.recurrent_state is None:
            return ()
        none = self.recurrent_state.none
        stored = before.declared
        action = stored.get("previous_action", none).astype(none.dtype)
        reward = stored.get("previous_reward", np.zeros(len(before.reward), np.float32))
        _, state = value(before.obs, None, action, reward, stored["state"])
        begins = before.begins
        action = np.where(begins.reshape(-1, *(1,) * (none.ndim - 1)), none, before.action)
        reward = np.where(begins, 0.0, before.reward).astype(np.float32)
        return action, reward, np.where(begins[:, None], 0.0, state).astype(np.float32)


def best_value(q: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the value of the best action, `[B, A]` to `[B]`; with branches `[B, D, A]` their mean."""
    best: npt.NDArray[Any] = q.max(-1)
    return best.mean(-1) if best.ndim > 1 else best
