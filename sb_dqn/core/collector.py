"""The actor that acts, steps and waits, all in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from sb_dqn.envs.streams.open import Stream
from sb_dqn.types import ActionArray, Rows


class Collector:
    """Acts on the open rows, then steps all lanes.

    Args:
        stream: the environment.
        choose: from a tick, the `[B]` actions that leave its open rows.
        env_seed: for the first reset; later ones go on with the environment's own generators.
        declared: what the policy says of the rows that it has just left, `[B, ...]` by name (`Rows.extra`).
    """

    def __init__(
        self,
        stream: Stream,
        choose: Callable[[Rows], ActionArray],
        env_seed: int | None,
        declared: Callable[[], dict[str, npt.NDArray[Any]]] = dict,
    ) -> None:
        self.stream = stream
        self.choose = choose
        self.env_seed = env_seed
        self.declared = declared
        self.latest: Rows | None = None
        """The tick whose open rows nobody has acted on; None from then on until the environment has answered."""
        self.goes_on: Callable[[], Rows | None] | None = None
        """Asked once instead of beginning anew: the tick to go on from, or None if there is none after all."""

    def rows(self) -> Iterator[Rows]:
        """One tick after another; the first begins the stream anew. An action is chosen when its tick is asked for."""
        goes_on, self.goes_on = self.goes_on, None
        rows = None if goes_on is None else goes_on()
        if rows is None:
            seed, self.env_seed, self.latest = self.env_seed, None, None
            rows = self.latest = self.stream.begin(seed)
            yield rows
        while True:
            self.latest = None
            rows = self.stream.step(self.choose(rows))
            rows.extra = self.declared()
            self.latest = rows
            yield rows
