"""Configuration of off-policy algorithms: replay, update schedule, target updates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from sb_dqn.buffers import Layout, ReplayBuffer, Ring, SequenceView, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.hindsight import GoalRelabeler, GoalRewards, Hindsight
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.buffers.prioritized_sampler import Prioritized, PrioritizedSampler
from sb_dqn.buffers.ring_layout import ColumnSpec, StartRule
from sb_dqn.buffers.sequences import Sequences
from sb_dqn.buffers.uniform_sampler import Sampler
from sb_dqn.checks import check_choice, check_float, check_int, check_path, check_switch, set_fields
from sb_dqn.core.construction import buffer_device_of
from sb_dqn.core.keywords import OffPolicyKeywords
from sb_dqn.devices import is_host_visible
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.transforms import IDENTITY, ValueTransform
from sb_dqn.normalize import Normalizer


@dataclass(frozen=True)
class ReplayConfig:
    """Size of the replay, how it is sampled, and when updates are due.

    Args:
        buffer_size: capacity in rows over all lanes.
        buffer_device: device of the rows; None: that of the networks.
        buffer_path: memory-mapped file for the rows; None: memory.
        batch_size: transitions (or `sequences`) per update, N; drawn with replacement, so it may exceed `buffer_size`.
        n_steps: number of rewards before the bootstrap, n, or an annealed one; becomes the largest n.
        gamma: discount per env step, [0, 1], or an annealed one, below 1; becomes the last one.
        schedule: updates per env step.
        prioritized: priorities; None: uniform sampling.
        sequences: sample sequences instead of transitions; None: transitions.
        transform: of the values that the networks learn, for the priorities of new sequences.
        td_priority: True if the objective's priorities are absolute TD errors.
        hindsight: replace goals by achieved ones; None: goals stay.
        future: K, further observations read with each transition, for self-prediction.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    buffer_size: int
    buffer_device: torch.device | None
    buffer_path: str | None
    batch_size: int
    n_steps: Any
    gamma: Any
    schedule: UpdateSchedule
    prioritized: Prioritized | None = None
    sequences: Sequences | None = None
    transform: ValueTransform = IDENTITY
    td_priority: bool = True
    hindsight: Hindsight | None = None
    future: int = 0
    horizon: Horizon = field(init=False)

    @classmethod
    def from_keywords(cls, keywords: OffPolicyKeywords, **own: Any) -> ReplayConfig:
        """Returns the configuration for the keywords that all algorithms with a replay share, and an algorithm's own fields."""
        return cls(
            buffer_device=buffer_device_of(keywords["buffer_device"]),
            buffer_path=check_path("buffer_path", keywords["buffer_path"]),
            prioritized=check_switch("prioritized_replay", keywords["prioritized_replay"], Prioritized),
            hindsight=check_switch("hindsight", keywords["hindsight"], Hindsight),
            **own,
        )

    def __post_init__(self) -> None:
        horizon = Horizon(self.n_steps, self.gamma)
        set_fields(
            self,
            horizon=horizon,
            buffer_size=check_int("buffer_size", self.buffer_size, 1),
            batch_size=check_int("batch_size", self.batch_size, 1),
            n_steps=horizon.n_steps,
            gamma=horizon.gamma,
        )
        self._check_hindsight()
        if self.future and (self.sequences is not None or self.hindsight is not None):
            kind = "hindsight, whose goals later observations do not have" if self.hindsight else "a recurrent policy"
            raise ConfigurationError(f"self_prediction must be False with {kind}, got True. Remove one of them.")
        if self.stores_q_values and (self.sequences is not None or not self.td_priority):
            kind = (
                "sequences, which have input_priorities" if self.sequences is not None else "priorities in other units"
            )
            raise ConfigurationError(
                f"prioritized_replay['initial'] must be 'max' or a number with {kind}, got 'td_error'. Use 'max'."
            )
        if self.sequences is not None:
            sequences = replace(self.sequences, input_priorities=self._input_priorities(self.sequences))
            set_fields(self, sequences=sequences)

    def _check_hindsight(self) -> None:
        if self.hindsight is None:
            return
        if self.sequences is not None:
            raise ConfigurationError(
                f"hindsight must be unset with a recurrent policy, got {self.hindsight}: it replaces the goals of single transitions. "
                f"Remove it, or use MultiInputPolicy."
            )
        if self.stores_q_values:
            raise ConfigurationError(
                "prioritized_replay['initial'] must be 'max' or a number with hindsight, got 'td_error', an error for the goal of the "
                "episode. Use 'max'."
            )
        if self.buffer_device is not None and not is_host_visible(self.buffer_device):
            raise ConfigurationError(
                f"buffer_device must be 'cpu' or unset with hindsight, whose rewards NumPy computes, got {self.buffer_device}. "
                f"Remove it."
            )

    def _input_priorities(self, chosen: Sequences) -> bool:
        """Returns True if new sequences get priorities from their TD errors."""
        if self.prioritized is None:
            return False
        if chosen.input_priorities and not self.td_priority:
            raise ConfigurationError(
                "input_priorities must be unset where priorities are not TD errors, got True: those of new sequences are in units "
                "of reward, those of the loss, such as C51's divergences in nats, are not. Remove it; new sequences then have the "
                "'initial' priority of prioritized_replay."
            )
        return chosen.has_input_priorities and self.td_priority

    @property
    def stores_q_values(self) -> bool:
        """True if transitions get their initial priorities from the Q-values at acting time."""
        return self.prioritized is not None and self.prioritized.initial == "td_error"

    @property
    def losses(self) -> int:
        """Number of transitions per update."""
        return self.batch_size * (1 if self.sequences is None else self.sequences.batch_T)

    @property
    def observations(self) -> int:
        """Number of observations that an update reads, those that it bootstraps from included."""
        chosen = self.sequences
        steps = 2 + self.future if chosen is None else chosen.warmup_T + chosen.batch_T + self.n_steps
        return self.batch_size * steps

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer, state_size: int = 0) -> ReplayBuffer:
        """Returns a replay buffer for the lanes and spaces of `stream` and recurrent states of size `state_size`.

        Raises:
            MemoryBudgetError: it does not fit into memory.
        """
        frame_stack, chosen = stream.blueprint.frame_stack, self.sequences
        branches = stream.action_shape.shape
        start_rule = None if chosen is None else chosen.start_rule(self.n_steps, frame_stack, state_size, branches)
        ahead = max(self.n_steps, self.future)
        if self.stores_q_values:
            values = ColumnSpec(branches, np.dtype(np.float32))
            # one more row ahead, since the open row has no values yet
            start_rule = StartRule(frame_stack - 1, ahead + 1, extras={"q_taken": values, "q_best": values})
        elif chosen is None:
            start_rule = StartRule(frame_stack - 1, ahead)
        path = Path(self.buffer_path) if self.buffer_path else None
        further = {"n_steps": self.n_steps, "path": path, "start_rule": start_rule}
        device = self.buffer_device or device if self.hindsight is None else torch.device("cpu")
        ring = Ring(Layout.for_stream(stream, self.buffer_size, device, **further))
        if chosen is not None:
            return self._of_sequences(ring, chosen, normalizer)
        view = TransitionView(ring, self.horizon, normalizer.rewards, self.future)
        sampler: Sampler
        if self.prioritized is None:
            sampler = UniformSampler(ring, self.batch_size)
        else:
            priorities = view.input_priorities if self.stores_q_values else None
            sampler = PrioritizedSampler(ring, self.batch_size, self.prioritized, priorities)
        relabeler = None
        if self.hindsight is not None:
            relabeler = GoalRelabeler(view, self.hindsight, GoalRewards(stream))
        return ReplayBuffer(ring, sampler, view, self.schedule, relabeler)

    def _of_sequences(self, ring: Ring, chosen: Sequences, normalizer: Normalizer) -> ReplayBuffer:
        view = SequenceView(ring, chosen, self.horizon, normalizer.rewards, self.transform)
        # few rows can start a sequence, so even uniform sampling uses the tree, with equal priorities
        settings = self.prioritized or Prioritized(alpha=0.0, initial=1.0)
        input_priorities = view.input_priorities if chosen.has_input_priorities else None
        return ReplayBuffer(
            ring, PrioritizedSampler(ring, self.batch_size, settings, input_priorities), view, self.schedule
        )


