"""Callback base class, the interface of the model that callbacks use, and the frequency of events in env steps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from sb_dqn.checks import check_int
from sb_dqn.envs.streams.open import opened_here
from sb_dqn.envs.streams.training_env import TrainingEnv, as_training_env
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import EnvLike, Info, Kwargs, State

Locals: TypeAlias = Mapping[str, Any]
FunctionCallback: TypeAlias = Callable[[Locals, Locals], "bool | None"]


class Trainer(Protocol):
    """Interface of a model for callbacks; implemented by every algorithm."""

    verbose: int
    learning: bool
    """True while `learn` runs."""
    arguments: Kwargs
    """Constructor arguments by name."""
    stream: Any
    """The environment as a stream of rows, or what stands in for one where actors make the environments."""

    @property
    def keeps_replay(self) -> bool:
        """True if the model has a replay buffer that can be saved."""

    @property
    def rank(self) -> int:
        """Number of this learner, from 0. Each of several learners runs the callbacks; only the first should write."""

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far over all lanes, without reset rows."""

    @property
    def seed(self) -> int | None: ...

    @property
    def ep_info_buffer(self) -> deque[Info]:
        """Latest finished episodes: return `r`, length `l` in steps, time `t` in seconds."""

    @property
    def _total_timesteps(self) -> int:
        """Value of `num_timesteps` at which the current `learn` stops."""

    @property
    def logger(self) -> Any: ...

    @property
    def n_envs(self) -> int: ...

    def get_env(self) -> EnvLike: ...

    def save(
        self, path: str, *, full: bool = False, trust: bool = False, incremental: bool = False, background: bool = False
    ) -> Any: ...

    def after_tick(self, action: Callable[[], object]) -> None:
        """Runs `action` at the end of this tick, after all callbacks and the log."""

    def save_replay_buffer(self, path: str) -> object: ...

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]: ...

    def dump_logs(self) -> None: ...


