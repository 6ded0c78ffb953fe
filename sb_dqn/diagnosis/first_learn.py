"""Warnings in the first `learn` of a model, about settings and environments with which it cannot work."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.diagnosis.measures import MEASURES
from sb_dqn.diagnosis.sample import Sample, newest_rows
from sb_dqn.errors import user_stacklevel
from sb_dqn.losses.transforms import IDENTITY
from sb_dqn.nn.heads.policy_heads import GaussianHead, SquashedHead
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import flatten_space, is_bytes
from sb_dqn.types import ModelLike

FIRST_LOOK, FACTOR = 128, 4
"""Env steps of a model before the first look at its rows, and factor to the next look."""
FEW_UPDATES = 500
"""Updates that teach nothing, with a target network or without."""
ENDLESS, ENDLESS_RUN = 10_000, 1_000
"""Steps of each lane without the end of an episode: during a run, and at its end."""
OUTSIDE = 0.05
"""Share of observations outside of their space."""
LARGEST_RATE = 0.1
"""A rate with which nothing learns; a diagnosis advises below it."""
LARGEST_REWARD, LARGEST_INPUT = MEASURES["reward_scale"].high, MEASURES["observation_scale"].high


class FirstLearn:
    """Warns once for each of these.

    Before the run: a target network that is never copied within it, a learning rate above 0.1, bounds of a Box of actions
    that are not symmetric for a policy that starts in their middle at 0. At a few looks at the rows: observations outside of
    their space or of a size of 20, rewards of 1,000, and episodes that never end.
    """

    def __init__(self) -> None:
        self.next_look: float = FIRST_LOOK
        """Env steps of the model at the next look."""
        self._began = self._ended = False
        self._warned: set[str] = set()

    def check_settings(self, model: ModelLike, total: int) -> None:
        """Checks the settings of a model that is to learn for `total` env steps, once."""
        if self._began or model.rank:
            return
        self._began = True
        counters, config = model.counters, getattr(model, "target_config", None)
        if config is not None and (model.learner.flat_target is not model.learner.flat or config.shared):
            updates = _num_updates(model.replay_config.schedule, counters.lifetime, total)
            count, unit = (
                (updates, "updates")
                if config.by_updates
                else (counters.lifetime % config.interval + total, "env steps")
            )
            what = "head" if config.shared else "network"
            if updates >= FEW_UPDATES and config.interval >= count:
                self._warn(
                    "target",
                    f"target_update_interval must be below the {count:,.0f} {unit} of this run, got {config.interval:,}: the target "
                    f"{what} is never copied. Lower it, for example to {max(int(count) // 50, 1):,}.",
                )
        rate = model.rate_schedule(counters.num_timesteps, counters.num_timesteps + total)
        if rate > LARGEST_RATE:
            self._warn(
                "rate", f"learning_rate must be at most {LARGEST_RATE}, got {rate:g}. Use 1e-4 to 1e-3 with Adam."
            )
        head, box = getattr(model.policy, "action_head", None), model.action_space
        clips = isinstance(head, GaussianHead) and not isinstance(head, SquashedHead)
        if clips and bool((abs(box.low + box.high) > 1e-3 * (box.high - box.low)).any()):
            self._warn(
                "actions",
                f"bounds of the actions must be symmetric around 0, where the policy starts, got {box}. Wrap the environment in "
                f"gymnasium.wrappers.RescaleAction(env, -1, 1), or set policy_kwargs=dict(squash_output=True).",
            )

    def check_rows(self, model: ModelLike, experience: Any, ended: bool = False) -> None:
        """Checks the newest rows, and whether episodes end.

        Args:
            model: the model.
            experience: its replay or rollout.
            ended: True at the end of a `learn`; there is no look after the first of these.
        """
        while self.next_look <= model.counters.lifetime:
            self.next_look *= FACTOR
        if model.rank or self._ended:
            return
        self._ended = ended
        self._check_ends(model, ENDLESS_RUN if ended else ENDLESS)
        sample = newest_rows(experience.ring, 0.0, model.normalizer.rewards) if experience.ring.cursor.any() else None
        if sample is not None and len(sample.rewards) >= FIRST_LOOK // 2:
            self._check_rows(model, sample)

    def _check_ends(self, model: ModelLike, least: int) -> None:
        statistics, lanes = model.statistics, getattr(model.get_env(), "envs", [model.get_env()])
        limits = [getattr(getattr(lane, "spec", None), "max_episode_steps", None) for lane in lanes]
        limited = any(limits) or bool(model.stream.options.protocol) or model.blueprint.frame_stack > 1
        length = int(statistics.lengths.min())
        if not statistics.num_episodes and length >= least and not limited:
            self._warn(
                "endless",
                f"episodes must end, got none that did within {length:,} steps of each environment. Wrap it in "
                f"gymnasium.wrappers.TimeLimit(env, max_episode_steps=...).",
            )

    def _check_rows(self, model: ModelLike, sample: Sample) -> None:
        largest = float(abs(sample.rewards).max())
        if (
            largest >= LARGEST_REWARD
            and getattr(getattr(model, "replay_config", None), "transform", IDENTITY) == IDENTITY
        ):
            self._warn(
                "rewards", f"rewards must be around 1, got {largest:,.0f}. Set normalize_rewards=True, or divide them."
            )
        wrapper = model.get_vec_normalize_env()
        # VecNormalize keeps the space of what it normalizes
        bounded = {} if wrapper is not None and wrapper.norm_obs else flatten_space(model.observation_space)
        for key, space in bounded.items():
            if isinstance(space, spaces.Box) and not is_bytes(space):  # bytes are always within 0..255
                rows = sample.obs[key].double().cpu().numpy()
                values = rows.reshape(len(rows), -1)
                slack = 1e-4 * np.minimum(space.high.astype(float) - space.low, 1e30).ravel()
                outside = ((values < space.low.ravel() - slack) | (values > space.high.ravel() + slack)).any(1)
                if outside.mean() >= OUTSIDE:
                    self._warn(
                        "space",
                        f"observations must be within their space, got {key!r} from {values.min():g} to {values.max():g} in {space}. "
                        f"Correct the bounds of observation_space.",
                    )
        size = input_size(inputs_of(model, model.policy, sample))
        if size >= LARGEST_INPUT:
            self._warn(
                "inputs",
                f"observations must be around 1, got entries of a mean size of {size:,.0f}. Set normalize_observations=True, or scale "
                f"them.",
            )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(f"learning may fail: {message}", stacklevel=user_stacklevel())


@torch.no_grad()
def inputs_of(model: ModelLike, policy: Policy, sample: Sample) -> list[Tensor]:
    """Returns the inputs `[S, ...]` of the network, after normalization and preprocessing."""
    obs = model.normalizer.observations({key: value.to(model.device) for key, value in sample.obs.items()})
    features = next((part for part in policy.modules() if isinstance(part, Features)), None)
    inputs = obs if features is None else features.preprocess(obs, torch.float32)
    return [x.float() for x in inputs.values()]


def input_size(inputs: list[Tensor]) -> float:
    """Returns the largest mean absolute value of an input."""
    return max(float(x.abs().mean(0).max()) for x in inputs)


def _num_updates(schedule: Any, done: int, total: int) -> int:
    """Returns about how many updates follow in `total` env steps; an episode counts as 100."""
    period = schedule.train_freq * (1 if schedule.unit == "step" else 100)
    per_step = 1.0 if schedule.gradient_steps == -1 else schedule.gradient_steps / period
    return int((done + total - max(schedule.learning_starts, done)) * per_step)
