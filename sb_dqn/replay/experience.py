"""Replay: ring, sampler, view and cadence behind the four words of `Experience`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from sb_dqn.accelerate import by_arrays
from sb_dqn.checkpoint import Strip, Strips
from sb_dqn.errors import CheckpointError, ConfigurationError, no_attribute
from sb_dqn.replay.ring import Ring
from sb_dqn.replay.samplers import Sampler
from sb_dqn.replay.sequences import SequenceView
from sb_dqn.replay.views import TransitionView
from sb_dqn.types import Batch, Rows, Wait

ROWS = "Read replay.ring.{}, slots by lane".format
DRAWN = (
    "call replay.refresh(), then replay.sample(torch.rand(replay.sampler.noise_shape, dtype=torch.float64, "
    "device=replay.ring.device)), a batch of the model's batch_size"
)
ELSEWHERE = {
    "pos": "Read replay.ring.cursor, rows that ever arrived in each lane",
    "full": "Compare replay.size() with replay.ring.rows * replay.ring.num_lanes",
    "observations": "Read replay.ring.obs, key to slots by lane; a lone observation has the key 'obs'",
    "next_observations": "Read replay.ring.obs: the next row of the lane is the next observation",
    "actions": ROWS("action"),
    "rewards": ROWS("reward"),
    "dones": "Read replay.ring.last, slots by lane, where an episode ends",
    "timeouts": "Read replay.ring.last & ~replay.ring.terminal, slots by lane",
    "add": "Call replay.extend(rows), with what a stream gives",
    "reset": "There is no way to empty it: make a new model",
    "buffer_size": "Read replay.ring.rows * replay.ring.num_lanes",
    "n_envs": "Read replay.ring.num_lanes",
    "device": "Read replay.ring.device",
    "to_torch": "It holds tensors already: replay.ring.columns",
}
"""Names of Stable-Baselines3's buffers, and what stands for them here."""


@dataclass(frozen=True)
class Cadence:
    """How many gradient steps the data pays for: `gradient_steps` for every `train_freq` env steps (or episodes).

    Args:
        train_freq: >= 1, counted over all lanes; reset rows are no env steps.
        unit: "step" or "episode".
        gradient_steps: >= 1, or -1 for as many as there were env steps since the last firing.
        learning_starts: env steps before the first update, >= 0.
        spread: each gradient step comes as soon as its share of `train_freq` env steps has been made, instead of all at the
            end of these; in steps alone.

    Raises:
        ConfigurationError: one of them is out of its range.
    """

    train_freq: int = 4
    unit: Literal["step", "episode"] = "step"
    gradient_steps: int = 1
    learning_starts: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        if self.train_freq < 1:
            raise ConfigurationError(f"train_freq={self.train_freq} is not allowed; give k >= 1, or (k, 'episode')")
        if self.unit not in ("step", "episode"):
            raise ConfigurationError(f"train_freq unit {self.unit!r} is not allowed; give 'step' or 'episode'")
        if self.gradient_steps < 1 and self.gradient_steps != -1:
            raise ConfigurationError(
                f"gradient_steps={self.gradient_steps} is not allowed; give an integer >= 1, or -1 for one per env step"
            )
        if self.learning_starts < 0:
            raise ConfigurationError(f"learning_starts={self.learning_starts} is not allowed; give an integer >= 0")
        if self.spread and (self.unit == "episode" or self.gradient_steps == -1):
            raise ConfigurationError(
                f"spread=True is not allowed with unit={self.unit!r} and gradient_steps={self.gradient_steps}; give "
                f"unit='step' and gradient_steps >= 1, or spread=False"
            )