class BaseCallback(ABC):
    """Base class of callbacks: hooks of the training loop, of which a subclass must implement `_on_step` only.

    Attributes: `model`; `n_calls`, the number of calls of `on_step`; `num_timesteps` of the model; `locals`, a mapping with
    `rewards`, `dones`, `infos`, `actions`, `new_obs`, `self` of this tick (built at the first access); `globals`; `parent`,
    the callback that triggers this one, or None.

    Args:
        verbose: 0 prints nothing, 1 prints events, 2 prints details.
    """

    model: Trainer

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose
        self.n_calls = 0
        self.num_timesteps = 0
        self.locals: Locals = {}
        self.globals: Locals = {}
        self.parent: BaseCallback | None = None
        self._unwritten: set[str] = set()

    @property
    def training_env(self) -> EnvLike:
        """Returns the training environment, with the attributes of Stable-Baselines3's `VecEnv`.

        `observation_space` and `action_space` are those of one lane; `get_attr`, `set_attr` and `env_method` take `indices`;
        all other attributes are those of `model.get_env()`. A `VecEnv` of Stable-Baselines3 is returned as it is. Lanes that actors
        have made cannot be reached; the numbers and spaces can be read.

        Raises:
            ConfigurationError: the model has no environment.
        """
        env = self.model.get_env()
        if env is None:
            raise ConfigurationError("the model must have an environment, got None. Call set_env(...) before learn.")
        if opened_here(env):  # by actors
            return TrainingEnv(self.model.stream)
        return as_training_env(env)

    @property
    def logger(self) -> Any:
        """Logger of the model."""
        return self.model.logger

    def children(self) -> Sequence[BaseCallback]:
        """Returns the callbacks that this one triggers; they are initialized, started, ended and closed with it."""
        return ()

    def init_callback(self, model: Trainer) -> None:
        """Sets the model; called once at the start of every `learn`."""
        self.model = model
        self._init_callback()
        for child in self.children():
            child.init_callback(model)

    def on_training_start(self, locals_: Locals, globals_: Locals) -> None:
        """Runs before the first step of `learn`."""
        self.locals = locals_
        self.globals = globals_
        self.num_timesteps = self.model.num_timesteps
        self._on_training_start()
        for child in self.children():
            child.on_training_start(locals_, globals_)

    def on_rollout_start(self) -> None:
        """Runs before rows are collected."""
        self._on_rollout_start()

    def on_step(self) -> bool:
        """Runs after every tick with at least one environment step; for a child callback, at every event of its parent.

        Returns:
            False to stop the training. None from `_on_step` counts as True.
        """
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        result: bool | None = self._on_step()
        return result is None or bool(result)

    def on_rollout_end(self) -> None:
        """Runs after rows are collected and before the updates."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """Runs after the last step; not called if the training raised an exception."""
        self._on_training_end()
        for child in self.children():
            child.on_training_end()

    def close(self) -> None:
        """Releases resources (files, environments, the terminal); called at every end of `learn`, including errors.

        May be called more than once. All children are closed even if one of them raises.
        """
        first_error: BaseException | None = None
        for close in (self._close, *(child.close for child in self.children())):
            try:
                close()
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def update_locals(self, locals_: Locals) -> None:
        """Sets the mapping of this tick, without a copy."""
        self.locals = locals_
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: Locals) -> None:
        """Sets the mapping of this tick in the children."""
        for child in self.children():
            child.update_locals(locals_)

    def state_dict(self) -> State:
        """Returns the counters of this callback and its children as plain data."""
        return {"n_calls": self.n_calls, "children": [child.state_dict() for child in self.children()]}

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`.

        Raises:
            ConfigurationError: the state has another number of children.
        """
        children = self.children()
        states = state["children"]
        if len(children) != len(states):
            raise ConfigurationError(
                f"{type(self).__name__} must have {len(states)} child callbacks as in the saved state, got {len(children)}. "
                f"Pass the same callbacks as in the saved run."
            )
        self.n_calls = int(state["n_calls"])
        for child, inner in zip(children, states, strict=True):
            child.load_state_dict(inner)

    def _trigger(self, child: BaseCallback) -> bool:
        """Runs `on_step` of a child with the locals of this tick."""
        if child.locals is not self.locals:
            child.update_locals(self.locals)
        return child.on_step()

    @contextmanager
    def _training_continues(self, file: str) -> Iterator[None]:
        """Returns a context in which `file` is written. If that fails (disk full, folder read-only), it warns once for each
        file."""
        try:
            yield
        except OSError as error:
            if file not in self._unwritten:
                warnings.warn(f"{file} was not written, training continues: {error.strerror or error}", stacklevel=3)
            self._unwritten.add(file)

    @abstractmethod
    def _on_step(self) -> bool:
        """Runs after every tick (hook); returns False to stop the training."""

    def _init_callback(self) -> None:  # noqa: B027 - an empty hook
        """Runs after the model is set (hook)."""

    def _on_training_start(self) -> None:  # noqa: B027 - an empty hook
        """Runs before the first step (hook)."""

    def _on_rollout_start(self) -> None:  # noqa: B027 - an empty hook
        """Runs before rows are collected (hook)."""

    def _on_rollout_end(self) -> None:  # noqa: B027 - an empty hook
        """Runs after rows are collected (hook)."""

    def _on_training_end(self) -> None:  # noqa: B027 - an empty hook
        """Runs after the last step (hook)."""

    def _close(self) -> None:  # noqa: B027 - an empty hook
        """Releases resources (hook)."""


class Every:
    """Detects when `num_timesteps` crosses a multiple of a frequency, at most once per tick.

    Args:
        frequency: environment steps over all lanes between two events, >= 1.
        name: name of the argument, for error messages.

    Raises:
        ConfigurationError: `frequency` is not a whole number >= 1.
    """

    def __init__(self, frequency: int, name: str = "frequency") -> None:
        self.frequency = check_int(name, frequency, 1)
        self._multiples = 0

    def begin(self, num_timesteps: int) -> None:
        """Starts counting at `num_timesteps`; earlier multiples are ignored."""
        self._multiples = num_timesteps // self.frequency

    def crossed(self, num_timesteps: int) -> bool:
        """Returns True if a multiple was crossed since the last call."""
        multiples = num_timesteps // self.frequency
        crossed = multiples > self._multiples
        self._multiples = multiples
        return crossed
