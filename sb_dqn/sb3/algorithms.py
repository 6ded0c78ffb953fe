"""The algorithms of `sb_dqn.sb3`: those of this library with the conventions of Stable-Baselines3."""

# mypy: disable-error-code="misc"
# the mixin comes first on purpose: its methods replace those of the algorithm

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import stable_baselines3
from stable_baselines3.common.utils import FloatSchedule
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from sb_dqn.algorithms import a2c, dqn, ppo, qrdqn, sac
from sb_dqn.errors import ConfigurationError
from sb_dqn.sb3.model import Sb3Conventions
from sb_dqn.sb3.modules import their_module
from sb_dqn.spaces import ActionShape
from sb_dqn.types import EnvLike, Kwargs

contrib: Any = their_module("sb3_contrib")


class DQN(Sb3Conventions, dqn.DQN, theirs=stable_baselines3.DQN):
    """DQN with the signature and conventions of Stable-Baselines3; see `sb_dqn.DQN` for the further keywords."""


class QRDQN(Sb3Conventions, qrdqn.QRDQN, theirs=contrib.QRDQN):
    """QR-DQN with the signature and conventions of sb3_contrib; see `sb_dqn.QRDQN` for the further keywords."""

    @classmethod
    def adapt_settings(cls, settings: Kwargs) -> Kwargs:
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

    def _schedule(self, name: str, schedule: object) -> FloatSchedule:
        value = vars(self)["arguments"][name]
        return FloatSchedule(value if isinstance(value, (int, float)) else self.by_progress(schedule))


class A2C(Sb3Conventions, a2c.A2C, theirs=stable_baselines3.A2C):
    """A2C with the signature and conventions of Stable-Baselines3; see `sb_dqn.A2C` for the further keywords."""


class PPO(Sb3Conventions, ClipRanges, ppo.PPO, theirs=stable_baselines3.PPO):
    """PPO with the signature and conventions of Stable-Baselines3; see `sb_dqn.PPO` for the further keywords."""


class SAC(Sb3Conventions, sac.SAC, theirs=stable_baselines3.SAC):
    """SAC with the signature and conventions of Stable-Baselines3; see `sb_dqn.SAC` for the further keywords."""

    actor = property(attrgetter("policy.nets.actor"))
    critic = property(attrgetter("policy.nets.critics"))
    critic_target = property(attrgetter("policy.critics_target"))

    @property
    def log_ent_coef(self) -> Any:
        """Logarithm of the temperature; None: the temperature is fixed."""
        return self.policy.nets.log_alpha.value if isinstance(self.ent_coef, str) else None

    @property
    def ent_coef_tensor(self) -> Any:
        """The temperature."""
        return self.policy.nets.log_alpha.value.detach().exp()


