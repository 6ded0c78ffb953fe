"""On-policy buffers: the base classes of rollout and episode buffers, and of the views that read their samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import RingObservations, observations_at
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_storage import Extras
from sb_dqn.buffers.staged_writes import Where
from sb_dqn.errors import CheckpointError
from sb_dqn.losses.returns import lambda_returns
from sb_dqn.losses.transforms import identity
from sb_dqn.types import ActionArray, Array, Batch, BoolArray, IntArray, Slot

VALUE = "value"
"""Extra output of every policy: its own value estimate of o_t, `[B]`."""

ValueFunction = Callable[..., Array]
"""Values `[B]` of observations and masks of B rows; a recurrent policy also gets the `Before` of these rows."""


class SampleView(ABC):
    """View of the samples of one policy with their lambda-returns, at a fixed number of places.

    Each place holds one sample, or padding (weight 0); the last place is always padding. All tensors that `gather` reads stay
    where they are, so a trace of it stays valid.

    Args:
        ring: the ring to read from.
        places: capacity in samples.
        gamma: discount per env step, [0, 1].
        lambda_: parameter of the lambda-returns, [0, 1].
        extras: shapes of the policy's extra outputs, of one lane, by name.
        scale: function from stored rewards to the rewards of the loss.
    """

    def __init__(
        self,
        ring: Ring,
        places: int,
        gamma: float,
        lambda_: float,
        extras: Mapping[str, tuple[int, ...]],
        scale: Callable[[Tensor], Tensor] = identity,
    ) -> None:
        self.ring = ring
        self.places = places
        self.gamma = float(gamma)
        self.lambda_ = float(lambda_)
        self.scale = scale
        device = ring.device
        self.lane, self.row = torch.zeros((2, places + 1), dtype=torch.int64, device=device)
        self.return_, self.weight = torch.zeros((2, places + 1), device=device)
        self.extra = {name: torch.zeros((places + 1, *shape), device=device) for name, shape in extras.items()}
        self._lanes = torch.arange(ring.num_lanes, device=device)

    @abstractmethod
    def prepare(self, where: IntArray, extra: Extras) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: location of the samples.
            extra: `[rows, B, ...]` by name, extra outputs at each row; values are complete.
        """

    def _targets(self, cells: Tensor, row: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Computes lambda-returns `[W - 1, B]`, finite everywhere, and the rows that start a transition, `[W - 1, B]` bool."""
        ring = self.ring
        open_row = torch.from_numpy(ring.cursor - 1).to(ring.device)
        terminal, last = ring.terminal.take(cells), ring.last.take(cells)
        starts = (row[:-1] < open_row) & ~last[:-1]
        continues = starts & (row[1:] < open_row) & ~(terminal | last)[1:]
        # rows past the cursor are outdated and may be anything: `where`, not a product
        return_ = lambda_returns(
            torch.where(starts, self.scale(ring.reward.take(cells[1:])), 0.0),
            (starts & ~terminal[1:]) * self.gamma,
            torch.where(starts, value[1:], 0.0),
            continues * self.lambda_,
        )
        return return_, starts

    def gather(self, places: Tensor) -> Batch:
        """Reads one batch.

        Args:
            places: `[N]` int64.

        Returns:
            A batch whose `return_` is the complete target, without bootstrapping (discount 0, no `next_obs`).
        """
        lane, row = self.lane.take(places), self.row.take(places)
        return_ = self.return_.take(places)
        obs, mask = self.observe(lane, row)
        return Batch(
            obs=obs,
            action=self.ring.actions_at(self.ring.cells(lane, row)),
            return_=return_,
            discount=torch.zeros_like(return_),
            next_obs={},
            weight=self.weight.take(places),
            place=torch.stack([lane, row]),
            mask=mask,
            extra={name: column.index_select(0, places) for name, column in self.extra.items()},
        )

    def observe(self, lane: Tensor, row: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Returns observations with stacked frames, and masks or None, at rows `[N]` of lanes `[N]`."""
        column = self.ring.mask
        mask = None if column is None else column.index_select(0, self.ring.cells(lane, row))
        return observations_at(self.ring, lane, row), mask


class OnPolicyBuffer(ABC):
    """Rows of one policy, used for its updates and then dropped (an `Experience` of types.py).

    Usage: `extend` until `is_full`; then `complete` once; then `updates_due` updates, each with `sample_from(draw(generator))`.

    Args:
        ring: storage of the rows.
        extras: shapes of the policy's extra outputs other than `value`, of one lane, by name; float32.
    """

    view: SampleView

    def __init__(self, ring: Ring, extras: Mapping[str, tuple[int, ...]] | None) -> None:
        self.ring = ring
        self.num_samples = 0
        self._consumed = False
        self._shapes = shapes = {VALUE: (), **(extras or {})}
        self.extra = {name: np.zeros((ring.rows, ring.num_lanes, *shape), np.float32) for name, shape in shapes.items()}
        self.departed = np.zeros((ring.rows, ring.num_lanes), np.bool_)
        # the columns `terminal` and `last` of the ring again, so that nothing waits for a device
        self._terminal = np.zeros((ring.rows, ring.num_lanes), np.bool_)
        self._last = np.zeros((ring.rows, ring.num_lanes), np.bool_)
        self._lanes: IntArray = np.arange(ring.num_lanes)
        self._open_last = np.zeros(ring.num_lanes, np.bool_)
        self._minimum: Callable[[int], int] | None = None

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """True if there is enough data for updates and `updates_due` has not been called yet."""

    def synchronize(self, minimum: Callable[[int], int]) -> None:
        """Makes the number of updates the same for several learners, each with its own buffer.

        Args:
            minimum: returns the smallest of the numbers that the learners call it with.
        """
        self._minimum = minimum

    @abstractmethod
    def complete(self, value_of: ValueFunction) -> None:
        """Computes the missing values, and the targets of all samples; called before the first update.

        Args:
            value_of: the current policy's values `[B]` of observations and masks of B rows.
        """

    @abstractmethod
    def describe(self) -> str:
        """Returns one line of text that describes the buffer."""

    def sample_from(self, drawn: Tensor) -> Batch:
        """Returns the samples at places `[N]` int64 from `draw`; pure tensor operations."""
        return self.view.gather(drawn)

    def traced_sampling(self, drawn: Tensor) -> Callable[[Tensor], Batch]:
        """Returns `sample_from`, whose operations are few."""
        return self.sample_from

    def refresh(self) -> None:  # noqa: B027  # not every buffer has something to refresh
        """Does nothing, since `complete` has prepared all samples."""

    def feedback(self, batch: Batch, priority: Tensor) -> None:  # noqa: B027  # nor something to learn from it
        """Does nothing, since all samples have the same weight."""

    def sends_batches(self, device: torch.device) -> bool:
        """Returns False, since the rows are on the device of the networks."""
        return False

    def preserve_state(self) -> AbstractContextManager[None]:
        """Restores nothing, since `feedback` changes nothing."""
        return nullcontext()

    def open_observation(self) -> Any:
        """Returns the newest observation of every lane, frames stacked: the policy's input. See `_observe`."""
        return self._observe(self._lanes, self.ring.cursor - 1)[0]

    def _depart(self, action: ActionArray, extra: Extras) -> None:
        """Stores the actions at the open rows, with the extra outputs of the policy."""
        open_rows = self.ring.open_rows()
        self.departed[open_rows] = True
        for name, column in self.extra.items():
            output = extra[name]
            if name != VALUE and self._open_last.any():  # the value is stored: a truncation bootstraps from it
                output = np.where(self._open_last.reshape(-1, *(1,) * (output.ndim - 1)), 0, output)
            column[open_rows] = output
        self.ring.depart(action)

    def _cut(self) -> None:
        """Cuts the running episodes, because the stream restarts."""
        self.ring.cut()
        self._last[self.ring.open_rows()] |= self.ring.cursor > 0

    def _arrive(self, slot: Slot) -> None:
        """Stores new rows, which are open until the next departure."""
        self.ring.arrive(slot)
        cells: Where
        lanes: IntArray | slice = slice(None)
        if slot.full:
            cells = self.ring.open_rows()
        else:
            lanes = np.flatnonzero(slot.valid)
            cells = (self.ring.cursor[lanes] - 1) % self.ring.rows, lanes
        self._open_last[lanes] = slot.last[lanes]
        self._last[cells] = slot.last[lanes]
        self._terminal[cells] = slot.terminal[lanes]
        self.departed[cells] = False
        for column in self.extra.values():
            column[cells] = 0

    def _evaluate(self, row: IntArray, lane: IntArray, value_of: ValueFunction) -> None:
        """Computes and stores the values of rows (absolute) of lanes."""
        count = len(self._lanes)
        for begin in range(0, len(row), count):  # B rows at a time, as in acting: fixed shapes
            part = slice(begin, begin + count)
            value = value_of(*self._value_inputs(np.resize(lane[part], count), np.resize(row[part], count)))
            self.extra[VALUE][row[part] % self.ring.rows, lane[part]] = value[: len(row[part])]

    def _value_inputs(self, lane: IntArray, row: IntArray) -> tuple[Any, ...]:
        """Returns the arguments of `value_of` for rows of lanes."""
        return self._observe(lane, row)

    def _without_value(self, row: IntArray, lane: IntArray) -> BoolArray:
        """Returns True for rows (absolute) of lanes that have arrived without departing, and are not `terminal`."""
        ring = self.ring
        cells = row % ring.rows, lane
        missing: BoolArray = (row < ring.cursor[lane]) & ~self.departed[cells] & ~self._terminal[cells]
        return missing

    def _observe(self, lane: IntArray, row: IntArray) -> tuple[Any, Any]:
        """Returns observations and masks of rows of lanes; on the device unless the CPU can address the ring."""
        ring = self.ring
        if not ring.host_visible:
            mask = ring.mask
            if mask is not None:
                mask = mask.index_select(0, torch.from_numpy(row % ring.rows * ring.num_lanes + lane).to(ring.device))
            return RingObservations(ring, lane, row), mask
        obs, mask = self.view.observe(torch.from_numpy(lane), torch.from_numpy(row))
        return {key: x.numpy() for key, x in obs.items()}, None if mask is None else mask.numpy()

    def _rows_state(self) -> dict[str, Tensor]:
        """Returns rows and extra outputs as one flat dict; tensors of the ring are views (see `Ring.state_dict`)."""
        state = {f"ring/{name}": value for name, value in self.ring.state_dict().items()}
        state |= {f"extra/{name}": torch.from_numpy(column.copy()) for name, column in self.extra.items()}
        return state | {"departed": torch.from_numpy(self.departed.copy())}

    def _load_rows(self, state: Mapping[str, Tensor], required: set[str]) -> None:
        """Loads the result of `_rows_state`.

        Args:
            state: a whole state.
            required: names of its other entries.
        """
        columns = {f"extra/{name}": column for name, column in self.extra.items()} | {"departed": self.departed}
        missing = {*columns, *required} - state.keys()
        if missing:
            raise CheckpointError(
                f"buffer state must be that of the same algorithm, got one without {sorted(missing)}. Load it with the class "
                f"that saved it."
            )
        for name, column in columns.items():
            if tuple(state[name].shape) != column.shape:
                raise CheckpointError(
                    f"{name!r} of the buffer state must have shape {column.shape}, got {tuple(state[name].shape)}. Use the "
                    f"same number of environments."
                )
        self.ring.load_state_dict({name[5:]: state[name] for name in state if name.startswith("ring/")})
        for name, column in columns.items():
            column[...] = state[name].cpu().numpy()
        for ends, flags in ((self._terminal, self.ring.terminal), (self._last, self.ring.last)):
            ends[...] = flags[: self.ring.capacity].view(ends.shape).cpu().numpy()
        self._open_last[:] = (self.ring.cursor > 0) & self._last[(self.ring.cursor - 1) % self.ring.rows, self._lanes]
