"""A diagnosis finds out why a model does not learn: here the discount is far too small for the length of an episode.

Less than a minute on two cores. Prints the measures of the faulty model and what to change, changes it, and draws both curves.
"""

from matplotlib import pyplot

from sb_dqn import DQN
from sb_dqn.callbacks import EvalCallback
from sb_dqn.plotting import read_evaluations

STEPS = 12_000

figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
for gamma in (0.5, 0.99):
    folder = f"gamma_{gamma}"
    model = DQN.from_preset("CartPole-v1", gamma=gamma, seed=0)
    evaluation = EvalCallback("CartPole-v1", eval_freq=STEPS // 10, n_eval_episodes=10, log_path=folder, verbose=0)
    model.learn(STEPS, callback=evaluation)
    diagnosis = model.diagnose()
    print(diagnosis)
    steps, returns = read_evaluations(folder)
    findings = ", ".join(finding.name for finding in diagnosis.findings) or "none"
    axes.plot(steps, returns.mean(1), "o-", label=f"gamma {gamma}; findings: {findings}")
axes.set(xlabel="env steps", ylabel="return of 10 greedy episodes")
axes.legend()
figure.savefig("find_a_fault.png", dpi=100)
