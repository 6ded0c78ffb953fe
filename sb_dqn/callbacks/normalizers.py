"""Statistics of Stable-Baselines3's `VecNormalize`, accessed without importing that package."""

from __future__ import annotations

import copy
from typing import Any

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import EnvLike


def find_normalizer(env: EnvLike) -> Any:
    """Returns the `VecNormalize` among the wrappers of a Stable-Baselines3 `VecEnv`, or None."""
    while env is not None and "VecNormalize" not in (kind.__name__ for kind in type(env).__mro__):
        env = getattr(env, "venv", None)
    return env


def sync_normalizer(training_env: object, eval_env: object) -> None:
    """Copies the running statistics of the training environment to the evaluation environment.

    Raises:
        ConfigurationError: only the training environment is normalized.
    """
    source = find_normalizer(training_env)
    if source is None:
        return
    target = find_normalizer(eval_env)
    if target is None:
        raise ConfigurationError(
            f"eval_env must be wrapped in VecNormalize like the training environment, got {type(eval_env).__name__}. Pass "
            f"VecNormalize(eval_env, training=False, norm_reward=False)."
        )
    for name in ("obs_rms", "ret_rms"):
        if (statistics := getattr(source, name, None)) is not None:  # norm_obs=False has none of observations
            setattr(target, name, copy.deepcopy(statistics))
