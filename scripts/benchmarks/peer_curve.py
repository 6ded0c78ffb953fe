"""Train Stable-Baselines3's class with a preset of ours, and write its learning curve in the columns of `presets.py`.

Usage: python scripts/benchmarks/peer_curve.py SAC HalfCheetah-v5 --timesteps 200000 --eval-every 20000
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from scripts.benchmarks.curves import COLUMNS, WINDOW, mean_sd


def learn(model: Any, steps: int, every: int, episodes: int, env_id: str, file: TextIO) -> None:
    """Learns, plays greedy episodes every so many env steps and at the end, and writes a line for each time.

    In pieces, so the settings must not fall with the steps. The seconds are those of training, without the evaluations.
    """
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    test = make_vec_env(env_id, min(episodes, 8), seed=10_000)
    seconds = 0.0
    model.ep_info_buffer = None  # made by the first piece, kept by the later ones
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for goal in [*range(every, steps, every), steps]:
        start = time.perf_counter()
        model.learn(goal - model.num_timesteps, reset_num_timesteps=False)
        seconds += time.perf_counter() - start
        evaluated: Any = evaluate_policy(model, test, episodes, return_episode_rewards=True)  # lists, not two numbers
        played = [info["r"] for info in model.ep_info_buffer][-WINDOW:]
        facts = [model.num_timesteps, f"{seconds:.1f}", model._n_updates, model._episode_num]
        writer.writerow([*facts, *(f"{value:.2f}" for value in (mean_sd(played)[0], *mean_sd(evaluated[0])))])
        file.flush()


def with_classes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a preset's settings with Stable-Baselines3's own class where `policy_kwargs` names RMSpropTFLike."""
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    chosen = dict(settings.get("policy_kwargs", {}))
    if chosen.get("optimizer_class") == RMSpropTFLike.__name__:
        chosen["optimizer_class"] = RMSpropTFLike
    return {**settings, "policy_kwargs": chosen} if chosen else dict(settings)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("algo", help="class of both libraries")
    parser.add_argument("env", help="id")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timesteps", type=int, help="env steps, instead of the preset's")
    parser.add_argument("--eval-every", type=int, default=20_000, help="env steps between evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="greedy episodes of each")
    parser.add_argument("--out", type=Path, default=Path("runs/peer"), help="folder of the curve")
    options = parser.parse_args(arguments)
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    from sb_dqn.presets import find_preset

    preset = find_preset(options.algo, options.env, None)
    if preset is None:
        raise SystemExit(f"there is no preset of {options.algo} for {options.env}; see sb-dqn presets")
    if any(str(value).startswith("linear") for value in preset.settings.values()):
        raise SystemExit(
            f"the preset {preset.name} has a schedule, which learning in pieces would begin anew each time"
        )
    env = make_vec_env(options.env, preset.n_envs, seed=options.seed)
    cls = getattr(stable_baselines3, options.algo)
    model = cls(preset.policy, env, seed=options.seed, device="cpu", **with_classes(preset.settings))
    path = options.out / f"sb3-{options.algo}_{options.env}_seed{options.seed}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        steps = options.timesteps or preset.n_timesteps
        learn(model, steps, options.eval_every, options.episodes, options.env, file)
    print(f"curve in {path}")


if __name__ == "__main__":
    main()
