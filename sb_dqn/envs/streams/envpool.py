"""Stream of EnvPool environments: NEXT_STEP autoreset, with EnvPool's seeding and raw rewards."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.gymnasium_vector import NextStepStream
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import FloatArray, Rows


def is_envpool(env: Any) -> bool:
    """Returns True for an env made by EnvPool."""
    return any(base.__module__.partition(".")[0] == "envpool" for base in type(env).__mro__)


class EnvPoolStream(NextStepStream):
    """Stream of EnvPool with `env_type="gymnasium"` and synchronous lanes (asynchronous batches are not deterministic)."""

    def __init__(self, env: Any, options: StreamOptions) -> None:
        if not any(base.__name__ == "GymnasiumEnvPoolMixin" for base in type(env).__mro__):
            raise ConfigurationError(
                f"an EnvPool env must have the gymnasium interface, got {type(env).__name__}. Make it with envpool.make(..., "
                f"env_type='gymnasium')."
            )
        config = env.config
        if config["batch_size"] not in (0, config["num_envs"]):
            raise ConfigurationError(
                f"batch_size of EnvPool must be num_envs={config['num_envs']}, got {config['batch_size']}, which returns lanes in "
                f"any order. Leave batch_size out."
            )
        if config.get("episodic_life"):
            warnings.warn(
                "EnvPool with episodic_life=True counts each life as an episode. For whole games make it with "
                "episodic_life=False and open it with StreamOptions(terminal_on_life_loss=True).",
                stacklevel=4,
            )
        super().__init__(env, options)

    def _reset(self, seed: int | None) -> Rows:
        if seed is not None and seed != self.env.config["seed"]:
            warnings.warn(
                f"EnvPool is seeded only at construction, so seed={seed} has no effect. Make it with envpool.make(..., "
                f"seed={seed}).",
                stacklevel=4,
            )
        return super()._reset(None)

    def _score(self, reward: FloatArray, info: Mapping[str, Any]) -> FloatArray:
        """Returns the raw reward, which EnvPool puts into the info where it clips the returned one."""
        raw = info.get("reward")
        return reward if raw is None or np.shape(raw) != reward.shape else np.asarray(raw, np.float32)
