"""Sequence replay for recurrent networks: consecutive rows of a lane, with the recurrent state stored at their start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import observations_at
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import ColumnSpec, StartRule
from sb_dqn.checks import check_bool, check_float, check_int, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.sequences import sequence_priority, valid_steps
from sb_dqn.losses.transforms import IDENTITY, ValueTransform, identity
from sb_dqn.types import Batch

CHUNK = 2**19
"""Rows read at once for input priorities."""


@dataclass(frozen=True)
class Sequences:
    """Settings of sequence replay (Kapturowski et al. 2019, ICLR; names as in rlpyt's R2D1).

    Args:
        batch_T: trained steps of a sequence, >= 1.
        warmup_T: burn-in steps before the trained ones, which only update the recurrent state, >= 0.
        store_rnn_state_interval: k, rows of an episode between two stored states, at which sequences start. With 1 they start
            at any row. With 0 no states are stored, and a sequence starts at any row with a state of zeros.
        eta: weight of the largest error in the priority of a sequence, the mean having the rest, [0, 1].
        input_priorities: True computes priorities of new sequences from the values at acting time; False uses the `initial`
            of `prioritized_replay`. If None, it is True where later priorities are TD errors, too.
        input_priority_shift: stored states between the start of the burn-in and the first step that the input priority uses.
            If None, it is `warmup_T / store_rnn_state_interval`, which gives exactly the trained steps.

    Raises:
        ConfigurationError: an argument is out of range, or the interval does not divide the lengths.
    """

    batch_T: int = 32
    warmup_T: int = 16
    store_rnn_state_interval: int = 16
    eta: float = 0.9
    input_priorities: bool | None = None
    input_priority_shift: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch_T", 1), ("warmup_T", 0), ("store_rnn_state_interval", 0)):
            set_fields(self, **{name: check_int(name, getattr(self, name), least)})
        set_fields(self, eta=check_float("eta", self.eta, 0.0, 1.0))
        if self.input_priorities is not None:
            set_fields(self, input_priorities=check_bool("input_priorities", self.input_priorities))
        for name in ("batch_T", "warmup_T"):
            length = getattr(self, name)
            if length % self.every:
                lower = length // self.every * self.every
                raise ConfigurationError(
                    f"{name} must be a multiple of store_rnn_state_interval={self.every}, got {length}: a sequence would start "
                    f"without a stored state, or skip steps. Set {name}={max(lower, self.every)}, or change the interval."
                )
        if self.input_priority_shift is not None:
            shift = check_int("input_priority_shift", self.input_priority_shift, 0, self.warmup_T // self.every)
            set_fields(self, input_priority_shift=shift)

    @property
    def every(self) -> int:
        """Stride of the start rows within an episode."""
        return max(self.store_rnn_state_interval, 1)

    @property
    def has_input_priorities(self) -> bool:
        """True unless `input_priorities` is False."""
        return self.input_priorities is not False

    @property
    def priority_offset(self) -> int:
        """Offset of the first row of the input priority from the first trained row; <= 0."""
        shift = self.warmup_T // self.every if self.input_priority_shift is None else self.input_priority_shift
        return shift * self.every - self.warmup_T

    def start_rule(self, n_steps: int, frame_stack: int, state_size: int, branches: tuple[int, ...] = ()) -> StartRule:
        """Returns the start rule and additional columns of a ring for these sequences.

        A start row is the first trained row of a sequence; its burn-in comes before it.

        Args:
            n_steps: n.
            frame_stack: K.
            state_size: numbers of a recurrent state.
            branches: `(D,)` for actions with branches, else `()`.
        """
        number = np.dtype(np.float32)
        values = ColumnSpec(branches, number)
        extras = {"q_taken": values, "q_best": values} if self.has_input_priorities else {}
        if self.store_rnn_state_interval:
            extras["state"] = ColumnSpec((state_size,), number, every=self.every)
        # one more row behind, for the action before the first; one more ahead, since the open row has no values yet
        ahead = self.batch_T - 1 + n_steps + self.has_input_priorities
        return StartRule(self.warmup_T + frame_stack, ahead, self.every, extras)


class SequenceView:
    r"""Sequences of T trained steps after W steps of burn-in, each step with its n-step return.

    Start row r of a lane denotes the sequence of rows r - W .. r + T - 1 + n. Rows r .. r + T - 1 are trained, the following n
    are used to bootstrap. A sequence continues after a lost life, with discount 0 there; from the first `last` row on its
    steps have weight 0. Returns and discounts are those of `TransitionView`.

    Burn-in starts at row r - W in the state stored there; where an episode starts on the way, the state is set to zeros.
    States are stored at each k-th row of an *episode*, so the first steps of an episode are trained as often as the others.

    Args:
        ring: a ring with the start rule of `sequences`.
        sequences: lengths and interval.
        horizon: the number of steps n of the ring, and the discount.
        scale: function from stored rewards to the rewards of the loss; networks read the stored ones.
        transform: transform of the values that the networks learn.
    """

    def __init__(
        self,
        ring: Ring,
        sequences: Sequences,
        horizon: Horizon,
        scale: Callable[[Tensor], Tensor] = identity,
        transform: ValueTransform = IDENTITY,
    ) -> None:
        self.ring = ring
        self.sequences = sequences
        self.n_steps = ring.n_steps
        self.horizon = horizon.to(ring.device)
        self.scale = scale
        self.transform = transform
        self.length = sequences.batch_T
        self.warmup = sequences.warmup_T
        ahead = self.length + ring.n_steps
        self._around = torch.arange(-self.warmup - 1, ahead, device=ring.device).unsqueeze(1)  # [1 + W + T + n, 1]
        self._ahead = self._around[self.warmup + 1 :]
        self._steps = self._ahead[: self.length]
        self._powers = self.horizon.powers
        self._state_spec = ring.layout.columns.get("state")

    def gather(self, lane: Tensor, row: Tensor, weight: Tensor) -> Batch:
        """Reads one batch of N sequences, time-major and flat: index t * N + i is step t of sequence i.

        Args:
            lane, row: `[N]` int64; absolute rows that may start.
            weight: `[N]` float32.

        Returns:
            A batch of new tensors. `action`, `return_`, `discount`, `weight` and masks are `[T * N]`, for the trained steps;
            `obs` is `[(W + T + n) * N, ...]`, for all rows; `place` is `[2, N]`. `extra` contains, for all rows,
            `previous_action` (-1 if there is none), `previous_reward` and `begins`; if states are stored, `state` `[N, ...]`,
            the recurrent state before the first row; and `end` `[T * N]` int64, the row that a step bootstraps from, relative
            to r.
        """
        ring = self.ring
        rows = row + self._around  # [1 + W + T + n, N]
        cells = ring.cells(lane, rows)
        now, trained = cells[1:], cells[self.warmup + 1 :]
        return_, discount, end = self._targets(trained)
        valid = valid_steps(ring.last.take(trained[: self.length]))
        begins = ring.last.take(cells[:-1]) | (rows[1:] == 0)
        action = ring.actions_at(cells.flatten())
        action = action.view(*cells.shape, *action.shape[1:])
        branches = (1,) * (action.dim() - 2)
        extra = {
            "previous_action": torch.where(begins.view(*begins.shape, *branches), -1, action[:-1]).flatten(0, 1),
            "previous_reward": ring.reward.take(now).flatten(),  # stored as 0 on a reset row
            "begins": begins.flatten(),
            "end": end.flatten(),
        }
        if self._state_spec is not None:
            place = (row - self.warmup) // self._state_spec.every % self._state_spec.slots(ring.rows)
            extra["state"] = ring.columns["state"].index_select(0, place * ring.num_lanes + lane)
        last_rows = trained.gather(0, end)
        mask, next_mask = (
            None if ring.mask is None else ring.mask.index_select(0, at.flatten())
            for at in (trained[: self.length], last_rows)
        )
        every_lane = lane.expand_as(rows[1:]).flatten()
        return Batch(
            obs=observations_at(ring, every_lane, rows[1:].flatten()),
            action=action[self.warmup + 1 : self.warmup + 1 + self.length].flatten(0, 1),
            return_=return_.flatten(),
            discount=discount.flatten(),
            next_obs={},
            weight=(weight * valid).flatten(),
            place=torch.stack([lane, row]),
            mask=mask,
            next_mask=next_mask,
            extra=extra,
        )

    def _targets(self, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes returns, discounts and bootstrap rows (relative to r), `[T, N]` each, from `[T + n, N]` cells of rows r .."""
        ring, n = self.ring, self.n_steps
        terminal = ring.terminal.take(cells)
        # [T, N, n]: the steps 1 .. n after each row
        reward = self.scale(ring.reward.take(cells)[1:]).unfold(0, n, 1)
        stop = (terminal | ring.last.take(cells))[1:].unfold(0, n, 1)
        return_, going = self.horizon.returns(reward, stop[..., :-1])
        steps = going.sum(-1) + 1
        end = self._steps + steps
        return return_, self._powers.take(steps) * terminal.gather(0, end).logical_not(), end

    @torch.no_grad()
    def input_priorities(self, lane: Tensor, row: Tensor) -> Tensor:
        r"""Computes priorities of new sequences from the values at acting time.

        .. math:: \delta_t = q_t - h\big(R_t + \gamma_t \, h^{-1}(\max_a q_{t+m})\big)

        For branches, their absolute errors are averaged; steps are combined as in `sequence_priority`. (rlpyt uses the largest
        value at t + n - 1, and omits gamma^n.)

        Args:
            lane, row: `[N]` int64 of new sequences.

        Returns:
            `[N]` float32, NaN for a sequence without a valid step.
        """
        size = max(1, CHUNK // len(self._ahead))
        starts = range(0, max(len(row), 1), size)
        return torch.cat([self._input_priorities(lane[i : i + size], row[i : i + size]) for i in starts])

    def _input_priorities(self, lane: Tensor, row: Tensor) -> Tensor:
        ring, columns = self.ring, self.ring.columns
        rows = row + self.sequences.priority_offset + self._ahead
        cells = ring.cells(lane, rows)
        return_, discount, end = self._targets(cells)
        ends = cells.gather(0, end)
        now = cells[: self.length]
        best, taken = columns["q_best"][ends], columns["q_taken"][now]  # [T, N] or of branches [T, N, D]
        if best.dim() == ends.dim():
            best, taken = best.unsqueeze(-1), taken.unsqueeze(-1)
        return_, discount = return_.unsqueeze(-1), discount.unsqueeze(-1)
        y = self.transform.target(return_, discount, best)
        # where SAME_STEP autoreset or a new `learn` cut an episode, no value was computed: the column still contains 0
        unknown = ring.last.take(ends) & (best == 0).all(-1) & (discount[..., 0] > 0)
        valid = valid_steps(ring.last.take(now)) & (rows[: self.length] >= 0) & ~unknown
        priority = sequence_priority((taken - y).abs().mean(-1), valid, self.sequences.eta)
        return torch.where(valid.any(0), priority, torch.nan)
