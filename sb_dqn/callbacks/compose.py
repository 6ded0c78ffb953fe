"""Callbacks made of other callbacks, or of functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sb_dqn.callbacks.base import BaseCallback, FunctionCallback, Locals
from sb_dqn.callbacks.frequency import Every
from sb_dqn.checks import check_callable
from sb_dqn.errors import ConfigurationError


class EventCallback(BaseCallback):
    """Triggers a child callback when an event happens; a subclass says when by calling `_on_event`.

    Args:
        callback: the child, whatever `learn` takes as callback; None for none.
        verbose: 0 silent, 1 says what happens, 2 details.
    """

    def __init__(self, callback: MaybeCallback = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = self._child("callback", callback)

    def _child(self, name: str, given: MaybeCallback) -> BaseCallback | None:
        """A callback that this one triggers."""
        if given is None:
            return None
        child = as_callback(given, name)
        child.parent = self
        return child

    def children(self) -> Sequence[BaseCallback]:
        return () if self.callback is None else (self.callback,)

    def _on_event(self) -> bool:
        return self.callback is None or self._trigger(self.callback)

    def _on_step(self) -> bool:
        return True


class CallbackList(BaseCallback):
    """Callbacks one after another; the training stops if one of them says so, and all of them are asked."""

    def __init__(self, callbacks: Iterable[BaseCallback]) -> None:
        super().__init__()
        self.callbacks = list(callbacks)

    def children(self) -> Sequence[BaseCallback]:
        return self.callbacks

    def _init_callback(self) -> None:
        for callback in self.callbacks:
            callback.parent = self.parent

    def _on_rollout_start(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_start()

    def _on_step(self) -> bool:
        go_on = True
        for callback in self.callbacks:
            go_on = self._trigger(callback) and go_on
        return go_on

    def _on_rollout_end(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_end()


class ConvertCallback(BaseCallback):
    """A function `(locals, globals) -> bool | None` as a callback; None goes on."""

    def __init__(self, callback: FunctionCallback | None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.callback = callback

    def _on_step(self) -> bool:
        answer = self.callback(self.locals, self.globals) if self.callback is not None else True
        return answer is None or bool(answer)


MaybeCallback: TypeAlias = BaseCallback | FunctionCallback | Iterable[Any] | None
"""What `learn` takes as `callback`."""


def as_callback(given: MaybeCallback, name: str = "callback") -> BaseCallback:
    """What the user passed as `callback`, as one callback.

    Args:
        given: nothing, a callback, a function `(locals, globals) -> bool | None`, or several of these.
        name: of the argument.

    Raises:
        ConfigurationError: it is none of these, or a function of other arguments.
    """
    if isinstance(given, BaseCallback):
        return given
    if given is None:
        return CallbackList([])
    if inspect.isclass(given):
        raise ConfigurationError(f"{name} is the class {given.__name__}; make an object of it: {given.__name__}(...)")
    if callable(given):
        return ConvertCallback(check_callable(name, given, "locals", "globals"))
    if any(base.__module__.startswith("stable_baselines3.") for base in type(given).__mro__):
        kind = type(given).__name__
        raise ConfigurationError(
            f"{name} is {kind}, a callback of Stable-Baselines3; import it from sb_dqn.callbacks, or derive {kind} from "
            f"sb_dqn.callbacks.BaseCallback"
        )
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{name} is {given!r}; allowed: None, a function (locals, globals) -> bool, a callback, a list of these"
        )
    return CallbackList([as_callback(one, name) for one in given])


class EveryNTimesteps(EventCallback):
    """Triggers a callback whenever `num_timesteps` crosses a multiple of `n_steps`.

    Args:
        n_steps: environment steps over all lanes between two events.
        callback: what is triggered.
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
        n_steps: environment steps over all lanes between two log lines.
    """

    def __init__(self, n_steps: int) -> None:
        super().__init__(n_steps, ConvertCallback(self._log_data))

    def _log_data(self, locals_: Locals, globals_: Locals) -> bool:
        self.model.dump_logs()
        return True
