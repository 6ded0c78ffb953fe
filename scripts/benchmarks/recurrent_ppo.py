"""Comparison of recurrent PPO with sb3_contrib's RecurrentPPO: one program with the preset of an environment, two imports.

Writes a learning curve for each library and seed; a complete curve is read and not repeated. Prints the table of the
documentation: final greedy mean, and the lowest one of the last half of the training, which shows whether what was learned holds.

Usage: OMP_NUM_THREADS=1 python scripts/benchmarks/recurrent_ppo.py sb_dqn/TMaze-v0 --seeds 100 101 102 103 104
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from operator import mul
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

COLUMNS = ("env_steps", "seconds", "greedy_mean", "greedy_sd")
LIBRARIES = ("sb_dqn.sb3", "sb3_contrib")
LINEAR = "linear "


def settings_of(preset: Any, library: str) -> dict[str, Any]:
    """Returns the settings of a preset for a library, with functions of the remaining progress for linear schedules."""
    settings = dict(preset.settings)
    for key, value in settings.items():
        if isinstance(value, str) and value.startswith(LINEAR):
            settings[key] = partial(mul, float(value.removeprefix(LINEAR)))
    if library == "sb3_contrib":  # its sequences are whole episodes of a minibatch
        settings.pop("sequence_length", None)
    return settings


def train(library: str, preset: Any, env_id: str, seed: int, options: argparse.Namespace) -> list[float]:
    """Trains one seed, or reads its complete curve; returns the greedy means."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    steps = options.timesteps or preset.n_timesteps
    path = options.out / f"recurrent-ppo-{env_id.replace('/', '-')}-{library.replace('.', '-')}-seed{seed}.csv"
    if path.is_file() and (found := read(path, steps)):
        return found
    keywords = {"render_mode": None, **preset.env_kwargs}
    test = make_vec_env(env_id, 10, seed=10_000, env_kwargs=keywords)

    class Curve(BaseCallback):
        """Plays greedy episodes every so many env steps; the seconds are those of training."""

        lines: list[tuple[Any, ...]] = []  # noqa: RUF012  # of this one run
        start = time.perf_counter()
        paused = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps % options.eval_every < self.training_env.num_envs:
                self.play()
            return True

        def _on_training_end(self) -> None:
            if self.num_timesteps % options.eval_every >= self.training_env.num_envs:
                self.play()

        def play(self) -> None:
            now = time.perf_counter()
            mean, sd = evaluate_policy(self.model, test, options.episodes)
            self.lines.append((self.num_timesteps, f"{now - self.start - self.paused:.1f}", f"{mean:.2f}", f"{sd:.2f}"))
            self.paused += time.perf_counter() - now

    env = make_vec_env(env_id, preset.n_envs, seed=seed, env_kwargs=keywords)
    model = import_module(library).RecurrentPPO(
        preset.policy, env, seed=seed, device="cpu", **settings_of(preset, library)
    )
    curve = Curve()
    model.learn(steps, callback=curve)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *curve.lines])
    return [float(mean) for _, _, mean, _ in curve.lines]


def read(path: Path, steps: int) -> list[float]:
    """Returns the greedy means of a complete curve; none if it is short of `steps`."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    complete = bool(lines) and int(lines[-1]["env_steps"]) >= steps
    return [float(line["greedy_mean"]) for line in lines] if complete else []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("env", help="id")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--timesteps", type=int, help="env steps, instead of the preset's")
    parser.add_argument("--eval-every", type=int, default=2_000, help="env steps between evaluations")
    parser.add_argument("--episodes", type=int, default=20, help="greedy episodes of each evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/recurrent_ppo"), help="folder of the curves")
    options = parser.parse_args(arguments)
    import_module("sb_dqn.envs.memory_tasks")  # registers its ids
    from sb_dqn.presets import find_preset

    preset = find_preset("PPO", options.env)
    if preset is None or not preset.policy.endswith("LstmPolicy"):
        raise SystemExit(f"there is no preset of a recurrent PPO for {options.env}; see sb-dqn presets PPO")
    names = [f"{options.env}, final; lowest of the last half", *(f"seed {seed}" for seed in options.seeds), "mean"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for library in options.libraries:
        curves = [train(library, preset, options.env, seed, options) for seed in options.seeds]
        pairs = [(curve[-1], min(curve[len(curve) // 2 :])) for curve in curves]
        pairs.append((statistics.fmean(pair[0] for pair in pairs), statistics.fmean(pair[1] for pair in pairs)))
        print(f"| {library} | {' | '.join(f'{final:.2f}; {lowest:.2f}' for final, lowest in pairs)} |", flush=True)


if __name__ == "__main__":
    main()
