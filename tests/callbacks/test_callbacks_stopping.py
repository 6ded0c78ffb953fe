"""Early stopping callbacks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from sb_dqn.callbacks import (
    BaseCallback,
    CallbackList,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from sb_dqn.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("eagerly")


def results_of(child: BaseCallback, model: Any, bests: list[float]) -> list[bool]:
    """Returns the results of the child after evaluations with the best mean returns `bests`."""
    parent = EvalCallback("never opened", callback_after_eval=child)
    child.init_callback(model)
    results = []
    for parent.best_mean_reward in bests:
        results.append(child.on_step())
    return results


def test_reward_threshold(model: Any, capsys: Any) -> None:
    child = StopTrainingOnRewardThreshold(10.0, verbose=1)
    assert results_of(child, model, [-np.inf, 9.9, 10.0, 12.0]) == [True, True, False, False]
    assert "the mean reward 10.00 reached the threshold 10.0" in capsys.readouterr().out


def test_no_model_improvement(model: Any, capsys: Any) -> None:
    child = StopTrainingOnNoModelImprovement(2, min_evals=1, verbose=1)
    bests: list[float] = [1, 1, 1, 2, 2, 2, 2]
    assert results_of(child, model, bests) == [True] * 6 + [False]
    assert "no new best model in the last 3 evaluations" in capsys.readouterr().out


def test_no_model_improvement_waits_for_min_evals(model: Any) -> None:
    bests: list[float] = [1.0] * 6
    assert results_of(StopTrainingOnNoModelImprovement(1), model, bests)[:3] == [True, True, False]
    assert results_of(StopTrainingOnNoModelImprovement(1, min_evals=3), model, bests) == [True] * 4 + [False] * 2


def test_no_model_improvement_restores_its_state(model: Any) -> None:
    child = StopTrainingOnNoModelImprovement(5)
    assert child.state_dict()["last_best_mean_reward"] is None
    results_of(child, model, [3.0, 3.0, 3.0])
    fresh = StopTrainingOnNoModelImprovement(5)
    fresh.load_state_dict(child.state_dict())
    assert (fresh.n_calls, fresh.no_improvement_evals, fresh.last_best_mean_reward) == (3, 2, 3.0)


@pytest.mark.parametrize(
    "make", [lambda: StopTrainingOnRewardThreshold(1.0), lambda: StopTrainingOnNoModelImprovement(1)]
)
def test_children_of_an_evaluation_are_refused_elsewhere(model: Any, make: Any) -> None:
    child = make()
    name = type(child).__name__
    message = f"{name} must be the child of an EvalCallback, got none among its parents. Use EvalCallback(env, callback"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        CallbackList([child]).init_callback(model)
    between = CallbackList([EveryNTimesteps(10, child)])
    EvalCallback("never opened", callback_on_new_best=between)
    between.init_callback(model)
    assert isinstance(child.evaluation, EvalCallback)  # an indirect parent


def test_max_episodes_counts_over_all_lanes(make_model: Any, make_loop: Any, capsys: Any) -> None:
    model = make_model(n_envs=2)
    dones = iter([np.array(d, bool) for d in ([0, 0], [1, 0], [1, 1], [0, 0], [1, 0], [0, 1])])
    assert not make_loop(model, StopTrainingOnMaxEpisodes(2, verbose=1)).learn(ticks=6, dones=dones)
    assert model.num_timesteps == 10  # the fourth episode of 2 x 2
    assert "4 episodes in 10 steps, 2.00 per lane, max_episodes=2" in capsys.readouterr().out


def test_max_episodes_restores_its_state(model: Any, make_loop: Any) -> None:
    first, second = StopTrainingOnMaxEpisodes(3), StopTrainingOnMaxEpisodes(3)
    ones = np.ones(1, bool)
    assert make_loop(model, first).learn(ticks=2, dones=iter([ones, ones]))
    second.load_state_dict(first.state_dict())
    assert not make_loop(model, second).learn(ticks=2, dones=iter([ones, ones]))
    assert model.num_timesteps == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StopTrainingOnMaxEpisodes(0), "max_episodes.*0"),
        (lambda: StopTrainingOnRewardThreshold(float("nan")), "reward_threshold.*nan"),
        (lambda: StopTrainingOnNoModelImprovement(-1), "max_no_improvement_evals.*-1"),
        (lambda: StopTrainingOnNoModelImprovement(1, min_evals=-1), "min_evals.*-1"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
