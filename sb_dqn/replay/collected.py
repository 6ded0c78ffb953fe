"""What a rollout and a store of episodes have in common: rows of all lanes, and what the policy declared of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError
from sb_dqn.replay.columns import Where
from sb_dqn.replay.ring import Ring
from sb_dqn.replay.sample_view import SampleView
from sb_dqn.types import Batch, BoolArray, IntArray, Observation, Rows, Slot, Wait

VALUE = "value"
"""What every policy declares on departing: the value of o_t by its own reckoning, `[B]`."""

ValueOf = Callable[..., npt.NDArray[Any]]
"""Values `[B]` of observations and masks of B rows; of a policy that remembers also of what came before (`Before`)."""


class Collected(ABC):
    """Rows that one policy left, to be learned from and forgotten (half of an `Experience` of types.py).

    The use of it: `extend` until `is_full`; then `complete` once; then as many updates as `updates_due` says, each with
    `sample(draw(generator))`.

    Args:
        ring: where the rows lie.
        shapes: of what the policy declares on departing, one lane's by name; float32.
    """

    view: SampleView
    num_samples: int

    def __init__(self, ring: Ring, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.ring = ring
        self.extra = {name: np.zeros((ring.rows, ring.num_lanes, *shape), np.float32) for name, shape in shapes.items()}
        self.departed = np.zeros((ring.rows, ring.num_lanes), np.bool_)
        self._lanes: IntArray = np.arange(ring.num_lanes)
        self._open_last = np.zeros(ring.num_lanes, np.bool_)

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """There is enough to learn from, and no update has been asked for."""

    @abstractmethod
    def extend(self, rows: Rows) -> None:
        """Takes in one tick: departures of the last (or the cut of a stream that begins anew), then arrivals."""

    @abstractmethod
    def complete(self, value_of: ValueOf) -> None:
        """Gives values to the rows that have none, and all samples their targets; before the first update.

        Args:
            value_of: the current policy's values `[B]` of observations, and masks, of B rows.
        """

    @abstractmethod
    def describe(self) -> str:
        """One line for people."""

    @abstractmethod
    def updates_due(self) -> int:
        """Gradient steps to take now; asking settles them."""

    @abstractmethod
    def wait(self) -> Wait:
        """Returns what the next update waits for."""

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """Places `[N]` of the next minibatch."""

    def _depart(self, extra: Mapping[str, npt.NDArray[Any]]) -> None:
        open_rows = self.ring.open_rows()
        self.departed[open_rows] = True
        for name, column in self.extra.items():
            given = extra[name]
            if name != VALUE and self._open_last.any():  # the value stays: a truncation bootstraps from it
                given = np.where(self._open_last.reshape(-1, *(1,) * (given.ndim - 1)), 0, given)
            column[open_rows] = given

    def _arrived(self, slot: Slot) -> None:
        cells: Where
        if slot.full:
            cells = self.ring.open_rows()
            self._open_last[:] = slot.last
        else:
            lanes = np.flatnonzero(slot.valid)
            cells = (self.ring.cursor[lanes] - 1) % self.ring.rows, lanes
            self._open_last[lanes] = slot.last[lanes]
        self.departed[cells] = False
        for column in self.extra.values():
            column[cells] = 0

    def _evaluate(self, row: IntArray, lane: IntArray, value_of: ValueOf) -> None:
        """Gives values to rows (absolute) of lanes."""
        for begin in range(0, len(row), len(self._lanes)):  # B rows at a time, as in acting: fixed shapes
            some = slice(begin, begin + len(self._lanes))
            value = value_of(*self._asked(*(np.resize(where[some], len(self._lanes)) for where in (lane, row))))
            self.extra[VALUE][row[some] % self.ring.rows, lane[some]] = value[: len(row[some])]

    def _asked(self, lane: IntArray, row: IntArray) -> tuple[Any, ...]:
        """What `value_of` is told of rows of lanes."""
        return self._seen(lane, row)

    def _without_value(self, row: IntArray, lane: IntArray) -> BoolArray:
        """Which rows (absolute) of lanes have arrived without ever departing, and are not `terminal`."""
        ring = self.ring
        cells = row % ring.rows, lane
        terminal = ring.terminal.cpu().numpy()[: ring.capacity].reshape(ring.rows, ring.num_lanes)
        lacking: BoolArray = (row < ring.cursor[lane]) & ~self.departed[cells] & ~terminal[cells]
        return lacking

    def sample(self, noise: Tensor) -> Batch:
        """The samples at places `[N]` int64 that `draw` gave; pure tensor operations."""
        return self.view.gather(noise)

    def feedback(self, batch: Batch, priority: Tensor) -> None:  # noqa: B027  # nothing to do, on purpose
        """Nothing to do: all samples count alike."""

    def open_observation(self) -> Observation:
        """What the policy sees now: the newest observation of every lane, frames stacked."""
        return self._seen(self._lanes, self.ring.cursor - 1)[0]

    def _seen(self, lane: IntArray, row: IntArray) -> tuple[Observation, BoolArray | None]:
        """Observations and masks of rows of lanes, on the host."""
        at = (torch.from_numpy(where).to(self.ring.device) for where in (lane, row))
        obs, mask = self.view.observe(*at)
        return {key: x.cpu().numpy() for key, x in obs.items()}, None if mask is None else mask.cpu().numpy()

    def _rows_state(self) -> dict[str, Tensor]:
        """Rows and what was declared of them, as one flat dict; the ring's tensors are views (see `Ring.state_dict`)."""
        state = {f"ring/{name}": value for name, value in self.ring.state_dict().items()}
        state |= {f"extra/{name}": torch.from_numpy(column.copy()) for name, column in self.extra.items()}
        return state | {"departed": torch.from_numpy(self.departed.copy())}

    def _load_rows(self, state: Mapping[str, Tensor], further: set[str]) -> None:
        """Takes over what `_rows_state` gave.

        Args:
            state: a whole state.
            further: what else must be in it.

        Raises:
            CheckpointError: something is missing, or of another shape.
        """
        columns = {f"extra/{name}": column for name, column in self.extra.items()} | {"departed": self.departed}
        missing = {*columns, *further} - state.keys()
        if missing:
            raise CheckpointError(f"the state of a rollout lacks {sorted(missing)}; it is of another algorithm")
        for name, column in columns.items():
            if tuple(state[name].shape) != column.shape:
                raise CheckpointError(
                    f"{name!r} has shape {tuple(state[name].shape)} in the state, {column.shape} here; use as many lanes"
                )
        self.ring.load_state_dict({name[5:]: state[name] for name in state if name.startswith("ring/")})
        for name, column in columns.items():
            column[...] = state[name].cpu().numpy()
        open_cells = (self.ring.cursor - 1) % self.ring.rows * self.ring.num_lanes + self._lanes
        self._open_last[:] = (self.ring.cursor > 0) & self.ring.last.cpu().numpy()[open_cells]
