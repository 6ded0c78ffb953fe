"""Prioritised replay: rows that surprised are drawn more often, and weigh less for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.sum_tree import SumTree
from sb_dqn.buffers.uniform_sampler import Sampler
from sb_dqn.checks import check_float
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.schedules import Linear, Schedule, as_schedule
from sb_dqn.types import IntArray, Slot

PAPER_BETA = Linear(0.4, 1.0)
"""From 0.4 at the start to 1 at the end of the run, as the paper's."""
SMALLEST, LARGEST = 1e-100, 1e100
"""Bounds of a stored priority: above 0, and all together finite."""


@dataclass(frozen=True)
class Prioritized:
    r"""How rows are prioritised (Schaul et al. 2016, arXiv 1511.05952, proportional variant).

    .. math:: p_i = (|\delta_i| + \epsilon)^\alpha \quad P_i = (1 - u) \frac{p_i}{\sum_k p_k} + \frac{u}{N} \quad
        w_i = \frac{(N P_i)^{-\beta}}{\max_j w_j}

    Args:
        alpha: 0 draws uniformly, 1 in proportion to the error; >= 0.
        beta: how far the weights make up for it, [0, 1]: a number or a schedule of env steps.
        eps: added to every error, above 0, so that no row is lost for ever.
        initial: priority of a row that has not been drawn, before alpha: "max", the largest so far (1 before any), or a
            number above 0.
        uniform_mix: u, share of uniform draws, [0, 1].

    Raises:
        ConfigurationError: one of them is out of its range.
    """

    alpha: float = 0.6
    beta: Any = PAPER_BETA
    eps: float = 1e-6
    initial: Literal["max"] | float = "max"
    uniform_mix: float = 0.0

    def __post_init__(self) -> None:
        check_float("prioritized_replay['alpha']", self.alpha, 0.0)
        check_float("prioritized_replay['eps']", self.eps, 0.0, above=True)
        check_float("prioritized_replay['uniform_mix']", self.uniform_mix, 0.0, 1.0)
        if isinstance(self.initial, str) and self.initial != "max":
            raise ConfigurationError(
                f"prioritized_replay['initial']={self.initial!r} is not allowed: give 'max' or a number above 0"
            )
        if self.initial != "max":
            check_float("prioritized_replay['initial']", self.initial, 0.0, above=True)
        name = "prioritized_replay['beta']"
        schedule = as_schedule(name, self.beta, high=1.0, above=False)
        check_float(f"{name}={self.beta!r}, its last value", schedule.ends()[1], 0.0, 1.0)
        object.__setattr__(self, "beta", schedule)


Entering = Callable[[Tensor, Tensor], Tensor]


