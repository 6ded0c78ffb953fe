"""Optuna searches settings of DQN for CartPole-v1, and stops bad trials early.

About a minute on two cores. Needs `pip install "sb_dqn[plots,tune]"`. The best of 15 trials has one seed and is too
optimistic: train it again with others. `sb-dqn tune` does both, in several processes, and writes a preset.
"""

import optuna
from matplotlib import pyplot

from sb_dqn import DQN, evaluate_policy
from sb_dqn.callbacks import BaseCallback, EvalCallback

STEPS = 8_000
TRIALS = 15


class ReportToOptuna(BaseCallback):
    """Reports each evaluation of the `EvalCallback` that calls it, and ends pruned trials."""

    def __init__(self, trial):
        super().__init__()
        self.trial = trial

    def _on_step(self):
        self.trial.report(self.parent.last_mean_reward, step=self.parent.n_evaluations)
        if self.trial.should_prune():
            raise optuna.TrialPruned()
        return True


def objective(trial):
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        n_steps=trial.suggest_int("n_steps", 1, 5),
        target_update_interval=trial.suggest_int("target_update_interval", 50, 2_000, log=True),
        learning_starts=500,
        exploration_fraction=0.3,
        seed=trial.number,
    )
    report = ReportToOptuna(trial)
    model.learn(
        STEPS,
        EvalCallback("CartPole-v1", callback_after_eval=report, eval_freq=STEPS // 5, n_eval_episodes=5, verbose=0),
    )
    return evaluate_policy(model, "CartPole-v1", n_eval_episodes=20)[0]


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=TRIALS)
print(study.best_params, study.best_value)

figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
for state, color in ((optuna.trial.TrialState.COMPLETE, "tab:blue"), (optuna.trial.TrialState.PRUNED, "lightgray")):
    trials = study.get_trials(states=[state])
    scores = [trial.value for trial in trials]
    axes.scatter([trial.params["learning_rate"] for trial in trials], scores, color=color, label=state.name.lower())
axes.set(xscale="log", xlabel="learning rate", ylabel="return of 20 greedy episodes")
axes.legend()
figure.savefig("tune_settings.png", dpi=100)
