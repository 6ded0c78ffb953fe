"""Episode buffer of REINFORCE and VPG: whole episodes, each of their samples used in one update."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.on_policy_buffer import VALUE, OnPolicyBuffer, SampleView, ValueFunction
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_storage import Extras
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.types import Array, IntArray, Rows, Wait

FIRST_ROWS = 512
"""Initial rows per lane; doubled when the episodes need more."""
SMALLEST_BATCH = 64

Baseline = Callable[[Tensor, Tensor], Tensor]
"""Maps returns `[M]` and steps within the episode `[M]` int64 to the baseline of each return, `[M]`."""


class EpisodeView(SampleView):
    """View of complete episodes; the first places hold the samples, one episode after the other, the rest is padding.

    Attributes:
        baseline: replaces the value if none is learned. If None, it is the policy's value output.
    """

    baseline: Baseline | None = None

    def prepare(self, where: IntArray, extra: Extras) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: `[E, 3]` lane, first row and `last` row (absolute) of each episode.
            extra: `[rows, B, ...]` by name, extra outputs at each row; values are complete.
        """
        ring, device = self.ring, self.ring.device
        start, length = np.array(ring.cursor), where[:, 2] - where[:, 1]
        np.minimum.at(start, where[:, 0], where[:, 1])
        width = int((ring.cursor - start).max()) + 1
        row = torch.from_numpy(start).to(device) + torch.arange(width, device=device).unsqueeze(1)  # [W, B]
        cells = ring.cells(self._lanes, row)
        columns = {name: torch.from_numpy(column).to(device).flatten(0, 1) for name, column in extra.items()}
        return_, _ = self._targets(cells, row, columns[VALUE].take(cells))

        count = int(length.sum())
        step_of = np.concatenate([np.arange(steps) for steps in length])
        lane_of, row_of = np.repeat(where[:, 0], length), np.repeat(where[:, 1], length) + step_of
        place = torch.from_numpy((row_of - start[lane_of]) * ring.num_lanes + lane_of).to(device)
        self.lane[:count] = torch.from_numpy(lane_of).to(device)
        self.row[:count] = torch.from_numpy(row_of).to(device)
        self.return_[:count] = return_.flatten().take(place)
        self.weight.zero_()
        self.weight[:count] = 1.0
        at = cells.flatten().take(place)
        for name, column in columns.items():
            self.extra[name][:count] = column.index_select(0, at)
        if self.baseline is not None:
            self.extra[VALUE][:count] = self.baseline(self.return_[:count], torch.from_numpy(step_of).to(device))


