"""Rollout buffer of the on-policy algorithms: a fixed number of ticks, minibatches of samples or of sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.on_policy_buffer import VALUE, OnPolicyBuffer, SampleView, ValueFunction
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_storage import Extras
from sb_dqn.devices import fetch
from sb_dqn.errors import CheckpointError
from sb_dqn.losses.transforms import identity
from sb_dqn.types import ActionArray, Array, Batch, BoolArray, IntArray, Observation, Rows, Wait


def rows_needed(n_steps: int, frame_stack: int) -> int:
    """Returns the rows per lane of a rollout: K - 1 before the initial open row, that row, and at most two per tick."""
    return frame_stack - 1 + 2 * n_steps + 1


class RolloutView(SampleView):
    """View of a rollout; place t * B + b holds the t-th sample of lane b.

    Its number of places is that of the lanes times the largest number of samples of a lane.
    """

    def prepare(self, where: IntArray, extra: Extras) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: `[B]` first row (absolute) of the rollout in each lane.
            extra: `[rows, B, ...]` by name, extra outputs at each row; values are complete.
        """
        ring, device = self.ring, self.ring.device
        n_steps = self.places // ring.num_lanes
        window = torch.arange(2 * n_steps + 1, device=device).unsqueeze(1)
        row = torch.from_numpy(where).to(device) + window  # [W, B], W = 2 n_steps + 1
        cells = ring.cells(self._lanes, row)
        columns = {name: torch.from_numpy(column).to(device).flatten(0, 1) for name, column in extra.items()}
        return_, starts = self._targets(cells, row, columns[VALUE].take(cells))
        # the samples of each lane first, in the order of time; the rest has weight 0
        order = starts.logical_not().byte().argsort(dim=0, stable=True)[:n_steps]  # [n_steps, B]
        self.lane[:-1] = self._lanes.expand_as(order).flatten()
        self.row[:-1] = row.gather(0, order).flatten()
        self.return_[:-1] = return_.gather(0, order).flatten()
        self.weight[:-1] = starts.gather(0, order).flatten()
        at = cells.gather(0, order).flatten()
        for name, column in columns.items():
            self.extra[name][:-1] = column.index_select(0, at)


