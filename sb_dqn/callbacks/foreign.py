"""Callbacks of other classes with the hooks of Stable-Baselines3's `BaseCallback`, recognized by their methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from sb_dqn.callbacks.base import BaseCallback, Locals, Trainer
from sb_dqn.envs.streams.sb3 import is_sb3

HOOKS = (
    "init_callback", "on_training_start", "on_rollout_start", "update_locals", "on_step", "on_rollout_end", "on_training_end",
)  # fmt: skip
"""Methods that the training loop calls."""


def has_hooks(callback: Any) -> bool:
    """Returns True for an object with all methods of Stable-Baselines3's `BaseCallback`."""
    return all(callable(getattr(callback, hook, None)) for hook in HOOKS)


class ForeignCallback(BaseCallback):
    """Passes each hook on to a callback that does not derive from our `BaseCallback`.

    Its `locals` is a plain dict with the entries of ours, filled at each step.

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
    def parent(self, parent: Any) -> None:
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

    def state_dict(self) -> dict[str, Any]:
        return {"n_calls": int(getattr(self.callback, "n_calls", 0)), "children": []}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.callback.n_calls = int(state["n_calls"])
