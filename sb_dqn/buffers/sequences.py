"""Sequences: stretches of a lane with the recurrent state that they begin in, read from the ring of single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import observations_at
from sb_dqn.buffers.n_step_transitions import as_it_is
from sb_dqn.buffers.prioritized_sampler import Entering
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_storage import Column
from sb_dqn.buffers.start_rule import StartRule
from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.rescaling import rescaled_target
from sb_dqn.losses.sequences import sequence_priority, valid_steps
from sb_dqn.types import Batch

CHUNK = 2**19
"""Rows that are read at once for input priorities."""


@dataclass(frozen=True)
class Sequences:
    """How a recurrent net is trained (Kapturowski et al. 2019, ICLR; names as in rlpyt's R2D1).

    Args:
        batch_T: steps of a sequence that are trained, >= 1.
        warmup_T: steps before them that only bring the state up to date (burn-in), >= 0.
        store_rnn_state_interval: rows of an episode between two stored states, at which sequences begin: k; 1: at any row;
            0: none is stored, a sequence begins anywhere in a state of zeros.
        eta: share of the largest error in a sequence's priority, the rest is the mean's, [0, 1].
        input_priorities: new sequences get the priority that the actor's own values give them; else that of
            `prioritized_replay`. None: they do where what is fed back later is a TD error, too.
        input_priority_shift: stored states between where burn-in begins and the first step that this priority looks at;
            None: `warmup_T / store_rnn_state_interval`, so these are the very steps that will be trained.

    Raises:
        ConfigurationError: one of them is out of its range, or the interval does not divide the lengths.
    """

    batch_T: int = 32
    warmup_T: int = 16
    store_rnn_state_interval: int = 16
    eta: float = 0.9
    input_priorities: bool | None = None
    input_priority_shift: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch_T", 1), ("warmup_T", 0), ("store_rnn_state_interval", 0)):
            object.__setattr__(self, name, check_int(name, getattr(self, name), least))
        check_float("eta", self.eta, 0.0, 1.0)
        if self.input_priorities is not None:
            object.__setattr__(self, "input_priorities", check_bool("input_priorities", self.input_priorities))
        for name in ("batch_T", "warmup_T"):
            length = getattr(self, name)
            if length % self.every:
                lower = length // self.every * self.every
                raise ConfigurationError(
                    f"store_rnn_state_interval={self.every} does not divide {name}={length}: a sequence would begin where no "
                    f"state is stored, or leave steps out; give {name}={max(lower, self.every)} or another interval"
                )
        if self.input_priority_shift is not None:
            shift = check_int("input_priority_shift", self.input_priority_shift, 0, self.warmup_T // self.every)
            object.__setattr__(self, "input_priority_shift", shift)

    @property
    def every(self) -> int:
        """Rows of an episode between two that may start."""
        return max(self.store_rnn_state_interval, 1)

    @property
    def enters(self) -> bool:
        """Whether new sequences have priorities of their own."""
        return self.input_priorities is not False

    @property
    def offset(self) -> int:
        """Rows from the first trained one to the first that an input priority looks at; <= 0."""
        shift = self.warmup_T // self.every if self.input_priority_shift is None else self.input_priority_shift
        return shift * self.every - self.warmup_T

    def span(self, n_steps: int, frame_stack: int, state_size: int, branches: tuple[int, ...] = ()) -> StartRule:
        """What a ring must keep: a row that starts is the first trained one, its burn-in lies behind it. `branches`: (D,) or ()."""
        number = np.dtype(np.float32)
        values = Column(branches, number)
        declared = {"q_taken": values, "q_best": values} if self.enters else {}
        if self.store_rnn_state_interval:
            declared["state"] = Column((state_size,), number, every=self.every)
        # one row more behind for the action before the first, one ahead, since the open row has no values yet
        ahead = self.batch_T - 1 + n_steps + self.enters
        return StartRule(self.warmup_T + frame_stack, ahead, self.every, declared)


class SequenceView:
    r"""Sequences of T steps after W steps of burn-in, each step with its n-step return.

    Row r of a lane stands for the sequence of rows r - W .. r + T - 1 + n. Rows r .. r + T - 1 are trained, the n beyond are
    what the last of them bootstraps from. It goes on through a lost life, with discount 0 there; from the first `last` row
    on its steps have weight 0. Returns and discounts are those of `TransitionView`.

    Burn-in begins at row r - W in the state stored there; where an episode begins on the way, in a state of zeros. Stored
    states stand at each k-th row of an *episode*, so an episode's first steps are trained as often as its others.

    Args:
        ring: made with the span of `sequences`.
        sequences: lengths and interval.
        gamma: in [0, 1].
        scale: from rewards as they are stored to rewards as they are learned from; the nets read them as they are stored.

    Raises:
        ConfigurationError: gamma is out of its range.
    """

    def __init__(
        self, ring: Ring, sequences: Sequences, gamma: float, scale: Callable[[Tensor], Tensor] = as_it_is
    ) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ConfigurationError(f"gamma={gamma} is not allowed; give a number in [0, 1]")
        self.ring, self.sequences, self.n_steps, self.gamma = ring, sequences, ring.n_steps, float(gamma)
        self.scale = scale
        self.length, self.warmup = sequences.batch_T, sequences.warmup_T
        ahead = self.length + ring.n_steps
        self._around = torch.arange(-self.warmup - 1, ahead, device=ring.device).unsqueeze(1)  # [1 + W + T + n, 1]
        self._ahead = self._around[self.warmup + 1 :]
        self._steps = self._ahead[: self.length]
        self._powers = torch.tensor(
            [gamma**k for k in range(ring.n_steps + 1)], dtype=torch.float32, device=ring.device
        )
        self._kind = ring.layout.columns.get("state")

    def gather(self, lane: Tensor, row: Tensor, weight: Tensor) -> Batch:
        """Reads one batch of N sequences; all is time-major and flat: place t * N + i is step t of sequence i.

        Args:
            lane, row: `[N]` int64, rows absolute and allowed to start.
            weight: `[N]` float32.

        Returns:
            A batch of fresh tensors whose `action`, `return_`, `discount`, `weight` and masks are `[T * N]`, of the trained
            steps; `obs` `[(W + T + n) * N, ...]`, of all rows; `place` `[2, N]`. `extra` holds, of all rows,
            `previous_action` (-1: none), `previous_reward` and `begins`; `state` `[N, ...]`, that in which the first row is
            met, if states are stored; and `end` `[T * N]` int64, the row that a step bootstraps from, counted from r.
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
            "previous_reward": ring.reward.take(now).flatten(),  # 0 on a reset row as it is
            "begins": begins.flatten(),
            "end": end.flatten(),
        }
        if self._kind is not None:
            place = (row - self.warmup) // self._kind.every % self._kind.slots(ring.rows)
            extra["state"] = ring.columns["state"].index_select(0, place * ring.num_lanes + lane)
        last_rows = trained.gather(0, end)
        mask, next_mask = (
            None if ring.mask is None else ring.mask.index_select(0, at.flatten())
            for at in (trained[: self.length], last_rows)
        )
        every_lane = lane.expand_as(rows[1:]).flatten()
        return Batch(
            observations_at(ring, every_lane, rows[1:].flatten()),
            action[self.warmup + 1 : self.warmup + 1 + self.length].flatten(0, 1),
            return_.flatten(),
            discount.flatten(),
            {},
            (weight * valid).flatten(),
            torch.stack([lane, row]),
            mask,
            next_mask,
            extra,
        )

    def _targets(self, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[T + n, N]` cells of rows r .. -> returns, discounts and rows to bootstrap from (counted from r), `[T, N]`."""
        ring, n = self.ring, self.n_steps
        terminal = ring.terminal.take(cells)
        reward = self.scale(ring.reward.take(cells)[1:]).unfold(
            0, n, 1
        )  # [T, N, n]: of the steps 1 .. n after each row
        stop = (terminal | ring.last.take(cells))[1:].unfold(0, n, 1)
        going = stop[..., :-1].logical_not().cumprod(-1)  # [T, N, n - 1]: steps 2 .. n, 1 where nothing ended before
        return_ = reward[..., 0] + (reward[..., 1:] * self._powers[1:-1] * going).sum(-1)
        steps = going.sum(-1) + 1
        end = self._steps + steps
        return return_, self._powers.take(steps) * terminal.gather(0, end).logical_not(), end

    def entering(self, eps: float | None = None) -> Entering:
        """What gives sequences their priorities as they come to be, see `input_priorities`.

        Args:
            eps: of value rescaling; None: values are as they are.
        """
        return partial(self.input_priorities, eps=eps)

    @torch.no_grad()
    def input_priorities(self, lane: Tensor, row: Tensor, eps: float | None = None) -> Tensor:
        r"""Priorities of sequences by the values that the actor had when it met them.

        .. math:: \delta_t = q_t - h\big(R_t + \gamma_t \, h^{-1}(\max_a q_{t+m})\big)

        Of branches it is the mean of their absolute errors; steps are joined as in `sequence_priority`. rlpyt took the largest value
        at t + n - 1 and left gamma^n out.

        Args:
            lane, row: `[N]` int64 of sequences that have just come to be.
            eps: of value rescaling; None: values are as they are.

        Returns:
            `[N]` float32, NaN for a sequence without a step that counts.
        """
        size = max(1, CHUNK // len(self._ahead))
        starts = range(0, max(len(row), 1), size)
        return torch.cat([self._input_priorities(lane[i : i + size], row[i : i + size], eps) for i in starts])

    def _input_priorities(self, lane: Tensor, row: Tensor, eps: float | None) -> Tensor:
        ring, columns = self.ring, self.ring.columns
        rows = row + self.sequences.offset + self._ahead
        cells = ring.cells(lane, rows)
        return_, discount, end = self._targets(cells)
        ends = cells.gather(0, end)
        now = cells[: self.length]
        best, taken = columns["q_best"][ends], columns["q_taken"][now]  # [T, N] or of branches [T, N, D]
        if best.dim() == ends.dim():
            best, taken = best.unsqueeze(-1), taken.unsqueeze(-1)
        return_, discount = return_.unsqueeze(-1), discount.unsqueeze(-1)
        y = return_ + discount * best if eps is None else rescaled_target(return_, discount, best, eps)
        # nobody asked for a value where SAME_STEP autoreset or a new `learn` cut an episode: it is 0 as it arrived
        unknown = ring.last.take(ends) & (best == 0).all(-1) & (discount[..., 0] > 0)
        valid = valid_steps(ring.last.take(now)) & (rows[: self.length] >= 0) & ~unknown
        found = sequence_priority((taken - y).abs().mean(-1), valid, self.sequences.eta)
        return torch.where(valid.any(0), found, torch.nan)


def sequence_inputs(batch: Batch) -> Mapping[str, Tensor]:
    """What `SequenceView` puts into `Batch.extra`."""
    if batch.extra is None or "begins" not in batch.extra:
        raise ConfigurationError(
            "the batch holds transitions, a recurrent net needs sequences; read them by SequenceView"
        )
    return batch.extra
