"""Train a preset once for each seed, through the public names alone, and say what came of it.

Prints a Markdown table (mean and sd of greedy episodes and wall-clock, by seed) and writes one learning curve per seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from scripts.benchmarks.curves import Curve, mean_sd


def algorithm(name: str) -> Any:
    """The public class of that name, in whatever case.

    Raises:
        SystemExit: there is none.
    """
    import sb_dqn

    found = {public.lower(): public for public in sb_dqn.__all__ if public.endswith("DQN")}
    if name.lower() not in found:
        raise SystemExit(f"unknown algorithm {name!r}; there are: {', '.join(sorted(found.values()))}")
    return getattr(sb_dqn, found[name.lower()])


def make_env(env_id: str, lanes: int, keywords: dict[str, Any]) -> Any:
    """Lanes of an id, with the preset's keywords for it; Atari ids take those of `make_atari_env`."""
    from sb_dqn import make_atari_env, make_vec_env

    if "NoFrameskip" in env_id or env_id.startswith("ALE/"):
        return make_atari_env(env_id, lanes, **keywords)
    return make_vec_env(env_id, lanes, env_kwargs=keywords)


def train(preset: Any, cls: Any, env_id: str, seed: int, options: argparse.Namespace) -> tuple[list[float], float, int]:
    """Returns of greedy episodes, seconds of training, and env steps, for one seed."""
    steps = options.timesteps or preset.n_timesteps
    env = make_env(env_id, preset.n_envs, dict(preset.env_kwargs))
    model = cls(preset.policy, env, seed=seed, device=options.device, **preset.settings)
    path = options.out / f"{cls.__name__}_{env_id.replace('/', '-')}_seed{seed}.csv"
    curve = Curve(
        path,
        max(steps // 100, 1),
        make_env(env_id, min(options.episodes, 8), dict(preset.env_kwargs)),
        options.eval_every,
        options.episodes,
    )
    model.learn(steps, callback=curve)
    seconds = curve.seconds
    greedy = curve.finish()
    print(f"seed {seed}: {mean_sd(greedy)[0]:.1f} ({seconds:.0f} s), curve in {path}", file=sys.stderr)
    return greedy, seconds, model.num_timesteps


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("algo", help="DQN, DoubleDQN, NStepDQN")
    parser.add_argument("env", help="id, for instance CartPole-v1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=20, help="greedy episodes at the end")
    parser.add_argument("--timesteps", type=int, help="env steps, instead of the preset's")
    parser.add_argument("--eval-every", type=int, default=0, help="env steps between evaluations on the way; 0: none")
    parser.add_argument("--preset", help="an entry by its name, instead of the one for ENV")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/presets"), help="folder of the curves")
    options = parser.parse_args(arguments)

    from sb_dqn.presets import find_preset

    cls = algorithm(options.algo)
    preset = find_preset(cls.__name__, options.env, options.preset)
    if preset is None:
        raise SystemExit(f"there is no preset of {cls.__name__} for {options.env}; see sb-dqn presets")
    lines = [f"| {cls.__name__}, {options.env} | mean ± sd | env steps | wall-clock |", "|---|---|---|---|"]
    means = []
    for seed in options.seeds:
        greedy, seconds, steps = train(preset, cls, options.env, seed, options)
        mean, sd = mean_sd(greedy)
        means.append(mean)
        lines.append(f"| seed {seed} | {mean:.1f} ± {sd:.1f} | {steps:,} | {seconds:.0f} s |")
    mean, sd = mean_sd(means)
    lines.append(f"| over {len(means)} seeds | {mean:.1f} ± {sd:.1f} | | |")
    print(f"{options.episodes} greedy episodes for each seed; preset {preset.name} ({preset.source}).\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
