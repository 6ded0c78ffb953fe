"""Fixtures of callback tests: a model that records calls, and a loop that only calls callbacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sb_dqn.callbacks import BaseCallback


class DummyLogger:
    """Logger that stores the entries of each dump."""

    def __init__(self) -> None:
        self.pending: dict[str, Any] = {}
        self.dumps: list[tuple[int, dict[str, Any]]] = []

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        self.pending[key] = value

    def dump(self, step: int = 0) -> None:
        self.dumps.append((step, self.pending))
        self.pending = {}


class DummyModel:
    """Implementation of the `Trainer` protocol; always plays `action`."""

    def __init__(self, n_envs: int = 1, action: int = 0) -> None:
        self.n_envs = n_envs
        self.action = action
        self.num_timesteps = 0
        self.seed: int | None = 3
        self.verbose = 0
        self.learning = False
        self.arguments: dict[str, Any] = {"policy": "MlpPolicy"}
        self.keeps_replay = True
        self.rank = 0
        self.stream: Any = None
        self.ep_info_buffer: deque[dict[str, Any]] = deque(maxlen=100)
        self._total_timesteps = 0
        self.logger = DummyLogger()
        self.env: Any = SimpleNamespace()
        self.tape: list[str] = []

    def get_env(self) -> Any:
        return self.env

    def after_tick(self, action: Callable[[], object]) -> None:
        action()

    def save(self, path: str, *, full: bool = False, trust: bool = False, **options: bool) -> None:
        self.tape.append(f"save {Path(path).name}")
        Path(path).write_text(str(self.num_timesteps))

    def save_replay_buffer(self, path: str) -> None:
        self.tape.append(f"save_replay_buffer {Path(path).name}")
        Path(path).write_text("rows")

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        return np.full(len(episode_start), self.action), state

    def dump_logs(self) -> None:
        self.tape.append(f"dump_logs {self.num_timesteps}")


class Loop:
    """Calls the hooks in the order of `learn`; a tick has `steps` environment steps."""

    def __init__(self, model: DummyModel, callback: BaseCallback) -> None:
        self.model = model
        self.callback = callback
        self.locals: dict[str, Any] = {"self": model, "dones": np.zeros(model.n_envs, bool)}

    def learn(self, ticks: int, steps: int | None = None, dones: Iterator[Any] | None = None) -> bool:
        """Returns True if no callback stopped the loop."""
        steps = self.model.n_envs if steps is None else steps
        self.model._total_timesteps = self.model.num_timesteps + ticks * steps
        self.callback.init_callback(self.model)
        finished = True
        try:
            self.callback.on_training_start(self.locals, {})
            self.callback.on_rollout_start()
            for _ in range(ticks):
                self.model.num_timesteps += steps
                if dones is not None:
                    self.locals["dones"] = next(dones)
                self.callback.update_locals(self.locals)
                if not self.callback.on_step():
                    finished = False
                    break
            self.callback.on_rollout_end()
            self.callback.on_training_end()
        finally:
            self.callback.close()
        return finished


@pytest.fixture
def model() -> DummyModel:
    return DummyModel()


@pytest.fixture
def make_model() -> type[DummyModel]:
    return DummyModel


@pytest.fixture
def make_loop() -> type[Loop]:
    return Loop
