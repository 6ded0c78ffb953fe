"""Base classes of vector environments: selection of lanes by `indices`, and batches of the results of single lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from sb_dqn.envs.vector.worker_processes import end_workers
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Space
from sb_dqn.types import Env, Info, Kwargs, ResetResult, VectorStep

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


class ListedLanes(IndexedAttributes, VectorEnv[Any, Any, Any]):
    """Base class of vector envs with NEXT_STEP autoreset that have the results of their lanes in lists."""

    def __del__(self) -> None:
        """Leaves the environments open, since they may be a user's; gymnasium before 1.3 closes them here."""

    def _set_spaces(self, first: Env, num_envs: int, observation_space: Space, action_space: Space) -> None:
        """Sets spaces of one lane and of all; metadata and render mode are those of the first environment."""
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.metadata = {**getattr(first, "metadata", {}), "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = getattr(first, "render_mode", None)

    def _batched(self, observations: Sequence[Any], infos: Sequence[Info]) -> ResetResult:
        """Returns what `reset` returns."""
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs, np.zeros)
        batched: dict[str, Any] = {}
        for lane, info in enumerate(infos):
            if info:
                batched = self._add_info(batched, info, lane)
        return concatenate(self.single_observation_space, observations, empty), batched

    def _batched_step(self, observations: Any, rewards: Any, terminated: Any, truncated: Any, infos: Any) -> VectorStep:
        """Returns what `step` returns."""
        batch, info = self._batched(observations, infos)
        return batch, np.array(rewards, np.float64), np.array(terminated, bool), np.array(truncated, bool), info


class FirstSeed:
    """Base class of vector envs that keep the seed of their first `reset`."""

    first_seed: int | None = None
    """Seed of the next `reset` without a seed; None afterwards."""

    def reset(self, *, seed: Any = None, options: Kwargs | None = None) -> ResetResult:
        """Resets every lane; an int seeds lane b with seed + b."""
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        result: ResetResult = cast(Any, super()).reset(seed=seed, options=options)
        return result


class SyncLanes(FirstSeed, IndexedAttributes, SyncVectorEnv):
    """gymnasium's SyncVectorEnv with `indices` in `get_attr`."""


class WorkerLanes(FirstSeed, IndexedAttributes, AsyncVectorEnv):
    """gymnasium's AsyncVectorEnv with `indices` in `get_attr`; deleting it ends its workers."""

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the environments. With `terminate`, workers end even if they ignore SIGTERM.

        Workers that were forked after pygame drew ignore it: SDL, its backend, handles the signal.
        """
        if terminate:
            end_workers(self)
            self._state = AsyncState.DEFAULT  # no worker is left to answer a pending call
        super().close_extras(timeout, terminate)
