"""Collects rows: selects actions, steps the environment and yields one tick after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy.typing as npt

from sb_dqn.acting.tick_state import stream_state, tick_of, tick_state
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import CheckpointError
from sb_dqn.types import ActionArray, Rows

KIND = "collector"
"""Key of a collector's kind in the state of its stream; absent for the plain `Collector`."""


class Collector:
    """Selects actions for the open rows, then steps all lanes, in the thread of the caller.

    Args:
        stream: the environment.
        choose: from a tick to the `[B, ...]` actions for its open rows.
        env_seed: seed of the first reset; later resets use the environment's own generators.
        extras: returns the arrays `[B, ...]` that are stored with the latest actions (`Rows.extra`).
    """

    kind: ClassVar[str | None] = None
    """Name in checkpoints; None: the plain collector."""

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
            rows = self.begin()
            yield rows
        while True:
            self.latest = None
            rows = self.stream.step(self.choose(rows))
            rows.extra = self.extras()
            self.latest = rows
            yield rows

    def begin(self) -> Rows:
        """Resets the environment and returns its first rows."""
        seed, self.env_seed, self.latest = self.env_seed, None, None
        self.latest = self.stream.begin(seed)
        return self.latest

    def state(self, settled: bool, trust: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        """Returns the state between two ticks: the tick to continue from, the environments, and the reason if there is none.

        Args:
            settled: the latest tick has been stored and its updates have run.
            trust: pickle an environment that has no `state_dict()`.
        """
        rows = self.latest if settled else None
        stream, why = stream_state(self.stream, rows, trust)
        return (None if rows is None or stream is None else tick_state(rows)), stream, why

    def restore(self, tick: Mapping[str, Any] | None, stream: Mapping[str, Any] | None, trust: bool) -> Rows | None:
        """Restores a `state`; returns what `rows` continues from, None if the environment must be reset.

        Raises:
            CheckpointError: the state is of another kind of collector, or of another environment.
        """
        if tick is None or stream is None:
            return None
        self.check_kind(stream)
        self.stream.load_state_dict(stream, trust)
        return tick_of(tick, self.stream)

    def check_kind(self, stream: Mapping[str, Any]) -> None:
        """Checks that a state comes from a collector of this class.

        Raises:
            CheckpointError: it does not.
        """
        if stream.get(KIND) != self.kind:
            raise CheckpointError(
                f"actors must be of the kind of the full checkpoint, {stream.get(KIND)!r}, got {self.kind!r}. Load it with the same "
                f"actors, or call learn instead of resume."
            )

    def log_facts(self) -> dict[str, float]:
        """Returns entries for a log line."""
        restarts = getattr(self.stream.env, "restarts", 0)
        return {"rollout/env_restarts": restarts} if restarts else {}

    def close(self) -> None:
        """Ends what runs in the background; the environment stays open."""
