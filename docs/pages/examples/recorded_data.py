"""Learning from recorded data: about 13 episodes of a controller that balances a pole, with three in ten actions random.

About a minute and a half on two cores. Plain Q-learning overestimates what the data does not contain, and the pole falls at
once: the mean return is 9 on each of five seeds. With the penalty of conservative Q-learning it is 500, and that of the
data is 393.
"""

import gymnasium
import numpy as np
from matplotlib import pyplot

from sb_dqn import DQN
from sb_dqn.callbacks import EvalCallback
from sb_dqn.envs import RecordedEpisodes
from sb_dqn.plotting import read_evaluations

STEPS = 5_000
SEEDS = range(100, 105)

settings = {
    "learning_rate": 1e-3,
    "buffer_size": 20_000,
    "learning_starts": STEPS,  # first the dataset is stored
    "batch_size": 64,
    "train_freq": 1,
    "target_update_interval": 200,
}


def balance(observation):
    angle, speed = observation[2:]
    return rng.integers(2) if rng.random() < 0.3 else int(3 * angle + speed > 0)


figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
for alpha in (1.0, 0.0):
    curves, recorded_returns = [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        recorded = RecordedEpisodes.record(gymnasium.make("CartPole-v1"), balance, STEPS, seed=seed)
        recorded_returns += [episode.reward.sum() for episode in recorded.episodes]
        model = DQN("MlpPolicy", recorded, cql_alpha=alpha, seed=seed, **settings)
        folder = f"recorded_{alpha}_{seed}"
        evaluation = EvalCallback("CartPole-v1", eval_freq=STEPS // 10, n_eval_episodes=5, log_path=folder, verbose=0)
        model.learn(2 * STEPS, callback=evaluation)
        steps, returns = read_evaluations(folder)
        updates = steps[steps >= STEPS] - STEPS
        curves.append(returns[steps >= STEPS].mean(1))
    last = [curve[-1] for curve in curves]
    print(f"cql_alpha={alpha}: {np.mean(last):.0f} ± {np.std(last, ddof=1):.0f}; data {np.mean(recorded_returns):.0f}")
    axes.plot(updates, np.mean(curves, 0), "o-", label=f"cql_alpha={alpha:g}")
    axes.fill_between(updates, np.min(curves, 0), np.max(curves, 0), alpha=0.2)
axes.axhline(np.mean(recorded_returns), color="grey", linestyle="--", label="recorded episodes")
axes.set(xlabel="updates", ylabel="return of 5 greedy episodes, 5 seeds")
axes.legend()
figure.savefig("recorded_data.png", dpi=100)
