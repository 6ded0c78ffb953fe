"""The algorithms of `sb_dqn.sb3`: those of this library with the conventions of Stable-Baselines3."""

# mypy: disable-error-code="misc"
# the mixin comes first on purpose: its methods replace those of the algorithm

from __future__ import annotations

from typing import Any

import stable_baselines3
from stable_baselines3.common.utils import FloatSchedule

from sb_dqn.algorithms import a2c, dqn, ppo, qrdqn, sac
from sb_dqn.errors import ConfigurationError
from sb_dqn.sb3.masks import VecActionMasks
from sb_dqn.sb3.model import TheirConventions
from sb_dqn.sb3.modules import their_module

contrib: Any = their_module("sb3_contrib")


class DQN(TheirConventions, dqn.DQN, theirs=stable_baselines3.DQN):
    """DQN with the signature and conventions of Stable-Baselines3; see `sb_dqn.DQN` for the further keywords."""


class QRDQN(TheirConventions, qrdqn.QRDQN, theirs=contrib.QRDQN):
    """QR-DQN with the signature and conventions of sb3_contrib; see `sb_dqn.QRDQN` for the further keywords."""

    @classmethod
    def adapt_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments with `n_quantiles` of `policy_kwargs` as an argument of the algorithm."""
        kwargs = settings["policy_kwargs"]
        return {**settings, **{key: kwargs.pop(key) for key in ("n_quantiles",) if key in kwargs}}


class ClipRanges:
    """Clipping ranges as functions of the remaining progress."""

    by_progress: Any
    clip_schedule: Any
    clip_vf_schedule: Any

    @property
    def clip_range(self) -> FloatSchedule:
        """Clipping range of the probability ratio."""
        return self._schedule("clip_range", self.clip_schedule)

    @property
    def clip_range_vf(self) -> FloatSchedule | None:
        """Clipping range of the change in value; None: no clipping."""
        return None if self.clip_vf_schedule is None else self._schedule("clip_range_vf", self.clip_vf_schedule)

    def _schedule(self, name: str, schedule: Any) -> FloatSchedule:
        value = vars(self)["arguments"][name]
        return FloatSchedule(value if isinstance(value, (int, float)) else self.by_progress(schedule))


class A2C(TheirConventions, a2c.A2C, theirs=stable_baselines3.A2C):
    """A2C with the signature and conventions of Stable-Baselines3; see `sb_dqn.A2C` for the further keywords."""


class PPO(TheirConventions, ClipRanges, ppo.PPO, theirs=stable_baselines3.PPO):
    """PPO with the signature and conventions of Stable-Baselines3; see `sb_dqn.PPO` for the further keywords."""


class SAC(TheirConventions, sac.SAC, theirs=stable_baselines3.SAC):
    """SAC with the signature and conventions of Stable-Baselines3; see `sb_dqn.SAC` for the further keywords."""


class RecurrentPPO(TheirConventions, ClipRanges, ppo.PPO, theirs=contrib.RecurrentPPO):
    """PPO with a recurrent policy, with the signature and conventions of sb3_contrib."""

    @classmethod
    def adapt_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments without `enable_critic_lstm`.

        Raises:
            ConfigurationError: a value without a recurrent layer that it asks for.
        """
        kwargs = settings["policy_kwargs"]
        shared = kwargs.get("shared_lstm", False)
        if kwargs.pop("enable_critic_lstm", not shared) is shared:
            raise ConfigurationError(
                f"policy_kwargs['enable_critic_lstm'] must be {not shared} with shared_lstm={shared}, got {shared}. Set "
                f"shared_lstm=True, so that the value reads the recurrent layer of the policy."
            )
        return settings


class MaskablePPO(TheirConventions, ClipRanges, ppo.PPO, theirs=contrib.MaskablePPO):
    """PPO with action masks, which the `action_masks()` of each environment returns, as in sb3_contrib."""

    @classmethod
    def wrap_env(cls, env: Any, verbose: int = 0) -> Any:
        """Returns an environment whose infos have the action masks."""
        wrapped = super().wrap_env(env, verbose)
        return VecActionMasks.around(wrapped)

    @classmethod
    def adapt_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments with masks from the infos."""
        return {"action_mask": "info", **settings}

    def learn(self, *args: Any, use_masking: bool = True, **kwargs: Any) -> Any:
        """Trains the model; see `TheirConventions.learn`.

        Args:
            args: those of `TheirConventions.learn`.
            use_masking: False: all actions are legal.
            kwargs: those of `TheirConventions.learn`.

        Raises:
            ConfigurationError: an environment has no masks.
        """
        if isinstance(env := self.get_env(), VecActionMasks):
            env.use(use_masking)
        return super().learn(*args, **kwargs)
