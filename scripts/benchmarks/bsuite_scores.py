"""Scores of bsuite (Osband et al. 2020, arXiv 1908.03568): 23 experiments, each scored from 0 to 1 by its own rule.

An experiment is a task in up to 30 settings, each for a fixed number of episodes; what counts is the regret while learning, so
there is no evaluation. A setting that is finished is not repeated, an unfinished one starts again; several processes may work
on experiments that differ. Experiments with MNIST need its images, which bsuite downloads. The settings of an experiment
differ in seed, size or scale; `--settings 5` trains on five of them, evenly spaced.

Usage: OMP_NUM_THREADS=1 python scripts/benchmarks/bsuite_scores.py DQN --experiments catch cartpole --out runs/bsuite
       python scripts/benchmarks/bsuite_scores.py DQN --out runs/bsuite --score        # the table of what is finished
       python scripts/benchmarks/bsuite_scores.py DQN --score --save docs/benchmarks/bsuite.csv   # the data of the page

It needs the extra `bsuite` (0.3.6 works with Python 3.11, NumPy 2.4 and pandas 3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np

from sb_dqn.cli.benchmark.runs import as_csv
from sb_dqn.envs.bsuite_tasks import BsuiteTask
from sb_dqn.files import write_text
from sb_dqn.runs.folder import commit
from scripts.benchmarks.publishing.cells import read

PAPER = {
    "learning_rate": 1e-3, "batch_size": 32, "buffer_size": 10_000, "learning_starts": 100, "train_freq": 1,
    "target_update_interval": 4, "exploration_initial_eps": 0.05, "exploration_final_eps": 0.05,
    "loss": "mse", "max_grad_norm": None, "policy_kwargs": {"net_arch": [50, 50]},
}  # fmt: skip
"""Settings of bsuite's own DQN. The loss matters: with Huber's loss and a clipped gradient, the defaults here and in
Stable-Baselines3, DQN does not learn cartpole/0 within 200 episodes (29 steps per episode in both libraries, seed 0)."""
AGENTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "DQN": ("DQN", "MlpPolicy", PAPER),
    "switches": (
        "DQN", "MlpPolicy",
        {**PAPER, "double_q": True, "n_steps": 3, "munchausen": True, "normalize_rewards": True},
    ),
    "ensemble": (
        "DQN", "MlpPolicy",
        {**PAPER, "batch_size": 128, "learning_starts": 128, "exploration": "none", "ensemble": {"members": 10}},
    ),
    "R2D2": (
        "R2D2", "MlpLstmPolicy",
        {
            "batch_T": 64, "batch_B": 16, "warmup_T": 0, "store_rnn_state_interval": 64, "replay_ratio": 32,
            "count_burn_in": False, "learning_rate": 1e-3, "buffer_size": 50_000, "learning_starts": 500,
            "target_update_interval": 500, "exploration": "epsilon", "exploration_initial_eps": 0.05,
            "exploration_final_eps": 0.05,
            "policy_kwargs": {
                "rnn": "gru", "lstm_hidden_size": 64, "encoder_arch": [64], "net_arch": [64], "optimizer_kwargs": {"eps": 1e-8},
            },
        },
    ),
}  # fmt: skip
"""Name of an agent to its class, policy and settings.

The switches were chosen on bandit_noise/12, catch_noise/12, catch_scale/19 and discounting_chain/0 (seed 0): 0.81, 0.76, 0.94 and
0.61, without them 0.64, 0.68, 0.75 and 0.40. With prioritized replay as well, which takes half as long again, 0.72, 0.73, 0.94 and
0.72, with that but without Munchausen rewards 0.74, 0.69, 0.94 and 0.62.

The ensemble has the batch of bsuite's bootstrapped DQN and half of its members. Of the first 1,000 episodes of deep_sea_stochastic/0
223 ended without the reward; with batches of 32 499 (seed 0).

