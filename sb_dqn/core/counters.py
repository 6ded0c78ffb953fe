"""What a model counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Counters:
    """Plain numbers that a checkpoint holds; all steps are env steps over all lanes, reset rows excluded."""

    num_timesteps: int = 0
    """Since the last `learn` with `reset_num_timesteps`."""
    lifetime: int = 0
    """Since the model was made; never reset."""
    horizon: int = 0
    """`num_timesteps` at which the current `learn` stops; schedules refer to it."""
    n_updates: int = 0
    """Gradient steps since the model was made."""
    iterations: int = 0
    """Rollouts since the running `learn` began."""

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in asdict(self):
            setattr(self, name, int(state.get(name, 0)))  # a file may come from before there was a count
