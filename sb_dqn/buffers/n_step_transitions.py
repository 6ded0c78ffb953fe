"""n-step transitions, read from the ring at the rows that a sampler selected."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import observations_at, stack_cells, take_frames
from sb_dqn.buffers.ring import Ring
from sb_dqn.checks import check_float, check_int
from sb_dqn.losses.transforms import identity
from sb_dqn.schedules import as_annealed
from sb_dqn.types import Batch


class Horizon:
    """Number of steps and discount of n-step returns; both may change between updates, in traces too.

    Args:
        n_steps: number of steps n >= 1, `Annealed`, or a dict of its fields.
        gamma: discount per env step, [0, 1], or an annealed discount below 1.

    Attributes:
        n_steps: the largest n.
        gamma: the last discount.
        is_annealed: True if one of the two is annealed.
        current: the current n and discount.
        powers: `[n + 1]` float32, gamma^k.
        within: `[n - 1]` int64, 1 for the steps 2, 3, ... of the current n, else 0. If None, all are within.

    Raises:
        ConfigurationError: a value is out of range.
    """

    def __init__(self, n_steps: object, gamma: object) -> None:
        steps, discount = as_annealed("n_steps", n_steps), as_annealed("gamma", gamma)
        lengths = (n_steps, n_steps) if steps is None else (steps.start, steps.end)
        discounts = (gamma, gamma) if discount is None else (discount.start, discount.end)
        first, last = (check_int("n_steps", value, 1) for value in lengths)
        self._lengths = first, last
        self._discounts = [check_float("gamma", value, 0.0, 1.0, below=discount is not None) for value in discounts]
        self._steps, self._discount = steps, discount
        self.n_steps, self.gamma = max(first, last), self._discounts[1]
        self.is_annealed = steps is not None or discount is not None
        self.powers = torch.empty(self.n_steps + 1, dtype=torch.float32)
        self.within = torch.ones(self.n_steps - 1, dtype=torch.int64) if self.is_annealed else None
        self.current: tuple[int, float] | None = None
        self.set(self.n_steps, self.gamma)

    def to(self, device: torch.device) -> Horizon:
        """Moves the tensors to a device; returns the horizon."""
        self.powers = self.powers.to(device)
        self.within = None if self.within is None else self.within.to(device)
        return self

    def after(self, t: int) -> tuple[int, float]:
        """Returns n and gamma t updates after the last reset."""
        n, gamma = self._lengths[1], self.gamma
        if self._steps is not None:
            n = round(self._steps.between(*self._lengths, t))
        if self._discount is not None:
            gamma = 1.0 - self._discount.between(1.0 - self._discounts[0], 1.0 - self._discounts[1], t)
        return n, gamma

    def set(self, n_steps: int, gamma: float) -> None:
        """Sets n, at most the largest one, and gamma for the batches from now on."""
        if (n_steps, gamma) == self.current:
            return
        self.current = n_steps, gamma
        self.powers.copy_(torch.tensor([gamma**k for k in range(self.n_steps + 1)], dtype=torch.float32))
        if self.within is not None:
            self.within.copy_(torch.arange(2, self.n_steps + 1) <= n_steps)

    def returns(self, reward: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """Returns n-step returns `[...]` float32, and `[..., n - 1]` int64: 1 for each of the steps 2 .. n that belongs to the
        return, else 0.

        Args:
            reward: `[..., n]` scaled rewards; those after the end of an episode are not used.
            stop: `[..., n - 1]` bool, True where an episode ends after step 1 .. n - 1.
        """
        going = stop.logical_not().cumprod(-1)
        going = going if self.within is None else going * self.within
        return reward[..., 0] + (reward[..., 1:] * self.powers[1:-1] * going).sum(-1), going


class TransitionView:
    """Reads n-step transitions, where n is the ring's `n_steps`.

    return_ = sum_{k<m} gamma^k r_{t+k+1}, where m <= n is the number of steps up to and including the first row that
    is `terminal` or `last`; discount = gamma^m, or 0 if row t + m is `terminal`; next_obs = o_{t+m}. So a truncated
    episode bootstraps from the row of its last observation (Pardo et al. 2018, arXiv:1712.00378).

    Args:
        ring: the ring to read from.
        horizon: the number of steps n of the ring, and the discount.
        scale: function from stored rewards to the rewards of the loss; pure tensor operations.
        future: number K of further observations to read; the start rule of the ring leaves room for them.
    """

    def __init__(
        self,
        ring: Ring,
        horizon: Horizon,
        scale: Callable[[Tensor], Tensor] = identity,
        future: int = 0,
    ) -> None:
        self.ring = ring
        self.future = future
        self.n_steps = ring.n_steps
        self.horizon = horizon.to(ring.device)
        self.scale = scale
        self._window = torch.arange(1 - ring.frame_stack, self.n_steps + 1, device=ring.device)
        self._next_stack = torch.arange(1, ring.frame_stack + 1, device=ring.device)
        self._powers = self.horizon.powers

    def gather(self, lane: Tensor, row: Tensor, weight: Tensor) -> Batch:
        """Reads one batch.

        Args:
            lane, row: `[N]` int64; absolute rows that may start.
            weight: `[N]` float32; samples of weight 0 are read too and contain finite numbers.

        Returns:
            A batch of new tensors.
        """
        ring, k = self.ring, self.ring.frame_stack
        cells = ring.cells(lane[:, None], row[:, None] + self._window)  # [N, K + n]: rows r - K + 1 .. r + n
        now = cells[:, k - 1]
        if self.n_steps == 1:
            steps, end = None, cells[:, k]
            return_ = self.scale(ring.reward.index_select(0, end))
            discount = torch.where(ring.terminal.index_select(0, end), 0.0, self._powers[1])
        else:
            ahead = cells[:, k:]
            return_, steps = self.accumulate(ahead, self.scale(ring.reward.take(ahead)))
            end = ahead.gather(1, steps)[:, 0]
            discount = torch.where(ring.terminal.index_select(0, end), 0.0, self._powers[1:].take(steps[:, 0]))
        obs, next_obs = self._observations(cells, now, end, steps)
        action = ring.actions_at(now)
        mask, next_mask = (None if ring.mask is None else ring.mask.index_select(0, at) for at in (now, end))
        place = torch.stack([lane, row])
        batch = Batch(obs, action, return_, discount, next_obs, weight, place, mask=mask, next_mask=next_mask)
        return batch if not self.future else self._with_future(batch)

    def _with_future(self, batch: Batch) -> Batch:
        """Returns a batch with the observations of the rows r + 1 .. r + K, `[K * N, ...]`; in `extra` the actions before them,
        `future_action` `[K, N, ...]`, and `future_valid` `[K, N]` bool, False after the end of the episode."""
        ring, (lane, row) = self.ring, batch.place
        steps = torch.arange(self.future, device=row.device).unsqueeze(1)
        rows = row + steps  # [K, N]: r .. r + K - 1
        lanes = lane.expand_as(rows)
        cells = ring.cells(lanes, rows)
        stop = ring.terminal.take(cells[1:]) | ring.last.take(cells[1:])
        going = stop.logical_not().cumprod(0)
        valid = torch.cat([torch.ones_like(cells[:1]), going])
        action = ring.actions_at(cells.flatten())
        extra = {"future_action": action.view(*cells.shape, *action.shape[1:]), "future_valid": valid.bool()}
        future = observations_at(ring, lanes.flatten(), (rows + 1).flatten())
        return batch._replace(extra=extra, future=future)

    def accumulate(self, ahead: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Computes n-step returns `[N]` float32 and the number of steps after the first one, m - 1 `[N, 1]` int64.

        Args:
            ahead: `[N, n]` cells of rows r + 1 .. r + n.
            reward: `[N, n]` their rewards, scaled; those after the end of an episode are not used.
        """
        ring, before = self.ring, ahead[:, :-1]
        stop = ring.terminal.take(before) | ring.last.take(before)
        return_, going = self.horizon.returns(reward, stop)
        return return_, going.sum(1, keepdim=True)

    @torch.no_grad()
    def input_priorities(self, lane: Tensor, row: Tensor) -> Tensor:
        r"""Computes priorities of new rows from the Q-values at acting time, stored in the columns `q_taken` and `q_best`.

        .. math:: p_t = \big| q_t(a_t) - (R_t + \gamma_t \max_a q_{t+m}(a)) \big|

        For branches, their absolute errors are averaged.

        Args:
            lane, row: `[N]` int64 of rows that may start.

        Returns:
            `[N]` float32, NaN where an episode was cut before the values of its last row were computed, by a restart of the
            stream.
        """
        ring = self.ring
        ahead = ring.cells(lane[:, None], row[:, None] + torch.arange(1, self.n_steps + 1, device=row.device))
        return_, steps = self.accumulate(ahead, self.scale(ring.reward.take(ahead)))
        end = ahead.gather(1, steps)[:, 0]
        discount = self._powers[1:].take(steps[:, 0]) * ring.terminal.take(end).logical_not()
        best, taken = (  # [N, D], D = 1 without branches
            ring.columns[name][at].unsqueeze(-1).flatten(1)
            for name, at in (("q_best", end), ("q_taken", ring.cells(lane, row)))
        )
        error = (taken - (return_[:, None] + discount[:, None] * best)).abs()
        unknown = ring.last.take(end) & (best == 0).all(1) & (discount > 0)
        return torch.where(unknown, torch.nan, error.mean(1))

    def _observations(
        self, cells: Tensor, now: Tensor, end: Tensor, steps: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        ring, k = self.ring, self.ring.frame_stack
        obs: dict[str, Tensor] = {}
        next_obs: dict[str, Tensor] = {}
        frames = stack_cells(ring, cells) if ring.stacked_keys else cells
        for key, column in ring.obs.items():
            if key not in ring.stacked_keys:
                obs[key], next_obs[key] = column.index_select(0, now), column.index_select(0, end)
            elif steps is None:  # the two stacks overlap in K - 1 frames: K + 1 are read instead of 2 K
                both, channels = take_frames(column, frames), column.shape[1]
                obs[key], next_obs[key] = both[:, : k * channels], both[:, channels:]
            else:
                ends = frames.gather(1, steps + self._next_stack)
                obs[key], next_obs[key] = take_frames(column, torch.cat([frames[:, :k], ends], 1)).chunk(2, 1)
        return obs, next_obs
