"""The reward function of a goal-conditioned environment, for transitions with other goals."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from sb_dqn.actors.collector import RemoteLanes
from sb_dqn.actors.lane_groups import LaneGroups
from sb_dqn.actors.worker import open_lanes
from sb_dqn.buffers.hindsight import RewardFunction
from sb_dqn.errors import ConfigurationError


def goal_rewards(stream: Any) -> RewardFunction:
    """Returns `compute_reward` of an environment of a stream, with rewards clipped where the stream clips them.

    It is that of lane 0 where this process steps it, else that of one more environment, which is made for it.

    Raises:
        ConfigurationError: the environment has no such method, or no further one can be made.
    """
    env = _an_environment(stream)
    function: Any = env.get_wrapper_attr("compute_reward") if env.has_wrapper_attr("compute_reward") else None
    if function is None:
        raise ConfigurationError(
            f"the environment must have compute_reward(achieved_goal, desired_goal, info) with hindsight, got {env} without it. "
            f"Use a goal-conditioned environment, or remove hindsight."
        )
    if stream.options.clip_reward:
        return lambda achieved, desired, infos: np.sign(function(achieved, desired, infos))
    return function  # type: ignore[no-any-return]


def _an_environment(stream: Any) -> gymnasium.Env[Any, Any]:
    if isinstance(stream, LaneGroups):
        return _an_environment(stream.streams[0])
    if isinstance(stream, RemoteLanes):
        factory = stream.env[:1] if isinstance(stream.env, (list, tuple)) else stream.env
        return _an_environment(open_lanes(factory, 1, stream.options.action_mask))
    env: Any = getattr(stream, "env", None)  # a loaded model may have none
    vector: Any = getattr(env, "unwrapped", env)
    if getattr(vector, "envs", None):  # all lanes in this process
        lane: gymnasium.Env[Any, Any] = vector.envs[0]
        return lane
    if getattr(vector, "env_fns", None):  # worker processes of gymnasium
        made: gymnasium.Env[Any, Any] = vector.env_fns[0]()
        return made
    raise ConfigurationError(
        f"env must be an id, an environment or a list of functions with hindsight, which calls compute_reward of an environment, "
        f"got {type(vector).__name__}. Pass one of these."
    )
