"""Hindsight experience replay learns from failures: rows of 12 bits that are to become equal to a goal, bit by bit.

About half a minute on two cores. The reward is -1 for each step until the goal is reached, and chance hardly ever reaches
it: without hindsight the return stays at -12; with it it is -4.7, which is about the fewest flips that are possible.
"""

from matplotlib import pyplot

from sb_dqn import DQN
from sb_dqn.callbacks import EvalCallback
from sb_dqn.envs.goal_tasks import BitFlip
from sb_dqn.plotting import read_evaluations

STEPS = 8_000
BITS = 12

settings = {
    "learning_rate": 1e-3,
    "learning_starts": 500,
    "batch_size": 128,
    "gamma": 0.98,
    "train_freq": 2,
    "target_update_interval": 500,
    "exploration_fraction": 0.5,
    "policy_kwargs": {"net_arch": [256]},
}
figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
for hindsight in (True, False):
    folder = f"hindsight_{hindsight}"
    model = DQN("MultiInputPolicy", BitFlip(BITS), hindsight=hindsight, seed=0, **settings)
    evaluation = EvalCallback(BitFlip(BITS), eval_freq=STEPS // 16, n_eval_episodes=50, log_path=folder, verbose=0)
    model.learn(STEPS, callback=evaluation)
    steps, returns = read_evaluations(folder)
    print("hindsight" if hindsight else "without", f"mean return {returns[-1].mean():.1f}")
    axes.plot(steps, returns.mean(1), "o-", label="with hindsight" if hindsight else "without")
axes.set(xlabel="env steps", ylabel="return of 50 greedy episodes")
axes.legend()
figure.savefig("hindsight.png", dpi=100)