class Replay:
    """What an off-policy algorithm learns from (the `Experience` of types.py)."""

    def __init__(self, ring: Ring, sampler: Sampler, view: TransitionView | SequenceView, cadence: Cadence) -> None:
        self.ring, self.sampler, self.view, self.cadence = ring, sampler, view, cadence
        self._seen = 0  # env steps taken in: a replay that begins empty waits for `learning_starts` of its own
        self._pending = 0  # env steps, or episodes, that have not yet paid for updates
        self._steps = 0  # env steps since the last firing; where updates are spread, since they were last asked for

    if not TYPE_CHECKING:  # for a type checker every name would be one of a replay

        def __getattr__(self, name: str) -> Any:
            """Says what stands for a name of Stable-Baselines3's buffers.

            Raises:
                AttributeError: always: what exists is found before this is asked.
            """
            raise no_attribute(self, name, ELSEWHERE, dir(type(self)))

    def size(self) -> int:
        """Rows that are held, over all lanes."""
        return len(self.ring)

    def extend(self, rows: Rows) -> None:
        """Takes in one tick: departures of the last (or the cut of a stream that begins anew), then arrivals."""
        if rows.action is None:
            self.ring.cut()
        else:
            self.ring.depart(rows.action, rows.extra)
        for slot in rows.slots:
            self.ring.arrive(slot)
            self.sampler.arrived(slot)
        self._seen += rows.steps
        self._steps += rows.steps
        if self.cadence.unit == "step":
            self._pending += rows.steps
        elif rows.steps:
            self._pending += sum(int((slot.last & slot.valid & rows.stepped).sum()) for slot in rows.slots)

    def updates_due(self) -> int:
        """Gradient steps to take now; asking settles them, remainders are kept.

        Nothing is due up to `learning_starts`, nor while no row may start; the steps of that time are not made up for.
        """
        if self.cadence.spread:
            return self._spread()
        if self._pending < self.cadence.train_freq:
            return 0
        times, self._pending = divmod(self._pending, self.cadence.train_freq)
        steps, self._steps = self._steps, self._pending if self.cadence.unit == "step" else 0
        if self._seen <= self.cadence.learning_starts or not self.ring.can_start():
            return 0
        if self.cadence.gradient_steps == -1:
            return steps - self._steps
        return times * self.cadence.gradient_steps

    def _spread(self) -> int:
        """Gradient steps to take now: floor(now G / F) - floor(before G / F) of G for F env steps, whose sum drifts nowhere."""
        every, steps = self.cadence.train_freq, self.cadence.gradient_steps
        now, before = self._pending, self._pending - self._steps
        due = now * steps // every - before * steps // every
        self._pending, self._steps = now % every, 0
        may = due > 0 and self._seen > self.cadence.learning_starts and self.ring.can_start()
        return due if may else 0

    def wait(self) -> Wait:
        """Returns what the next update waits for: `learning_starts`, a complete sample, or `train_freq`."""
        cadence, seen, lanes = self.cadence, self._seen, self.ring.num_lanes
        until = max(cadence.learning_starts - seen, 0)
        period, per = cadence.train_freq, cadence.gradient_steps if cadence.spread else 1
        if cadence.unit == "episode":
            least = enough = until + 1
            pace = f"updates come after every {period} episodes (train_freq), {self._pending} have ended since the last"
        else:
            # with several lanes the tick that pays for an update may end up to lanes - 1 steps after it is due
            least, enough = (_next_due(self._pending, until + 1 - late, period, per) for late in (lanes - 1, 0))
            pace = f"there is one update for every {max(period // per, 1):,} env steps"
        if cadence.learning_starts and seen <= cadence.learning_starts:
            why = (
                f"updates begin after learning_starts={cadence.learning_starts:,} env steps, {seen:,} are done; {pace}"
            )
            return Wait(least, why, f"Learn for {enough:,} env steps or more, or lower learning_starts")
        if seen and not self.ring.can_start():
            span, rows = self.ring.span, int(self.ring.cursor.max())
            why = f"one sample takes {span.ahead + 1} rows of a lane, {rows} have arrived in the longest"
            return Wait(least, why, "Learn for more env steps, or shorten what is sampled (sequences, n_steps)")
        often = "raise replay_ratio" if cadence.spread else "lower train_freq"
        return Wait(least, pace, f"Learn for {enough:,} env steps or more, or {often}")

    def refresh(self) -> None:
        """The host's part of sampling: call it once before a burst of updates, after the arrivals."""
        self.ring.refresh_bounds()
        self.sampler.refresh()

    def sample(self, noise: Tensor) -> Batch:
        """A batch from float64 uniform numbers of shape `sampler.noise_shape`; pure tensor operations.

        Raises:
            ConfigurationError: it was given something else.
        """
        if not isinstance(noise, Tensor):
            raise ConfigurationError(f"replay.sample({noise!r}) is not allowed: {DRAWN}")
        return self.view.gather(*self.sampler.locate(noise))

    def recorded(self, noise: Tensor) -> Callable[[Tensor], Batch]:
        """`sample` for such noise, its many small operations replayed by numpy where the rows lie on the CPU."""
        if self.ring.device.type != "cpu":
            return self.sample
        form = self.sample(noise).with_tensors(repeat(noise[:0]))  # holds no frames
        run = by_arrays(lambda noise: self.sample(noise).tensors(), (noise,))
        return lambda noise: form.with_tensors(run(noise))

    def feedback(self, batch: Batch, priority: Tensor) -> None:
        """Hands new priorities `[N]` to the sampler."""
        self.sampler.feedback(batch.place, priority)

    def state_dict(self) -> dict[str, Tensor]:
        """All that is held, as one flat dict of tensors; the ring's are views (see `Ring.state_dict`)."""
        state = {f"ring/{name}": value for name, value in self.ring.state_dict().items()}
        state |= {f"sampler/{name}": value for name, value in self.sampler.state_dict().items()}
        return state | {"cadence": torch.tensor([self._seen, self._pending, self._steps])}

    def strips(self) -> Strips:
        """The rows as `state_dict` has them under `ring/`, to be written to segments."""
        ring, columns = self.ring, {}
        for name, kind in ring.layout.columns.items():
            slots = kind.slots(ring.rows)
            cells = ring.columns[name][: slots * ring.num_lanes].view(slots, ring.num_lanes, *kind.shape)
            columns[f"ring/{name}"] = Strip(cells, kind.every)
        return Strips(columns, ring.cursor.copy(), ring.written)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: it is of another replay, or no replay can have counted so.
        """
        seen, pending, steps = (int(number) for number in state["cadence"])
        arrived = int(state["ring/cursor"].sum()) if "ring/cursor" in state else 0
        if not (0 <= pending <= seen <= arrived and 0 <= steps <= seen):
            raise CheckpointError(
                f"replay state counts {seen} env steps, {steps} since the last update and {pending} unpaid, in {arrived} rows "
                f"that ever arrived; the file is damaged"
            )
        for part, prefix in ((self.ring, "ring/"), (self.sampler, "sampler/")):
            part.load_state_dict({name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)})
        self._seen, self._pending, self._steps = seen, pending, steps


def _next_due(pending: int, need: int, period: int, per: int) -> int:
    """Fewest env steps >= `need` (and >= 1) after which an update is due, where `per` of them share `period` env steps."""
    number = (max(need, 1) + pending - 1) * per // period + 1
    return -(-number * period // per) - pending