def update_schedule(
    train_freq: object, gradient_steps: object, learning_starts: object, spread: bool = False
) -> UpdateSchedule:
    """Returns the update schedule for SB3's three arguments; for `spread` see `UpdateSchedule`.

    Raises:
        ConfigurationError: one of them is out of its range.
    """
    unit = "step"
    if isinstance(train_freq, (tuple, list)):
        if len(train_freq) != 2:
            raise ConfigurationError(
                f"train_freq must be k, (k, 'step') or (k, 'episode'), got {train_freq!r}. Give one of these."
            )
        train_freq, unit = train_freq
    return UpdateSchedule(
        check_int("train_freq", train_freq, 1),
        cast(Literal["step", "episode"], check_choice("train_freq's unit", unit, ("step", "episode"))),
        check_int("gradient_steps", gradient_steps, 0, also=(-1,)),
        check_int("learning_starts", learning_starts, 0),
        spread,
    )


@dataclass(frozen=True)
class TargetConfig:
    r"""Updates of the target network.

    The target moves by the share :math:`\tau` towards the online network each time a multiple of `interval` env steps over
    all lanes is crossed, by :math:`1 - (1 - \tau)^m` if a tick crosses m of them.

    Args:
        tau: share, [0, 1].
        interval: interval in env steps, or in gradient steps if `by_updates`.
        by_updates: count updates instead of env steps.
        shared: heads are shifted instead, see `SharedOutputs`; once for each multiple that a tick crosses.

    Raises:
        ConfigurationError: a value is out of its range, or `tau` is not 1 with `shared`.
    """

    tau: float
    interval: int
    by_updates: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        set_fields(
            self,
            tau=check_float("tau", self.tau, 0.0, 1.0),
            interval=check_int("target_update_interval", self.interval, 1),
        )
        if self.shared and self.tau != 1.0:
            raise ConfigurationError(
                f"tau must be 1 with target='shared', whose heads are copied, got {self.tau}. Set tau=1, or target='copy'."
            )

    def share_after(self, crossed: int) -> float:
        """Returns the share in [0, 1] for a number of intervals crossed at once."""
        return self.tau if crossed == 1 else 1 - (1 - self.tau) ** crossed
