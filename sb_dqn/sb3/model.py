"""The conventions of Stable-Baselines3 for the algorithms of this library, as one mixin."""

from __future__ import annotations

import copy
import inspect
import io
import math
import warnings
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import IO, TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm as TheirAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm as TheirOffPolicy
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm as TheirOnPolicy
from stable_baselines3.common.preprocessing import maybe_transpose
from stable_baselines3.common.utils import get_system_info, set_random_seed
from typing_extensions import Self

from sb_dqn.accelerate import are_small, limit_threads
from sb_dqn.checkpoint import model_info
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.core.arguments import bind_arguments, check_keywords
from sb_dqn.core.off_policy_algorithm import OffPolicyAlgorithm
from sb_dqn.devices import training_modes
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, SpaceError, user_stacklevel
from sb_dqn.sb3.logs import MonitorStatistics, TheirLogs
from sb_dqn.sb3.networks import HasModel
from sb_dqn.sb3.own_policies import ActsByForward
from sb_dqn.sb3.policy import class_to_construct, policy_classes
from sb_dqn.sb3.replay import ReplayView, RolloutArrays, stream_of, view_of
from sb_dqn.sb3.settings import (
    imported_modules_of,
    native_custom_objects,
    native_device,
    native_env,
    native_policy_kwargs,
    native_schedule,
    native_settings,
    saved_settings,
)
from sb_dqn.sb3_files import is_sb3_zip, read_sb3_zip
from sb_dqn.sb3_files.settings import blueprint_of, with_their_layers
from sb_dqn.spaces import as_observation
from sb_dqn.types import Blueprint, EnvLike, Kwargs


class ArgumentAssertion(ConfigurationError, AssertionError):
    """Argument that is out of range; their constructors raise a `ValueError` or an `AssertionError`."""


class SpaceAssertion(SpaceError, ArgumentAssertion):
    """Space that is not supported; their constructors raise an `AssertionError`."""


class StateMismatch(ConfigurationError, RuntimeError):
    """Parameters of other names or shapes; torch raises a `RuntimeError`."""


THEIR_LOOP = (
    "train", "collect_rollouts", "_setup_model", "_on_step", "_sample_action", "_store_transition", "_dump_logs",
)  # fmt: skip
"""Methods of their algorithms that are called by their training loop only."""

Algorithm: Any = object
"""The algorithm that a subclass of the mixin lists last."""


def _lanes_of(path: Target) -> int:
    """Returns the number of environments of the model in a file."""
    if is_sb3_zip(path):
        return blueprint_of(read_sb3_zip(path)).num_envs
    return int(model_info(path)["spaces"]["num_envs"])


