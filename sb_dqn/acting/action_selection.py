"""Action selection while learning: maps the current observation of each lane to an action, and to arrays that are stored with it.

A selector holds networks, exploration and the state of each lane, but no reference to the model, so that it can also run
in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sb_dqn.accelerate import Mode
from sb_dqn.acting.lane_state import ActingMembers, HeldNumbers, RecurrentState, Redraws
from sb_dqn.acting.network_runner import NetworkRunner, Transform, unchanged
from sb_dqn.buffers.rollout_buffer import Before
from sb_dqn.exploration import Exploration
from sb_dqn.exploration.action_noise import ActionNoise, NoisyActions
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.nn.layers.norms import SpectralWeights
from sb_dqn.normalize import NormalizationConfig
from sb_dqn.spaces import BoxActions, actions_of
from sb_dqn.types import ActionArray, Array, BoolArray, Observation, Rows

Extras = dict[str, Array]
"""Arrays `[B, ...]` by name that are stored with the actions."""

Inputs = tuple[Array, ...]
"""Recurrent inputs of the network, see `RecurrentState.inputs`; empty for a feed-forward policy."""

Observe = Callable[[], Any]
"""Returns the observations of the open rows by key, arrays or tensors of the networks' device; called only if the network is
needed."""

NO_NORMALIZATION = NormalizationConfig(False, False, 0.0)


@dataclass(frozen=True, kw_only=True)
class ActingConfig:
    """Networks and settings that all actors of a model share, wherever they act.

    Args:
        policy: the networks.
        exploration: strategy of a Q-policy; None for policies that sample their actions.
        transform: from stored observations to network inputs (normalization).
        spectral_weights: cache of the networks' normalized weights; None: computed at each call.
        mode: how the networks run, see `acting_mode`.
        later_mode: returns how they run from the end of uniform actions on; None: as before.
        stores_value: store the value of the policy, or of its best action, for on-policy targets; False stores 0 where a policy
            has a critic that does not learn.
        stores_q_values: store the values of the action and of the best one, for initial priorities.
        normalization: arguments of the model's normalization, for actors that have statistics of their own.
        action_mask: source of the legal actions: "info", a key of the observation, or None.
        redraws: when a policy that samples draws new random numbers; None: at every tick.
        action_noise: noise on the actions of a Box; None: none.
        frame_stack: frames that the actor stacks itself; 1: none.
        num_envs: number of lanes of all actors.
        learner: number of this learner, and number of all learners.
    """

    policy: Any
    exploration: ExplorationConfig | None = None
    transform: Transform = unchanged
    spectral_weights: SpectralWeights | None = None
    mode: Mode = "eager"
    later_mode: Callable[[], Mode] | None = None
    stores_value: bool = False
    stores_q_values: bool = False
    normalization: NormalizationConfig = NO_NORMALIZATION
    action_mask: str | None = None
    redraws: Redraws | None = None
    action_noise: ActionNoise | None = None
    frame_stack: int = 1
    num_envs: int = 1
    learner: tuple[int, int] = (0, 1)

    def runner(self, function: Callable[..., Any], noise: torch.Generator | None = None) -> NetworkRunner:
        """Returns a runner of a function of the networks; `noise` draws their random numbers, None: they have none."""
        return NetworkRunner(self.policy, function, self.mode, self.transform, noise, self.spectral_weights)


class ActionSelector(ABC):
    """Selects the actions of B lanes.

    Args:
        config: networks, and what is stored.
        num_lanes: B.
        rng: draws uniform actions and samples.
    """

    exploration: Exploration | None = None

    def __init__(self, config: ActingConfig, num_lanes: int, rng: np.random.Generator) -> None:
        self.policy = config.policy
        self.num_lanes = num_lanes
        self.rng = rng
        self.actions = actions_of(self.policy.action_space)
        self.recurrent_state = RecurrentState(self.policy, num_lanes) if self.policy.recurrent else None
        self.parts: dict[str, Any] = {} if self.recurrent_state is None else {"memory": self.recurrent_state}
        """What keeps a state from tick to tick, by its name in a full checkpoint."""
        self.extras: Extras = {}
        """Arrays to store with the latest actions."""

    @abstractmethod
    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        """Returns actions `[B, ...]` for the open rows.

        Args:
            rows: the tick whose rows are open.
            observe: returns their observations.
            uniform: draw the actions uniformly. The recurrent state is updated anyway.
        """

    @abstractmethod
    def bootstrap_values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> Array:
        """Returns the values `[N]` of observations where no action is taken, by the current weights.

        Args:
            obs: observations `[N, *shape]` by key.
            mask: legal actions; None: all.
            before: the rows before these, for recurrent policies.
        """


class QActionSelector(ActionSelector):
    """Selects actions by Q-values and an exploration strategy.

    The network runs at each tick, even for uniform actions, if its values are stored or its policy is recurrent. Of an ensemble, one
    member acts in a lane until the end of its episode.

    Args:
        config: networks, and what is stored.
        exploration: epsilon-greedy, Boltzmann, ...
        num_lanes: B.
        noise: draws the noise of noisy layers at each call; None: no noise.
    """

    exploration: Exploration

    def __init__(
        self, config: ActingConfig, exploration: Exploration, num_lanes: int, noise: torch.Generator | None = None
    ) -> None:
        super().__init__(config, num_lanes, exploration.rng)
        self.exploration = exploration
        self.exploration.num_lanes = num_lanes
        self.stores_q_values = config.stores_q_values or self.policy.recurrent
        ensemble = self.policy.config.ensemble
        self.runs_always = config.stores_value or self.stores_q_values or ensemble is not None
        function = self.policy.values_step
        if ensemble is not None:
            self.parts["members"] = ActingMembers(ensemble.members, num_lanes, self.rng)
            function = self.policy.values_of_members
        elif not self.runs_always:
            function = self.policy.values if exploration.needs_values else self.policy.greedy
        self.runner = config.runner(function, noise)
        self.stores_value = config.stores_value
        self._later_mode = config.later_mode

    def _choose_mode(self) -> None:
        """Runs the network in its later mode; asks again at the next tick while that is to run eagerly."""
        assert self._later_mode is not None
        self.runner.set_mode(self._later_mode())
        if self.runner.mode != "eager":
            self._later_mode = None

    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        mask = rows.slots[-1].mask
        if self._later_mode is not None and not uniform:
            self._choose_mode()
        if not self.runs_always:
            if uniform:
                return self.actions.uniform(self.num_lanes, self.rng, mask)
            return self.exploration.select(lambda: self.runner.run_single(observe(), mask), mask)
        inputs: Inputs = () if self.recurrent_state is None else self.recurrent_state.inputs(rows)
        q, *state = self.runner(observe(), mask, *inputs)
        if "members" in self.parts:
            q = q[np.arange(self.num_lanes), self.parts["members"].of(rows)]
        values = self.exploration.needs_values
        action: ActionArray = (
            self.actions.uniform(self.num_lanes, self.rng, mask)
            if uniform
            else self.exploration.select(lambda: q if values else q.argmax(-1), mask)
        )
        if not self.stores_q_values:
            self.extras = {"value": best_value(q)} if self.stores_value else {}
            return action
        taken = np.take_along_axis(q, action[..., None], -1)[..., 0]
        self.extras = {"q_taken": taken.astype(np.float32), "q_best": q.max(-1).astype(np.float32)}
        if self.recurrent_state is not None:
            self.extras["state"] = inputs[-1]
            (self.recurrent_state.state,) = state
        return action

    def bootstrap_values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> Array:
        return best_value(self.runner(obs, mask)[0])


class SampledActionSelector(ActionSelector):
    """Samples actions from a stochastic policy; stores values and log-probabilities where the policy returns them.

    Args:
        config: networks, and whether values are stored and returned; otherwise they are 0.
        num_lanes: B.
        rng: draws the samples.
    """

    def __init__(self, config: ActingConfig, num_lanes: int, rng: np.random.Generator) -> None:
        super().__init__(config, num_lanes, rng)
        self._act = config.runner(self.policy.act)
        if config.redraws is not None:
            self.parts["drawn"] = HeldNumbers(self.policy, num_lanes, rng, config.redraws)
        if config.action_noise is not None and isinstance(self.actions, BoxActions):
            self.parts["action_noise"] = NoisyActions(config.action_noise, self.actions, num_lanes, rng)
        self._value = config.runner(self.policy.value_step) if config.stores_value else None

    def select(self, rows: Rows, observe: Observe, uniform: bool = False) -> ActionArray:
        action = self._select(rows, observe, uniform)
        noise = self.parts.get("action_noise")
        return action if noise is None else noise(action, rows)

    def _select(self, rows: Rows, observe: Observe, uniform: bool) -> ActionArray:
        mask = rows.slots[-1].mask
        if uniform:
            return self.actions.uniform(self.num_lanes, self.rng, mask)
        obs = observe()
        inputs: Inputs = () if self.recurrent_state is None else self.recurrent_state.inputs(rows)
        held = self.parts.get("drawn")
        drawn = self.policy.draw(self.rng, self.num_lanes) if held is None else held.of(rows)
        action: ActionArray
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
        if self._value is None and "value" in self.extras:
            self.extras["value"] = np.zeros(self.num_lanes, np.float32)
        return action

    def bootstrap_values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> Array:
        if self._value is None:
            return np.zeros(len(next(iter(obs.values()))), np.float32)
        inputs = () if before is None else self._inputs_after(before, self._value)
        return self._value(obs, None, *inputs)[0]

    def _inputs_after(self, before: Before, value: NetworkRunner) -> Inputs:
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


def best_value(q: Array) -> Array:
    """Returns the value of the best action, `[B, A]` to `[B]`; with branches `[B, D, A]` their mean."""
    best: Array = q.max(-1)
    return best.mean(-1) if best.ndim > 1 else best
