"""Whole episodes: what REINFORCE and its kin learn from, once, and then forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.replay.collected import VALUE, Collected, ValueOf
from sb_dqn.replay.episode_view import EpisodeView
from sb_dqn.replay.ring import Ring
from sb_dqn.types import IntArray, Rows, Wait

FIRST_ROWS = 512
"""Rows a lane to begin with; doubled whenever an episode is longer."""
SMALLEST_BATCH = 64


class Episodes(Collected):
    """Episodes of all lanes, held until enough of them have ended (the `Experience` of types.py).

    An episode is complete when its `last` row has arrived. One that is left in the middle, because the stream begins anew, is
    dropped. All complete ones are learned from at once, each of its rows once; the running ones stay. Batches come in few
    sizes (powers of two, filled up with places of weight 0), so that a recording serves many.

    Args:
        make_ring: a ring of so many rows a lane.
        episodes_per_update: over all lanes, >= 1; of those that end in the same tick all are used.
        make_view: what reads a ring.
        extras: what the policy declares on departing beside `value`: name to shape of one lane's; float32.

    Raises:
        ConfigurationError: a number is out of its range.
        MemoryBudgetError: an episode does not fit.
    """

    view: EpisodeView

    def __init__(
        self,
        make_ring: Callable[[int], Ring],
        episodes_per_update: int,
        make_view: Callable[[Ring, Mapping[str, tuple[int, ...]]], EpisodeView],
        extras: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        if episodes_per_update < 1:
            raise ConfigurationError(f"episodes_per_update={episodes_per_update} is not allowed; give an integer >= 1")
        self.episodes_per_update = episodes_per_update
        self._make_ring, self._make_view = make_ring, make_view
        self._shapes = {VALUE: (), **(extras or {})}
        super().__init__(make_ring(FIRST_ROWS), self._shapes)
        self.view = make_view(self.ring, self._shapes)
        self.finished: list[tuple[int, int, int]] = []
        """Lane, first row and `last` row of each complete episode, in the order of their ends."""
        self.begin: IntArray = np.zeros(self.ring.num_lanes, np.int64)  # row at which the running episode began
        self._oldest = self.begin.copy()  # of the rows that are needed
        self.num_samples = 0
        self._spent = False

    def describe(self) -> str:
        """One line for people: how much an update waits for."""
        return f"an update after every {self.episodes_per_update} episodes over {self.ring.num_lanes} lanes"

    @property
    def is_full(self) -> bool:
        """Enough episodes are complete, and no update has been asked for."""
        return len(self.finished) >= self.episodes_per_update and not self._spent

    def extend(self, rows: Rows) -> None:
        """Takes in one tick: departures of the last (or the cut of a stream that begins anew), then arrivals."""
        if self._spent:
            self.finished.clear()
            self._oldest[:] = self.begin
            self._spent = False
        self._make_room(len(rows.slots))
        if rows.action is not None:
            self._depart(rows.extra)
            self.ring.depart(rows.action)
        else:
            self.ring.cut()
            self.begin[:] = self.ring.cursor
            if not self.finished:
                self._oldest[:] = self.begin
        for slot in rows.slots:
            self.ring.arrive(slot)
            self._arrived(slot)
            for lane in np.flatnonzero(slot.valid & slot.last).tolist():
                row = int(self.ring.cursor[lane]) - 1
                self.finished.append((lane, int(self.begin[lane]), row))
                self.begin[lane] = row + 1

    def _make_room(self, slots: int) -> None:
        """Twice the rows, as often as it takes to keep all that is needed."""
        ring = self.ring
        needed = int((ring.cursor - self._oldest).max()) + slots + ring.frame_stack
        if needed <= ring.rows:
            return
        rows = ring.rows
        while rows < needed:
            rows *= 2
        self.ring = self._make_ring(rows)
        self.ring.load_state_dict(ring.state_dict())
        held = self.ring.cursor - 1 - np.arange(min(int(ring.cursor.max()), ring.rows))[:, None]  # [n, B]
        self.extra = {name: _moved(column, held, rows) for name, column in self.extra.items()}
        self.departed = _moved(self.departed, held, rows)
        self.view = self._make_view(self.ring, self._shapes)

    def complete(self, value_of: ValueOf) -> None:
        """Gives values to the final rows that have none, and all samples their targets; before the update.

        Without a value are final rows whose lane has not departed since: those that end by a time limit need one.

        Args:
            value_of: the current policy's values `[B]` of observations, and masks, of B rows.
        """
        where: IntArray = np.array(self.finished, np.int64)
        lane, last = where[:, 0], where[:, 2]
        lacking = self._without_value(last, lane)
        self._evaluate(last[lacking], lane[lacking], value_of)
        self.view.prepare(where, self.extra)
        self.num_samples = self.view.num_samples

    def updates_due(self) -> int:
        """1 where enough episodes are complete; asking settles it."""
        if not self.is_full:
            return 0
        self._spent = True
        return 1

    def wait(self) -> Wait:
        """Returns what the next update waits for: the episodes that are not complete."""
        ended = 0 if self._spent else len(self.finished)
        why = f"an update takes episodes_per_update={self.episodes_per_update} complete episodes, {ended} have ended"
        return Wait(
            max(self.episodes_per_update - ended, 1), why, "Learn for more env steps, or lower episodes_per_update"
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """Places `[N]` of all samples, filled up to a power of two with the place that stands for none."""
        size = max(SMALLEST_BATCH, 1 << (self.num_samples - 1).bit_length())
        places = torch.arange(size, device=self.ring.device)
        return torch.where(places < self.num_samples, places, self.view.places)

    def state_dict(self) -> dict[str, Tensor]:
        """All that is held between two ticks, as one flat dict."""
        state = self._rows_state() | {"finished": torch.tensor(self.finished, dtype=torch.int64).view(-1, 3)}
        state |= {name: torch.from_numpy(x.copy()) for name, x in (("begin", self.begin), ("oldest", self._oldest))}
        return state | {"spent": torch.tensor(self._spent)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: it is of other lanes, or of another algorithm.
        """
        if "ring/rows" not in state:
            raise CheckpointError("the state of a store of episodes lacks its rows; it is of another algorithm")
        if int(state["ring/rows"]) > self.ring.rows:
            self.ring = self._make_ring(int(state["ring/rows"]))
            super().__init__(self.ring, self._shapes)
            self.view = self._make_view(self.ring, self._shapes)
        self._load_rows(state, {"finished", "begin", "oldest", "spent"})
        self.finished = [(lane, first, last) for lane, first, last in state["finished"].tolist()]
        self.begin[:], self._oldest[:] = state["begin"].cpu().numpy(), state["oldest"].cpu().numpy()
        self._spent = bool(state["spent"])


def _moved(column: npt.NDArray[Any], held: IntArray, rows: int) -> npt.NDArray[Any]:
    """A column `[T, B, ...]` in more rows.

    Args:
        column: row r of lane b lies at (r % T, b).
        held: `[n, B]` the rows to keep; numbers below 0 stand for none.
        rows: T from now on.
    """
    wider = np.zeros((rows, *column.shape[1:]), column.dtype)
    lanes = np.broadcast_to(np.arange(column.shape[1]), held.shape)
    wider[held % rows, lanes] = column[held % len(column), lanes]
    return wider