class Sb3Conventions(Algorithm):  # type: ignore[misc]  # it uses the methods and attributes of the algorithm
    """Signature, environments, frequencies, logger and attributes of Stable-Baselines3.

    A subclass lists this class first and the algorithm last, and names their class:
    `class DQN(Sb3Conventions, dqn.DQN, theirs=...)`.
    """

    theirs: ClassVar[type[Any]]
    """Class of Stable-Baselines3 or its contrib package with the same name."""
    native: ClassVar[type[Any]]
    """The algorithm of this library."""
    their_signature: ClassVar[inspect.Signature]

    def __init_subclass__(cls, theirs: type[Any] | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if theirs is None:  # a user's subclass
            if unused := [name for name in THEIR_LOOP if name in vars(cls)]:
                raise ConfigurationError(
                    f"{cls.__name__} must not define {', '.join(unused)}, which the training loop of this library does not call, got "
                    f"such a class. Keep Stable-Baselines3 for it, or change the loss as the page 'Adding a variant' shows."
                )
            return
        cls.theirs = theirs
        cls.native = cls.__bases__[-1]
        own = inspect.signature(cls).parameters  # every keyword of this library
        found = dict(inspect.signature(theirs).parameters)
        further = [each.replace(kind=each.KEYWORD_ONLY) for name, each in own.items() if name not in found]
        cls.their_signature = inspect.Signature([*found.values(), *further])
        cls.__signature__ = cls.their_signature  # read by inspect.signature
        TheirAlgorithm.register(cls)
        (TheirOffPolicy if issubclass(cls, OffPolicyAlgorithm) else TheirOnPolicy).register(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Leaves the arguments to the constructor, which a user's subclass may call with others."""
        return object.__new__(cls)

    def __init__(self, *args: object, **kwargs: object) -> None:
        try:
            policy, env, settings = self._native_call(args, kwargs)
            self.arguments = bind_arguments(self.native, (policy, env), settings)
            if settings.get("seed") is not None:
                set_random_seed(settings["seed"])
            super().__init__(class_to_construct(self._package(), policy), env, **settings)
        except SpaceError as error:
            raise SpaceAssertion(str(error)) from None
        except ConfigurationError as error:
            raise ArgumentAssertion(str(error)) from None
        self.policy.__dict__["_model"] = ref(self)
        for net in self.policy.modules():
            if isinstance(net, HasModel):
                net.__dict__["_model"] = ref(self)
        self._check_target_interval()
        self.logs = TheirLogs(self.verbose, self.tensorboard_log)
        self._count_by_monitor()
        self._set_rate()

    def _check_target_interval(self) -> None:
        target = self.target_config if self.keeps_replay else None
        if target is not None and not target.by_updates and target.interval < self.n_envs:
            warnings.warn(
                f"The number of environments used is greater than target_update_interval: each of their {self.n_envs} steps updates "
                f"the target network, got an interval of {target.interval}. Raise target_update_interval.",
                stacklevel=user_stacklevel(),
            )

    def _set_rate(self) -> None:
        """Sets the learning rate that the optimizer has before `learn` sets it, for programs that step it."""
        self.learner.set_learning_rate(self.lr_schedule(self._current_progress_remaining))

    @classmethod
    def _native_call(cls, args: tuple[Any, ...], kwargs: Kwargs) -> tuple[Any, Any, Kwargs]:
        """Returns policy, environment and keywords for this library's constructor; those of `load` are so already."""
        env = kwargs.get("env", args[1] if len(args) > 1 else None)
        if isinstance(env, (Stream, Blueprint)):
            rest = {name: value for name, value in kwargs.items() if name not in ("policy", "env")}
            return kwargs.get("policy", args[0] if args else None), env, rest
        check_keywords(
            cls.native, {name: kwargs[name] for name in kwargs.keys() - cls.their_signature.parameters.keys()}
        )
        bound = cls.their_signature.bind(*args, **kwargs)
        passed = set(bound.arguments)
        bound.apply_defaults()
        defaults = inspect.signature(cls.theirs).parameters
        arguments = {name: value for name, value in bound.arguments.items() if name in passed or name in defaults}
        env = cls.wrap_env(arguments.pop("env"), int(arguments.get("verbose") or 0))
        classes = [*cls.theirs.policy_aliases.items(), *policy_classes(cls._package()).items()]
        policy = arguments.pop("policy")
        policy = next((alias for alias, known in classes if policy is known), policy)
        policy_kwargs = arguments.pop("policy_kwargs", None)
        settings = native_settings(cls.__name__, arguments, getattr(env, "num_envs", 1))
        space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
        policy_kwargs = with_their_layers(cls.native.__name__, policy, policy_kwargs)
        settings["policy_kwargs"] = native_policy_kwargs(cls.__name__, policy_kwargs, space)
        return policy, env, cls.adapt_settings(settings)

    @classmethod
    def _package(cls) -> str:
        """Returns the name of the package of their algorithm, such as "ppo"."""
        return cls.theirs.__module__.split(".")[1]

    @classmethod
    def wrap_env(cls, env: EnvLike, verbose: int = 0) -> EnvLike:
        """Returns an environment as their constructor wraps it."""
        return native_env(env, verbose)

    @classmethod
    def adapt_settings(cls, settings: Kwargs) -> Kwargs:
        """Returns the keyword arguments with the differences of one algorithm."""
        return settings

    def _count_by_monitor(self) -> None:
        window: int = self.arguments["stats_window_size"]
        self.statistics = MonitorStatistics(self.n_envs, window)
        env = self.get_env()
        self.statistics.monitored = env is not None and all(env.env_is_wrapped(Monitor))

    def _print_summary(self, stream: Stream, experience: Any) -> None:
        """Prints once the size of the buffer, and what frequencies count."""
        print(f"{type(self).__name__} on {self.device}: {experience.describe()}")
        if self.keeps_replay and stream.num_envs > 1:
            print(
                f"sb_dqn.sb3: train_freq counts steps of all {stream.num_envs} environments at once, as in Stable-Baselines3; "
                f"model.train_freq is in env steps"
            )

    # -- verbs

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Trains the model, as their `learn`: the last rollout, or the last `train_freq` steps, are finished."""
        if reset_num_timesteps and "_resume_from" not in kwargs:
            self._count_by_monitor()
        if self.keeps_replay and self.stream is not None:
            self._make_replay()
        whole = self.train_freq if self.keeps_replay else int(self.n_steps) * self.n_envs
        if isinstance(whole, int) and "_resume_from" not in kwargs:
            total_timesteps = max(1, math.ceil(total_timesteps / whole)) * whole
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar, **kwargs)
        self.training_run.log_entries()  # programs read them from the logger
        return self

    def train(self, gradient_steps: int, batch_size: int | None = None) -> None:
        """Makes updates from the replay buffer between two `learn`s, for example from transitions of demonstrations.

        Args:
            gradient_steps: number of updates; the target network of DQN follows in `learn` only.
            batch_size: transitions for each of them; None: that of the model.

        Raises:
            ConfigurationError: the model learns from rollouts, `learn` is running, or the buffer has no transition.
        """
        if not self.keeps_replay or self.learning:
            raise ConfigurationError(
                f"train must be called between two learns of a model with a replay buffer, got one of {type(self).__name__}. Call "
                f"learn."
            )
        self._make_replay()
        self.replay.refresh()
        if not self.replay.ring.can_start():
            raise ConfigurationError(
                "the replay buffer must have transitions for train, got none. Call replay_buffer.add, or learn."
            )
        usual: int = self.arguments["batch_size"]
        self.batch_size = batch_size or usual
        try:
            with training_modes(), limit_threads(are_small([self.policy], self.device, self.learner.batch_size)):
                self.learner.store.gather(self.policy.parameters())
                self.normalizer.commit()
                self._set_rate()
                for _ in range(gradient_steps):
                    self.gradient_step()
                    self.counters.n_updates += 1
        finally:
            self.batch_size = usual

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        **kwargs: object,
    ) -> Any:
        """Returns the actions and the next state; images may have channels last, as the environment makes them."""
        if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
            raise ValueError(
                "observation must be an array or a dict. You have passed a tuple to the predict() function: you are probably mixing "
                "Gym API, `obs, info = env.reset()`, with SB3 VecEnv API, `obs = vec_env.reset()`."
            )
        space = self.observation_space
        if isinstance(observation, dict):
            observation = {key: maybe_transpose(value, space[key]) for key, value in observation.items()}
        else:
            observation = maybe_transpose(observation, space)
        action, state = super().predict(observation, state, episode_start, deterministic, **kwargs)
        dtype = self.action_space.dtype if isinstance(self.action_space, spaces.Box) else None
        return np.asarray(action, dtype), state

    def set_env(self, env: EnvLike, force_reset: bool = True) -> None:
        """Changes the environment to another one of the same spaces and number of environments."""
        env = self.wrap_env(env, self.verbose)
        if self.stream is not None and env.num_envs != self.n_envs:
            raise AssertionError(
                f"the number of environments must be {self.n_envs}, as of the model, got {env.num_envs}. Use load(path, env) to "
                f"change it."
            )
        if not force_reset and env is self.get_env():
            return
        super().set_env(env)
        self._count_by_monitor()

    @property
    def acting_mode(self) -> Any:
        """Mode of the networks while acting; methods of a user's policy are called each time."""
        return "eager" if isinstance(self.policy, ActsByForward) else super().acting_mode

    def change(self, name: str, value: object) -> Any:
        value = super().change(name, native_schedule(value))
        if name == "learning_rate":
            self._set_rate()
        return value

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Returns a model with the same parameters, optimizer and counts, and a copy of the environment; its buffer is empty."""
        file = io.BytesIO()
        self.save(file)
        file.seek(0)
        env = copy.deepcopy(self.get_env(), memo)
        copied: Self = type(self).load(file, env=env, device=self.device, custom_objects=self.arguments)
        memo[id(self)] = copied
        return copied

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seeds the model, its environment at the next reset, and the global generators, as theirs does; None changes nothing."""
        if seed is None:
            return
        set_random_seed(seed)
        super().set_random_seed(seed)

    def set_parameters(self, load_path_or_dict: object, exact_match: bool = True, device: object = "auto") -> None:
        """Sets parameters from a dict or a zip file; a dict must have all names of `get_parameters` if `exact_match`, as theirs.

        Raises:
            ConfigurationError: names or shapes do not fit; nothing has changed.
        """
        if exact_match and isinstance(load_path_or_dict, dict):
            missing = sorted(self.get_parameters().keys() - load_path_or_dict.keys())
            if missing:
                raise ConfigurationError(
                    f"the dict must have all names of get_parameters with exact_match=True, got none of {', '.join(missing)}. Add "
                    f"them, or pass exact_match=False."
                )
        try:
            super().set_parameters(load_path_or_dict, exact_match, device)
        except ConfigurationError as error:
            raise StateMismatch(str(error)) from None

    def save(
        self,
        path: str | Path | IO[bytes],
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
        **kwargs: object,
    ) -> Any:
        """Writes a model file of this library, which holds no pickle; folders are created.

        A function as `learning_rate` or `clip_range` is written as its values at 101 points.

        Args:
            path: of the zip.
            exclude: names of constructor arguments that are not written; a loaded model has their defaults.
            include: names to write although they are in `exclude`.
            kwargs: `full`, `trust`, `incremental`, `background` of this library.

        Raises:
            ConfigurationError: `include` names a buffer or the environment, which have files of their own.
        """
        wanted = set(include or ())
        if others := sorted(wanted & {"env", "replay_buffer", "rollout_buffer", "_vec_normalize_env", "_logger"}):
            raise ConfigurationError(
                f"include must be names of constructor arguments, got {others}. Call save_replay_buffer, or save(path, full=True) for "
                f"all that a continuation needs."
            )
        arguments = self.arguments
        self.__dict__["arguments"] = saved_settings(arguments, set(exclude or ()) - wanted - {"policy"})
        try:
            return super().save(path, **kwargs)
        finally:
            self.__dict__["arguments"] = arguments

    @classmethod
    def load(
        cls,
        path: str | Path | IO[bytes],
        env: EnvLike = None,
        device: object = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: object,
    ) -> Self:
        """Returns a model from a file that `save` wrote; see `load` of this library."""
        if print_system_info:
            print("== CURRENT SYSTEM INFO ==")
            get_system_info()
        env = cls.wrap_env(env)
        custom_objects, zeros = native_custom_objects(custom_objects or {})
        custom_objects = imported_modules_of(path) | custom_objects
        lanes = getattr(env, "num_envs", None) or (_lanes_of(path) if "train_freq" in kwargs else 1)
        model: Self = super().load(
            path, env, native_device(device), custom_objects, **native_settings(cls.__name__, kwargs, lanes)
        )
        for name in zeros:
            setattr(model, name, lambda step, horizon: 0.0)
        model._set_rate()
        return model

    def load_replay_buffer(self, path: Target, truncate_last_traj: bool = True) -> None:
        """Loads rows that `save_replay_buffer` wrote, also into a model without an environment."""
        self._make_replay()
        super().load_replay_buffer(path, truncate_last_traj)

    def _make_replay(self) -> None:
        """Makes an empty replay buffer in the place of a dropped one, or of one that a model without an environment lacks."""
        if self.__dict__["_experience"] is not None:
            return
        self.__dict__["_deleted_replay"] = False
        if self.stream is not None:
            self.attach(self.stream)
            return
        stream = stream_of(self.blueprint, self.action_mask)
        self._use_experience(self.replay_config.build(stream, self.device, self.normalizer, self.policy.state_size))

    # -- attributes

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __setattr__(self, name: str, value: object) -> None:
            """Sets an attribute, see `BaseAlgorithm`; `torch.compile` of the policy and the present device have no effect."""
            if name == "device" and str(value := native_device(value)) in ("auto", self.device.type, str(self.device)):
                return
            if name == "policy" and getattr(value, "_orig_mod", None) is self.__dict__.get("policy", self):
                warnings.warn(
                    "torch.compile(model.policy) has no effect: updates and actions of this library are traced already. Pass "
                    "torch_compile=True to the constructor to compile them.",
                    stacklevel=user_stacklevel(),
                )
                return
            if name == "lr_schedule":  # a property here, though no attribute of the algorithm
                object.__setattr__(self, name, value)
                return
            super().__setattr__(name, value)

    @property
    def replay_buffer(self) -> ReplayView | None:
        """The replay buffer; None without an environment."""
        if not self.keeps_replay:
            raise AttributeError(f"{type(self).__name__} has no attribute 'replay_buffer'")
        if self.__dict__.get("_deleted_replay"):
            raise AttributeError(
                "the replay buffer was deleted. Call load_replay_buffer, or learn, which starts with an empty one"
            )
        return None if self.__dict__["_experience"] is None else view_of(self)

    @replay_buffer.setter
    def replay_buffer(self, buffer: ReplayView | None) -> None:
        """Replaces the rows by those of another model's buffer; None drops them, and the next `learn` starts with none.

        Raises:
            ConfigurationError: it is another object, or `learn` is running.
        """
        if self.learning or not isinstance(buffer, (ReplayView, NoneType)):
            raise ConfigurationError(
                f"replay_buffer must be None or the replay_buffer of another model, between two learns, got "
                f"{type(buffer).__name__}. Call replay_buffer.extend(observations, next_observations, actions, rewards, dones, "
                f"infos) to store other transitions."
            )
        own = self.__dict__["_experience"]
        if buffer is None:
            self.__dict__.update(_experience=None, _deleted_replay=False)
        elif buffer.model is self:  # it may have been deleted since
            self.__dict__.update(_experience=buffer.replay, _deleted_replay=False)
        elif buffer.replay is not own:
            file = io.BytesIO()
            buffer.model.save_replay_buffer(file)
            file.seek(0)
            self.__dict__["_experience"] = None
            try:
                self.load_replay_buffer(file)
            except Exception:
                self.__dict__["_experience"] = own
                raise
            self.__dict__["_deleted_replay"] = False

    @replay_buffer.deleter
    def replay_buffer(self) -> None:
        self.replay_buffer = None
        self.__dict__["_deleted_replay"] = True

    @property
    def rollout_buffer(self) -> RolloutArrays | None:
        """The rollout, to read in `_on_rollout_end`; None without an environment."""
        if self.keeps_replay:
            raise AttributeError(f"{type(self).__name__} has no attribute 'rollout_buffer'")
        return None if self.__dict__["_experience"] is None else RolloutArrays(self)

    q_net = property(attrgetter("policy.q_net"))
    q_net_target = property(attrgetter("policy.q_net_target"))
    quantile_net = property(attrgetter("policy.quantile_net"))
    quantile_net_target = property(attrgetter("policy.quantile_net_target"))

    @property
    def lr_schedule(self) -> Any:
        """Learning rate as a function of the remaining progress."""
        return self.by_progress(self.rate_schedule)

    @lr_schedule.setter
    def lr_schedule(self, schedule: Any) -> None:
        """Sets the learning rate by a function of the remaining progress; a model file keeps that of the argument."""
        self.rate_schedule = lambda step, horizon: float(schedule(1.0 - step / horizon if horizon else 1.0))
        self._set_rate()

    def by_progress(self, schedule: Any) -> Any:
        """Returns a schedule as a function of the remaining progress."""
        horizon = max(self._total_timesteps, 10**6)
        return lambda progress: schedule(round((1.0 - progress) * horizon), horizon)

    @property
    def _episode_num(self) -> int:
        return int(self.statistics.num_episodes)

    @property
    def _vec_normalize_env(self) -> Any:
        return self.get_vec_normalize_env()

    @property
    def policy_class(self) -> type[Any]:
        chosen = self.arguments["policy"]
        return chosen if isinstance(chosen, type) else type(self.policy).__bases__[0]  # that which a program imports

    @property
    def _last_obs(self) -> Any:
        """The newest observations; None before the first step in an environment."""
        rows = None if self.collector is None else self.collector.latest
        return None if rows is None else as_observation(rows.slots[-1].obs, self.observation_space)

    @property
    def num_timesteps(self) -> int:
        steps: int = self.counters.num_timesteps
        return steps

    @num_timesteps.setter
    def num_timesteps(self, steps: int) -> None:
        self.counters.num_timesteps = steps

    @property
    def exploration_rate(self) -> float:
        rate: float = super().exploration_rate
        return rate

    @exploration_rate.setter
    def exploration_rate(self, rate: float) -> None:
        """Sets epsilon; while learning the schedule lowers it."""
        self.exploration.epsilon = float(rate)

    @property
    def use_sde(self) -> bool:
        """True with generalized state-dependent exploration."""
        return bool(self.arguments.get("use_sde"))

    @property
    def action_noise(self) -> Any:
        """Settings of the action noise; None: none."""
        return self.arguments.get("action_noise") or None
