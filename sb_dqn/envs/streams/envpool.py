"""The reader of EnvPool's envs, known by their module: NEXT_STEP, with its own ways of seeds and scores."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from sb_dqn.envs.streams.gymnasium_vector import NextStepStream
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import FloatArray, Rows


def is_envpool(env: Any) -> bool:
    """Whether an env comes from EnvPool."""
    return any(base.__module__.partition(".")[0] == "envpool" for base in type(env).__mro__)


class EnvPoolStream(NextStepStream):
    """EnvPool with `env_type="gymnasium"`, all lanes at once (an asynchronous batch is not deterministic)."""

    def __init__(self, env: Any, options: StreamOptions) -> None:
        if not any(base.__name__ == "GymnasiumEnvPoolMixin" for base in type(env).__mro__):
            raise ConfigurationError(
                "this EnvPool env does not speak gymnasium; make it with envpool.make(..., env_type='gymnasium')"
            )
        config = env.config
        if config["batch_size"] not in (0, config["num_envs"]):
            raise ConfigurationError(
                f"EnvPool with batch_size={config['batch_size']} for num_envs={config['num_envs']} answers in any "
                f"order; leave batch_size out"
            )
        if config.get("episodic_life"):
            warnings.warn(
                "EnvPool with episodic_life=True: each life is counted as an episode. For whole games make it "
                "with episodic_life=False "
                "and open it with StreamOptions(terminal_on_life_loss=True)",
                stacklevel=4,
            )
        super().__init__(env, options)

    def _reset(self, seed: int | None) -> Rows:
        if seed is not None and seed != self.env.config["seed"]:
            warnings.warn(
                f"EnvPool is seeded at construction only, so seed={seed} is not used; make it with "
                f"envpool.make(..., seed={seed})",
                stacklevel=4,
            )
        return super()._reset(None)

    def _score(self, reward: FloatArray, info: Mapping[str, Any]) -> FloatArray:
        """EnvPool gives the raw reward in the info where it clips the other."""
        raw = info.get("reward")
        return reward if raw is None or np.shape(raw) != reward.shape else np.asarray(raw, np.float32)
