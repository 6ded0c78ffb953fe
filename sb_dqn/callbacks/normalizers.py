"""Statistics of Stable-Baselines3's `VecNormalize`, found without importing that package."""

from __future__ import annotations

import copy
from typing import Any

from sb_dqn.errors import ConfigurationError


def find_normalizer(env: Any) -> Any:
    """The `VecNormalize` among the wrappers of a Stable-Baselines3 `VecEnv`, or None."""
    while env is not None and "VecNormalize" not in (kind.__name__ for kind in type(env).__mro__):
        env = getattr(env, "venv", None)
    return env


def sync_normalizer(training_env: Any, eval_env: Any) -> None:
    """Let the evaluation see observations as the training does: copy the running statistics over.

    Raises:
        ConfigurationError: the training env normalises and the evaluation env does not.
    """
    source = find_normalizer(training_env)
    if source is None:
        return
    target = find_normalizer(eval_env)
    if target is None:
        raise ConfigurationError(
            "the training env is wrapped in VecNormalize, the evaluation env is not, so the model would see other "
            "numbers; wrap it too: VecNormalize(eval_env, training=False, norm_reward=False)"
        )
    target.obs_rms = copy.deepcopy(source.obs_rms)
    target.ret_rms = copy.deepcopy(source.ret_rms)
