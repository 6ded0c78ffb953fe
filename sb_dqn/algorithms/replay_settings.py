"""Settings of what an off-policy algorithm keeps and of how its target follows; checked when made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch

from sb_dqn.checks import check_choice, check_float, check_int
from sb_dqn.envs.stream import Stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.normalize import Normalizer
from sb_dqn.replay import Cadence, Replay, Ring, SequenceView, TransitionView, UniformSampler
from sb_dqn.replay.prioritized import Prioritized, PrioritizedSampler
from sb_dqn.replay.sequences import Sequences
from sb_dqn.spaces import flatten_space


@dataclass(frozen=True)
class ReplaySettings:
    """How much is kept, how it is read, and how often; checked when made.

    Args:
        buffer_size: rows over all lanes.
        buffer_device: where they lie; None: where the nets are.
        buffer_path: file to map them from; None: memory.
        batch_size: transitions per update, N; with `sequences` so many of these. Drawn with replacement, so that it may be
            larger than `buffer_size`.
        n_steps: n.
        gamma: discount per env step, 0..1.
        cadence: updates per env step.
        prioritized: how rows are prioritised; None: all are equal.
        sequences: read sequences instead of transitions: how long, and from which states; None: transitions.
        rescale_eps: of value rescaling, for the priorities of new sequences; None: values are as they are.
        td_priority: what is fed back as a priority is an absolute TD error.
    """

    buffer_size: int
    buffer_device: torch.device | None
    buffer_path: str | None
    batch_size: int
    n_steps: int
    gamma: float
    cadence: Cadence
    prioritized: Prioritized | None = None
    sequences: Sequences | None = None
    rescale_eps: float | None = None
    td_priority: bool = True

    def __post_init__(self) -> None:
        check_int("buffer_size", self.buffer_size, 1)
        check_int("batch_size", self.batch_size, 1)
        check_int("n_steps", self.n_steps, 1)
        check_float("gamma", self.gamma, 0.0, 1.0)
        if self.sequences is not None:
            object.__setattr__(
                self, "sequences", replace(self.sequences, input_priorities=self._enters(self.sequences))
            )

    def _enters(self, chosen: Sequences) -> bool:
        if self.prioritized is None:  # nobody would ask for them
            return False
        if chosen.input_priorities and not self.td_priority:
            raise ConfigurationError(
                "input_priorities=True is not allowed where priorities are no TD errors: those of new sequences would be in units "
                "of reward, those fed back, as C51's divergences in nats, would not; leave it out, so that new sequences have the "
                "'initial' of prioritized_replay"
            )
        return chosen.enters and self.td_priority

    @property
    def losses(self) -> int:
        """Transitions per update."""
        return self.batch_size * (1 if self.sequences is None else self.sequences.batch_T)

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer, state_size: int = 0) -> Replay:
        """A replay for the lanes and spaces of `stream`, and for recurrent states of so many numbers.

        Raises:
            MemoryBudgetError: it does not fit.
        """
        frame_stack, chosen = stream.blueprint.frame_stack, self.sequences
        branches = stream.action_shape.shape
        span = None if chosen is None else chosen.span(self.n_steps, frame_stack, state_size, branches)
        ring = Ring(
            self.buffer_size,
            stream.num_envs,
            flatten_space(stream.observation_space),
            frame_stack=frame_stack,
            n_steps=self.n_steps,
            device=device if self.buffer_device is None else self.buffer_device,
            path=Path(self.buffer_path) if self.buffer_path else None,
            num_actions=stream.action_shape.num_actions,
            action_axes=branches,
            masks=stream.has_masks,
            span=span,
        )
        if chosen is not None:
            return self._of_sequences(ring, chosen, normalizer)
        view = TransitionView(ring, self.n_steps, self.gamma, normalizer.rewards)
        if self.prioritized is None:
            return Replay(ring, UniformSampler(ring, self.batch_size), view, self.cadence)
        return Replay(ring, PrioritizedSampler(ring, self.batch_size, self.prioritized), view, self.cadence)

    def _of_sequences(self, ring: Ring, chosen: Sequences, normalizer: Normalizer) -> Replay:
        view = SequenceView(ring, chosen, self.gamma, normalizer.rewards)
        # few rows may start a sequence: all equal means drawn by a tree whose leaves are
        settings = self.prioritized or Prioritized(alpha=0.0, initial=1.0)
        entering = view.entering(self.rescale_eps) if chosen.enters else None
        return Replay(ring, PrioritizedSampler(ring, self.batch_size, settings, entering), view, self.cadence)


def cadence(train_freq: Any, gradient_steps: Any, learning_starts: Any, spread: bool = False) -> Cadence:
    """Stable-Baselines3's three arguments as one checked cadence; `spread` as there.

    Raises:
        ConfigurationError: one of them is out of its range.
    """
    unit = "step"
    if isinstance(train_freq, (tuple, list)):
        if len(train_freq) != 2:
            raise ConfigurationError(f"train_freq={train_freq!r} is not allowed: give k, (k, 'step') or (k, 'episode')")
        train_freq, unit = train_freq
    return Cadence(
        check_int("train_freq", train_freq, 1),
        cast(Literal["step", "episode"], check_choice("train_freq's unit", unit, ("step", "episode"))),
        check_int("gradient_steps", gradient_steps, 1, also=(-1,)),
        check_int("learning_starts", learning_starts, 0),
        spread,
    )


@dataclass(frozen=True)
class TargetSettings:
    r"""How the target net follows: :math:`\tau` of the way whenever a multiple of `interval` env steps over all lanes is
    crossed, :math:`1 - (1 - \tau)^m` of it where a tick crosses m; or `by_updates` after so many updates."""

    tau: float
    interval: int
    by_updates: bool = False

    def __post_init__(self) -> None:
        check_float("tau", self.tau, 0.0, 1.0, above=True)
        check_int("target_update_interval", self.interval, 1)

    def share(self, crossed: int) -> float:
        """Of the way to the online net, in (0, 1], after that many intervals."""
        return self.tau if crossed == 1 else 1 - (1 - self.tau) ** crossed
