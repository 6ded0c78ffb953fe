"""Pruning by Optuna from a callback, as docs/pages/recipes/optuna.md shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN
from sb_dqn.callbacks import EvalCallback
from tests.docs.pages import FOLDER, blocks

optuna = pytest.importorskip("optuna", reason="optional, of the extra tune")

pytestmark = pytest.mark.usefixtures("eagerly")


class Paid(gymnasium.Env[Any, Any]):
    """Episodes of two steps with the same reward for every action."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reward: float = 0.0) -> None:
        self.reward = reward
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_count += 1
        return np.zeros(1, np.float32), self.reward, self.step_count == 2, False, {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def report_to_optuna() -> Any:
    """The callback class of the page."""
    code = next(block.code for block in blocks(FOLDER / "recipes" / "optuna.md", "python"))
    namespace: dict[str, Any] = {}
    exec(code.partition("def objective")[0], namespace)
    return namespace["ReportToOptuna"]


def test_a_trial_below_the_median_is_pruned_at_its_first_evaluation(report_to_optuna: Any, tmp_path: Path) -> None:
    made: list[Paid] = []

    def objective(trial: Any) -> float:
        reward = float([4, 4, 1, 5][trial.number])

        def factory() -> Paid:
            made.append(Paid(reward))
            return made[-1]

        evaluation = EvalCallback(
            factory,
            callback_after_eval=report_to_optuna(trial),
            eval_freq=10,
            n_eval_episodes=2,
            log_path=tmp_path / str(trial.number),
            verbose=0,
        )
        model = DQN("MlpPolicy", Paid(), learning_starts=100, buffer_size=50, seed=0)
        try:
            with pytest.warns(UserWarning, match="no update"):
                model.learn(30, callback=evaluation)
        finally:
            trial.set_user_attr("steps", model.num_timesteps)
        return evaluation.last_mean_reward

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.optimize(objective, n_trials=4)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE"]
    assert [trial.intermediate_values for trial in study.trials] == [
        {1: 8.0, 2: 8.0, 3: 8.0},
        {1: 8.0, 2: 8.0, 3: 8.0},
        {1: 2.0},
        {1: 10.0, 2: 10.0, 3: 10.0},
    ]
    assert [trial.user_attrs["steps"] for trial in study.trials] == [30, 30, 10, 30]
    assert [env.closed for env in made] == [True] * 4  # also that of the pruned trial
    assert (tmp_path / "2" / "evaluations.npz").is_file()