R2D2 has a GRU: after 3,000 episodes of memory_len/16 (40 steps), exploring with 0.4, its regret was 0.68 of that of random actions,
with an LSTM of the same size 1.00 (seed 0)."""
COMMITS = "commits.txt"
"""File in the folder of an agent: the commit of this library for each finished setting."""


class LoggedTask(BsuiteTask):
    """Experiment whose regret is logged by bsuite.

    Args:
        experiment, setting: see `BsuiteTask`.
        folder: folder of the log, which is written anew.
    """

    def __init__(self, experiment: str, setting: int, folder: Path) -> None:
        self.folder = folder
        super().__init__(experiment, setting)

    def load(self, seed: int | None = None) -> Any:
        logging: Any = import_module("bsuite.logging.csv_logging")
        return logging.wrap_environment(super().load(seed), self.bsuite_id, str(self.folder), overwrite=True)


def logged_episodes(path: Path) -> int:
    """Returns the number of episodes that the log of a setting covers."""
    rows = read(path)
    return int(float(rows[-1]["episode"])) if rows else 0


def train(agent: str, bsuite_id: str, folder: Path, seed: int) -> None:
    """Trains an agent on one setting for its number of episodes; the log is written by bsuite."""
    from sb_dqn.algorithms import ALGORITHMS
    from sb_dqn.callbacks import StopTrainingOnMaxEpisodes

    experiment, setting = bsuite_id.split("/")
    env = LoggedTask(experiment, int(setting), folder)
    name, policy, settings = AGENTS[agent]
    make: Callable[..., Any] = ALGORITHMS[name]
    model = make(policy, env, seed=seed, device="cpu", **settings)
    model.learn(10**9, callback=StopTrainingOnMaxEpisodes(env.num_episodes))
    with (folder / COMMITS).open("a", encoding="utf-8") as file:
        file.write(f"{commit()}\n")


def settings_of(bsuite_ids: Sequence[str], count: int | None) -> list[str]:
    """Returns `count` settings of each experiment, evenly spaced from its first to its last; all if it has not more."""
    experiments: dict[str, list[str]] = {}
    for bsuite_id in bsuite_ids:
        experiments.setdefault(bsuite_id.split("/")[0], []).append(bsuite_id)
    return [
        ids[place]
        for ids in experiments.values()
        for place in np.linspace(0, len(ids) - 1, min(count or len(ids), len(ids))).round().astype(int)
    ]


def scores_of(folder: Path) -> dict[str, tuple[float, int]]:
    """Returns score and number of finished settings of each experiment in a folder."""
    load: Any = import_module("bsuite.logging.csv_load")
    analysis: Any = import_module("bsuite.experiments.summary_analysis")
    if not list(folder.glob("bsuite_id_-_*.csv")):
        return {}
    logs, varied = load.load_bsuite(str(folder))
    episodes: Mapping[str, int] = import_module("bsuite.sweep").EPISODES
    last = logs.groupby("bsuite_id")["episode"].max()
    logs = logs[logs["bsuite_id"].isin([name for name, episode in last.items() if episode >= episodes[name]])]
    if logs.empty:
        return {}
    pandas: Any = import_module("pandas")

    def append(series: Any, other: Any) -> Any:
        return pandas.concat([series, other])

    # pandas 2 has no Series.append, with which bsuite 0.3.6 scores deep_sea
    with mock.patch.object(pandas.Series, "append", append, create=True):
        found = analysis.bsuite_score(logs, varied)
    counts = logs.groupby("bsuite_env")["bsuite_id"].nunique()
    return {row["bsuite_env"]: (float(row["score"]), int(counts[row["bsuite_env"]])) for _, row in found.iterrows()}


def save(path: Path, folder: Path, seed: int, scores: Mapping[str, tuple[float, int]]) -> None:
    """Writes the scores of the agent of a folder to a table of all agents, a row for each experiment.

    It takes the place of the agent's row of that experiment; rows of experiments without a score here stay.
    """
    agent = folder.name
    info: Mapping[str, Any] = import_module("bsuite.experiments.summary_analysis").BSUITE_INFO
    sweep: Sequence[str] = import_module("bsuite.sweep").SWEEP
    totals = Counter(bsuite_id.split("/")[0] for bsuite_id in sweep)
    commits = sorted(set((folder / COMMITS).read_text(encoding="utf-8").split()))
    facts = {"seed": seed, "commit": " ".join(commits)}
    rows: list[dict[str, Any]] = [row for row in read(path) if row["agent"] != agent or row["experiment"] not in scores]
    for name, (score, count) in scores.items():
        kinds = " ".join(info[name].tags)
        row = {"agent": agent, "experiment": name, "kinds": kinds, "score": round(score, 4), "settings": count}
        rows.append({**row, "of": totals[name], **facts})
    write_text(path, as_csv(rows))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=AGENTS)
    parser.add_argument("--experiments", nargs="+", metavar="NAME", help="default: all 23")
    parser.add_argument("--out", type=Path, default=Path("runs/bsuite"))
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--settings", type=int, metavar="N", help="settings of each experiment, at most; default: all")
    parser.add_argument("--score", action="store_true", help="print the scores only")
    parser.add_argument("--save", type=Path, metavar="FILE", help="table of the scores of all agents to write them to")
    options = parser.parse_args(arguments)
    if options.settings is not None and options.settings < 1:
        parser.error(f"--settings must be 1 or more, got {options.settings}")
    sweep: Any = import_module("bsuite.sweep")
    known = sorted({bsuite_id.split("/")[0] for bsuite_id in sweep.SWEEP})
    if unknown := sorted(set(options.experiments or ()) - set(known)):
        parser.error(f"--experiments must be of {', '.join(known)}, got {', '.join(unknown)}")
    folder = options.out / options.agent
    for bsuite_id in () if options.score else settings_of(sweep.SWEEP, options.settings):
        name, episodes = bsuite_id.split("/")[0], sweep.EPISODES[bsuite_id]
        path = folder / f"bsuite_id_-_{bsuite_id.replace('/', '-')}.csv"
        if (options.experiments and name not in options.experiments) or logged_episodes(path) >= episodes:
            continue
        train(options.agent, bsuite_id, folder, options.seed)
        print(f"{bsuite_id}: {episodes} episodes", flush=True)
    scores = scores_of(folder)
    if not scores:
        raise SystemExit(f"a setting must be finished for a score, got none in {folder}. Train without --score.")
    if options.save:
        save(options.save, folder, options.seed, scores)
    print("| Experiment | Score | Settings |\n|---|---|---|")
    for name, (score, count) in scores.items():
        print(f"| {name} | {score:.2f} | {count} |")
    print(f"| mean of {len(scores)} | {np.mean([score for score, _ in scores.values()]):.2f} | |")


if __name__ == "__main__":
    main()
