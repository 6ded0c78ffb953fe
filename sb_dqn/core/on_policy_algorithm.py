"""Learning from rollouts: what PQN and the policy-gradient methods share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, cast

import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.buffers.on_policy_buffer import OnPolicyBuffer
from sb_dqn.buffers.rollout_buffer import Before
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.core.collector import Collector
from sb_dqn.core.rollout_config import CollectionConfig as CollectionConfig
from sb_dqn.core.rollout_config import RolloutConfig as RolloutConfig
from sb_dqn.core.training_run import TrainingRun
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MissingPart
from sb_dqn.schedules import Schedule
from sb_dqn.types import ActionArray, BoolArray, Observation, Rows, Update

Declared = dict[str, npt.NDArray[Any]]
"""What a policy says of the rows that it leaves, `[B, ...]`: always "value", and what else its objective needs."""


class OnPolicyAlgorithm(BaseAlgorithm):
    """Acts for `n_steps` ticks, learns from what happened in epochs of minibatches, forgets it.

    All actions of a rollout are chosen by the same weights, and so are its values: the action of a row that is open when a
    rollout is full is chosen after the updates. `log_interval` counts rollouts, as in Stable-Baselines3.

    Args:
        rollout: settings of what is collected.
        learning_rate: schedule.
        stream: None where there is no environment yet.
        parts: of BaseAlgorithm.
    """

    default_log_interval: ClassVar[int] = 1
    keeps_replay: ClassVar[bool] = False

    def __init__(
        self, *, rollout: CollectionConfig, learning_rate: Schedule, stream: Stream | None, **parts: Any
    ) -> None:
        super().__init__(**parts)
        self.rollout_settings, self.rate_schedule = rollout, learning_rate
        self._declared: Declared = {}
        self._recordings: dict[int, tuple[torch.Tensor, Any]] = {}
        self._recorded_view: Any = None
        self._recorded_as: tuple[Mode, list[bool]] = ("eager", [])
        if stream is not None:
            self.attach(stream)

    @abstractmethod
    def act(self, obs: Observation, mask: BoolArray | None) -> tuple[ActionArray, Declared]:
        """`[B]` (`[B, D]`) actions that leave the rows where `obs` `[B, *shape]` is seen, and what is declared of these rows."""

    @abstractmethod
    def values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> npt.NDArray[Any]:
        """`[B]` values of observations at which nobody acts, by the current weights: what a rollout bootstraps from.
        `before` is told to policies that remember."""

    @abstractmethod
    def prepare_acting(self, num_lanes: int) -> None:
        """The lanes have changed: whatever is made for a number of them is made anew."""

    def attach(self, stream: Stream) -> None:
        self.stream = stream
        # without a seed of ours the environment keeps the one that it was made with
        env_seed = None if self.arguments["seed"] is None else self.rng.env_seed
        self.actor = Collector(stream, self.choose, env_seed, lambda: self._declared)
        self.normalizer.set_lanes(stream.num_envs)
        self.prepare_acting(stream.num_envs)
        if self._experience is None:
            self._experience = self.rollout_settings.build(stream, self.device, self.normalizer)
            if self.verbose:
                self._introduce(stream, self.rollout)

    def _introduce(self, stream: Stream, rollout: OnPolicyBuffer) -> None:
        """Says once what a user may not expect."""
        print(f"{type(self).__name__} on {self.device}: {rollout.describe()}")
        if stream.options.protocol:
            print(
                f"Atari protocol {stream.options.protocol!r}; choose by make_atari_env(..., protocol='classic' or 'sticky')"
            )

    def choose(self, rows: Rows) -> ActionArray:
        """Actions for the open rows; what is declared of them goes into the next tick's rows."""
        obs = rows.slots[-1].obs if self.blueprint.frame_stack == 1 else self.rollout.open_observation()
        self.normalizer.begin_rollout()
        self.entered(rows)
        action, self._declared = self.act(obs, rows.slots[-1].mask)
        return action

    def entered(self, rows: Rows) -> None:  # nothing to do, on purpose
        """The open rows are about to be acted on; for those who remember."""

    def before_updates(self) -> None:
        if self.rollout.is_full:
            self.counters.iterations += 1
            self.learner.set_learning_rate(self._now(self.rate_schedule))
            self.normalizer.end_rollout()
            self.rollout.complete(self.values)

    def gradient_step(self) -> Update:
        drawn = self.rollout.draw(self.rng.sample)
        places, run = self._recorded(len(drawn))
        places.copy_(drawn)
        self.learner.renew_noise(self.rng.noise)
        gradient, *facts = run(places)
        update = Update(*facts)
        if self.session is not None and self.goes_too_far(update):
            self.session.skip_updates()
        else:
            self.learner.apply(gradient)
        return update

    def goes_too_far(self, update: Update) -> bool:
        """Whether the policy has moved so far that this update, and those that are left, are better not made."""
        return False

    def _sample_and_differentiate(self, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gradient, _, update = self.learner.gradient(self.normalizer.batch(self.rollout.sample(places)))
        return gradient, *update

    def _recorded(self, count: int) -> tuple[torch.Tensor, Any]:
        """Room for the places of a batch of `count`, and what is run on it; another view lies in other memory."""
        view, form = self.rollout.view, self.update_form
        if view is not self._recorded_view or form != self._recorded_as:
            self._recorded_view, self._recorded_as = view, form
            self._recordings.clear()
        if count not in self._recordings:
            places = torch.zeros(count, dtype=torch.int64, device=self.device)
            self._recordings[count] = places, accelerate(self._sample_and_differentiate, (places,), form[0])
        return self._recordings[count]

    def _new_session(self, callback: Any, log_interval: int, progress_bar: bool) -> TrainingRun:
        if self._resuming is None:
            self.counters.iterations = 0
        session = super()._new_session(callback, log_interval, progress_bar)
        session.log_by(lambda: self.counters.iterations)
        return session

    def log_facts(self) -> dict[str, float]:
        return {"time/iterations": self.counters.iterations, "train/learning_rate": self._now(self.rate_schedule)}

    def _now(self, schedule: Schedule) -> float:
        return schedule(self.num_timesteps, self.counters.horizon)

    @property
    def rollout(self) -> OnPolicyBuffer:
        """What was collected since the last updates.

        Raises:
            MissingPart: there is no environment yet, so its size is not known.
        """
        if self._experience is None:
            raise MissingPart("there is no rollout before there is an environment; call set_env(...) first")
        return cast(OnPolicyBuffer, self._experience)

    def save_replay_buffer(self, path: Any) -> Any:
        """Refuses: there is none.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"{type(self).__name__} keeps no replay: what it learns from is forgotten after the updates; save(...) is enough"
        )