class PrioritizedSampler(Sampler):
    """Draws rows in proportion to their priority, one from each of N equal parts of the sum (stratified).

    Invariant: a leaf is above 0 exactly where its row may start a transition. Rows that may start since the last
    `refresh` get the initial priority there, rows that may no longer get 0: the largest priority cannot have changed
    between their arrival and then, for `feedback` comes after `refresh` alone. Nothing is done when rows arrive.

    N cancels out of the weights, except in the uniform mix; there a second tree counts the rows that may start.

    Args:
        ring: `ring.refresh_bounds()` and `refresh()` must have been called since the last arrival.
        batch_size: N >= 1.
        settings: see there.
        entering: from lanes and rows `[N]` that have just come to be able to start to their priorities `[N]`, NaN for the
            initial one; None: all get that.
    """

    def __init__(
        self, ring: Ring, batch_size: int, settings: Prioritized | None = None, entering: Entering | None = None
    ) -> None:
        if batch_size < 1:
            raise ConfigurationError(f"batch_size={batch_size} is not allowed; give an integer >= 1")
        self.ring, self.settings, self.noise_shape = ring, settings or Prioritized(), (batch_size,)
        self.tree = SumTree(ring.capacity + 1, ring.device)  # by cell; the last leaf, of what is dropped, stays 0
        self.count = SumTree(ring.capacity, ring.device) if self.settings.uniform_mix else None
        scalar = torch.zeros((), dtype=torch.float64, device=ring.device)
        self.beta, self.largest = scalar.clone(), scalar.clone()
        """Exponent of the weights; largest priority fed back so far, to the power of alpha, 0 before any."""
        self._zero = scalar
        self._blocked_array = ring.blocked.numpy() if ring.device.type == "cpu" else None
        self.entering = entering
        self._strata = torch.arange(batch_size, dtype=torch.float64, device=ring.device)
        self._low: IntArray = np.zeros(ring.num_lanes, np.int64)  # the bounds that the leaves are up to date with
        self._high: IntArray = np.zeros(ring.num_lanes, np.int64)
        self._stale = True
        self._when: tuple[int, int] | None = None
        self.advance(0, 1)

    # -- on the host

    def advance(self, step: int, horizon: int) -> None:
        """See `Sampler.advance`; `beta` is set by the next `refresh`."""
        self._when = step, horizon

    def arrived(self, slot: Slot) -> None:
        """Only remembers that something did; `refresh` reads off the ring's bounds what."""
        self._stale = True

    def refresh(self) -> None:
        """Sets beta, and writes the leaves of rows that since the last call may start, or may no longer."""
        schedule: Schedule = self.settings.beta
        if self._when is not None:
            self.beta.fill_(check_float("prioritized_replay's beta", schedule(*self._when), 0.0, 1.0))
        self._when = None
        if not self._stale:
            return
        low, high = self.ring.intervals()
        bounds = self._low, np.maximum(low, self._high), np.minimum(low, self._high), high
        self._low, self._high, self._stale = low, high, False
        gone = int(np.maximum(bounds[2] - bounds[0], 0).sum())
        lane, row = self.ring.rows_between(np.concatenate(bounds[:2]), np.concatenate(bounds[2:]))
        cells = self._cells(lane, row)
        values = self._fresh(lane[gone:], row[gone:])
        self.tree.write(cells, gone, values)
        if self.count is not None:
            self.count.write(cells, gone, values > 0)

    def _initial(self) -> float:
        """The priority of new rows, to the power of alpha."""
        if isinstance(self.settings.initial, str):
            return self.largest.item() or 1.0  # a CPU-GPU sync point; acting has waited for the same work already
        return self._stored(self._zero + self.settings.initial).item()

    def _stored(self, priority: Tensor) -> Tensor:
        return priority.pow(self.settings.alpha).clamp(SMALLEST, LARGEST)

    def _fresh(self, lane: IntArray, row: IntArray) -> Any:
        """The priority of new rows, 0 where none may start, as the tree wants it: an array on the CPU, else a tensor."""
        cells, device = self._cells(lane, row), self.ring.device
        if self._blocked_array is not None and self.entering is None:
            return self._initial() * ~self._blocked_array[cells]
        starts = self.ring.blocked.take(torch.from_numpy(cells).to(device)).logical_not()
        values = self._initial() * starts.double()
        if self.entering is not None:
            which = starts.nonzero()[:, 0]
            places = (torch.from_numpy(part).to(device)[which] for part in (lane, row))
            entered = self.entering(*places).double()
            values[which] = torch.where(entered.isnan(), values[which], self._stored(entered + self.settings.eps))
        return values if self._blocked_array is None else values.numpy()

    def _cells(self, lane: IntArray, row: IntArray) -> IntArray:
        return row % self.ring.rows * self.ring.num_lanes + lane

    # -- pure tensor functions

    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Sampler.locate`; the weight is 0 only if no row may start.

        Args:
            noise: `[N]` uniform in [0, 1), float64: number i places the draw within the i-th of N equal parts.
        """
        ring, lanes = self.ring, self.ring.num_lanes
        cell, chance = self._draw((self._strata + noise) / len(self._strata))
        weight = torch.where(chance > 0, (chance.min() / chance).pow(self.beta), self._zero).float()
        if lanes == 1:
            lane, newest = torch.zeros_like(cell), ring.hi + (ring.span.ahead - 1)
            return lane, newest - (newest - cell) % ring.rows, weight
        lane = cell % lanes
        newest = ring.hi.take(lane) + (ring.span.ahead - 1)
        return lane, newest - (newest - cell // lanes) % ring.rows, weight

    def _draw(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Shares `[N]` of all that can be drawn -> cells, and in proportion to what chance they were drawn (0: none)."""
        mix, total = self.settings.uniform_mix, self.tree.total()
        if self.count is None:
            cell = self.tree.find(share * total)
            return cell, self.tree.leaves.take(cell)
        number = self.count.total()
        cell = self.count.find(share / mix * number)
        if mix < 1.0:  # the first parts are drawn uniformly, the others by priority
            cell = torch.where(share < mix, cell, self.tree.find((share - mix) / (1.0 - mix) * total))
        priority = self.tree.leaves.take(cell)
        chance = (1.0 - mix) * priority / total + mix / number
        return cell, torch.where(priority > 0, chance, self._zero)

    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """See `Sampler.feedback`: places that may no longer start are dropped, of duplicates the largest one counts.

        Args:
            index: `[2, N]` int64.
            priority: `[N]` absolute errors; NaN counts as 0, and what is infinite as very large.
        """
        ring, settings = self.ring, self.settings
        lane, row = index.to(ring.device).unbind()
        error = torch.fmax(priority.detach().to(ring.device, torch.float64), self._zero)
        value = self._stored(error + settings.eps)
        keep = ring.may_start(lane, row)
        value = torch.where(keep, value, self._zero)
        self.largest.copy_(torch.maximum(self.largest, value.max()))
        self.tree.set_largest(torch.where(keep, ring.cells(lane, row), ring.capacity), value)

    def memory(self) -> tuple[Tensor, ...]:
        """See `Sampler.memory`."""
        return (self.largest, self.tree.leaves, *self.tree.sums)

    # -- state

    def state_dict(self) -> dict[str, Tensor]:
        """Priorities of the rows held, largest priority, and the sums: how they were rounded depends on their history."""
        self.refresh()
        ring = self.ring
        held = min(int(ring.cursor.max()), ring.rows)
        priority = self.tree.leaves[: held * ring.num_lanes].view(held, ring.num_lanes)
        return {
            "priority": priority, "sums": torch.cat(self.tree.sums), "largest": self.largest,
            "rows": torch.tensor(ring.rows), "alpha": self._zero + self.settings.alpha,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over priorities of the rows that the ring has, to the power of the alpha here; rows without one get the initial.

        Raises:
            CheckpointError: a priority is negative or not finite, or a sum is not that of its priorities.
        """
        ring, leaves = self.ring, self.tree.leaves
        self._low, self._high = ring.intervals()
        self._stale = False
        self.largest.copy_(self._raised(state, state["largest"]) if state else self._zero)
        lane, row = self.ring.rows_between(self._low, self._high)
        cells = self._cells(lane, row)
        values = torch.as_tensor(self._fresh(lane, row)).to(leaves)
        if state:
            values = torch.where(values > 0, self._saved(state, lane, row, values), values)
        leaves.zero_().index_copy_(0, torch.from_numpy(cells).to(ring.device), values)
        self.tree.rebuild()
        if self.count is not None:
            self.count.leaves[: ring.capacity] = leaves[: ring.capacity].sign()
            self.count.rebuild()
        if state and int(state["rows"]) == ring.rows:
            self._restore_sums(state)

    def _saved(self, state: Mapping[str, Tensor], lane: IntArray, row: IntArray, default: Tensor) -> Tensor:
        """The saved priorities of rows, or the default of those that had none."""
        place = torch.from_numpy(row % int(state["rows"])), torch.from_numpy(lane)
        saved = self._raised(state, state["priority"].cpu()[place].to(default))
        return torch.where(saved > 0, saved, default)

    def _raised(self, state: Mapping[str, Tensor], saved: Tensor) -> Tensor:
        """Saved priorities, whatever their alpha, to the power of the one here; 0 stays 0. An alpha of 0 has left 1 of each.

        Raises:
            CheckpointError: one is negative or not finite.
        """
        if not bool(((saved >= 0) & (saved <= LARGEST)).all()):
            raise CheckpointError("the priorities of the replay state are negative or not finite; the file is damaged")
        here = self.settings.alpha
        alpha = float(state.get("alpha", here)) or here  # files of older versions do not say it
        if alpha == here:
            return saved
        return torch.where(saved > 0, saved.pow(here / alpha).clamp(SMALLEST, LARGEST), saved)

    def _restore_sums(self, state: Mapping[str, Tensor]) -> None:
        """If the leaves are the saved ones, the sums are too: an update and a rebuild may round them differently."""
        held = state["priority"].flatten().to(self.tree.leaves)
        if torch.equal(held, self.tree.leaves[: len(held)]):
            saved = state["sums"].split_with_sizes([len(sums) for sums in self.tree.sums])
            for sums, values in zip(self.tree.sums, saved, strict=True):
                if not torch.allclose(values.to(sums), sums, 1e-9, 1e-9 * SMALLEST):  # NaN is not
                    raise CheckpointError("the sums over the priorities are not theirs; the file is damaged")
                sums.copy_(values)

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and if not, which one does not (slow; for tests)."""
        ring, leaves = self.ring, self.tree.leaves
        may = torch.zeros_like(leaves, dtype=torch.bool)
        cells = torch.from_numpy(self._cells(*self.ring.rows_between(*ring.intervals()))).to(ring.device)
        may[cells] = ~ring.blocked.take(cells)
        fresh = SumTree(self.tree.size, ring.device)
        fresh.leaves.copy_(leaves)
        fresh.rebuild()
        faults = {
            "a priority is 0 where a row may start, or above 0 where none may": not torch.equal(leaves > 0, may),
            "a sum is not that of its children": any(
                not torch.allclose(a, b, 1e-12, 0.0) for a, b in zip(self.tree.sums, fresh.sums, strict=True)
            ),
            "the count is not that of the rows that may start": self.count is not None
            and int(self.count.total()) != int(may.sum()),
        }
        found = [fault for fault, holds in faults.items() if holds]
        return not found, "; ".join(found) or "valid"
