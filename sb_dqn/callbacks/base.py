"""What a callback is: five hooks around the training loop, and what it may use of the model that is being trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sb_dqn.envs.training_env import as_training_env
from sb_dqn.errors import ConfigurationError

Locals: TypeAlias = Mapping[str, Any]
FunctionCallback: TypeAlias = Callable[[Locals, Locals], "bool | None"]


class Trainer(Protocol):
    """What callbacks use of a model; every algorithm has it."""

    verbose: int
    learning: bool
    """Whether a `learn` is under way."""

    @property
    def keeps_replay(self) -> bool:
        """Whether there is a replay that can be saved."""

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far, over all lanes, reset rows excluded."""

    @property
    def seed(self) -> int | None: ...

    @property
    def ep_info_buffer(self) -> deque[dict[str, Any]]:
        """The latest finished episodes: return `r`, length `l`, time `t` in seconds."""

    @property
    def _total_timesteps(self) -> int:
        """`num_timesteps` at which the running `learn` stops."""

    @property
    def logger(self) -> Any: ...

    @property
    def n_envs(self) -> int: ...

    def get_env(self) -> Any: ...

    def save(
        self,
        path: str,
        *,
        full: bool = False,
        trust: bool = False,
        incremental: bool = False,
        background: bool = False,
    ) -> Any: ...

    def after_tick(self, action: Callable[[], object]) -> None:
        """Does something when this tick is over: all callbacks called, the log written."""

    def save_replay_buffer(self, path: str) -> Any: ...

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]: ...

    def dump_logs(self) -> None: ...


class BaseCallback(ABC):
    """Hooks around the training loop; a subclass needs `_on_step` alone.

    Attributes: `model`; `n_calls`, how often `on_step` was called; `num_timesteps` of the model; `locals`, a mapping
    with `rewards`, `dones`, `infos`, `actions`, `new_obs`, `self` of this tick (built when first read); `globals`;
    `parent`, the callback that triggers this one, if any.

    Args:
        verbose: 0 silent, 1 says what happens, 2 details.
    """

    model: Trainer

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose
        self.n_calls = 0
        self.num_timesteps = 0
        self.locals: Locals = {}
        self.globals: Locals = {}
        self.parent: BaseCallback | None = None

    @property
    def training_env(self) -> Any:
        """The environment that the model learns from, with the attributes of Stable-Baselines3's `VecEnv`.

        `observation_space` and `action_space` are those of one lane, `get_attr`, `set_attr` and `env_method` take `indices`;
        all else is as `model.get_env()` has it. A `VecEnv` of Stable-Baselines3 is returned as it is.

        Raises:
            ConfigurationError: the model has none.
        """
        env = self.model.get_env()
        if env is None:
            raise ConfigurationError("the model has no environment; give it one by set_env(...) before learn")
        return as_training_env(env)

    @property
    def logger(self) -> Any:
        """The logger of the model."""
        return self.model.logger

    def children(self) -> Sequence[BaseCallback]:
        """The callbacks that this one triggers; each is told of start, end and locals with its parent."""
        return ()

    def init_callback(self, model: Trainer) -> None:
        """Meet the model; called once at the start of every `learn`."""
        self.model = model
        self._init_callback()
        for child in self.children():
            child.init_callback(model)

    def on_training_start(self, locals_: Locals, globals_: Locals) -> None:
        """The first step is about to be made."""
        self.locals, self.globals = locals_, globals_
        self.num_timesteps = self.model.num_timesteps
        self._on_training_start()
        for child in self.children():
            child.on_training_start(locals_, globals_)

    def on_rollout_start(self) -> None:
        """Rows are about to be collected."""
        self._on_rollout_start()

    def on_step(self) -> bool:
        """A tick in which at least one lane made a step is done; for a child: its event happened.

        Returns:
            False if the training is to stop. A hook that returns nothing goes on.
        """
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        answer: bool | None = self._on_step()
        return answer is None or bool(answer)

    def on_rollout_end(self) -> None:
        """Rows were collected, updates come next."""
        self._on_rollout_end()

    def on_training_end(self) -> None:
        """The last step was made; not called if the training raised."""
        self._on_training_end()
        for child in self.children():
            child.on_training_end()

    def close(self) -> None:
        """Give back what is held (files, environments, the terminal); called at every end, an error included.

        May be called more than once. A child that raises does not keep the others from closing.
        """
        failure: BaseException | None = None
        for shut in (self._close, *(child.close for child in self.children())):
            try:
                shut()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def update_locals(self, locals_: Locals) -> None:
        """Point to the mapping of this tick; nothing is copied."""
        self.locals = locals_
        self.update_child_locals(locals_)

    def update_child_locals(self, locals_: Locals) -> None:
        """Point the children to the mapping of this tick."""
        for child in self.children():
            child.update_locals(locals_)

    def state_dict(self) -> dict[str, Any]:
        """Counters as plain data, with those of the children."""
        return {"n_calls": self.n_calls, "children": [child.state_dict() for child in self.children()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: the state has another number of children.
        """
        children, states = self.children(), state["children"]
        if len(children) != len(states):
            raise ConfigurationError(
                f"{type(self).__name__} has {len(children)} child callbacks, the saved state has {len(states)}; "
                f"pass the same callbacks as in the saved run"
            )
        self.n_calls = int(state["n_calls"])
        for child, inner in zip(children, states, strict=True):
            child.load_state_dict(inner)

    def _trigger(self, child: BaseCallback) -> bool:
        """Let a child make its step, with the locals of this tick."""
        if child.locals is not self.locals:
            child.update_locals(self.locals)
        return child.on_step()

    @abstractmethod
    def _on_step(self) -> bool:
        """Act on a tick; False stops the training."""

    def _init_callback(self) -> None:  # noqa: B027 - an empty hook
        """Hook: the model is known."""

    def _on_training_start(self) -> None:  # noqa: B027 - an empty hook
        """Hook: before the first step."""

    def _on_rollout_start(self) -> None:  # noqa: B027 - an empty hook
        """Hook: before rows are collected."""

    def _on_rollout_end(self) -> None:  # noqa: B027 - an empty hook
        """Hook: after rows were collected."""

    def _on_training_end(self) -> None:  # noqa: B027 - an empty hook
        """Hook: after the last step."""

    def _close(self) -> None:  # noqa: B027 - an empty hook
        """Hook: give back what is held."""
