"""Lanes by their numbers, as Stable-Baselines3's `VecEnv` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sb_dqn.errors import ConfigurationError

Indices = int | Iterable[int] | None
"""Numbers of lanes; None: all."""


def lanes_of(indices: Indices, num_envs: int) -> list[int]:
    """Returns the numbers of the lanes that are meant.

    Raises:
        ConfigurationError: there is no such lane.
    """
    if indices is None:
        return list(range(num_envs))
    lanes = [indices] if isinstance(indices, int) else list(indices)
    for lane in lanes:
        if not 0 <= lane < num_envs:
            raise ConfigurationError(
                f"indices must be numbers of lanes from 0 to {num_envs - 1}, got {lane!r}. Leave indices out for all lanes"
            )
    return lanes


class IndexedAttributes:
    """Gives a vector env of gymnasium the signature of `get_attr` in Stable-Baselines3, whose wrappers call it so."""

    num_envs: int
    call: Any

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """Returns an attribute of each lane's env, or of the lanes `indices` alone."""
        found = self.call(name)
        return tuple(found[lane] for lane in lanes_of(indices, self.num_envs))


class SyncLanes(IndexedAttributes, SyncVectorEnv):
    """gymnasium's SyncVectorEnv, whose `get_attr` takes `indices`."""


class WorkerLanes(IndexedAttributes, AsyncVectorEnv):
    """gymnasium's AsyncVectorEnv, whose `get_attr` takes `indices`."""
