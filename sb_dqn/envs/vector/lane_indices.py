"""Selection of lanes by `indices`, as in Stable-Baselines3's `VecEnv`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sb_dqn.errors import ConfigurationError

Indices = int | Iterable[int] | None
"""Lane numbers; None selects all lanes."""


def lane_numbers(indices: Indices, num_envs: int) -> list[int]:
    """Returns the selected lane numbers as a list.

    Raises:
        ConfigurationError: a number is out of range.
    """
    if indices is None:
        return list(range(num_envs))
    lanes = [indices] if isinstance(indices, int) else list(indices)
    for lane in lanes:
        if not 0 <= lane < num_envs:
            raise ConfigurationError(
                f"indices must be numbers of lanes from 0 to {num_envs - 1}, got {lane!r}. Leave indices out for all lanes."
            )
    return lanes


class IndexedAttributes:
    """Mixin for gymnasium vector envs: `get_attr` takes `indices`, as the wrappers of Stable-Baselines3 pass them."""

    num_envs: int
    call: Any

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """Returns an attribute of each selected lane's env."""
        values = self.call(name)
        return tuple(values[lane] for lane in lane_numbers(indices, self.num_envs))


class SyncLanes(IndexedAttributes, SyncVectorEnv):
    """gymnasium's SyncVectorEnv with `indices` in `get_attr`."""


class WorkerLanes(IndexedAttributes, AsyncVectorEnv):
    """gymnasium's AsyncVectorEnv with `indices` in `get_attr`."""
