"""The loop, and the verbs that every model has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from sb_dqn.accelerate import Mode, are_small, few_threads, keep_freed_memory
from sb_dqn.actors.inline import InlineActor
from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.counters import Counters
from sb_dqn.algorithms.idle_learning import IdleWarning
from sb_dqn.algorithms.logs import Logs
from sb_dqn.algorithms.recall import predictor_of
from sb_dqn.algorithms.saving import Saving
from sb_dqn.algorithms.session import Session
from sb_dqn.callbacks.compose import as_callback
from sb_dqn.checks import check_int
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.stream import Stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import Exploration
from sb_dqn.learner import Learner
from sb_dqn.normalize import Normalizer
from sb_dqn.policies.base import Policy, describe_images
from sb_dqn.rng import Generators
from sb_dqn.types import ActionArray, Blueprint, Experience, Update

TRIAL = 100
"""Updates of a large net that are run as they are; to record it takes as long as some twenty."""


class BaseAlgorithm(Saving, ABC):
    """A model: a policy, what it learns from, and the verbs `learn`, `predict`, `save`, `load`.

    Final classes build the parts and hand them over.

    Args:
        arguments: the constructor's keyword arguments, for the checkpoint.
        blueprint: the outside of the environment.
        policy: the nets.
        learner: what moves them.
        exploration: how actions are chosen while learning; None: the policy draws them.
        rng: the random streams.
        verbose: 0 silent, 1 logs to stdout, 2 more.
        tensorboard_log: folder for TensorBoard files.
        stats_window_size: episodes in the running means.
        mode: how small functions are run ("eager", "traced", "compiled").
        normalizer: of observations and rewards; None: they are learned from as they are.
    """

    default_log_interval: ClassVar[int] = 4

    def __init__(
        self,
        *,
        arguments: dict[str, Any],
        blueprint: Blueprint,
        policy: Policy,
        learner: Learner,
        exploration: Exploration | None,
        rng: Generators,
        verbose: int,
        tensorboard_log: str | None,
        stats_window_size: int,
        mode: Mode,
        normalizer: Normalizer | None = None,
    ) -> None:
        self.policy, self.exploration, self.verbose = policy, exploration, check_int("verbose", verbose, 0, 2)
        self.arguments = arguments  # from here on nothing with a name of theirs can be assigned
        self.blueprint, self.learner, self.rng = blueprint, learner, rng
        self.logs = Logs(self.verbose, tensorboard_log)
        for line in describe_images(policy) if self.verbose else ():
            print(line)
        self.mode, self._large = mode, not are_small([policy], self.device)
        self.counters = Counters()
        self.statistics = EpisodeStatistics(blueprint.num_envs, check_int("stats_window_size", stats_window_size, 1))
        self.normalizer = Normalizer() if normalizer is None else normalizer
        self.predictor = predictor_of(policy, blueprint, self.action_mask, self.normalizer.observations)
        self.learning = False
        self.session: Session | None = None
        self.stream = None
        self.actor = None
        self._experience: Experience | None = None
        self._interrupted = self._resuming = None
        self._idle = IdleWarning()

    @classmethod
    def loaded_arguments(cls, arguments: dict[str, Any], saved: persistence.Saved) -> dict[str, Any]:
        """Returns the constructor arguments that rebuild a saved model; a class whose defaults changed overrides it.

        Args:
            arguments: of the file, changed by those of `load`.
            saved: the file's content.
        """
        return arguments

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Acts and learns for at least `total_timesteps` env steps over all lanes.

        Args:
            total_timesteps: more of them, whatever was done before.
            callback: None, a function `(locals, globals) -> bool`, a callback, or a list of callbacks.
            log_interval: episodes between log lines; None takes the class's default (4).
            tb_log_name: name of the TensorBoard run; None takes the class's name.
            reset_num_timesteps: count from 0; False goes on counting.
            progress_bar: show one.

        Warns:
            UserWarning: no update is made, because `total_timesteps` is too small; once for a model that has made none.

        Raises:
            ConfigurationError: there is no environment.
            EnvironmentFault: the environment raised or answered NaN; the model is usable as before.
        """
        total = check_int("total_timesteps", total_timesteps, 1)
        interval = check_int("log_interval", self.default_log_interval if log_interval is None else log_interval, 1)
        called_back = None if callback is None else as_callback(callback)
        actor, experience = self._ready()
        if self._resuming is None:
            self._idle.before(experience, total, self.n_envs)
        self.learner.gather(self.policy.parameters())
        self.logs.open(tb_log_name or type(self).__name__, reset_num_timesteps)
        self._begin_counting(total, reset_num_timesteps)
        keep_freed_memory()
        small = are_small([self.policy], self.device, self.learner.batch_size)
        with few_threads(small), self._new_session(called_back, interval, progress_bar) as session:
            for rows in actor.rows():
                session.arrived(rows)
                self.normalizer.arrived(rows)
                experience.extend(rows)
                self.before_updates()
                for _ in session.updates(experience.updates_due()):
                    session.record(self.gradient_step())
                if not session.after(rows):
                    break
        whole = self._resuming is None and self.num_timesteps >= self.counters.horizon
        self._idle.after(experience, total, updated=bool(session.recent), whole=whole)
        return self

    @property
    def update_mode(self) -> Mode:
        """How the next update is run: that of a large net is recorded once a run has turned out to be more than a trial.

        The count goes with the checkpoint, so a run that was resumed does the same.
        """
        waits = self.mode == "traced" and self.learner.steps < TRIAL and self._large
        return "eager" if waits else self.mode

    @property
    def update_form(self) -> tuple[Mode, list[bool]]:
        """What a recording of an update holds for: how it is run, and which parameters learn."""
        return self.update_mode, self.learner.learns

    @property
    def acting_mode(self) -> Mode:
        """How the nets are asked while acting, where nothing else is said: large ones eagerly."""
        return "eager" if self._large else self.mode

    @abstractmethod
    def gradient_step(self) -> Update:
        """One sample, one update, one feedback."""

    @abstractmethod
    def before_updates(self) -> None:
        """What is due by the count of env steps: schedules, target sync."""

    @abstractmethod
    def save_replay_buffer(self, path: Any) -> Any: ...

    @abstractmethod
    def attach(self, stream: Stream) -> None:
        """Builds what depends on the environment: actor and experience."""

    @abstractmethod
    def log_facts(self) -> dict[str, float]:
        """Further numbers for a log line."""

    def _facts(self) -> dict[str, float]:
        restarts = getattr(self.get_env(), "restarts", 0)
        return {**self.log_facts(), **({"rollout/env_restarts": restarts} if restarts else {})}

    def _ready(self) -> tuple[InlineActor, Experience]:
        if self.actor is None or self._experience is None:
            raise ConfigurationError("no environment to learn from; give one by set_env(...) or load(..., env=...)")
        if self.learning:
            raise ConfigurationError("this model is learning already; learn cannot be called from a callback")
        return self.actor, self._experience

    def _new_session(self, callback: Any, log_interval: int, progress_bar: bool) -> Session:
        self.session = Session(
            self,
            counters=self.counters,
            statistics=self.statistics,
            logs=self.logs,
            facts=self._facts,
            finite=self.learner.finite,
            reports=self.learner.objective.reports,
            callback=callback,
            log_interval=log_interval,
            progress_bar=progress_bar,
            action_start=self.predictor.actions.start,
            resumes=self._resumes(),
        )
        return self.session

    def _begin_counting(self, total: int, reset: bool) -> None:
        if reset:
            self.counters.num_timesteps = 0
        self.counters.horizon = self.counters.num_timesteps + total

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        action_masks: Any = None,
        reward: Any = None,
    ) -> tuple[ActionArray, Any]:
        """The action for one observation, or for a batch of them.

        Args:
            observation: of the model's observation space, or with one more axis in front. Where the model stacks
                frames itself, single frames too: `state` then carries the stack.
            state: what the last call returned; None at the start.
            episode_start: `[n]` True where an episode begins: the state is cleared there.
            deterministic: greedy (of a policy that draws its actions: the likeliest); else by `evaluation_eps` if that
                was given, exploring as while learning, or drawn by the policy.
            action_masks: `[A]` or `[n, A]`, true where legal; for MultiDiscrete one branch after the other. None: all,
                or what the observation says where `action_mask=` is a key of it.
            reward: the last one, `[]` or `[n]`; for recurrent policies that read it (`model.reads_reward`) alone.

        Returns:
            Actions of the action space (`[]` or `[n]`; MultiDiscrete adds an axis), and the state for the next call.

        Raises:
            SpaceError: shape, dtype or keys do not fit.
        """
        rng = None if deterministic else self.rng.predict
        asked = (observation, state, episode_start, action_masks, self.exploration, rng, reward)
        answer: tuple[ActionArray, Any] = self.predictor(*asked)
        return answer

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Learns from another environment of the same spaces from now on; its first rows begin new episodes.

        Raises:
            SpaceError: its spaces differ from the model's.
            ConfigurationError: it has another number of lanes than the replay, or `learn` is running.
        """
        if self.learning:
            raise ConfigurationError(
                "this model is learning: set_env would not reach the learn that is running; call it after learn, then learn "
                "again with reset_num_timesteps=False"
            )
        stream = persistence.outside_of(self.blueprint, env, self.action_mask)
        if self._experience is not None and stream.num_envs != self.n_envs:
            raise ConfigurationError(
                f"the environment has {stream.num_envs} lanes, the model's replay was made for {self.n_envs}; give as many"
            )
        if stream.num_envs != self.n_envs:
            self.blueprint = replace(self.blueprint, num_envs=stream.num_envs)
            self.statistics = EpisodeStatistics(stream.num_envs, self.statistics.window)
        self.attach(stream)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Starts all random streams of the model anew; the environment's at the next reset."""
        seed = None if seed is None else check_int("seed", seed, 0)
        fresh = Generators(seed, self.device, self.rng.sample.device)
        self.rng.load_state_dict(fresh.state_dict())
        self.rng.env_seed = fresh.env_seed
        if self.actor is not None:
            self.actor.env_seed = fresh.env_seed
