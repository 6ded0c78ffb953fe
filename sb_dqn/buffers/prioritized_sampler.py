"""Prioritized experience replay: proportional sampling with importance weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.sum_tree import SumTree
from sb_dqn.buffers.uniform_sampler import Sampler
from sb_dqn.checks import check_float, set_fields
from sb_dqn.devices import HostStage
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.schedules import Linear, Schedule, as_schedule
from sb_dqn.types import IntArray

PAPER_BETA = Linear(0.4, 1.0)
"""Schedule of beta from 0.4 at the start to 1 at the end of training, as in the paper."""
CHANGES = 32
"""Leaves per lane that one copy to a device holds: those of rows that may start now, and of those that no longer may."""
SMALLEST, LARGEST = 1e-100, 1e100
"""Bounds of a stored priority, which are above 0 and small enough for a finite sum."""


@dataclass(frozen=True)
class Prioritized:
    r"""Settings of prioritized replay (Schaul et al. 2016, arXiv 1511.05952, proportional variant).

    .. math:: p_i = (|\delta_i| + \epsilon)^\alpha \quad P_i = (1 - u) \frac{p_i}{\sum_k p_k} + \frac{u}{N} \quad
        w_i = \frac{(N P_i)^{-\beta}}{\max_j (N P_j)^{-\beta}}

    with j over the batch.

    Args:
        alpha: exponent of the priorities, >= 0; 0 samples uniformly, 1 in proportion to the error.
        beta: exponent of the importance weights, [0, 1]: a number or a schedule over env steps.
        eps: constant added to every error, above 0, so that every row keeps a chance.
        initial: priority of a row that has not been sampled yet, before alpha: "max", the largest so far (1 before any
            feedback), a number above 0, or "td_error", the TD error of the Q-values with which the row was acted on (Horgan et
            al. 2018, arXiv 1803.00933); the network then runs at each step. Where an episode is truncated and reset in one step
            (SAME_STEP autoreset, VecEnv of Stable-Baselines3), its last observation is valued by the weights of the learner;
            rows whose n steps end where a stream was cut (a second `learn`, a worker that was replaced) get the largest.
        uniform_mix: u, share of uniform samples, [0, 1].

    Raises:
        ConfigurationError: an argument is out of range.
    """

    alpha: float = 0.6
    beta: Any = PAPER_BETA
    eps: float = 1e-6
    initial: Literal["max", "td_error"] | float = "max"
    uniform_mix: float = 0.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            alpha=check_float("prioritized_replay['alpha']", self.alpha, 0.0),
            eps=check_float("prioritized_replay['eps']", self.eps, 0.0, above=True),
            uniform_mix=check_float("prioritized_replay['uniform_mix']", self.uniform_mix, 0.0, 1.0),
        )
        if isinstance(self.initial, str) and self.initial not in ("max", "td_error"):
            raise ConfigurationError(
                f"prioritized_replay['initial'] must be 'max', 'td_error' or a number above 0, got {self.initial!r}. Use 'max'."
            )
        if not isinstance(self.initial, str):
            initial = check_float("prioritized_replay['initial']", self.initial, 0.0, above=True)
            set_fields(self, initial=initial)
        set_fields(self, beta=as_schedule("prioritized_replay['beta']", self.beta, high=1.0, above=False))


InputPriorities = Callable[[Tensor, Tensor], Tensor]
"""Maps lanes and rows `[N]` of new start rows to their priorities `[N]`, NaN for the initial one."""


class PrioritizedSampler(Sampler):
    """Samples rows in proportion to their priority, one from each of N equal parts of the sum (stratified).

    Invariant: a leaf is above 0 exactly where its row may start a sample. `refresh` sets the rows that have become start rows
    since its last call to the initial priority, and those that no longer are to 0. Nothing is done on arrival: the largest
    priority cannot change between arrival and `refresh`, because `feedback` only comes after `refresh`.

    N cancels out of the weights, except in the uniform mix, where a second tree counts the rows that may start.

    Args:
        ring: the ring; `ring.refresh_bounds()` and `refresh()` must have been called since the last arrival.
        batch_size: number of samples N >= 1.
        settings: settings of the priorities, see `Prioritized`. If None, they are its defaults.
        input_priorities: priorities of new start rows. If None, all of them get the initial one.
    """

    def __init__(
        self,
        ring: Ring,
        batch_size: int,
        settings: Prioritized | None = None,
        input_priorities: InputPriorities | None = None,
    ) -> None:
        self.ring = ring
        self.settings = settings or Prioritized()
        self.noise_shape = (1,)
        # by cell; the last leaf, for dropped feedback, stays 0
        self.tree = SumTree(ring.capacity + 1, ring.device, ring.host_visible)
        self.count = SumTree(ring.capacity + 1, ring.device, ring.host_visible) if self.settings.uniform_mix else None
        scalar = torch.zeros((), dtype=torch.float64, device=ring.device)
        self.beta = scalar.clone()
        """Exponent of the weights, 0-d."""
        self.largest = scalar.clone()
        """Largest priority so far in `feedback`, to the power of alpha, 0-d; 0 before any."""
        self._zero = scalar
        self._blocked_array = ring.blocked.numpy() if ring.host_visible else None
        self._changes = None if ring.host_visible else self._stage_of(CHANGES * ring.num_lanes)
        self.input_priorities = input_priorities
        self.set_batch_size(batch_size)
        self._low: IntArray = np.zeros(ring.num_lanes, np.int64)  # the bounds for which the leaves are up to date
        self._high: IntArray = np.zeros(ring.num_lanes, np.int64)
        self._seen = -1  # of the ring's arrivals, up to which the leaves are up to date
        self._progress: tuple[int, int] | None = None
        self.advance(0, 1)

    def set_batch_size(self, batch_size: int) -> None:
        super().set_batch_size(batch_size)
        self._strata = torch.arange(batch_size, dtype=torch.float64, device=self.ring.device)

    # -- on the host

    def advance(self, step: int, horizon: int) -> None:
        """See `Sampler.advance`; the next `refresh` sets `beta`."""
        self._progress = step, horizon

    def refresh(self) -> None:
        """Sets beta, and writes the leaves of rows that have become start rows since the last call or no longer are."""
        schedule: Schedule = self.settings.beta
        if self._progress is not None:
            self.beta.fill_(check_float("prioritized_replay's beta", schedule(*self._progress), 0.0, 1.0))
        self._progress = None
        if self._seen == self.ring.arrivals:
            return
        low, high = self.ring.intervals()
        lows = self._low, np.maximum(low, self._high)  # of the rows that may no longer start, then of the new ones
        highs = np.minimum(low, self._high), high
        self._low = low
        self._high = high
        self._seen = self.ring.arrivals
        num_gone = int(np.maximum(highs[0] - lows[0], 0).sum())
        lane, row = self.ring.rows_between(np.concatenate(lows), np.concatenate(highs))
        if self._changes is not None:
            self._send_changes(lane, row, num_gone)
            return
        cells = self._cells(lane, row)
        values = self._new_priorities_on_host(lane[num_gone:], row[num_gone:])
        self.tree.write_from_host(cells, num_gone, values)
        if self.count is not None:
            self.count.write_from_host(cells, num_gone, np.sign(values))

    def _stage_of(self, count: int) -> HostStage:
        """Returns a stage for cell, lane, row of `count` rows, and whether they may start now: `[4, count]`."""
        return HostStage((4, count), torch.int64, self.ring.device)

    def _send_changes(self, lane: IntArray, row: IntArray, num_gone: int) -> None:
        """Writes the leaves of rows as `refresh` does, without waiting for the device: one copy, then operations of fixed
        shape.

        Args:
            lane, row: `[N]`.
            num_gone: number of rows at the start of these that may no longer start.
        """
        assert self._changes is not None
        fits = len(row) <= self._changes.array.shape[1]
        stage = self._changes if fits else self._stage_of(len(row))  # the latter after the steps before learning_starts
        changes = stage.array
        changes[:] = [[self.ring.capacity], [0], [0], [0]]
        changes[:3, : len(row)] = self._cells(lane, row), lane, row
        changes[3, num_gone : len(row)] = 1
        cells, lanes, rows, is_new = stage.send()
        is_gone = is_new == 0
        values = torch.where(is_gone, self._zero, self._new_priorities(lanes, rows))
        self.tree.replace(cells, is_gone, values, self.ring.capacity)
        if self.count is not None:
            self.count.replace(cells, is_gone, values.sign(), self.ring.capacity)

    def _initial(self) -> Tensor:
        """Returns the initial priority, to the power of alpha, 0-d."""
        if isinstance(self.settings.initial, str):
            return torch.where(self.largest > 0, self.largest, 1.0)
        return self._stored(self._zero + self.settings.initial)

    def _stored(self, priority: Tensor) -> Tensor:
        return priority.pow(self.settings.alpha).clamp(SMALLEST, LARGEST)

    def _new_priorities(self, lane: Tensor, row: Tensor) -> Tensor:
        """Returns the priorities `[N]` of new rows, 0 where none may start; a fixed number of operations."""
        starts = self.ring.blocked.take(self.ring.cells(lane, row)).logical_not()
        values = self._initial() * starts
        if self.input_priorities is None:
            return values
        errors = self.input_priorities(lane, row).double()
        return torch.where(starts & ~errors.isnan(), self._stored(errors + self.settings.eps), values)

    def _new_priorities_on_host(self, lane: IntArray, row: IntArray) -> npt.NDArray[np.float64]:
        """Returns the result of `_new_priorities` by reading only the rows that may start; for a ring that the CPU can
        address."""
        assert self._blocked_array is not None
        starts = ~self._blocked_array[self._cells(lane, row)]
        if isinstance(self.settings.initial, str):
            initial = self.largest.item() or 1.0
        else:
            initial = self._initial().item()
        values: npt.NDArray[np.float64] = initial * starts
        if self.input_priorities is not None:
            which = np.flatnonzero(starts)
            errors = self.input_priorities(torch.from_numpy(lane[which]), torch.from_numpy(row[which])).double()
            stored = self._stored(errors + self.settings.eps)
            values[which] = torch.where(errors.isnan(), torch.from_numpy(values[which]), stored).numpy()
        return values

    def _cells(self, lane: IntArray, row: IntArray) -> IntArray:
        return row % self.ring.rows * self.ring.num_lanes + lane

    # -- pure tensor functions

    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Sampler.locate`; the weight is 0 only if no row may start.

        Args:
            noise: `[N]` uniform in [0, 1), float64: number i is the position within the i-th of N equal parts.
        """
        ring, lanes = self.ring, self.ring.num_lanes
        strata = self._strata
        if len(noise) != len(strata):
            strata = torch.arange(len(noise), dtype=torch.float64, device=noise.device)
        cell, probability = self._select((strata + noise) / len(strata))
        # (N P_i)^-beta / max_j (N P_j)^-beta, where j runs over the batch: N and the sum of the priorities cancel
        weight = torch.where(probability > 0, (probability.min() / probability).pow(self.beta), self._zero).float()
        if lanes == 1:
            lane, newest = torch.zeros_like(cell), ring.hi + (ring.start_rule.ahead - 1)
            return lane, newest - (newest - cell) % ring.rows, weight
        lane = cell % lanes
        newest = ring.hi.take(lane) + (ring.start_rule.ahead - 1)
        return lane, newest - (newest - cell // lanes) % ring.rows, weight

    def _select(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Maps shares `[N]` of the total probability to cells and unnormalized probabilities, which are 0 if no row may
        start."""
        mix, total = self.settings.uniform_mix, self.tree.total()
        if self.count is None:
            cell = self.tree.find(share * total)
            return cell, self.tree.leaves.take(cell)
        number = self.count.total()
        cell = self.count.find(share / mix * number)
        if mix < 1.0:  # the first parts are sampled uniformly, the others by priority
            cell = torch.where(share < mix, cell, self.tree.find((share - mix) / (1.0 - mix) * total))
        priority = self.tree.leaves.take(cell)
        probability = (1.0 - mix) * priority / total + mix / number
        return cell, torch.where(priority > 0, probability, self._zero)

    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """See `Sampler.feedback`. Rows that may no longer start are ignored; of duplicates the largest priority is used.

        Args:
            index: `[2, N]` int64.
            priority: `[N]` absolute errors; NaN is taken as 0, infinity as a very large number.
        """
        ring, settings = self.ring, self.settings
        lane, row = index.to(ring.device).unbind()
        error = torch.fmax(priority.detach().to(ring.device), self._zero.view(1))  # float64, as it has an axis
        value = self._stored(error + settings.eps)
        keep = ring.may_start(lane, row)
        value = torch.where(keep, value, self._zero)
        self.largest.copy_(torch.maximum(self.largest, value.max()))
        self.tree.set_largest(torch.where(keep, ring.cells(lane, row), ring.capacity), value)

    def mutable_tensors(self) -> tuple[Tensor, ...]:
        """See `Sampler.mutable_tensors`."""
        count = () if self.count is None else (self.count.leaves, *self.count.sums)
        return (self.beta, self.largest, self.tree.leaves, *self.tree.sums, *count)

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """See `Sampler.preserve_state`."""
        bounds = self._low, self._high
        seen, progress = self._seen, self._progress
        with super().preserve_state():
            try:
                yield
            finally:
                self._low, self._high = bounds
                self._seen = seen
                self._progress = progress

    # -- state

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the priorities of the stored rows, the rows that have one, the largest priority, and the sums, whose rounding
        depends on history. Rows since the last `refresh` have none: saving must not set it before the next update does."""
        ring = self.ring
        held = min(int(ring.cursor.max()), ring.rows)
        return {
            "priority": self.tree.leaves[: held * ring.num_lanes].view(held, ring.num_lanes),
            "bounds": torch.from_numpy(np.stack(self._clip_bounds(self._low, self._high))),
            "sums": torch.cat(self.tree.sums),
            "largest": self.largest,
            "rows": torch.tensor(ring.rows),
            "alpha": self._zero + self.settings.alpha,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the priorities of the rows in the ring, converted to this sampler's alpha; rows without one get the initial, those
        since the last `refresh` of the saved sampler at the next one.

        Raises:
            CheckpointError: a priority is negative or not finite, or a sum is not that of its priorities.
        """
        ring, leaves = self.ring, self.tree.leaves
        first, high = ring.intervals()
        low = first
        if "bounds" in state:  # files of older versions do not contain them
            saved_low, high = self._clip_bounds(*state["bounds"].numpy())
            # rows that may no longer start stay in the sums until the next `refresh`
            low = saved_low if int(state["rows"]) == ring.rows else first
        self._low, self._high, self._seen = low, high, -1
        self.largest.copy_(self._convert_alpha(state, state["largest"]) if state else self._zero)
        lane, row = self.ring.rows_between(first, high)
        cells = self._cells(lane, row)
        if ring.host_visible:  # reads less where few rows may start
            values = torch.from_numpy(self._new_priorities_on_host(lane, row))
        else:
            values = self._new_priorities(*(torch.from_numpy(part).to(ring.device) for part in (lane, row)))
        if state:
            values = torch.where(values > 0, self._saved(state, lane, row, values), values)
        leaves.zero_().index_copy_(0, torch.from_numpy(cells).to(ring.device), values)
        lane, row = self.ring.rows_between(low, first)
        if len(row):
            gone = self._saved(state, lane, row, self._zero)
            leaves.index_copy_(0, torch.from_numpy(self._cells(lane, row)).to(ring.device), gone)
        self.tree.rebuild()
        if self.count is not None:
            self.count.leaves[: ring.capacity] = leaves[: ring.capacity].sign()
            self.count.rebuild()
        if state and int(state["rows"]) == ring.rows:
            self._restore_sums(state)

    def _clip_bounds(self, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the bounds `[B]` of the rows with a priority, without rows whose cells newer rows use: saving a loaded sampler
        gives the same state again."""
        first, last = self.ring.intervals()
        high = np.clip(high, first, np.maximum(last, first))
        return np.clip(low, np.maximum(high - self.ring.rows, 0), first), high

    def _saved(self, state: Mapping[str, Tensor], lane: IntArray, row: IntArray, default: Tensor) -> Tensor:
        """Returns the saved priorities of rows, or the default where there is none."""
        place = torch.from_numpy(row % int(state["rows"])), torch.from_numpy(lane)
        saved = self._convert_alpha(state, state["priority"].cpu()[place].to(default))
        return torch.where(saved > 0, saved, default)

    def _convert_alpha(self, state: Mapping[str, Tensor], saved: Tensor) -> Tensor:
        """Converts saved priorities to the power of this sampler's alpha; 0 stays 0. A saved alpha of 0 has made each of them 1."""
        if not bool(((saved >= 0) & (saved <= LARGEST)).all()):
            raise CheckpointError(
                f"priorities of the replay state must be finite and >= 0, got {float(saved.min())} to {float(saved.max())}. "
                f"The file is damaged. Load another copy."
            )
        own = self.settings.alpha
        alpha = float(state.get("alpha", own)) or own  # files of older versions do not contain it
        if alpha == own:
            return saved
        return torch.where(saved > 0, saved.pow(own / alpha).clamp(SMALLEST, LARGEST), saved)

    def _restore_sums(self, state: Mapping[str, Tensor]) -> None:
        """Restores the saved sums if the leaves equal the saved ones: an update and a rebuild may round them differently."""
        held = state["priority"].flatten().to(self.tree.leaves)
        if torch.equal(held, self.tree.leaves[: len(held)]):
            saved = state["sums"].split_with_sizes([len(sums) for sums in self.tree.sums])
            for sums, values in zip(self.tree.sums, saved, strict=True):
                if not torch.allclose(values.to(sums), sums, 1e-9, 1e-9 * SMALLEST):  # NaN is not
                    raise CheckpointError(
                        "sums of the replay state must be those of its priorities. The file is damaged. Load another copy."
                    )
                sums.copy_(values)