class RecurrentPPO(Sb3Conventions, ClipRanges, ppo.PPO, theirs=contrib.RecurrentPPO):
    """PPO with a recurrent policy, with the signature and conventions of sb3_contrib."""

    @classmethod
    def adapt_settings(cls, settings: Kwargs) -> Kwargs:
        """Returns the arguments with `critic_lstm` in place of `enable_critic_lstm`.

        Raises:
            ConfigurationError: a recurrent layer of the value's own where policy and value share one.
        """
        kwargs = settings["policy_kwargs"]
        shared = kwargs.get("shared_lstm", False)
        enabled = kwargs.pop("enable_critic_lstm", not shared)
        if shared and enabled:
            raise ConfigurationError(
                "policy_kwargs['enable_critic_lstm'] must be False with shared_lstm=True, got True. Set it to False, and the value "
                "reads the recurrent layer of the policy."
            )
        if not shared and not enabled:
            kwargs["critic_lstm"] = False
        return settings

    def predict(self, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Returns the actions and the next state: a pair of hidden and cell state `[layers, N, H]` of the policy's LSTM.

        A GRU, or an LSTM that reads the last action or stacks frames, has the state of this library.
        """
        if isinstance(state, tuple):
            state = self._of_pair(*state)
        action, after = super().predict(observation, state, *args, **kwargs)
        config: Any = self.policy.recurrent_config
        if config.kind != "lstm" or config.previous_action or config.previous_reward or after["frames"] is not None:
            return action, after
        layers, units = config.num_layers, config.hidden_size
        parts = after["memory"][:, : 2 * layers * units].reshape(-1, 2 * layers, units).transpose(1, 0, 2)
        return action, (parts[:layers], parts[layers:])

    def _of_pair(self, hidden: Any, cell: Any) -> dict[str, Any]:
        """Returns the state of this library; the recurrent layer of the value, which `predict` does not need, is at 0."""
        parts = np.concatenate([hidden, cell]).transpose(1, 0, 2).reshape(np.shape(hidden)[1], -1)
        memory = np.zeros((len(parts), self.policy.state_size), np.float32)
        memory[:, : parts.shape[1]] = parts
        return {"memory": memory, "action": self.policy.no_action(len(parts)), "frames": None}


class MaskablePPO(Sb3Conventions, ClipRanges, ppo.PPO, theirs=contrib.MaskablePPO):
    """PPO with action masks, which the `action_masks()` of each environment returns, as in sb3_contrib."""

    @classmethod
    def wrap_env(cls, env: EnvLike, verbose: int = 0) -> EnvLike:
        """Returns an environment whose infos have the action masks."""
        wrapped = super().wrap_env(env, verbose)
        return VecActionMasks.around(wrapped)

    @classmethod
    def adapt_settings(cls, settings: Kwargs) -> Kwargs:
        """Returns the arguments with masks from the infos."""
        return {"action_mask": "info", **settings}

    def learn(self, *args: Any, use_masking: bool = True, **kwargs: Any) -> Any:
        """Trains the model; see `Sb3Conventions.learn`.

        Args:
            args: those of `Sb3Conventions.learn`.
            use_masking: False: all actions are legal.
            kwargs: those of `Sb3Conventions.learn`.

        Raises:
            ConfigurationError: an environment has no masks.
        """
        if isinstance(env := self.get_env(), VecActionMasks):
            env.use(use_masking)
        return super().learn(*args, **kwargs)


METHOD = "action_masks"


class VecActionMasks(VecEnvWrapper):
    """Adds `action_mask` to each info: the legal actions at the observation that was returned.

    Args:
        venv: vector environment whose lanes have a method `action_masks()`.
    """

    masked = True
    """False: all actions are legal."""

    @classmethod
    def around(cls, env: EnvLike) -> EnvLike:
        """Returns the wrapped environment; a stream, a blueprint or None unchanged."""
        return env if not isinstance(env, VecEnv) or isinstance(env, cls) else cls(env)

    def use(self, masked: bool) -> None:
        """Sets whether the next episodes have the masks of the environment.

        Raises:
            ConfigurationError: they must, and an environment has no method for them.
        """
        if masked and not self.venv.has_attr(METHOD):
            raise ConfigurationError(
                "the environment must have a method action_masks() for MaskablePPO, got none. Wrap it in "
                "sb_dqn.sb3.common.wrappers.ActionMasker, or call learn(use_masking=False)."
            )
        self.masked = masked

    def _masks(self) -> Any:
        if self.masked:
            return np.stack(self.venv.env_method(METHOD))
        return np.ones((self.num_envs, sum(ActionShape.of(self.action_space).branches)), np.bool_)

    def reset(self) -> Any:
        obs = self.venv.reset()
        self.reset_infos = self.venv.reset_infos
        for info, mask in zip(self.reset_infos, self._masks(), strict=True):
            info["action_mask"] = mask
        return obs

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        self.reset_infos = self.venv.reset_infos  # SubprocVecEnv makes new ones in each step
        for lane, (done, mask) in enumerate(zip(dones, self._masks(), strict=True)):
            infos[lane]["action_mask"] = np.ones_like(mask) if done else mask
            if done:  # the observation is that of the next episode
                self.reset_infos[lane]["action_mask"] = mask
        return obs, rewards, dones, infos
