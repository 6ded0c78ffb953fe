"""Collects rows: selects actions, steps the environment and yields one tick after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from sb_dqn.envs.streams.open import Stream
from sb_dqn.types import ActionArray, Rows


class Collector:
    """Selects actions for the open rows, then steps all lanes, in the thread of the caller.

    Args:
        stream: the environment.
        choose: from a tick to the `[B, ...]` actions for its open rows.
        env_seed: seed of the first reset; later resets use the environment's own generators.
        extras: returns the arrays `[B, ...]` that are stored with the latest actions (`Rows.extra`).
    """

    def __init__(
        self,
        stream: Stream,
        choose: Callable[[Rows], ActionArray],
        env_seed: int | None,
        extras: Callable[[], dict[str, npt.NDArray[Any]]] = dict,
    ) -> None:
        self.stream = stream
        self.choose = choose
        self.env_seed = env_seed
        self.extras = extras
        self.latest: Rows | None = None
        """The latest tick, until an action is chosen for its open rows; None from then until the environment has stepped."""

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        """Yields one tick after another; the action for a tick is selected when the next one is requested.

        Args:
            first: a tick that was stored before (a resumed run), to continue from; None resets the environment.
        """
        rows = first
        if rows is None:
            seed, self.env_seed, self.latest = self.env_seed, None, None
            rows = self.latest = self.stream.begin(seed)
            yield rows
        while True:
            self.latest = None
            rows = self.stream.step(self.choose(rows))
            rows.extra = self.extras()
            self.latest = rows
            yield rows
