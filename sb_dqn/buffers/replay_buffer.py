"""Replay buffer of the off-policy algorithms: stores rows, samples batches, and schedules updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from sb_dqn.accelerate import numpy_version
from sb_dqn.buffers.frame_stack import RingObservations
from sb_dqn.buffers.hindsight import GoalRelabeler
from sb_dqn.buffers.n_step_transitions import TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.sequences import SequenceView
from sb_dqn.buffers.uniform_sampler import Sampler
from sb_dqn.checkpoint import SegmentColumn, SegmentedRows
from sb_dqn.checks import check_int
from sb_dqn.errors import CheckpointError, ConfigurationError, no_attribute
from sb_dqn.sb3_names import REPLAY_ATTRIBUTES
from sb_dqn.types import Batch, BoolArray, FloatArray, IntArray, Rows, Slot, Wait, any_true

BestValues = Callable[[Mapping[str, Tensor], BoolArray | None], FloatArray]
"""Maps observations of all lanes by key and their action masks to the values of the best actions `[B]`, `[B, D]` of branches."""


@dataclass(frozen=True)
class UpdateSchedule:
    """Update schedule: `gradient_steps` for every `train_freq` env steps (or episodes).

    Args:
        train_freq: env steps (or episodes) between updates, >= 1, counted over all lanes; reset rows are not env steps.
        unit: "step" or "episode".
        gradient_steps: number of gradient steps each time, >= 0, or -1 for the number of env steps since the last updates.
        learning_starts: env steps before the first update, >= 0.
        spread: True distributes the gradient steps evenly over `train_freq` env steps instead of running them all at the end;
            only for unit "step" and `gradient_steps` >= 1.

    Raises:
        ConfigurationError: `spread` with unit "episode" or `gradient_steps` -1.
    """

    train_freq: int = 4
    unit: Literal["step", "episode"] = "step"
    gradient_steps: int = 1
    learning_starts: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        if self.spread and (self.unit == "episode" or self.gradient_steps == -1):
            raise ConfigurationError(
                f"spread must be False with unit={self.unit!r} and gradient_steps={self.gradient_steps}, got True. Use "
                f"unit='step' and gradient_steps >= 1."
            )


class ReplayBuffer:
    """Replay buffer: a ring of rows, a sampler of rows, a view that reads batches, and an update schedule.

    `model.replay_buffer.sample(n)` returns a batch for inspection. Training uses `sample_from`.

    Args:
        ring: storage.
        sampler: selects rows; uniform or prioritized.
        view: reads transitions or sequences at these rows.
        schedule: number of updates per env step.
        relabeler: replaces goals of the transitions. If None, they keep their goals.
    """

    def __init__(
        self,
        ring: Ring,
        sampler: Sampler,
        view: TransitionView | SequenceView,
        schedule: UpdateSchedule,
        relabeler: GoalRelabeler | None = None,
    ) -> None:
        self.ring = ring
        self.sampler = sampler
        self.view = view
        self.schedule = schedule
        self.relabeler = relabeler
        self.best_values: BestValues | None = None
        """Set where input priorities need the value of every observation at which an episode is truncated."""
        self._lanes: IntArray = np.arange(ring.num_lanes)
        self._minimum: Callable[[int], int] | None = None
        self._generator = torch.Generator().manual_seed(0)  # only for `sample`
        self._env_steps = 0  # env steps in this buffer: one that starts empty waits for `learning_starts` of its own
        self._pending = 0  # env steps, or episodes, that are not yet covered by updates
        self._steps_since = 0  # env steps since the last updates; with `spread`, since the last `updates_due`

    if not TYPE_CHECKING:  # a type checker would accept any attribute otherwise

        def __getattr__(self, name: str) -> Any:
            """Names the equivalent of an attribute of Stable-Baselines3's buffers.

            Raises:
                AttributeError: always, because it is called only for missing attributes.
            """
            raise no_attribute(self, name, REPLAY_ATTRIBUTES, dir(type(self)))

    def size(self) -> int:
        """Returns the number of stored rows over all lanes."""
        return len(self.ring)

    def describe(self) -> str:
        """Returns one line of text that describes rows, lanes, size and location."""
        return self.ring.layout.describe()

    def extend(self, rows: Rows) -> None:
        """Adds one tick: the departures of the last one (or the cut of a stream that restarts), then the arrivals."""
        restarted = rows.restarted()
        if restarted is not None:
            self.ring.cut(restarted)
        if rows.action is not None:
            self.ring.depart(rows.action, rows.extra, rows.departed)
        for slot in rows.slots:
            self.ring.arrive(slot)
            if self.best_values is not None and slot is not rows.slots[-1]:
                self._value_truncations(slot, self.best_values)
        self._env_steps += rows.steps
        self._steps_since += rows.steps
        if self.schedule.unit == "step":
            self._pending += rows.steps
        elif rows.steps:
            self._pending += sum(int((slot.last & slot.valid & rows.stepped).sum()) for slot in rows.slots)

    def _value_truncations(self, slot: Slot, best_values: BestValues) -> None:
        """Stores the values of the last observations of truncated episodes, for a tick that has their reset rows, too.

        No action is chosen at these observations, so that the policy has not computed their values.
        """
        truncated = slot.valid & slot.last & ~slot.terminal
        if any_true(truncated):
            best = best_values(self.open_observation(), slot.mask)
            self.ring.depart(np.zeros_like(best), {"q_taken": best, "q_best": best}, truncated)

    def open_observation(self, lanes: IntArray | None = None) -> RingObservations:
        """Returns the newest observation of every lane, or of `lanes`, on the device of the buffer, frames stacked: the policy's
        input."""
        if lanes is None:
            return RingObservations(self.ring, self._lanes, self.ring.cursor - 1)
        return RingObservations(self.ring, lanes, self.ring.cursor[lanes] - 1)

    def updates_due(self) -> int:
        """Returns the gradient steps to run now, and counts them as done; remainders are kept.

        Returns 0 up to `learning_starts` and while no row may start; the updates of that time are not made up for.
        """
        if self.schedule.spread:
            return self._spread_updates()
        if self._pending < self.schedule.train_freq:
            return 0
        times, self._pending = divmod(self._pending, self.schedule.train_freq)
        steps, self._steps_since = self._steps_since, self._pending if self.schedule.unit == "step" else 0
        if self._env_steps <= self.schedule.learning_starts or not self._can_start():
            return 0
        if self.schedule.gradient_steps == -1:
            return steps - self._steps_since
        return times * self.schedule.gradient_steps

    def _spread_updates(self) -> int:
        """Returns floor(now G / F) - floor(before G / F) for G gradient steps per F env steps; the sum never drifts."""
        every, steps = self.schedule.train_freq, self.schedule.gradient_steps
        now, before = self._pending, self._pending - self._steps_since
        due = now * steps // every - before * steps // every
        self._pending = now % every
        self._steps_since = 0
        ready = due > 0 and self._env_steps > self.schedule.learning_starts and self._can_start()
        return due if ready else 0

    def _can_start(self) -> bool:
        can_start = self.ring.can_start()
        return can_start if self._minimum is None else bool(self._minimum(can_start))

    def synchronize(self, minimum: Callable[[int], int]) -> None:
        """Makes updates due at the same time for several learners, each with its own buffer.

        `Rows.steps` must then be the env steps of all learners.

        Args:
            minimum: returns the smallest of the numbers that the learners call it with.

        Raises:
            ConfigurationError: `train_freq` counts episodes, which end at different times.
        """
        if self.schedule.unit == "episode":
            raise ConfigurationError(
                f"train_freq must count steps with several learners, got ({self.schedule.train_freq}, 'episode'). Use train_freq=k "
                f"env steps."
            )
        self._minimum = minimum

    def wait(self) -> Wait:
        """Returns what the next update waits for: `learning_starts`, a complete sample, or `train_freq`."""
        schedule = self.schedule
        seen = self._env_steps
        lanes = self.ring.num_lanes
        until = max(schedule.learning_starts - seen, 0)
        period, per = schedule.train_freq, schedule.gradient_steps if schedule.spread else 1
        if schedule.unit == "episode":
            least = until + 1
            much = f"until {period} episodes have ended" if period > 1 else "until an episode has ended"
            often = "give the environment a time limit, or count env steps (train_freq=4)"
            pace = f"updates come after every {period} episodes (train_freq), {self._pending} have ended since the last"
        else:
            # with several lanes the tick that pays for an update may end up to lanes - 1 steps after it is due
            least, enough = (_next_due(self._pending, until + 1 - late, period, per) for late in (lanes - 1, 0))
            much = f"for {enough:,} env steps or more"
            often = "raise replay_ratio" if schedule.spread else "lower train_freq"
            pace = f"there is one update for every {max(period // per, 1):,} env steps"
        if schedule.learning_starts and seen <= schedule.learning_starts:
            why = (
                f"updates begin after learning_starts={schedule.learning_starts:,} env steps, {seen:,} are done; {pace}"
            )
            return Wait(least, why, f"Learn {much}, or lower learning_starts")
        if seen and not self.ring.can_start():
            rows = int(self.ring.cursor.max())
            why = (
                f"one sample takes {self.ring.start_rule.ahead + 1} rows of a lane, {rows} have arrived in the longest"
            )
            return Wait(least, why, "Learn for more env steps, or shorten what is sampled (sequences, n_steps)")
        return Wait(least, pace, f"Learn {much}, or {often}")

    def refresh(self) -> None:
        """Recomputes bounds and priorities on the host; called once before a burst of updates, after the arrivals."""
        self.ring.refresh_bounds()
        self.sampler.refresh()
        if self.relabeler is not None:
            self.relabeler.episodes.refresh()

    def sample(self, batch_size: int | None = None, generator: torch.Generator | None = None) -> Batch:
        """Samples a batch for inspection or for a loss of your own. Training is not affected, whenever this is called.

        Rows are selected as in training: uniformly or by priority. Random numbers come from `generator` or from the buffer's
        own one, never from those of the model, and priorities stay as they are.

        Args:
            batch_size: N, transitions, or sequences for a recurrent policy, >= 1. If None, it is that of the model.
            generator: source of random numbers, on any device. If None, it is the buffer's own generator, which starts from
                seed 0 in each process and is not saved.

        Returns:
            A `Batch` of new tensors on the device of the buffer:

            - `obs`, `next_obs`: observations o_t and o_{t+m} by key (`"obs"` for a space other than Dict), `[N, *shape]`, not
              normalized; stacked frames `[N, K * C, H, W]`. m <= n is the number of steps until the episode ends.
            - `action`: `[N]` int64, from 0; `[N, D]` for MultiDiscrete; `[N, *shape]` float32 for a Box.
            - `return_`: `[N]` float32, sum of m discounted rewards, clipped or normalized as in training.
            - `discount`: `[N]` float32, gamma^m; 0 after a termination, so there is no `done`.
            - `weight`: `[N]` float32, importance weights of prioritized replay, else 1.
            - `place`: `[2, N]` int64, lane and absolute row of o_t.
            - `mask`, `next_mask`: `[N, A]` bool, legal actions at `obs` and `next_obs` (`[N, D, A]` for MultiDiscrete), or None.
            - `extra`: None; for sequences a dict.

            Sequences are time-major and flat: `action`, `return_`, `discount`, `weight` (0 after the end of an episode) and
            masks have T * N entries instead of N, `obs` has (W + T + n) * N, `next_obs` is empty; see `SequenceView.gather`.

        Raises:
            ConfigurationError: an argument is wrong, or the buffer holds no complete transition or sequence yet.
        """
        size = self.sampler.batch_size if batch_size is None else check_int("batch_size", batch_size, 1)
        if generator is not None and not isinstance(generator, torch.Generator):
            raise ConfigurationError(
                f"generator must be a torch.Generator or None, got {generator!r}. Use torch.Generator().manual_seed(0)."
            )
        if not self.ring.can_start():
            raise ConfigurationError(
                f"replay buffer must hold a complete transition or sequence to sample from, got {self.size()} rows. Call learn "
                f"or load_replay_buffer first."
            )
        with self.sampler.preserve_state():
            self.refresh()
            source = self._generator if generator is None else generator
            batch = self.view.gather(*self.sampler.draw(size, source))
        if self.relabeler is None:
            return batch
        shape = (self.relabeler.noise_rows, size)
        return self.relabeler.relabel(
            batch, torch.rand(shape, dtype=torch.float64, generator=source, device=source.device).cpu()
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """Returns the uniform numbers in [0, 1) for the next batch, `noise_shape`, float64."""
        return torch.rand(self.noise_shape, dtype=torch.float64, generator=generator, device=self.ring.device)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the uniform numbers for one batch: those of the sampler, after rows for the goals where these are replaced."""
        shape = self.sampler.noise_shape
        if self.relabeler is None:
            return shape
        return (self.relabeler.noise_rows + math.prod(shape[:-1]), shape[-1])

    def sample_from(self, noise: Tensor) -> Batch:
        """Returns a batch for given random numbers, after `refresh`; pure tensor operations that can be traced, unless goals are
        replaced.

        Args:
            noise: `noise_shape`, uniform in [0, 1), float64.
        """
        return self._relabeled(self._stored(noise), noise)

    def _stored(self, noise: Tensor) -> Batch:
        """Returns the batch with the goals of its episodes."""
        if self.relabeler is not None:
            noise = noise[self.relabeler.noise_rows :].view(self.sampler.noise_shape)
        return self.view.gather(*self.sampler.locate(noise))

    def _relabeled(self, batch: Batch, noise: Tensor) -> Batch:
        return batch if self.relabeler is None else self.relabeler.relabel(batch, noise[: self.relabeler.noise_rows])

    def traced_sampling(self, noise: Tensor) -> Callable[[Tensor], Batch]:
        """Returns `sample_from` for numbers of this shape, its many small operations run by NumPy on the CPU."""
        if not self.ring.host_visible:
            return self.sample_from
        form = self._stored(noise).with_tensors(repeat(noise[:0]))  # holds no frames
        run = numpy_version(lambda noise: self._stored(noise).tensors(), (noise,))
        return lambda noise: self._relabeled(form.with_tensors(run(noise)), noise)

    def sends_batches(self, device: torch.device) -> bool:
        """Returns True if samples are drawn outside of a traced update on `device` and sent there, in one copy for each batch: from
        the memory of the host to another device, or where the environment computes rewards for other goals."""
        return self.relabeler is not None or (self.ring.host_visible and self.ring.device != device)

    def preserve_state(self) -> AbstractContextManager[None]:
        """Restores the priorities at the end; for traces."""
        return self.sampler.preserve_state()

    def feedback(self, batch: Batch, priority: Tensor) -> None:
        """Sets new priorities `[N]` of the samples of a batch."""
        self.sampler.feedback(batch.place, priority)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the whole state as one flat dict of tensors; those of the ring are views (see `Ring.state_dict`)."""
        state = {f"ring/{name}": value for name, value in self.ring.state_dict().items()}
        state |= {f"sampler/{name}": value for name, value in self.sampler.state_dict().items()}
        return state | {"cadence": torch.tensor([self._env_steps, self._pending, self._steps_since])}

    def segmented_rows(self) -> SegmentedRows:
        """Returns the rows that `state_dict` has under `ring/`, for incremental checkpoints."""
        ring, columns = self.ring, {}
        ring.flush()
        for name, spec in ring.layout.columns.items():
            slots = spec.slots(ring.rows)
            cells = ring.columns[name][: slots * ring.num_lanes].view(slots, ring.num_lanes, *spec.shape)
            columns[f"ring/{name}"] = SegmentColumn(cells, spec.every)
        return SegmentedRows(columns, ring.cursor.copy(), ring.written)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the result of `state_dict`.

        Raises:
            CheckpointError: the state belongs to a different replay buffer, or its counts are impossible.
        """
        env_steps, pending, steps_since = (int(number) for number in state["cadence"])
        arrived = int(state["ring/cursor"].sum()) if "ring/cursor" in state else 0
        if not (0 <= pending <= env_steps and 0 <= steps_since <= env_steps):
            raise CheckpointError(
                f"counts of the replay state must be from 0 to its env steps, got {env_steps} env steps, {steps_since} since the "
                f"last update and {pending} pending. The file is damaged. Load another copy."
            )
        if self._minimum is None:  # those of a run of several learners are of all of them, the rows are of one
            env_steps, pending, steps_since = (min(number, arrived) for number in (env_steps, pending, steps_since))
        for part, prefix in ((self.ring, "ring/"), (self.sampler, "sampler/")):
            part.load_state_dict({name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)})
        if self.relabeler is not None:
            self.relabeler.episodes.reset()
        self._env_steps = env_steps
        self._pending = pending
        self._steps_since = steps_since


def _next_due(pending: int, need: int, period: int, per: int) -> int:
    """Returns the fewest env steps, from `need` and from 1, after which an update is due: `per` updates every `period`."""
    number = (max(need, 1) + pending - 1) * per // period + 1
    return -(-number * period // per) - pending
