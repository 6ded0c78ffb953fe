"""The rollout: what an on-policy algorithm learns from, once, and then forgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.replay.collected import VALUE, Collected, ValueOf
from sb_dqn.replay.ring import Ring
from sb_dqn.replay.rollout_view import RolloutView
from sb_dqn.replay.views import as_it_is
from sb_dqn.types import IntArray, Rows, Wait


def rows_needed(n_steps: int, frame_stack: int) -> int:
    """Rows a lane takes: K - 1 before the open row that is carried over, that row, and at most two a tick."""
    return frame_stack - 1 + 2 * n_steps + 1


class Rollout(Collected):
    """`n_steps` ticks of all lanes, to be learned from in epochs of minibatches (the `Experience` of types.py).

    It lies in a ring of `rows_needed` rows a lane, with one cursor per lane. A rollout begins at the row that is open when
    it begins; that row and the K - 1 rows before it stay where they are. A stream that begins anew counts as a tick. Samples
    are the rows that departed, are not `last` and lie before the open row: at most one per tick and lane. They are listed
    in `[n_steps, B]` places, those that are left over padded with weight 0, so that all shapes are fixed.

    Args:
        ring: with `rows_needed` rows a lane.
        n_steps: ticks of a rollout, >= 1.
        n_epochs: times that each sample is used, >= 1.
        batch_size: most samples of a minibatch, >= 1; minibatches are as equal as they can be.
        gamma: discount per env step, [0, 1].
        lambda_: of the lambda-returns, [0, 1].
        extras: what the policy declares on departing beside `value`: name to shape of one lane's; float32.
        scale: from rewards as they are stored to rewards as they are learned from.
        length: steps that stay together in a minibatch, a divisor of n_steps, at most batch_size.

    Raises:
        ConfigurationError: a number is out of its range, or the ring has too few rows.
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
        scale: Callable[[Tensor], Tensor] = as_it_is,
        length: int = 1,
    ) -> None:
        for name, number in (("n_steps", n_steps), ("n_epochs", n_epochs), ("batch_size", batch_size)):
            if number < 1:
                raise ConfigurationError(f"{name}={number} is not allowed; give an integer >= 1")
        if ring.rows < rows_needed(n_steps, ring.frame_stack):
            raise ConfigurationError(
                f"the ring has {ring.rows} rows a lane, a rollout of n_steps={n_steps} with frame_stack={ring.frame_stack} "
                f"needs {rows_needed(n_steps, ring.frame_stack)}; give it {ring.num_lanes} times as many in all"
            )
        shapes = {VALUE: (), **(extras or {})}
        super().__init__(ring, shapes)
        self.n_steps, self.n_epochs = n_steps, n_epochs
        self.length, self.pieces = length, n_steps // length * ring.num_lanes
        self.num_minibatches = -(-self.pieces // (batch_size // length))
        drawn = -(-self.pieces // self.num_minibatches)
        self.batch_size = drawn * length
        self.view = RolloutView(ring, n_steps, gamma, lambda_, shapes, scale)
        self.start: IntArray = np.zeros(ring.num_lanes, np.int64)
        self.ticks = 0
        self.num_samples = 0
        self._spent = False
        self._drawn = 0
        # the last minibatch is filled up with the piece that stands for none
        self._order = torch.full((self.num_minibatches * drawn,), self.pieces, device=ring.device)

    def describe(self) -> str:
        """One line for people: steps and updates of a rollout."""
        lanes = self.ring.num_lanes
        return (
            f"rollouts of {self.n_steps} x {lanes} = {self.n_steps * lanes:,} steps, "
            f"{self.n_epochs} x {self.num_minibatches} updates of {self.batch_size} samples"
        )

    @property
    def is_full(self) -> bool:
        """All ticks are there, and no update has been asked for."""
        return self.ticks >= self.n_steps and not self._spent

    def extend(self, rows: Rows) -> None:
        """Takes in one tick: departures of the last (or the cut of a stream that begins anew), then arrivals."""
        if self._spent:
            self.start[:] = self.ring.cursor - 1
            self.ticks, self._spent = 0, False
        if rows.action is not None:
            self._depart(rows.extra)
            self.ring.depart(rows.action)
            self.ticks += 1
        elif self.ring.cursor[0] > 0:
            self.ring.cut()
            self.ticks += 1  # it takes a row, for the reset, like any other tick
        for slot in rows.slots:
            self.ring.arrive(slot)
            self._arrived(slot)

    def complete(self, value_of: ValueOf) -> None:
        """Gives values to the rows that have none, and all samples their targets; before the first update.

        Without a value are the open rows, final rows of environments that reset within a step, and rows at which a stream
        was cut. Those that are `terminal` need none.

        Args:
            value_of: the current policy's values `[B]` of observations, and masks, of B rows.
        """
        row = self.start + np.arange(2 * self.n_steps + 1)[:, None]  # [W, B]
        lane = np.broadcast_to(self._lanes, row.shape)
        lacking = self._without_value(row, lane)
        self._evaluate(row[lacking], lane[lacking], value_of)
        self.view.prepare(self.start, self.extra)
        self.num_samples = int(self.view.weight.sum())  # a CPU-GPU sync point, once a rollout

    def updates_due(self) -> int:
        """Gradient steps to take now; asking settles them. None if the rollout holds no sample (nothing but resets)."""
        if not self.is_full:
            return 0
        self._spent, self._drawn = True, 0
        return self.n_epochs * self.num_minibatches if self.num_samples else 0

    def wait(self) -> Wait:
        """Returns what the next update waits for: the ticks that are left of the rollout."""
        lanes, there = self.ring.num_lanes, 0 if self._spent else self.ticks
        left = self.n_steps - there
        size = f"n_steps={self.n_steps:,}" + (f" in each of {lanes} lanes" if lanes > 1 else "")
        why = f"an update takes a full rollout of {size}, of which {there:,} are there"
        # ticks that only reset count too: in the worst case every second one, and the one that begins
        least = max((left - 1) // 2 * lanes, 1)
        return Wait(least, why, f"Learn for {left * lanes:,} env steps or more, or lower n_steps")

    def draw(self, generator: torch.Generator) -> Tensor:
        """Places `[N]` of the next minibatch: the next part of a permutation that each epoch draws anew."""
        index = self._drawn % self.num_minibatches
        if index == 0:
            permuted = torch.randperm(self.pieces, generator=generator, device=generator.device)
            self._order[: self.pieces] = permuted
        self._drawn += 1
        drawn = self.batch_size // self.length
        return self._order[index * drawn : (index + 1) * drawn]

    def state_dict(self) -> dict[str, Tensor]:
        """All that is held between two ticks, as one flat dict."""
        state = self._rows_state() | {"start": torch.from_numpy(self.start.copy())}
        return state | {"ticks": torch.tensor([self.n_steps, self.ticks, self._spent])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: it is of a rollout of other shapes.
        """
        if "ticks" in state and int(state["ticks"][0]) != self.n_steps:
            raise CheckpointError(
                f"the state is of a rollout of n_steps={int(state['ticks'][0])}, this one has {self.n_steps}; make both "
                f"the same"
            )
        self._load_rows(state, {"start", "ticks"})
        self.start[:] = state["start"].cpu().numpy()
        _, self.ticks, spent = (int(number) for number in state["ticks"])
        self._spent = bool(spent)
