"""Training of one trial: the preset with the sampled settings over it, evaluated at intervals and at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sb_dqn.callbacks.evaluation import EvalCallback
from sb_dqn.cli.tune.folder import StudySetup
from sb_dqn.cli.tune.spaces import keep_schedules
from sb_dqn.core.construction import open_training_env
from sb_dqn.envs.by_id import open_env, policy_alias
from sb_dqn.errors import ConfigurationError
from sb_dqn.presets.catalogue import merge_settings
from sb_dqn.runs.evaluation_options import LANES
from sb_dqn.runs.greedy import final_step_limit
from sb_dqn.runs.plan import Plan, make_plan
from sb_dqn.runs.settings_syntax import algorithm_class
from sb_dqn.types import Settings

if TYPE_CHECKING:
    from sb_dqn.core.base_algorithm import BaseAlgorithm

Report = Callable[[int, float], bool]
"""Called with the number of an evaluation, from 1, and its mean return; returns True to prune the trial."""


@dataclass(frozen=True)
class Outcome:
    """End of a trial: a score, pruned, or an error."""

    score: float | None = None
    error: str | None = None
    """Class and message of the error; None for a trial that was completed or pruned."""


def plan_of(setup: StudySetup, number: int, sampled: Settings, device: str | None = None) -> Plan:
    """Returns the plan of a trial. Its seed is that of the study plus its number."""
    plan = make_plan(
        setup.algorithm,
        setup.env_id,
        preset=setup.preset,
        timesteps=setup.timesteps,
        n_envs=setup.n_envs,
        policy=setup.policy,
        seed=None if setup.seed is None else setup.seed + number,
        device=device,
        assignments=setup.settings,
        env_assignments=setup.env_settings,
    )
    return replace(plan, settings=merge_settings(plan.settings, keep_schedules(sampled, plan.settings)))


def make_model(plan: Plan) -> BaseAlgorithm:
    """Returns the untrained model of a plan, with its environment."""
    stream = open_training_env(plan.env_id, plan.n_envs, plan.env_kwargs, plan.settings)
    make = algorithm_class(plan.algorithm)
    model: BaseAlgorithm = make(plan.policy or policy_alias(stream, plan.algorithm), stream, **plan.settings)
    return model


def run_trial(setup: StudySetup, number: int, sampled: Settings, device: str | None, report: Report) -> Outcome:
    """Trains and evaluates a trial; an error of the algorithm or of the environment is its outcome."""
    try:
        return Outcome(_train(setup, plan_of(setup, number, sampled, device), report))
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {' '.join(str(error).split())}")


def _train(setup: StudySetup, plan: Plan, report: Report) -> float | None:
    """Returns the mean return of the final greedy episodes, or None for a pruned trial."""
    from sb_dqn.evaluation import play_episodes
    from sb_dqn.logger import configure

    model = make_model(plan)
    evaluation_env = open_env(plan.env_id, min(setup.eval_episodes, LANES), plan.env_kwargs, model.action_mask)
    pruned = False

    def report_mean(_: Any, __: object) -> bool:
        nonlocal pruned
        pruned = report(evaluation.n_evaluations, evaluation.last_mean_reward)
        return not pruned

    try:
        model.set_logger(configure(None, []))
        evaluation = EvalCallback(
            evaluation_env,
            callback_after_eval=report_mean,
            n_eval_episodes=setup.eval_episodes,
            eval_freq=max(plan.n_timesteps // setup.evaluations, 1),
            verbose=0,
        )
        model.learn(plan.n_timesteps, evaluation)
        if pruned:
            return None
        limit = final_step_limit(None, plan.n_timesteps)
        returns = play_episodes(
            model, evaluation_env, setup.final_episodes, True, seed=0, max_total_steps=limit
        ).returns
    finally:
        evaluation_env.close()
        model.get_env().close()
    if not returns or not isfinite(score := fmean(returns)):
        raise ConfigurationError(
            f"a trial must finish one of its {setup.final_episodes} final episodes with a finite return, got {returns}. "
            f"Bound the length of its episodes."
        )
    return score
