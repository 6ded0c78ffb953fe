"""The base class of algorithms that learn from a replay buffer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch

from sb_dqn.accelerate import Mode
from sb_dqn.buffers import ReplayBuffer
from sb_dqn.buffers.hindsight import GoalRewards
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.checks import check_switch, set_fields
from sb_dqn.core import model_file
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.core.construction import PolicyConfig, TrainingConfig
from sb_dqn.core.keywords import OffPolicyKeywords
from sb_dqn.core.replay_config import ReplayConfig, TargetConfig
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MissingPart, user_stacklevel
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.learning.augmentation import Augmentation, ImageAugmentation
from sb_dqn.learning.redo import Recycler, Redo
from sb_dqn.learning.resets import check_resets, reset_networks
from sb_dqn.rng import later_seed
from sb_dqn.types import Batch, Blueprint, BoolArray, EnvLike, FloatArray, Objective, Update


class OffPolicyAlgorithm(BaseAlgorithm):
    """Stores what the actions led to, and learns from samples of it.

    Args:
        replay: size of the replay, sampling, and when updates are due.
        target: how the target network follows.
        keywords: arguments that all these algorithms share, with defaults.
        env, policy, training, objective, exploration: see `BaseAlgorithm`.
    """

    changeable: ClassVar[tuple[str, ...]] = (
        *BaseAlgorithm.changeable, "tau", "target_update_interval", "gamma", "batch_size",
    )  # fmt: skip

    def __init__(
        self,
        env: EnvLike,
        *,
        policy: PolicyConfig[Any],
        training: TrainingConfig,
        objective: Callable[[Blueprint], Objective],
        replay: ReplayConfig,
        target: TargetConfig,
        keywords: OffPolicyKeywords,
        exploration: ExplorationConfig | None = None,
    ) -> None:
        self._resets = check_resets(keywords["resets"])
        redo = check_switch("redo", keywords["redo"], Redo, number="every")
        self._recycler = None if redo is None else Recycler(redo)
        self._augmentation = check_switch("augmentation", keywords["augmentation"], Augmentation)
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
        self._make_augmentation()
        self._next_sync = target.interval
        self._idle.silent = replay.schedule.gradient_steps == 0
        if self.stream is not None:
            self.attach(self.stream)

    def _make_augmentation(self) -> None:
        """Makes the augmentation for the current size of the batches."""
        if self._augmentation is not None:
            rows, device = self.replay_config.observations, self.learner.flat.device
            self.learner.augmentation = ImageAugmentation(self._augmentation, self.policy.networks[0], rows, device)

    def attach(self, stream: Stream) -> None:
        self.normalizer.set_lanes(stream.num_envs)
        if self._experience is None:
            self._use_experience(self.replay_config.build(stream, self.device, self.normalizer, self.policy.state_size))
            if self.replay_config.stores_q_values:
                self.replay.best_values = self._best_values
            if stream.repeated_frames > 1:
                warnings.warn(
                    f"{self.replay.describe()}: each row holds {stream.repeated_frames} frames, though each frame is needed "
                    f"once. Frames are stored once if VecFrameStack, or VecTransposeImage around it, is the outermost wrapper and "
                    f"the observation is one uint8 image; call open_stream(env, frame_stack=1) to store stacks without this warning.",
                    stacklevel=user_stacklevel(),
                )
            if self.logs.verbose:
                self._print_summary(stream, self.replay)
        elif self.replay.relabeler is not None:
            self.replay.relabeler.reward = GoalRewards(stream)
        has_values, ring = self.exploration is not None, self.replay.ring
        has_frames = ring.frame_stack > 1 and not ring.host_visible and ring.device == self.device
        self._make_collector(
            stream,
            self.replay.open_observation if has_frames else None,
            twin=has_values and self._is_large and self.learner.low is not None,
            later_mode=self._later_mode if has_values and not self.policy.recurrent else None,
            stores_q_values=self.replay_config.stores_q_values,
            frame_stack=self.blueprint.frame_stack,
        )

    def _later_mode(self) -> Mode:
        """Returns the mode in which a feed-forward network acts once it is to be traced: when its updates are."""
        return self.acting_mode if self.mode == "compiled" else self.update_mode

    def _print_summary(self, stream: Stream, experience: Any) -> None:
        super()._print_summary(stream, experience)
        if experience.ring.host_visible and experience.ring.device != self.device:
            print(
                f"the replay buffer is in the memory of the host: each batch is copied to {self.device}, which is slower. Remove "
                f"buffer_device if the rows fit on the device."
            )
        if stream.num_envs > 1:
            print(
                f"{stream.num_envs} lanes: train_freq, target_update_interval and learning_starts count steps over all of them"
            )

    # -- acting

    def before_acting(self) -> bool:
        if self.counters.lifetime < self.replay_config.schedule.learning_starts:
            return True
        if self.exploration is not None:
            self.exploration.advance(self.num_timesteps, self.counters.horizon)
        return False

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
            crossed = beyond // target.interval + 1
            self.learner.store.sync_target(target.share_after(crossed), crossed)
            self._schedule_sync()
        self.learner.set_learning_rate(self.rate_schedule(self.num_timesteps, self.counters.horizon))
        self.replay.sampler.advance(self.num_timesteps, self.counters.horizon)

    def gradient_step(self) -> Update:
        horizon = self.replay_config.horizon
        if horizon.is_annealed:
            done = self.counters.n_updates
            since = done if self._resets is None else done - self._resets.latest_reset(done)
            horizon.set(*horizon.after(since))
        update = super().gradient_step()
        target, updates = self.target_config, self.counters.n_updates + 1
        if target.by_updates and updates % target.interval == 0:
            self.learner.store.sync_target(target.tau)
        if self._resets is not None and self._resets.is_due(updates):
            reset_networks(self.policy, self.learner, self._resets.keep, later_seed(self.rng.seed, updates))
        if self._recycler is not None and self._recycler.is_due(updates):
            self._recycle(self._recycler, later_seed(self.rng.seed, updates))
        return update

    def _recycle(self, recycler: Recycler, seed: int) -> None:
        replay = self.replay
        per_piece = self.learner.batch_size // replay.sampler.batch_size  # 1, or the steps of a sequence

        def sample(observations: int) -> Batch:
            generator = torch.Generator().manual_seed(seed)  # no sample depends on those before it
            return self.normalizer.batch(replay.sample(-(-observations // per_piece), generator).to(self.device))

        recycler(self.policy, self.learner, sample, seed)

    def log_facts(self) -> dict[str, float]:
        entries = super().log_facts()
        share = None if self._recycler is None else self._recycler.share
        return entries if share is None else entries | {"train/dormant": share}

    def _start_counting(self, total: int, reset: bool, resumed: bool) -> None:
        super()._start_counting(total, reset, resumed)
        self._schedule_sync()

    def _schedule_sync(self) -> None:
        interval = self.target_config.interval
        self._next_sync = (self.counters.lifetime // interval + 1) * interval  # several short `learn`s count together

    def _log_count(self) -> int:
        return self.statistics.num_episodes

    def change(self, name: str, value: Any) -> Any:
        if name in ("gamma", "batch_size"):
            before = self.replay_config
            after = replace(before, **{name: value})
            if name == "gamma" and (before.horizon.is_annealed or after.horizon.is_annealed):
                raise ConfigurationError(
                    f"gamma must be a number before and after an assignment, and n_steps too, got {value!r} in place of "
                    f"{self.arguments['gamma']!r}. Call load(path, env=env, gamma={value!r})."
                )
            if name == "batch_size":
                set_fields(after, horizon=before.horizon)
            self.replay_config = after
            self._use_replay_config()
            return getattr(after, name)
        fields = {"tau": "tau", "target_update_interval": "interval"}
        if name not in fields:
            return super().change(name, value)
        self.target_config = replace(self.target_config, **{fields[name]: value})
        self._schedule_sync()
        return getattr(self.target_config, fields[name])

    def _use_replay_config(self) -> None:
        """Applies a changed discount and size of the batches."""
        replay = self.replay_config
        self.discount = replay.gamma
        self.normalizer.set_gamma(replay.gamma)
        self.learner.set_batch_size(replay.losses)
        self._make_augmentation()
        if self._experience is not None:
            if not replay.horizon.is_annealed:
                self.replay.view.horizon.set(replay.n_steps, replay.gamma)
            self.replay.sampler.set_batch_size(replay.batch_size)
            self.update_runner.rebuild()

    # -- files

    def close(self) -> None:
        super().close()
        relabeler = None if self._experience is None else self.replay.relabeler
        if relabeler is not None and isinstance(relabeler.reward, GoalRewards):
            relabeler.reward.close()

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

    def save_replay_buffer(self, path: Target) -> Any:
        """Writes the stored rows to a zip file, atomically; of several learners, each writes its own."""
        return model_file.save_replay(model_file.own_learner_file(path, self.learners), self.blueprint, self.replay)

    def load_replay_buffer(self, path: Target, truncate_last_traj: bool = True) -> None:
        """Loads rows that `save_replay_buffer` wrote; the newest if not all fit.

        Args:
            path: of the zip.
            truncate_last_traj: for compatibility with SB3; interrupted episodes are always stored as truncated.

        Raises:
            CheckpointError: the file is damaged, or its rows are of another kind.
        """
        model_file.load_replay(model_file.find_learner_file(path, self.learners), self.blueprint, self.replay)
