"""The base class of algorithms that learn from a replay buffer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch

from sb_dqn.acting.action_selection import ActionSelector, Observe, QActionSelector, SampledActionSelector
from sb_dqn.acting.inline_collector import Collector
from sb_dqn.actors.collector import Acting, RemoteLanes
from sb_dqn.actors.lane_groups import LaneGroups
from sb_dqn.actors.launch import worker_collector
from sb_dqn.actors.overlapped import LaneGroup, OverlappedCollector
from sb_dqn.buffers import FrameStack, ReplayBuffer
from sb_dqn.checkpoint import SegmentedRows
from sb_dqn.core import model_file
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.core.construction import PolicyConfig, TrainingConfig
from sb_dqn.core.goal_rewards import GoalRewards
from sb_dqn.core.replay_config import ReplayConfig, TargetConfig
from sb_dqn.core.resume import ResumeState
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MissingPart, user_stacklevel
from sb_dqn.exploration import Exploration
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import ActionArray, Blueprint, BoolArray, FloatArray, Objective, Rows, Update


class OffPolicyAlgorithm(BaseAlgorithm):
    """Stores what the actions led to, and learns from samples of it.

    Args:
        env: environment of any supported kind, or a `Blueprint`.
        policy: networks and optimizer.
        training: settings that all algorithms share.
        objective: makes the loss from the blueprint of the environment.
        replay: size of the replay, sampling, and when updates are due.
        target: how the target network follows.
        exploration: strategy of Q-policies; None for policies that sample their actions.
    """

    def __init__(
        self,
        env: Any,
        *,
        policy: PolicyConfig[Any],
        training: TrainingConfig,
        objective: Callable[[Blueprint], Objective],
        replay: ReplayConfig,
        target: TargetConfig,
        exploration: ExplorationConfig | None = None,
    ) -> None:
        if exploration is None and replay.stores_q_values:
            raise ConfigurationError(
                "prioritized_replay['initial'] must be 'max' or a number for a policy that samples its actions, got 'td_error', "
                "which needs the Q-values of all actions. Use 'max'."
            )
        super().__init__(
            env,
            policy=policy,
            training=training,
            objective=objective,
            gamma=replay.gamma,
            batch_size=replay.losses,
            exploration=exploration,
            buffer_device=replay.buffer_device,
        )
        self.replay_config = replay
        self.target_config = target
        self._exploration_config = exploration
        self._normalization_config = training.normalization(replay.gamma)
        self.frames: FrameStack | None = None
        self._group_parts: dict[str, Any] = {}
        self._next_sync = target.interval
        if self.stream is not None:
            self.attach(self.stream)

    def attach(self, stream: Stream) -> None:
        lanes = stream.num_envs
        self.normalizer.set_lanes(lanes)
        if isinstance(stream, LaneGroups):
            self._make_group_collector(stream)
        elif isinstance(stream, RemoteLanes):
            self._make_worker_collector(stream)
        else:
            self.frames = _frame_stack(self.blueprint, stream)
            self._make_collector(stream, self.choose, self._make_selector(lanes, self.exploration))
        if self._experience is None:
            self._learn_from(self.replay_config.build(stream, self.device, self.normalizer, self.policy.state_size))
            if self.replay_config.stores_q_values:
                self.replay.best_values = self._best_values
            if stream.repeated_frames > 1:
                warnings.warn(
                    f"{self.replay.ring.describe()}: each row holds {stream.repeated_frames} frames, though each frame is needed "
                    f"once. Frames are stored once if VecFrameStack, or VecTransposeImage around it, is the outermost wrapper and "
                    f"the observation is one uint8 image; call open_stream(env, frame_stack=1) to store stacks without this warning.",
                    stacklevel=user_stacklevel(),
                )
            if self.verbose and self.rank == 0:
                self._describe(stream, self.replay)
        elif self.replay.relabeler is not None:
            self.replay.relabeler.reward = GoalRewards(stream)

    def _make_worker_collector(self, stream: Any) -> None:
        self.stream = stream
        if self.collector is not None:
            self.collector.close()
        self.collector = worker_collector(
            self._actors,
            stream,
            self.policy,
            self._exploration_config,
            self._normalization_config,
            self.normalizer,
            self.action_mask,
            self._acting,
            self.rng.seed,
            self._env_seed,
            (self.rank, self.world_size),
            self.replay_config.stores_q_values,
        )

    def _make_group_collector(self, stream: Any) -> None:
        self.stream = stream
        if self.collector is not None:
            self.collector.close()
        self._group_parts = {}
        groups, learner = [], (self.rank, self.world_size)
        for number, part in enumerate(stream.streams):
            first, lanes = number * part.num_envs, part.num_envs
            exploration: Exploration | None = None
            if self._exploration_config is not None:
                config = self._exploration_config.for_lanes(first, self.n_envs, learner)
                exploration = config.build(self.policy.actions, lanes, self.rng.explore)
            selector, frames = self._make_selector(lanes, exploration), _frame_stack(self.blueprint, part)
            choose = partial(self._choose_for_group, selector, frames)
            groups.append(LaneGroup(part, slice(first, first + lanes), choose, partial(getattr, selector, "extras")))
            if frames is not None:
                self._group_parts[f"frames of group {number}"] = frames.ring
            if selector.recurrent_state is not None:
                self._group_parts[f"memory of group {number}"] = selector.recurrent_state
        self.collector = OverlappedCollector(stream, groups, self._env_seed)

    def _choose_for_group(self, selector: Any, frames: FrameStack | None, rows: Rows) -> ActionArray:
        state = self._acting().exploration
        if state is not None:
            selector.exploration.load_state_dict(state)
        return self._choose(rows, selector, frames)

    def _acting(self) -> Acting:
        """Returns how actors with an exploration of their own act from now on."""
        uniform = self.counters.lifetime < self.replay_config.schedule.learning_starts
        if self.exploration is None:
            return Acting(uniform, None, self.counters.n_updates)
        if not uniform:
            self.exploration.advance(self.num_timesteps, self.counters.horizon)
        return Acting(uniform, self.exploration.state_dict(), self.counters.n_updates)

    def _make_selector(self, lanes: int, exploration: Exploration | None) -> ActionSelector:
        transform = self.normalizer.observations
        low = self.learner.low is not None and self._is_large
        spectral_weights = self.learner.store.acting_weights(low)
        if isinstance(self.policy, StochasticPolicy):
            return SampledActionSelector(
                self.policy,
                lanes,
                self.rng.explore,
                transform,
                self.acting_mode,
                has_critic=False,
                spectral_weights=spectral_weights,
            )
        assert exploration is not None  # every Q-agent has one
        policy = self.policy.with_net(self.learner.online) if low else self.policy
        selector = QActionSelector(
            policy,
            exploration,
            lanes,
            transform,
            self.rng.noise,
            spectral_weights=spectral_weights,
            stores_q_values=self.replay_config.stores_q_values,
        )
        if self.policy.recurrent:
            selector.mode = self.acting_mode
        return selector

    def _describe(self, stream: Stream, replay: ReplayBuffer) -> None:
        """Prints once what a user may not expect."""
        print(f"{type(self).__name__} on {self.device}: {replay.ring.describe()}")
        if replay.ring.host_visible and replay.ring.device != self.device:
            print(
                f"the replay buffer is in the memory of the host: each batch is copied to {self.device}, which is slower. Remove "
                f"buffer_device if the rows fit on the device."
            )
        if stream.options.protocol:
            print(
                f"Atari protocol {stream.options.protocol!r}; choose by make_atari_env(..., protocol='classic' or 'sticky')"
            )
        if stream.num_envs > 1:
            print(
                f"{stream.num_envs} lanes: train_freq, target_update_interval and learning_starts count steps over all of them"
            )

    # -- acting

    def choose(self, rows: Rows) -> ActionArray:
        """Returns actions for the open rows: uniform until `learning_starts`, then by the selector."""
        return self._choose(rows, self.selector, self.frames)

    def _choose(self, rows: Rows, selector: Any, frames: FrameStack | None) -> ActionArray:
        observe = self._observer(rows, frames)
        if self.counters.lifetime < self.replay_config.schedule.learning_starts:
            return selector.select(rows, observe, uniform=True)  # type: ignore[no-any-return]
        selector.advance(self.num_timesteps, self.counters.horizon)
        if not self.policy.recurrent:
            selector.mode = self.acting_mode if self.mode == "compiled" else self.update_mode
        return selector.select(rows, observe)  # type: ignore[no-any-return]

    def _observer(self, rows: Rows, frames: FrameStack | None) -> Observe:
        """Returns a function of the open rows' observations, with their frame stacks."""
        if frames is None:
            return lambda: rows.slots[-1].obs
        frames.extend(rows)
        ring = self.replay.ring
        if not ring.host_visible and ring.device == self.device and type(self.collector) is Collector:
            return self.replay.open_observation  # the frames are there; `frames` is only for checkpoints
        return frames.stacked

    @torch.no_grad()
    def _best_values(self, obs: Mapping[str, torch.Tensor], mask: BoolArray | None) -> FloatArray:
        """Returns the values `[B, ...]` of the best actions, by the current weights."""
        inputs = self.normalizer.observations({key: value.to(self.device) for key, value in obs.items()})
        legal = None if mask is None else torch.from_numpy(mask).to(self.device)
        best: FloatArray = self.policy.values(inputs, legal).max(-1).values.cpu().numpy()
        return best

    # -- learning

    def before_updates(self) -> None:
        self.normalizer.commit()
        target, beyond = self.target_config, self.counters.lifetime - self._next_sync
        if beyond >= 0 and not target.by_updates:
            self.learner.sync_target(target.share(beyond // target.interval + 1))
            self._schedule_sync()
        self.learner.set_learning_rate(self.rate_schedule(self.num_timesteps, self.counters.horizon))
        self.replay.sampler.advance(self.num_timesteps, self.counters.horizon)

    def gradient_step(self) -> Update:
        update = super().gradient_step()
        target = self.target_config
        if target.by_updates and (self.counters.n_updates + 1) % target.interval == 0:
            self.learner.sync_target(target.tau)
        return update

    def _start_counting(self, total: int, reset: bool, resumed: bool) -> None:
        super()._start_counting(total, reset, resumed)
        self._schedule_sync()

    def _schedule_sync(self) -> None:
        interval = self.target_config.interval
        self._next_sync = (self.counters.lifetime // interval + 1) * interval  # several short `learn`s count together

    def _log_count(self) -> int:
        return self.statistics.num_episodes

    # -- files

    def close(self) -> None:
        super().close()
        relabeler = None if self._experience is None else self.replay.relabeler
        if relabeler is not None and isinstance(relabeler.reward, GoalRewards):
            relabeler.reward.close()

    def run_parts(self) -> dict[str, Any]:
        frames = {} if self.frames is None else {"frames": self.frames.ring}
        return {**super().run_parts(), **frames, **self._group_parts}

    def segmented_rows(self) -> SegmentedRows | None:
        """Returns the rows that incremental checkpoints write to segments; None if there are none."""
        rows = self.replay.segmented_rows()
        return rows if rows.cursor.any() else None

    def note_segments(self, state: ResumeState) -> None:
        """Notes the segments that loaded rows lie in, so that they are not written again."""
        ring = self.replay.ring
        if state.written and int(state.experience["ring/rows"]) == ring.rows:
            ring.written.update(state.written)

    @property
    def replay(self) -> ReplayBuffer:
        """The replay buffer; also as `replay_buffer`.

        Raises:
            MissingPart: there is no environment yet, so its size is not known.
        """
        if self._experience is None:
            raise MissingPart("replay_buffer requires an environment, got none. Call set_env(...) first.")
        return cast(ReplayBuffer, self._experience)

    replay_buffer = replay

    def save_replay_buffer(self, path: Any) -> Any:
        """Writes the stored rows to a zip file, atomically; of several learners, each writes its own."""
        return model_file.save_replay(model_file.own_part(path, self.learners), self.blueprint, self.replay)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Loads rows that `save_replay_buffer` wrote; the newest if not all fit.

        Args:
            path: of the zip.
            truncate_last_traj: for compatibility with SB3; interrupted episodes are always recorded as truncated.

        Raises:
            CheckpointError: the file is damaged, or its rows are of another kind.
        """
        model_file.load_replay(model_file.find_part(path, self.learners), self.blueprint, self.replay)


def _frame_stack(blueprint: Blueprint, stream: Stream) -> FrameStack | None:
    """Returns the frame stack of a stream's lanes; None if the model does not stack frames."""
    stack = blueprint.frame_stack
    return FrameStack(stack, stream.num_envs, flatten_space(stream.observation_space)) if stack > 1 else None
