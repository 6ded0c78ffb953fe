"""Learning from a replay: what DQN and its kin share."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.actors.inline import InlineActor
from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.base import BaseAlgorithm
from sb_dqn.algorithms.continuation import Continuation
from sb_dqn.algorithms.lane_memory import LaneMemory
from sb_dqn.algorithms.replay_settings import ReplaySettings, TargetSettings
from sb_dqn.checkpoint import Strips
from sb_dqn.envs.stream import Stream
from sb_dqn.errors import MissingPart
from sb_dqn.replay import FrameStack, Replay
from sb_dqn.schedules import Schedule
from sb_dqn.spaces import flatten_space
from sb_dqn.types import ActionArray, Batch, BoolArray, Observation, Rows, Update


class OffPolicyAlgorithm(BaseAlgorithm):
    """Acts, keeps what happened, and learns from samples of it.

    Args:
        replay: settings of what is kept.
        target: settings of the target net.
        learning_rate: schedule.
        parts: of BaseAlgorithm.
    """

    memory: LaneMemory | None = None
    """What a recurrent policy remembers of the lanes; `prepare_acting` sets it."""

    def __init__(
        self,
        *,
        replay: ReplaySettings,
        target: TargetSettings,
        learning_rate: Schedule,
        stream: Stream | None,
        **parts: Any,
    ) -> None:
        super().__init__(**parts)
        self.replay_settings, self.target_settings, self.rate_schedule = replay, target, learning_rate
        self._next_sync = target.interval
        self._noise = torch.empty(0)
        self._gradient: Any = None
        self._recorded_as: tuple[Mode, list[bool]] = ("eager", [])
        self._sample: Callable[[torch.Tensor], Batch]
        self._uniform_until = replay.cadence.learning_starts
        if stream is not None:
            self.attach(stream)

    def attach(self, stream: Stream) -> None:
        self.stream = stream
        self.frames = (
            FrameStack(self.blueprint.frame_stack, stream.num_envs, flatten_space(stream.observation_space))
            if self.blueprint.frame_stack > 1
            else None
        )
        self.normalizer.set_lanes(stream.num_envs)
        self._uniform = partial(stream.action_shape.uniform, stream.num_envs)
        self.prepare_acting(stream.num_envs)
        # without a seed of ours the environment keeps the one that it was made with
        seed = None if self.arguments["seed"] is None else self.rng.env_seed
        self.actor = InlineActor(stream, self.choose, seed, dict if self.memory is None else self.memory.declared)
        if self._experience is None:
            size = 0 if self.memory is None else self.memory.state.shape[1]
            replay = self.replay_settings.build(stream, self.device, self.normalizer, size)
            self._experience, self._gradient = replay, None
            if stream.repeated_frames > 1:
                warnings.warn(
                    f"{replay.ring.describe()}: each row holds {stream.repeated_frames} frames, though each frame is needed once. "
                    f"Frames are stored once if VecFrameStack, or VecTransposeImage around it, is the outermost wrapper and the "
                    f"observation is one uint8 image; open_stream(env, frame_stack=1) stores stacks without this warning",
                    stacklevel=2,
                )
            if self.verbose:
                self._introduce(stream, replay)

    def _introduce(self, stream: Stream, replay: Replay) -> None:
        """Says once what a user may not expect."""
        print(f"{type(self).__name__} on {self.device}: {replay.ring.describe()}")
        if stream.options.protocol:
            print(
                f"Atari protocol {stream.options.protocol!r}; choose by make_atari_env(..., protocol='classic' or 'sticky')"
            )
        if stream.num_envs > 1:
            print(
                f"{stream.num_envs} lanes: train_freq, target_update_interval and learning_starts count steps over all of them"
            )

    # -- acting

    @abstractmethod
    def prepare_acting(self, num_lanes: int) -> None:
        """The lanes have changed: whatever is made for a number of them is made anew."""

    @abstractmethod
    def act(self, observe: Callable[[], Observation], mask: BoolArray | None) -> ActionArray:
        """Actions that leave the open rows, `[B, ...]`; what is seen there is built when asked for."""

    def choose(self, rows: Rows) -> ActionArray:
        """Actions for the open rows: uniform until `learning_starts`, then as the algorithm says."""
        if self.frames is not None:
            if rows.action is None:
                self.frames.cut()
            for slot in rows.slots:
                self.frames.push(slot)
        mask = rows.slots[-1].mask
        observe = partial(self._open_observation, rows)
        if self.memory is not None:
            self.memory.take_in(rows, observe(), mask)
        early = self.counters.lifetime < self._uniform_until
        action = self._uniform(self.rng.explore, mask) if early else self.act(observe, mask)
        if self.memory is not None:
            self.memory.acted(action)
        return action

    def _open_observation(self, rows: Rows) -> Any:
        if self.frames is None:
            return rows.slots[-1].obs
        return self.frames.stacked()

    # -- learning

    def before_updates(self) -> None:
        self.normalizer.settle()
        target, beyond = self.target_settings, self.counters.lifetime - self._next_sync
        if beyond >= 0 and not target.by_updates:
            self.learner.sync_target(target.share(beyond // target.interval + 1))
            self._aim_sync()
        self.learner.set_learning_rate(self.rate_schedule(self.num_timesteps, self.counters.horizon))
        self.replay.sampler.advance(self.num_timesteps, self.counters.horizon)

    def gradient_step(self) -> Update:
        replay = self.replay
        replay.refresh()
        form = self.update_form
        if self._gradient is None or form != self._recorded_as:
            self._record_gradient(form)
        self._noise.uniform_(generator=self.rng.sample)
        self.learner.renew_noise(self.rng.noise)
        gradient, *facts = self._gradient(self._noise)
        self.learner.apply(gradient)
        target = self.target_settings
        if target.by_updates and (self.counters.n_updates + 1) % target.interval == 0:
            self.learner.sync_target(target.tau)
        return Update(*facts)

    def _sample_and_differentiate(self, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch = self.normalizer.batch(self._sample(noise).to(self.device))
        gradient, priority, update = self.learner.gradient(batch)
        self.replay.feedback(batch, priority)
        return gradient, *update

    def _record_gradient(self, form: tuple[Mode, list[bool]]) -> None:
        mode, _ = form
        device = self.replay.ring.device
        self._noise = torch.zeros(self.replay.sampler.noise_shape, dtype=torch.float64, device=device)
        # a recording of the whole gradient step has the sampling in it
        self._sample = self.replay.recorded(self._noise) if mode == "eager" else self.replay.sample
        with self.replay.sampler.untouched():
            self._gradient = accelerate(self._sample_and_differentiate, (self._noise,), mode)
        self._recorded_as = form  # last: where it is interrupted, the next update records

    def _begin_counting(self, total: int, reset: bool) -> None:
        super()._begin_counting(total, reset)
        self._aim_sync()

    def _aim_sync(self) -> None:
        interval = self.target_settings.interval
        self._next_sync = (self.counters.lifetime // interval + 1) * interval  # short `learn`s in a row count together

    def _more_parts(self) -> dict[str, persistence.Stateful]:
        frames: dict[str, persistence.Stateful] = {} if self.frames is None else {"frames": self.frames.ring}
        memory: dict[str, persistence.Stateful] = {} if self.memory is None else {"memory": self.memory}
        return {**super()._more_parts(), **frames, **memory}

    def _strips(self) -> Strips | None:
        strips = self.replay.strips()
        return strips if strips.cursor.any() else None

    def _recall_segments(self, continuation: Continuation) -> None:
        ring = self.replay.ring
        if continuation.written and int(continuation.experience["ring/rows"]) == ring.rows:
            ring.written.update(continuation.written)

    def log_facts(self) -> dict[str, float]:
        return {"train/learning_rate": self.rate_schedule(self.num_timesteps, self.counters.horizon)}

    # -- replay

    @property
    def replay(self) -> Replay:
        """What is kept; also as `replay_buffer`.

        Raises:
            MissingPart: there is no environment yet, so its size is not known.
        """
        if self._experience is None:
            raise MissingPart("there is no replay buffer before there is an environment; call set_env(...) first")
        return cast(Replay, self._experience)

    replay_buffer = replay

    def save_replay_buffer(self, path: Any) -> Any:
        """Writes the rows that are held to a zip, whole or not at all."""
        return persistence.save_replay(path, self.blueprint, self.replay)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Takes over the rows that `save_replay_buffer` wrote; the newest if not all fit.

        Args:
            path: of the zip.
            truncate_last_traj: kept for Stable-Baselines3's sake; the interrupted episodes are always recorded as truncated.

        Raises:
            CheckpointError: the file is damaged, or its rows are of another kind.
        """
        persistence.load_replay(path, self.blueprint, self.replay)
