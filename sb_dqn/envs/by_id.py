"""Streams of environments by id and keywords, and the policy that suits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sb_dqn.types import Settings

if TYPE_CHECKING:
    from sb_dqn.envs.streams.open import Stream

ATARI = ("protocol", "frame_stack", "num_threads", "max_frames", "exact_resume", "clip_reward")
"""Keywords of `make_atari_env` itself; all others go to the emulator."""


def open_env(env_id: str, n_envs: int, env_kwargs: Settings, action_mask: str | None = None) -> Stream:
    """Opens a stream over `n_envs` lanes of the environment; Atari ids use ale-py's C++ vector environment.

    Args:
        env_id: gymnasium id.
        n_envs: number of lanes.
        env_kwargs: keywords of the environment.
        action_mask: source of the mask of legal actions, or None for no masks.

    Raises:
        ConfigurationError: an unknown id, or a keyword that the environment does not take.
    """
    from sb_dqn.envs.atari import is_atari, make_atari_env
    from sb_dqn.envs.make import make_vec_env, spec_of
    from sb_dqn.envs.streams.open import open_stream

    if is_atari(spec_of(env_id)):
        return open_stream(make_atari_env(env_id, n_envs, **atari_arguments(env_kwargs)), action_mask=action_mask)
    return open_stream(make_vec_env(env_id, n_envs, env_kwargs=env_kwargs), action_mask=action_mask)


def atari_arguments(env_kwargs: Settings) -> dict[str, Any]:
    """Returns `env_kwargs` as keywords of `make_atari_env`: its own by name, the others under `env_kwargs`."""
    named = {name: value for name, value in env_kwargs.items() if name in ATARI}
    return {**named, "env_kwargs": {name: value for name, value in env_kwargs.items() if name not in ATARI}}


def policy_alias(stream: Stream, algorithm: str) -> str:
    """Returns the default policy for the observation space: "CnnPolicy" for images, "MultiInputPolicy" for dicts.

    It is recurrent for R2D2: "CnnLstmPolicy".
    """
    from gymnasium import spaces

    space = stream.blueprint.observation_space
    is_image = space.shape is not None and len(space.shape) == 3
    kind = "MultiInput" if isinstance(space, spaces.Dict) else "Cnn" if is_image else "Mlp"
    return f"{kind}LstmPolicy" if algorithm == "R2D2" else f"{kind}Policy"