class EpisodeBuffer(OnPolicyBuffer):
    """Episodes of all lanes, stored until enough of them have ended (an `Experience` of types.py).

    An episode is complete when its `last` row has arrived. One that is interrupted because the stream restarts is dropped. An
    update uses all complete episodes, each of their rows once; running episodes stay. Batch sizes are powers of two, padded
    with weight 0, so that few traces are needed.

    Args:
        make_ring: creates a ring with the given rows per lane.
        episodes_per_update: number of complete episodes per update over all lanes, >= 1; all episodes that end in the same
            tick are used.
        make_view: creates the view of a ring.
        extras: shapes of the policy's extra outputs other than `value`, of one lane, by name; float32.

    Raises:
        MemoryBudgetError: an episode does not fit into memory.
    """

    view: EpisodeView

    def __init__(
        self,
        make_ring: Callable[[int], Ring],
        episodes_per_update: int,
        make_view: Callable[[Ring, Mapping[str, tuple[int, ...]]], EpisodeView],
        extras: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(make_ring(FIRST_ROWS), extras)
        self.episodes_per_update = episodes_per_update
        self._make_ring = make_ring
        self._make_view = make_view
        self.view = make_view(self.ring, self._shapes)
        self.finished: list[tuple[int, int, int]] = []
        """Lane, first row and `last` row of each complete episode, in the order of their ends."""
        self.begin: IntArray = np.zeros(self.ring.num_lanes, np.int64)  # first row of the running episode
        self._oldest = self.begin.copy()  # oldest row still needed

    def describe(self) -> str:
        """Returns one line of text that describes the episodes per update."""
        return f"an update after every {self.episodes_per_update} episodes over {self.ring.num_lanes} lanes"

    @property
    def is_full(self) -> bool:
        """True if enough episodes are complete and `updates_due` has not been called yet."""
        return len(self.finished) >= self.episodes_per_update and not self._consumed

    def extend(self, rows: Rows) -> None:
        """Adds one tick: the departures of the last one (or the cut of a stream that restarts), then the arrivals."""
        if self._consumed:
            self.finished.clear()
            self._oldest[:] = self.begin
            self._consumed = False
        self._make_room(len(rows.slots))
        if rows.action is not None:
            self._depart(rows.action, rows.extra)
        else:
            self._cut()
            self.begin[:] = self.ring.cursor
            if not self.finished:
                self._oldest[:] = self.begin
        for slot in rows.slots:
            self._arrive(slot)
            for lane in np.flatnonzero(slot.valid & slot.last).tolist():
                row = int(self.ring.cursor[lane]) - 1
                self.finished.append((lane, int(self.begin[lane]), row))
                self.begin[lane] = row + 1

    def _make_room(self, slots: int) -> None:
        """Doubles the rows until the ring holds all rows that are needed."""
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
        self.extra = {name: _resized(column, held, rows) for name, column in self.extra.items()}
        self.departed = _resized(self.departed, held, rows)
        self._terminal, self._last = (_resized(ends, held, rows) for ends in (self._terminal, self._last))
        gamma = self.view.gamma  # may have changed since it was made
        self.view = self._make_view(self.ring, self._shapes)
        self.view.gamma = gamma

    def complete(self, value_of: ValueFunction) -> None:
        """Computes the missing values, and the targets of all samples; called before the update.

        Values are missing at final rows whose lane has not departed since; those that end by a time limit need one.

        Args:
            value_of: the current policy's values `[B]` of observations and masks of B rows.
        """
        where: IntArray = np.array(self.finished, np.int64)
        lane, last = where[:, 0], where[:, 2]
        missing = self._without_value(last, lane)
        self._evaluate(last[missing], lane[missing], value_of)
        self.view.prepare(where, self.extra)
        self.num_samples = int((where[:, 2] - where[:, 1]).sum())

    def synchronize(self, minimum: Callable[[int], int]) -> None:
        """Raises an error, since episodes end at different times for each learner.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            "algorithms that learn from whole episodes must have one learner, got several, whose episodes end at different "
            "times. Use A2C or PPO."
        )

    def updates_due(self) -> int:
        """Returns 1 if enough episodes are complete, else 0, and counts the update as done."""
        if not self.is_full:
            return 0
        self._consumed = True
        return 1

    def wait(self) -> Wait:
        """Returns what the next update waits for: the episodes that are not complete."""
        ended = 0 if self._consumed else len(self.finished)
        why = f"an update takes episodes_per_update={self.episodes_per_update} complete episodes, {ended} have ended"
        return Wait(
            max(self.episodes_per_update - ended, 1), why, "Learn for more env steps, or lower episodes_per_update"
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """Returns the places `[N]` of all samples, filled up to a power of two with the padding place."""
        size = max(SMALLEST_BATCH, 1 << (self.num_samples - 1).bit_length())
        places = torch.arange(size, device=self.ring.device)
        return torch.where(places < self.num_samples, places, self.view.places)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the state between two ticks as one flat dict."""
        return {
            **self._rows_state(),
            "finished": torch.tensor(self.finished, dtype=torch.int64).view(-1, 3),
            "begin": torch.from_numpy(self.begin.copy()),
            "oldest": torch.from_numpy(self._oldest.copy()),
            "spent": torch.tensor(self._consumed),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the result of `state_dict`.

        Raises:
            CheckpointError: the state belongs to another number of lanes, or to another algorithm.
        """
        if "ring/rows" not in state:
            raise CheckpointError(
                "buffer state must be that of the same algorithm, got one without 'ring/rows'. Load it with the class that "
                "saved it."
            )
        if int(state["ring/rows"]) > self.ring.rows:
            super().__init__(self._make_ring(int(state["ring/rows"])), self._shapes)
            self.view = self._make_view(self.ring, self._shapes)
        self._load_rows(state, {"finished", "begin", "oldest", "spent"})
        self.finished = [(lane, first, last) for lane, first, last in state["finished"].tolist()]
        self.begin[:] = state["begin"].cpu().numpy()
        self._oldest[:] = state["oldest"].cpu().numpy()
        self._consumed = bool(state["spent"])


def _resized(column: Array, held: IntArray, rows: int) -> Array:
    """Copies a column `[T, B, ...]` into one with more rows.

    Args:
        column: row r of lane b lies at (r % T, b).
        held: `[n, B]` rows to copy; negative numbers are padding.
        rows: new T.
    """
    larger = np.zeros((rows, *column.shape[1:]), column.dtype)
    lanes = np.broadcast_to(np.arange(column.shape[1]), held.shape)
    larger[held % rows, lanes] = column[held % len(column), lanes]
    return larger
