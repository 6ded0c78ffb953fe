"""Early stopping callbacks."""

from __future__ import annotations

import numpy as np

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.callbacks.evaluation import EvalCallback
from sb_dqn.checks import check_float, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import State


class EvalChild(BaseCallback):
    """Base class of callbacks that read the results of the `EvalCallback` that triggers them, directly or indirectly."""

    @property
    def evaluation(self) -> EvalCallback:
        """The nearest `EvalCallback` among the parents.

        Raises:
            ConfigurationError: no parent is an `EvalCallback`.
        """
        ancestor = self.parent
        while ancestor is not None and not isinstance(ancestor, EvalCallback):
            ancestor = ancestor.parent
        if ancestor is None:
            name = type(self).__name__
            raise ConfigurationError(
                f"{name} must be the child of an EvalCallback, got none among its parents. Use "
                f"EvalCallback(env, callback_after_eval={name}(...))."
            )
        return ancestor

    def _init_callback(self) -> None:
        _ = self.evaluation


class StopTrainingOnRewardThreshold(EvalChild):
    """Stops when the best mean return of the evaluations reaches a threshold; a child of `EvalCallback`.

    Args:
        reward_threshold: mean return at which the training stops.
        verbose: 1 prints the reason.
    """

    def __init__(self, reward_threshold: float, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.reward_threshold = check_float("reward_threshold", reward_threshold, -np.inf)

    def _on_step(self) -> bool:
        best = self.evaluation.best_mean_reward
        continues = best < self.reward_threshold
        if self.verbose >= 1 and not continues:
            print(f"Stopping training: the mean reward {best:.2f} reached the threshold {self.reward_threshold}")
        return continues


class StopTrainingOnNoModelImprovement(EvalChild):
    """Stops after too many consecutive evaluations without a new best; `callback_after_eval` of `EvalCallback`.

    Args:
        max_no_improvement_evals: tolerated number of consecutive evaluations without a new best, >= 0.
        min_evals: evaluations before counting starts, >= 0.
        verbose: 1 prints the reason.
    """

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.max_no_improvement_evals = check_int("max_no_improvement_evals", max_no_improvement_evals, 0)
        self.min_evals = check_int("min_evals", min_evals, 0)
        self.last_best_mean_reward = -np.inf
        self.no_improvement_evals = 0

    def _on_step(self) -> bool:
        best = self.evaluation.best_mean_reward
        continues = True
        if self.n_calls > self.min_evals:
            self.no_improvement_evals = 0 if best > self.last_best_mean_reward else self.no_improvement_evals + 1
            continues = self.no_improvement_evals <= self.max_no_improvement_evals
        self.last_best_mean_reward = best
        if self.verbose >= 1 and not continues:
            print(f"Stopping training: no new best model in the last {self.no_improvement_evals} evaluations")
        return continues

    def state_dict(self) -> State:
        best = self.last_best_mean_reward
        return {
            **super().state_dict(),
            "no_improvement_evals": self.no_improvement_evals,
            "last_best_mean_reward": best if np.isfinite(best) else None,
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        best = state["last_best_mean_reward"]
        self.no_improvement_evals = int(state["no_improvement_evals"])
        self.last_best_mean_reward = -np.inf if best is None else float(best)


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Stops after `max_episodes` episodes per lane on average, as in Stable-Baselines3.

    Args:
        max_episodes: episodes per lane, >= 1; the total over all lanes is counted.
        verbose: 1 prints the reason.
    """

    def __init__(self, max_episodes: int, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.max_episodes = check_int("max_episodes", max_episodes, 1)
        self.n_episodes = 0

    def _on_step(self) -> bool:
        lanes = self.model.n_envs
        self.n_episodes += int(np.count_nonzero(self.locals["dones"]))
        continues = self.n_episodes < self.max_episodes * lanes
        if self.verbose >= 1 and not continues:
            per_lane = f", {self.n_episodes / lanes:.2f} per lane" if lanes > 1 else ""
            print(
                f"Stopping training: {self.n_episodes} episodes in {self.num_timesteps} steps{per_lane}, "
                f"max_episodes={self.max_episodes}"
            )
        return continues

    def state_dict(self) -> State:
        return {**super().state_dict(), "n_episodes": self.n_episodes}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.n_episodes = int(state["n_episodes"])
