"""The base class of all algorithms: the training loop, and the methods that every model has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import Self

from sb_dqn.accelerate import Mode, acting_mode, are_small, keep_freed_memory, limit_threads, mode_after
from sb_dqn.acting import action_values
from sb_dqn.acting.action_selection import ActingConfig
from sb_dqn.acting.collector import ActingControl, Collector
from sb_dqn.acting.predictor import Predictor
from sb_dqn.actors.launch import make_collector
from sb_dqn.callbacks.compose import MaybeCallback, as_callback
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.checks import check_int
from sb_dqn.core import checkpointing, model_file
from sb_dqn.core.arguments import bind_arguments, changed_arguments, complete_docstring, complete_signature
from sb_dqn.core.construction import (
    CPU,
    PolicyConfig,
    TrainingConfig,
    environment_for,
    open_environment,
    open_training_env,
)
from sb_dqn.core.model_file import ResumeState
from sb_dqn.core.training_run import Counters, IdleWarning, Logs, TrainingRun
from sb_dqn.devices import check_torch_defaults, explain_full_device, prefer_fast_kernels, training_modes
from sb_dqn.diagnosis.first_learn import FirstLearn
from sb_dqn.diagnosis.measures import Diagnosis
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.streams.open import Stream
from sb_dqn.envs.streams.sb3 import find_normalizer
from sb_dqn.errors import ConfigurationError, MissingPart, checkpoint_errors, no_attribute
from sb_dqn.exploration import Exploration
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.learning.learner import Learner
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.learning.update_runner import UpdateRunner
from sb_dqn.logger import Logger
from sb_dqn.nn.torsos.features import describe_images
from sb_dqn.onnx_export import export_onnx
from sb_dqn.presets import find_preset, list_presets
from sb_dqn.presets.catalogue import class_with_presets, merge_settings
from sb_dqn.presets.preset_env import PresetEnv
from sb_dqn.remotes.files import MAX_SIZE
from sb_dqn.remotes.pretrained import find_model
from sb_dqn.rng import Generators
from sb_dqn.sb3_names import MODEL_ATTRIBUTES, NO_COPY, RENAMED, SETTERS, assignment_error
from sb_dqn.schedules import ScheduleLike, as_schedule
from sb_dqn.types import (
    ActionArray,
    Blueprint,
    EnvLike,
    Experience,
    FloatArray,
    Kwargs,
    Objective,
    Settings,
    State,
    Update,
)

PARTS = ("policy", "exploration")
"""Attributes that have the name of a constructor argument; the constructor sets them once."""


def _forward(path: str) -> Any:
    """Returns a read-only property for an attribute of a part, such as "counters.num_timesteps"."""
    return property(attrgetter(path))


class BaseAlgorithm(ABC):
    """A model: a policy, its learner and an environment, with `learn`, `predict`, `save` and `load`.

    Concrete classes are constructors: they turn their arguments into the configurations below.

    Args:
        env: environment of any supported kind, or a `Blueprint` for a model without one.
        policy: networks and optimizer.
        training: settings that all algorithms share.
        objective: makes the loss from the blueprint of the environment.
        gamma: discount per env step, [0, 1].
        batch_size: transitions per update, for the noise of noisy layers.
        exploration: strategy of Q-policies; None for policies that sample their actions.
        buffer_device: device of the replay; None: that of the networks.
    """

    default_log_interval: ClassVar[int] = 4
    keeps_replay: ClassVar[bool] = True
    """True if there is a replay buffer to save."""
    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "verbose")
    """Constructor arguments that may be assigned later, `model.learning_rate = 1e-4`; `change` applies them."""
    replaced_arguments: ClassVar[Mapping[str, str]] = {}
    """Keywords of a parent class that this class sets itself, with the fix as a sentence without its full stop."""
    defaults: ClassVar[Any] = {}
    """Keywords of the parent classes with another default, those of the parents included."""
    arguments: Kwargs
    """Constructor arguments by name, as passed, with defaults; also attributes of the model."""
    policy: Any
    exploration: Exploration | None
    gamma: float
    learning_rate: ScheduleLike
    tensorboard_log: str | None
    verbose: int
    preset_env: PresetEnv | None = None
    """Environment of the preset that the model was made with."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.defaults = {
            name: value for each in reversed(cls.__mro__) for name, value in vars(each).get("defaults", {}).items()
        }
        cls.__signature__ = complete_signature(cls)  # type: ignore[attr-defined]  # read by inspect.signature
        cls.__doc__ = complete_docstring(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Stores the constructor arguments, which `save` writes to the model file."""
        check_torch_defaults()
        model = super().__new__(cls)
        model.arguments = bind_arguments(cls, args, kwargs)
        return model

    def __repr__(self) -> str:
        """Returns class, policy, environment, and the settings that differ from the defaults."""
        settings = changed_arguments(type(self), self.arguments)
        policy, stream = settings.pop("policy"), vars(self).get("stream")  # there is none before the constructor ends
        env = None if stream is None else stream.env
        words = [repr(policy), repr(env), *(f"{name}={value!r}" for name, value in settings.items())]
        return f"{type(self).__name__}({', '.join(words)})"

    def __init__(
        self,
        env: EnvLike,
        *,
        policy: PolicyConfig[Any],
        training: TrainingConfig,
        objective: Callable[[Blueprint], Objective],
        gamma: float,
        batch_size: int = 1,
        exploration: ExplorationConfig | None = None,
        buffer_device: torch.device | None = None,
    ) -> None:
        self.learners = LearnerGroup.of_process()
        rng = Generators(training.seed, CPU)
        self.blueprint, self.stream = open_environment(env, training.action_mask, training.actors)
        self.policy = policy.build(self.blueprint, rng)
        device = self.learners.use_device(training.choose_device(self.policy, batch_size))
        prefer_fast_kernels(device)
        self.policy.to(device)
        self.rng = Generators(rng.seed, device, buffer_device, self.learners.rank)
        self.exploration = (
            None
            if exploration is None
            else exploration.build(
                self.policy.actions, self.blueprint.num_envs, self.rng.explore, (self.learners.rank, self.learners.size)
            )
        )
        self.discount = gamma
        """The discount per env step; of an annealed one the last."""
        self._normalization = training.normalization(gamma)
        self.normalizer = self._normalization.build(self.blueprint, device, buffer_device)
        self._exploration_config = exploration
        if self.learners.size > 1:
            self.normalizer.exchange = self.learners.gather_array
        online, target = self.policy.networks
        self.learner = Learner(
            online, target, objective(self.blueprint), batch_size, **policy.optimizer,
            max_grad_norm=training.max_grad_norm, precision=training.choose_precision(device), group=self.learners,
        )  # fmt: skip
        self._actors = training.actors
        self.rate_schedule = training.rate_schedule
        self.mode: Mode = policy.mode(self.policy, device, training.torch_compile)
        self.counters = Counters()
        self.statistics = EpisodeStatistics(self.blueprint.num_envs, training.stats_window_size)
        writes = self.learners.rank == 0
        self.logs = Logs(training.verbose if writes else 0, training.tensorboard_log if writes else None)
        self.predictor = Predictor(self.policy, self.blueprint, self.action_mask, self.normalizer.observations)
        for line in describe_images(self.policy) if self.logs.verbose else ():
            print(line)
        self.learning = False
        """True while `learn` runs."""
        self.training_run: TrainingRun | None = None
        """The latest `learn`."""
        self.collector: Collector | None = None
        self._is_large = not are_small([self.policy], self.device)
        self._experience: Any = None
        self.update_runner: UpdateRunner
        self._resume_state: ResumeState | None = None
        """State of an interrupted `learn`, from a full checkpoint, until the model learns again."""
        self._idle = IdleWarning()
        self._first_learn = FirstLearn()

    @classmethod
    def from_preset(
        cls,
        env: str,
        *,
        preset: str | None = None,
        policy: Any = None,
        n_envs: int | None = None,
        env_kwargs: Settings | None = None,
        **changes: object,
    ) -> Self:
        """Makes a model with the tuned settings of its class for an environment.

        Args:
            env: id of an environment; `sb_dqn.presets.list(env=...)` returns its presets, which also say for how many env steps to
                `learn`.
            preset: name of another entry, or a .yaml file, as `sb_dqn.presets.find_preset` takes it; None: the one for `env`.
            policy: policy instead of that of the preset.
            n_envs: number of lanes instead of that of the preset.
            env_kwargs: keywords of the environment, over those of the preset. Wherever the model takes an id, as in `evaluate_policy`,
                `EvalCallback` and `load`, this one has these keywords, too; a model file keeps them if they are those of the preset.
            **changes: constructor arguments over those of the preset; `policy_kwargs` are merged.

        Raises:
            ConfigurationError: `env` is no id, or there is no preset of this class for it.
        """
        if not isinstance(env, str):
            raise ConfigurationError(
                f"env must be the id of an environment, got {type(env).__name__}. Pass its id, with n_envs and env_kwargs; set_env "
                f"puts another environment in its place."
            )
        name = class_with_presets(cls)
        found = find_preset(name, env, preset)
        if found is None:
            raise ConfigurationError(
                f"env must be an environment for which {name} has a preset, got {env!r}. Use one of "
                f"{', '.join(each.name for each in list_presets(name))}, or call {cls.__name__}(policy, env)."
            )
        settings = merge_settings(found.settings, changes)
        keywords = {**found.env_kwargs, **(env_kwargs or {})}
        lanes = found.n_envs if n_envs is None else check_int("n_envs", n_envs, 1)
        stream = open_training_env(env, lanes, keywords, settings)
        make: Any = cls
        try:
            model: Self = make(policy or found.policy, stream, **settings)
        except BaseException:
            stream.close()
            raise
        model.preset_env = PresetEnv(env, found.name, keywords)
        return model

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        env_id: str | None = None,
        *,
        filename: str | None = None,
        env: EnvLike = None,
        device: str | torch.device = "auto",
        revision: str | None = None,
        token: str | None = None,
        max_size: int = MAX_SIZE,
        **kwargs: Any,
    ) -> Self:
        """Returns a trained model from a repository of the Hugging Face hub, or from a folder. No code in it is run.

        Args:
            source: `USER/NAME` on the hub, which needs the extra `hub`; or a folder: that of a run, one that `pull` or `push`
                wrote, or any folder with runs below it, such as that of `sb-dqn benchmark`. A folder that exists comes first.
            env_id: environment of the agent; None: the only one on which `source` has agents of this class. Of several runs
                the one with the highest mean return after training is loaded.
            filename: model file, such as "best_model.zip"; None: `model.zip`, or the only other zip.
            env: environment to learn from; None loads a model that can predict.
            device: "auto", "cpu", "cuda".
            revision: branch, tag or commit on the hub; None: the newest.
            token: access token of the hub; None: that of `hf auth login` or of the environment variable `HF_TOKEN`.
            max_size: bytes that the model file may have, >= 1.
            **kwargs: further arguments of `load`.

        Raises:
            ConfigurationError: there is no such agent, its file is larger, or the hub cannot be reached.
            CheckpointError: a file is damaged, of another class, or a link out of the folder.
        """
        path = find_model(cls, source, env_id, filename, revision, token, max_size)
        return cls.load(path, env=env, device=device, **kwargs)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        _resume_from: ResumeState | None = None,
    ) -> Self:
        """Trains the model for at least `total_timesteps` env steps over all lanes.

        Gradients are computed, without autocast, also under `torch.no_grad`, `torch.inference_mode` or `torch.autocast`.

        Args:
            total_timesteps: number of further env steps.
            callback: None, a function `(locals, globals) -> bool`, a callback, or a list of callbacks.
            log_interval: episodes (on-policy: rollouts) between log lines; None: the default of the class.
            tb_log_name: name of the TensorBoard run; None: name of the class.
            reset_num_timesteps: start counting from 0; False continues counting.
            progress_bar: show a progress bar.

        Warns:
            UserWarning: no update is made, because `total_timesteps` is too small; once for a model that has made none. In the
                first `learn` of a model, what learning cannot work with: see `sb_dqn.diagnosis.first_learn.FirstLearn`.

        Raises:
            ConfigurationError: the model has no environment, torch's default dtype or device is not float32 or the CPU, or the
                model was made in inference mode.
            EnvironmentFault: the environment raised or returned NaN; the model stays usable.
        """
        total = check_int("total_timesteps", total_timesteps, 1)
        interval = check_int("log_interval", self.default_log_interval if log_interval is None else log_interval, 1)
        callback = None if callback is None else as_callback(callback)
        collector, experience = self._check_ready()
        if _resume_from is None:
            self._idle.warn_before(experience, total, self.n_envs)
            self._first_learn.check_settings(self, total)
        self.learner.store.gather(self.policy.parameters())
        self.logs.open(tb_log_name or type(self).__name__, reset_num_timesteps)
        self._start_counting(total, reset_num_timesteps, resumed=_resume_from is not None)
        keep_freed_memory()
        small = are_small([self.policy], self.device, self.learner.batch_size)
        progress_bar = progress_bar and self.rank == 0
        session = None if _resume_from is None else _resume_from.session
        self.training_run = run = TrainingRun(self, callback, interval, progress_bar, session)
        self._resume_state = None
        with (
            training_modes(),
            limit_threads(small),
            explain_full_device(self.arguments),
            self._connected_learners(calls_back=callback is not None or progress_bar),
            run,
        ):
            first = None if _resume_from is None else checkpointing.restore_tick(self, _resume_from)
            proceed = collector.proceed
            for rows in collector.rows(first):  # selects actions and steps the environments
                run.count_tick(rows)
                self.normalizer.update(rows)
                experience.extend(rows)
                if proceed is not None:
                    proceed()
                self.before_updates()
                for _ in run.each_update(experience.updates_due()):
                    run.add_update(self.gradient_step())
                if self.counters.lifetime >= self._first_learn.next_look:
                    self._first_learn.check_rows(self, experience)
                if not run.finish_tick(rows):
                    break
        complete = _resume_from is None and self.num_timesteps >= self.counters.horizon
        self._idle.warn_after(experience, total, updated=bool(run.recent), whole=complete)
        self._first_learn.check_rows(self, experience, ended=True)
        return self

    def gradient_step(self) -> Update:
        """Samples a batch and makes one update."""
        return self.update_runner.step(self.update_mode)

    def stops_early(self, update: Update) -> bool:
        """Returns True if this update and the others that are due now are not to be applied."""
        return False

    @abstractmethod
    def before_updates(self) -> None:
        """Applies what depends on the number of env steps: schedules, target updates."""

    @abstractmethod
    def attach(self, stream: Stream) -> None:
        """Makes the parts that depend on the environment: collector and buffer."""

    @abstractmethod
    def save_replay_buffer(self, path: Target) -> Any: ...

    @abstractmethod
    def _log_count(self) -> int:
        """Returns the number that `log_interval` refers to."""

    @abstractmethod
    def before_acting(self) -> bool:
        """Applies what depends on the number of env steps; returns True if the next actions are drawn uniformly."""

    @property
    def precision(self) -> str:
        """Precision of the updates: "fp32" or "bf16"."""
        return "fp32" if self.learner.low is None else "bf16"

    @property
    def update_mode(self) -> Mode:
        """Mode of the next update."""
        return mode_after(self.mode, self.learner.optimizer_step.steps, self._is_large)

    @property
    def acting_mode(self) -> Mode:
        """Mode of the networks while acting."""
        return acting_mode(self.policy, self.device, self.mode, self.policy.recurrent)

    def acting_settings(self) -> Kwargs:
        """Returns further fields of `ActingConfig`."""
        return {}

    def log_facts(self) -> dict[str, float]:
        """Returns further entries of a log line."""
        rate = self.rate_schedule(self.num_timesteps, self.counters.horizon)
        entries = {} if self.exploration is None else {"rollout/exploration_rate": self.exploration.rate}
        collected = {} if self.collector is None else self.collector.log_facts()
        return entries | {"train/learning_rate": rate} | collected

    def _check_ready(self) -> tuple[Collector, Experience]:
        if self.collector is None or self._experience is None:
            raise ConfigurationError(
                "the model must have an environment to learn from, got None. Call set_env(...) or load(..., env=...)."
            )
        if self.learning:
            raise ConfigurationError(
                "learn must not be called while the model is learning, for example from a callback. Call it after learn."
            )
        if self.learner.flat.is_inference():
            raise ConfigurationError(
                "the model must be made outside of torch.inference_mode() to learn, got parameters without gradients. Make or load "
                "it before; learn may be called inside."
            )
        return self.collector, self._experience

    @contextmanager
    def _connected_learners(self, calls_back: bool) -> Iterator[None]:
        """Connects the learners, if there are several, and copies parameters and optimizer of the first one to the others."""
        learner, counters = self.learner, self.counters
        settings = {
            "the algorithm": type(self).__name__,
            "n_envs": self.n_envs,
            "batch_size": learner.batch_size,
            "the number of parameters": learner.flat.numel(),
            "num_timesteps": counters.num_timesteps,
            "total_timesteps": counters.horizon - counters.num_timesteps,
            "the number of updates so far": counters.n_updates,
        }
        with self.learners.connected(settings, calls_back):
            if self.learners.size > 1:
                self.learners.broadcast([learner.flat, learner.flat_target, *self.policy.buffers()])
                learner.load_state_dict(self.learners.gather(learner.state_dict())[0])
                learner.refresh()
            yield

    def _use_experience(self, experience: Any) -> None:
        """Takes a new buffer to learn from; it agrees with those of the other learners, if there are several."""
        self._experience = experience
        if self.learners.size > 1:
            experience.synchronize(self.learners.minimum)
        self.update_runner = UpdateRunner(experience, self.learner, self.normalizer, self.rng, self.stops_early)

    def _start_counting(self, total: int, reset: bool, resumed: bool) -> None:
        if reset:
            self.counters.num_timesteps = 0
        if not resumed:
            self.counters.iterations = 0
        self.counters.horizon = self.counters.num_timesteps + total

    def _print_summary(self, stream: Stream, experience: Any) -> None:
        """Prints once what a user may not expect."""
        low = " in bf16" if self.precision == "bf16" else ""
        print(f"{type(self).__name__} on {self.device}{low}: {experience.describe()}")
        if stream.options.protocol:
            print(
                f"Atari protocol {stream.options.protocol!r}; choose by make_atari_env(..., protocol='classic' or 'sticky')"
            )

    def _make_collector(
        self, stream: Stream, observe: Callable[..., Any] | None = None, *, twin: bool = False, **own: Any
    ) -> None:
        """Makes the collector of an environment, and ends that of the one before.

        Args:
            stream: the environment.
            observe: see `ActingControl`.
            twin: act by the low-precision copy of the networks.
            own: what the actors of a kind of algorithm have, see `ActingConfig`.
        """
        policy = self.policy
        if twin:
            acts_online = policy.acting_network is policy.networks[0]
            policy = policy.with_net(self.learner.online if acts_online else self.learner.target)
        config = ActingConfig(
            **own,
            **self.acting_settings(),
            mode="eager" if own.get("later_mode") else self.acting_mode,
            policy=policy,
            exploration=self._exploration_config,
            transform=self.normalizer.observations,
            spectral_weights=self.learner.store.acting_weights(policy.acting_network),
            normalization=self._normalization,
            action_mask=self.action_mask,
            num_envs=self.n_envs,
            learner=(self.rank, self.world_size),
        )
        control = ActingControl(
            self.before_acting,
            self.policy,
            self.normalizer,
            self.rng,
            None if self.arguments["seed"] is None else self.rng.env_seed,  # else as the environment was made
            self.exploration,
            lambda: self.counters.n_updates,
            observe,
        )
        self.stream = stream
        if self.collector is not None:
            self.collector.close()
        self.collector = make_collector(self._actors, stream, config, control)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        action_masks: object = None,
        reward: object = None,
    ) -> tuple[ActionArray, Any]:
        """Returns the action for one observation, or for a batch of them.

        Args:
            observation: one observation of the model's observation space, or a batch with one more leading axis. Where the
                model stacks frames itself, single frames too: `state` then holds the stack.
            state: the state that the last call returned; None at the start.
            episode_start: `[n]`, True where an episode begins: the state is cleared there.
            deterministic: greedy, or the most likely action of a policy that samples. False: epsilon-greedy by
                `evaluation_eps` if it was set, else as while learning, or sampled.
            action_masks: `[A]` or `[n, A]`, True where legal; for MultiDiscrete one branch after the other. None: all,
                or those in the observation where `action_mask=` is a key of it.
            reward: the last reward, `[]` or `[n]`; only for recurrent policies that read it (`model.reads_reward`).

        Returns:
            Actions of the action space (`[]` or `[n]`; MultiDiscrete adds an axis), and the state for the next call.

        Raises:
            SpaceError: shape, dtype or keys differ from the model's spaces.
        """
        rng = None if deterministic else self.rng.predict
        return self.predictor(observation, state, episode_start, action_masks, self.exploration, rng, reward)

    def q_values(
        self,
        observation: Any,
        state: Any = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        action_masks: object = None,
        reward: object = None,
    ) -> FloatArray:
        """Returns the action values by which `predict(deterministic=True)` selects.

        They are the means of a distribution (distorted by `risk`, if set) and of the members of an ensemble, and in the units of the
        loss: discounted sums of normalized rewards with `normalize_rewards`, rescaled ones with the value rescaling of R2D2.

        Args: as in `predict`.

        Returns:
            `[A]` for one observation, `[n, A]` for a batch; `[D, A]` and `[n, D, A]` for branches. The values of illegal
            actions, and of those that a shorter branch does not have, are -2^100.

        Raises:
            MissingPart: the algorithm learns no action values.
            SpaceError: shape, dtype or keys differ from the model's spaces.
        """
        return action_values.q_values(self, observation, state, episode_start, action_masks, reward)

    def uncertainty(self, observation: Any, action_masks: object = None) -> FloatArray:
        """Returns how much the members of an ensemble disagree: the standard deviations of their action values.

        It is small where the members have learned the same value, and otherwise that of their different initial weights and priors.

        Args: as in `predict`.

        Returns:
            In the shape and the units of `q_values`; 0 for illegal actions.

        Raises:
            MissingPart: the model has no ensemble.
            SpaceError: shape, dtype or keys differ from the model's spaces.
        """
        return action_values.uncertainty(self, observation, None, None, action_masks, None)

    def distribution(
        self,
        observation: Any,
        state: Any = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        action_masks: object = None,
        reward: object = None,
    ) -> action_values.ReturnDistribution:
        """Returns the distribution of the return that the model has learned, for each action.

        It is risk-neutral, and in the units of `q_values`.

        Args: as in `predict`; `action_masks` has no effect.

        Returns:
            Atoms and probabilities, both `[(D,) A, Z]` for one observation and `[n, (D,) A, Z]` for a batch.

        Raises:
            MissingPart: the algorithm learns no distribution of the return.
            SpaceError: shape, dtype or keys differ from the model's spaces.
        """
        return action_values.distribution(self, observation, state, episode_start, action_masks, reward)

    def export_onnx(self, path: str | Path) -> Path:
        """Writes the greedy policy as an ONNX file, with preprocessing and normalization of the observations inside.

        Inputs and outputs are in the documentation, "Action values and export". The batch axis is dynamic. The file is compared
        with `predict` and `q_values` before it replaces an older one, if onnxruntime is installed.

        Args:
            path: of the file; ".onnx" is added where there is no suffix.

        Returns:
            The path of the file.

        Raises:
            ConfigurationError: the extra "onnx" is not installed, the networks cannot be exported, or the exported ones
                compute other results.
        """
        return export_onnx(self, path).path

    def diagnose(self, env: EnvLike = None, episodes: int = 5, since: Diagnosis | None = None) -> Diagnosis:
        """Measures what tells why a model does not learn: dead units, values above all returns, a target that is never copied ...

        `print(model.diagnose())` shows a table and the findings, each with the setting that usually helps. The measures are of the
        newest stored rows and of one update that is made on a copy; nothing of the model changes.

        Args:
            env: an environment for greedy episodes, which are measured in place of stored rows, as `evaluate_policy` takes it; None
                plays none. A loaded model without stored rows needs one for most measures.
            episodes: number of these episodes.
            since: an earlier diagnosis; weights that have not changed since are named.
        """
        from sb_dqn.diagnosis.model import diagnose

        return diagnose(self, self._experience, env, episodes, since)

    def set_env(self, env: EnvLike, force_reset: bool = True) -> None:
        """Changes the environment to another one of the same spaces; its first rows begin new episodes.

        Args:
            env: environment of any supported kind.
            force_reset: no effect, since each `learn` begins new episodes; for programs for Stable-Baselines3.

        Raises:
            SpaceError: its spaces differ from the model's.
            ConfigurationError: its number of lanes differs from the replay's, or `learn` is running.
        """
        if self.learning:
            raise ConfigurationError(
                "set_env must not be called while the model is learning. Call it after learn, then learn again with "
                "reset_num_timesteps=False."
            )
        stream = environment_for(self.blueprint, env, self.action_mask, self._actors, self.preset_env)
        if self._experience is not None and stream.num_envs != self.n_envs:
            raise ConfigurationError(
                f"the environment must have {self.n_envs} lanes, as the model's buffer, got {stream.num_envs}. Make it with "
                f"n_envs={self.n_envs}."
            )
        if stream.num_envs != self.n_envs:
            self.blueprint = replace(self.blueprint, num_envs=stream.num_envs)
            self.statistics = EpisodeStatistics(stream.num_envs, self.statistics.window)
        self.attach(stream)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Restarts all random streams of the model; the environment's at the next reset."""
        seed = None if seed is None else check_int("seed", seed, 0, 2**63 - 1)
        fresh = Generators(seed, self.device, self.rng.sample.device, self.rank)
        self.rng.load_state_dict(fresh.state_dict())
        self.rng.env_seed = fresh.env_seed
        if self.collector is not None:
            self.collector.env_seed = fresh.env_seed

    # -- files

    def save(
        self,
        path: str | Path | IO[bytes],
        *,
        full: bool = False,
        trust: bool = False,
        incremental: bool = False,
        background: bool = False,
    ) -> Any:
        """Writes parameters, optimizer, counters and exploration to a zip file, atomically.

        Args:
            path: `.zip` is added where there is no suffix, and to the name of a folder, with a warning: the file then lies
                next to the folder.
            full: also write what an exact continuation needs: replay or rollout, environment state, random generators,
                statistics, log and callbacks; `load(path, env=...).resume()` continues there.
            trust: pickle an environment that has no state of its own format; loading the file then needs `trust=True` too.
            incremental: with `full`: write the rows of a replay to the folder `replay_rows` next to the zip, which all zips
                of that folder share. Only new rows are written, and rows that no zip refers to are deleted.
            background: with `incremental`: copy the data and return; a thread writes it.

        Returns:
            The path; with `background` a `BackgroundWrite`, whose `wait()` returns the path once it exists, or raises.

        Raises:
            CheckpointError: a constructor argument cannot be written.
            ConfigurationError: `full` before the first `learn`; `incremental` without it, or into an open file;
                `background` without `incremental`.
        """
        return checkpointing.save_model(self, path, full, trust, incremental, background)

    @classmethod
    def load(
        cls,
        path: str | Path | IO[bytes],
        env: EnvLike = None,
        device: str | torch.device = "auto",
        custom_objects: Settings | None = None,
        trust: bool = False,
        **kwargs: object,
    ) -> Self:
        """Returns a model from a zip file that `save` wrote. No code in the file is run.

        Zips of Stable-Baselines3 are read, too (DQN, QRDQN, PPO, A2C, SAC): parameters, plain settings and counts.

        Args:
            path: of the zip, or of a folder: its full checkpoint with the most steps.
            env: environment to learn from; None loads a model that can predict. The id of the model's preset opens as many lanes as
                the model had, with the keywords of the preset.
            device: "auto", "cpu", "cuda".
            custom_objects: values that replace constructor arguments of the file, by name.
            trust: import or unpickle objects that the file names (own policy classes, functions as schedules, environments).
            kwargs: constructor arguments to change.

        Raises:
            CheckpointError: the file is damaged, foreign, or needs trust.
            SpaceError: the spaces of `env` differ from the model's.
        """
        model: Self = checkpointing.load_model(cls, path, env, device, custom_objects, trust, kwargs)
        return model

    @classmethod
    def loaded_arguments(cls, arguments: Kwargs, saved: model_file.SavedModel) -> Kwargs:
        """Returns the constructor arguments that rebuild a saved model; a class whose defaults have changed overrides it.

        Args:
            arguments: those of the file, changed by those of `load`.
            saved: contents of the file.
        """
        return arguments

    def resume(self, callback: MaybeCallback = None, progress_bar: bool = False) -> Self:
        """Finishes the `learn` that a full checkpoint interrupted, with its horizon and log interval.

        On the same machine and versions the result equals that of the uninterrupted run bit for bit, if the file holds the
        state of the environment; otherwise new episodes begin, and the interrupted ones count as truncated.

        Args:
            callback: the callback of that `learn`; its counts continue.
            progress_bar: show a progress bar.

        Raises:
            ConfigurationError: the model does not come from a full checkpoint, or has learned since.
        """
        state = self._resume_state
        if state is None:
            raise ConfigurationError(
                "there is nothing to resume: the model must come from load(path, env=...) of a checkpoint saved with full=True, and "
                "must not have learned since. Use learn(more, reset_num_timesteps=False) to add steps to any model."
            )
        left = self.counters.horizon - self.counters.num_timesteps
        if left <= 0:
            return self
        with checkpoint_errors("the file does not describe a learn"):
            interval, name = int(state.session["log_interval"]), str(state.session["name"])
        return self.learn(left, callback, interval, name, False, progress_bar, _resume_from=state)

    def get_parameters(self) -> dict[str, State]:
        """Returns a copy of the state of the policy (online and target networks) and of the optimizers, by name."""
        return checkpointing.get_parameters(self)

    def set_parameters(self, load_path_or_dict: object, exact_match: bool = True, device: str = "auto") -> None:
        """Sets parameters from a dict such as `get_parameters` returns, or from a zip file.

        Raises:
            ConfigurationError: names or shapes do not fit; nothing has changed.
        """
        checkpointing.set_parameters(self, load_path_or_dict, exact_match)

    def after_tick(self, action: Callable[[], object]) -> None:
        """Calls `action` when this tick is over, after all callbacks and the log; at once if `learn` is not running."""
        if self.learning and self.training_run is not None:
            self.training_run.calls_after_tick.append(action)
        else:
            action()

    def saved_parts(self) -> dict[str, Any]:
        """Returns the parts whose state every checkpoint holds, by name."""
        parts: dict[str, Any] = {"learner": self.learner}
        if self.exploration is not None:
            parts["exploration"] = self.exploration
        if self.normalizer.active:
            parts["normalizer"] = self.normalizer
        return parts | {"counters": self.counters, "rng": self.rng}

    def run_parts(self) -> dict[str, Any]:
        """Returns the further parts whose state a full checkpoint holds, without the buffer."""
        acting = {} if self.collector is None else self.collector.saved_parts()
        return {"statistics": self.statistics, **acting}

    # -- attributes

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            """Returns a constructor argument.

            Raises:
                AttributeError: no argument has that name. The message names the counterpart of an SB3 attribute.
            """
            arguments = self.__dict__.get("arguments", {})  # empty while a copy is being made
            if name in arguments:
                return arguments[name]
            part = getattr(type(self), name, None)
            if isinstance(part, property):  # its getter raised AttributeError; raise that error again, not a new one
                return part.fget(self)
            raise no_attribute(self, name, MODEL_ATTRIBUTES, arguments)

        def __setattr__(self, name: str, value: object) -> None:
            """Sets an attribute or a changeable argument, except those that cannot have an effect any more.

            Raises:
                ConfigurationError: it is a constructor argument, a computed attribute, or a name of SB3.
            """
            arguments = self.__dict__.get("arguments", {})
            if name in self.changeable and name in arguments:
                # another dict, since a copy of the model keeps its own
                self.__dict__["arguments"] = {**arguments, name: self.change(name, value)}
                return
            read_only = getattr(getattr(type(self), name, None), "fset", self) is None
            replaced = self.replaced_arguments
            reserved = name in SETTERS or name in RENAMED or name in arguments or name in replaced
            first = name in PARTS and name not in self.__dict__
            if read_only or (reserved and not first):
                raise ConfigurationError(assignment_error(type(self).__name__, name, value, arguments, replaced))
            super().__setattr__(name, value)

    def change(self, name: str, value: object) -> Any:
        """Applies a new value of an argument in `changeable`, and returns it as the files of the model have it.

        Raises:
            ConfigurationError: it is out of range.
        """
        if name == "learning_rate":
            self.rate_schedule = as_schedule(name, value)
        elif name == "verbose":
            value = check_int(name, value, 0)
            self.logs.verbose = value if self.rank == 0 else 0
        return value

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        raise ConfigurationError(NO_COPY.format("copy.deepcopy", type(self).__name__))

    def __copy__(self) -> Self:
        """Returns another object with the same parts."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce_ex__(self, protocol: object) -> Any:
        raise ConfigurationError(NO_COPY.format("pickle", type(self).__name__))

    def get_env(self) -> EnvLike:
        """Returns the environment as it was passed or made; None if there is none."""
        return None if self.stream is None else self.stream.env

    def get_vec_normalize_env(self) -> Any:
        """Returns the `VecNormalize` of a Stable-Baselines3 `VecEnv`; None if the environment has none."""
        return find_normalizer(self.get_env())

    def close(self) -> None:
        """Ends the processes of `actors`; the next `learn` starts them again. An environment that was passed stays open.

        Raises:
            ConfigurationError: `learn` is running.
        """
        if self.learning:
            raise ConfigurationError(
                "close must not be called while the model is learning. End learn by a callback that returns False first."
            )
        if self.collector is not None:
            self.collector.close()

    def set_logger(self, logger: Logger) -> None:
        """Logs to `logger`; the caller closes it."""
        self.logs.use_logger(logger)

    def dump_logs(self) -> None:
        """Writes a log line now (while learning)."""
        if self.training_run is not None:
            self.training_run.write_log()

    env = property(lambda self: self.get_env())
    logger = _forward("logs.logger")
    num_timesteps = _forward("counters.num_timesteps")
    n_envs = _forward("blueprint.num_envs")
    observation_space = _forward("blueprint.observation_space")
    action_space = _forward("blueprint.action_space")
    seed = _forward("rng.seed")
    """The seed that was passed, or drawn."""
    device = _forward("learner.flat.device")
    rank = _forward("learners.rank")
    """Number of this learner, from 0; 0 without `torchrun`."""
    world_size = _forward("learners.size")
    """Number of learners."""
    reads_reward = _forward("policy.reads_reward")
    """True if `predict` needs the last reward."""
    ep_info_buffer = _forward("statistics.ep_info_buffer")
    ep_success_buffer = _forward("statistics.ep_success_buffer")
    """1 or 0 for each of the latest episodes, where the environment reports `is_success`."""
    _total_timesteps = _forward("counters.horizon")
    _n_updates = _forward("counters.n_updates")

    @property
    def _current_progress_remaining(self) -> float:
        """1 at the start of a `learn`, 0 at its horizon."""
        return 1.0 - float(self.num_timesteps / max(1, self._total_timesteps))

    @property
    def action_mask(self) -> str | None:
        """Source of the legal actions: "info", a key of the observation, or None."""
        return self.arguments.get("action_mask")

    @property
    def exploration_rate(self) -> float:
        """Epsilon, on a ladder the mean over the lanes; the temperature of Boltzmann exploration."""
        if self.exploration is None:
            raise MissingPart(
                f"exploration_rate requires an algorithm that explores by a schedule, got {type(self).__name__}, which samples "
                f"its actions. Check hasattr(model, 'exploration_rate') first."
            )
        return self.exploration.rate
