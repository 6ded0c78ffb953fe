"""Callbacks made of other callbacks, of functions, or of objects with the hooks of Stable-Baselines3's `BaseCallback`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sb_dqn.callbacks.base import BaseCallback, Every, FunctionCallback, Locals, Trainer
from sb_dqn.checks import check_callable
from sb_dqn.envs.streams.sb3 import is_sb3
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import State

HOOKS = (
    "init_callback", "on_training_start", "on_rollout_start", "update_locals", "on_step", "on_rollout_end", "on_training_end",
)  # fmt: skip
"""Methods that the training loop calls."""


class EventCallback(BaseCallback):
    """Triggers a child callback at an event; a subclass calls `_on_event` when it happens.

    Args:
        callback: child callback, of any type that `learn` accepts. If None, there is no child.
        verbose: 0 prints nothing, 1 prints events, 2 prints details.
    """

    def __init__(self, callback: MaybeCallback = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = self._child("callback", callback)

    def _child(self, name: str, callback: MaybeCallback) -> BaseCallback | None:
        """Converts an argument to a child callback."""
        if callback is None:
            return None
        child = as_callback(callback, name)
        child.parent = self
        return child

    def children(self) -> Sequence[BaseCallback]:
        return () if self.callback is None else (self.callback,)

    def _on_event(self) -> bool:
        return self.callback is None or self._trigger(self.callback)

    def _on_step(self) -> bool:
        return True


class CallbackList(BaseCallback):
    """Calls callbacks in order; the training stops if at least one of them returns False, after all were called.

    Args:
        callbacks: callbacks of any type that `learn` accepts.
    """

    def __init__(self, callbacks: Iterable[MaybeCallback]) -> None:
        super().__init__()
        self.callbacks = [as_callback(callback, "a callback of CallbackList") for callback in callbacks]

    def children(self) -> Sequence[BaseCallback]:
        return self.callbacks

    def _init_callback(self) -> None:
        for callback in self.callbacks:
            callback.parent = self.parent

    def _on_rollout_start(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_start()

    def _on_step(self) -> bool:
        continues = True
        for callback in self.callbacks:
            continues = self._trigger(callback) and continues
        return continues

    def _on_rollout_end(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_end()


class ConvertCallback(BaseCallback):
    """Calls a function `(locals, globals) -> bool | None` at every step; False stops the training.

    Args:
        callback: the function. If None, it is not called.
        verbose: 0 prints nothing, 1 prints events, 2 prints details.
    """

    def __init__(self, callback: FunctionCallback | None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = callback

    def _on_step(self) -> bool:
        result = self.callback(self.locals, self.globals) if self.callback is not None else True
        return result is None or bool(result)


class ForeignCallback(BaseCallback):
    """Passes each hook on to a callback that does not derive from the `BaseCallback` of this package.

    The `locals` of the callback is a plain dict, which is filled at each step with the entries of this one.

    Args:
        callback: object with the methods in `HOOKS`.
    """

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        super().__init__()

    @property
    def parent(self) -> Any:
        """The callback that triggers this one, which the wrapped callback sees as its parent."""
        return self.callback.parent

    @parent.setter
    def parent(self, parent: object) -> None:
        if parent is not None:
            self.callback.parent = parent

    def init_callback(self, model: Trainer) -> None:
        self.model = model
        with warnings.catch_warnings():
            if not is_sb3(model.get_env()):  # which need not be of the class of their environment
                warnings.filterwarnings("ignore", "Training and eval env are not of the same type", UserWarning)
            self.callback.init_callback(model)

    def on_training_start(self, locals_: Locals, globals_: Locals) -> None:
        self.callback.on_training_start(dict(locals_), dict(globals_))

    def on_rollout_start(self) -> None:
        self.callback.on_rollout_start()

    def on_rollout_end(self) -> None:
        self.callback.on_rollout_end()

    def on_training_end(self) -> None:
        self.callback.on_training_end()

    def update_locals(self, locals_: Locals) -> None:
        self.locals = locals_
        self.callback.update_locals(dict(locals_))

    def on_step(self) -> bool:
        result: bool | None = self.callback.on_step()
        return result is None or bool(result)

    def _on_step(self) -> bool:
        return self.on_step()

    def state_dict(self) -> State:
        return {"n_calls": int(getattr(self.callback, "n_calls", 0)), "children": []}

    def load_state_dict(self, state: State) -> None:
        self.callback.n_calls = int(state["n_calls"])


MaybeCallback: TypeAlias = BaseCallback | FunctionCallback | Iterable[Any] | Any | None
"""Types that `learn` accepts as `callback`."""


def as_callback(callback: MaybeCallback, name: str = "callback") -> BaseCallback:
    """Converts the argument `callback` of `learn` to a callback object.

    Args:
        callback: None, a callback, one with the methods of Stable-Baselines3's, a function `(locals, globals) -> bool | None`,
            or a list of these.
        name: name of the argument, for error messages.

    Raises:
        ConfigurationError: `callback` has another type, or is a function with other parameters.
    """
    if isinstance(callback, BaseCallback):
        return callback
    if callback is None:
        return CallbackList([])
    if inspect.isclass(callback):
        class_name = callback.__name__
        raise ConfigurationError(f"{name} must be an object, got the class {class_name}. Pass {class_name}(...).")
    if all(callable(getattr(callback, hook, None)) for hook in HOOKS):
        return ForeignCallback(callback)
    if callable(callback):
        return ConvertCallback(check_callable(name, callback, "locals", "globals"))
    if isinstance(callback, (str, bytes, Mapping)) or not isinstance(callback, Iterable):
        raise ConfigurationError(
            f"{name} must be None, a function (locals, globals) -> bool, a callback or a list of these, got {callback!r}. "
            f"Pass one of these."
        )
    return CallbackList([as_callback(element, name) for element in callback])


class EveryNTimesteps(EventCallback):
    """Triggers a callback whenever `num_timesteps` crosses a multiple of `n_steps`.

    Args:
        n_steps: environment steps over all lanes between two events, >= 1.
        callback: child callback, of any type that `learn` accepts.
    """

    def __init__(self, n_steps: int, callback: MaybeCallback) -> None:
        super().__init__(callback)
        self.n_steps = n_steps
        self.last_time_trigger = 0
        self._every = Every(n_steps, "n_steps")

    def _on_training_start(self) -> None:
        self._every.begin(self.num_timesteps)

    def _on_step(self) -> bool:
        if not self._every.crossed(self.num_timesteps):
            return True
        self.last_time_trigger = self.num_timesteps
        return self._on_event()


class LogEveryNTimesteps(EveryNTimesteps):
    """Writes the log whenever `num_timesteps` crosses a multiple of `n_steps` (set `log_interval` of `learn` high).

    Args:
        n_steps: environment steps over all lanes between two log lines, >= 1.
    """

    def __init__(self, n_steps: int) -> None:
        super().__init__(n_steps, ConvertCallback(self._log_data))

    def _log_data(self, locals_: Locals, globals_: Locals) -> bool:
        self.model.dump_logs()
        return True