class RolloutBuffer(OnPolicyBuffer):
    """`n_steps` ticks of all lanes, used in epochs of minibatches (an `Experience` of types.py).

    The storage is a ring of `rows_needed` rows per lane with one cursor per lane. A rollout starts at the row that is open at
    its start; that row and the K - 1 rows before it stay where they are. A stream that restarts within a rollout counts as a
    tick. Samples are the rows that have departed, are not `last` and precede the open row: at most one per tick and lane. They
    occupy `[n_steps, B]` places, padded with weight 0, so that all shapes are fixed.

    Args:
        ring: ring with `rows_needed` rows per lane.
        n_steps: ticks of a rollout, >= 1.
        n_epochs: number of times each sample is used, >= 1.
        batch_size: largest number of samples of a minibatch, >= 1; minibatches are of equal size as far as possible.
        gamma: discount per env step, [0, 1].
        lambda_: parameter of the lambda-returns, [0, 1].
        extras: shapes of the policy's extra outputs other than `value`, of one lane, by name; float32.
        scale: function from stored rewards to the rewards of the loss.
        length: consecutive steps per piece of a minibatch, a divisor of n_steps, at most batch_size.
    """

    def __init__(
        self,
        ring: Ring,
        n_steps: int,
        n_epochs: int,
        batch_size: int,
        gamma: float,
        lambda_: float,
        extras: Mapping[str, tuple[int, ...]] | None = None,
        scale: Callable[[Tensor], Tensor] = identity,
        length: int = 1,
    ) -> None:
        super().__init__(ring, extras)
        self.n_steps = n_steps
        self.n_epochs = n_epochs
        self.length = length
        self.pieces = n_steps // length * ring.num_lanes
        self.num_minibatches = -(-self.pieces // (batch_size // length))
        self._pieces_per_batch = -(-self.pieces // self.num_minibatches)
        self.batch_size = self._pieces_per_batch * length
        self.view = RolloutView(ring, n_steps * ring.num_lanes, gamma, lambda_, self._shapes, scale)
        self.start: IntArray = np.zeros(ring.num_lanes, np.int64)
        self.ticks = 0
        self._drawn = 0
        # the last minibatch is filled up with the padding piece
        count = self.num_minibatches * self._pieces_per_batch
        self._permutation = torch.full((count,), self.pieces, device=ring.device)

    def describe(self) -> str:
        """Returns one line of text that describes steps and updates of a rollout."""
        lanes = self.ring.num_lanes
        return (
            f"rollouts of {self.n_steps} x {lanes} = {self.n_steps * lanes:,} steps, "
            f"{self.n_epochs} x {self.num_minibatches} updates of {self.batch_size} samples"
        )

    @property
    def is_full(self) -> bool:
        """True if all ticks have arrived and `updates_due` has not been called yet."""
        return self.ticks >= self.n_steps and not self._consumed

    @property
    def is_complete(self) -> bool:
        """True from `updates_due` of a full rollout until the next tick arrives: its samples and targets can be read."""
        return self._consumed

    def extend(self, rows: Rows) -> None:
        """Adds one tick: the departures of the last one (or the cut of a stream that restarts), then the arrivals."""
        begins = self._consumed
        if begins:
            self.start[:] = self.ring.cursor - 1
            self.ticks = 0
            self._consumed = False
        if rows.action is not None:
            self._depart(rows.action, rows.extra)
            self.ticks += 1
        elif self.ring.cursor[0] > 0:
            self._cut()
            if begins:
                self.start += 1  # the rollout starts at the row of the reset
            else:
                self.ticks += 1  # the reset takes up a row, like any other tick
        for slot in rows.slots:
            self._arrive(slot)

    def complete(self, value_of: ValueFunction) -> None:
        """Computes the missing values, and the targets of all samples; called before the first update.

        Values are missing at the open rows, at the final rows of environments that reset within a step, and at rows where a
        stream was cut; rows that are `terminal` need none.

        Args:
            value_of: the current policy's values `[B]` of observations and masks of B rows.
        """
        row = self.start + np.arange(2 * self.n_steps + 1)[:, None]  # [W, B]
        lane = np.broadcast_to(self._lanes, row.shape)
        missing = self._without_value(row, lane)
        self._evaluate(row[missing], lane[missing], value_of)
        self.view.prepare(self.start, self.extra)
        departed = row < self.ring.cursor - 1
        self.num_samples = int((departed & ~self._last[row % self.ring.rows, lane]).sum())

    def updates_due(self) -> int:
        """Returns the gradient steps to run now, and counts them as done; 0 if the rollout has no sample (only resets)."""
        if not self.is_full:
            return 0
        self._consumed = True
        self._drawn = 0
        due = self.n_epochs * self.num_minibatches if self.num_samples else 0
        return due if self._minimum is None else self._minimum(due)

    def wait(self) -> Wait:
        """Returns what the next update waits for: the ticks that are left of the rollout."""
        lanes, there = self.ring.num_lanes, 0 if self._consumed else self.ticks
        left = self.n_steps - there
        size = f"n_steps={self.n_steps:,}" + (f" in each of {lanes} lanes" if lanes > 1 else "")
        why = f"an update takes a full rollout of {size}, of which {there:,} are there"
        # ticks that only reset count too: in the worst case every second one, and the one that begins
        least = max((left - 1) // 2 * lanes, 1)
        return Wait(least, why, f"Learn for {left * lanes:,} env steps or more, or lower n_steps")

    def draw(self, generator: torch.Generator) -> Tensor:
        """Returns the places `[N]` of the next minibatch: the next part of a permutation that is new in each epoch."""
        index = self._drawn % self.num_minibatches
        if index == 0:
            permuted = torch.randperm(self.pieces, generator=generator, device=generator.device)
            self._permutation[: self.pieces] = permuted
        self._drawn += 1
        count = self._pieces_per_batch
        return self._permutation[index * count : (index + 1) * count]

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the state between two ticks as one flat dict."""
        state = self._rows_state() | {"start": torch.from_numpy(self.start.copy())}
        return state | {"ticks": torch.tensor([self.n_steps, self.ticks, self._consumed])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the result of `state_dict`.

        Raises:
            CheckpointError: the state belongs to a rollout of other shapes.
        """
        if "ticks" in state and int(state["ticks"][0]) != self.n_steps:
            raise CheckpointError(
                f"n_steps of the saved rollout must be {self.n_steps}, got {int(state['ticks'][0])}. Create the model with the "
                f"saved value."
            )
        self._load_rows(state, {"start", "ticks"})
        self.start[:] = state["start"].cpu().numpy()
        _, self.ticks, consumed = (int(number) for number in state["ticks"])
        self._consumed = bool(consumed)


class Before(NamedTuple):
    """The step before a row: inputs of a recurrent policy for that row."""

    obs: Observation
    """Observations `[N, ...]` of the preceding rows, by key."""
    declared: dict[str, Array]
    """Extra outputs of the policy there: "state" `[N, P]`, its recurrent state before that step, and others that it reads."""
    action: ActionArray
    """Actions `[N, ...]` taken there."""
    reward: Array
    """Rewards `[N]` received on arriving at the rows themselves."""
    begins: BoolArray
    """Starts `[N]`, True where an episode starts, so that there is no preceding row."""


class SequenceRolloutBuffer(RolloutBuffer):
    """Rollout buffer for recurrent policies: minibatches are sequences of `length` consecutive samples of one lane each.

    The policy's extra outputs contain "state" and "begins". A sequence may span several episodes: the state is set to zeros at
    a sample that `begins` one. The rows of a minibatch are time-major, `[length * sequences]`.
    """

    def describe(self) -> str:
        """Returns one line of text that describes steps, updates and length of the sequences."""
        return f"{super().describe()}, in sequences of {self.length}"

    def sample_from(self, drawn: Tensor) -> Batch:
        """Returns the sequences `[N]` int64 from `draw`; pure tensor operations."""
        lanes = self.ring.num_lanes
        first = drawn // lanes * (self.length * lanes) + drawn % lanes
        along = first + torch.arange(self.length, device=drawn.device).unsqueeze(1) * lanes
        return self.view.gather(torch.where(drawn < self.pieces, along, self.view.places).flatten())

    def _value_inputs(self, lane: IntArray, row: IntArray) -> tuple[Any, ...]:
        ring = self.ring
        before = np.maximum(row - 1, 0)
        cells = before % ring.rows, lane
        sent = [torch.from_numpy(where).to(ring.device) for where in (lane, before, row)]
        action, reward = fetch(
            [ring.actions_at(ring.cells(sent[0], sent[1])), ring.reward.take(ring.cells(sent[0], sent[2]))]
        )
        step = Before(
            obs=self._observe(lane, before)[0],
            declared={name: column[cells] for name, column in self.extra.items()},
            action=action,
            reward=reward,
            begins=(row == 0) | self._last[cells],
        )
        return *self._observe(lane, row), step
