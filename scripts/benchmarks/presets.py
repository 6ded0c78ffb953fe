"""Training of presets, once per seed, through the public API alone; prints the tables of the documentation.

Several algorithms and environments can be named, `all` for every algorithm that has a preset there. For each run a
learning curve is written; a run whose curve is complete is read from it and not repeated, unless `--again`. `--actors`
trains one algorithm with several kinds of actors (none, overlapped, process:2), a row of the table for each.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from scripts.benchmarks.curves import Curve, mean_sd


@dataclass(frozen=True)
class Trained:
    """What came of one seed."""

    mean: float
    """Of the greedy episodes at the end."""
    sd: float
    seconds: float
    """Of training, evaluations left out."""
    steps: int


def algorithm(name: str) -> Any:
    """The class of one name, in whatever case.

    Raises:
        SystemExit: there is none.
    """
    return algorithms(name)[0]


def algorithms(names: str) -> list[Any]:
    """The classes of a list with commas, in whatever case; all of them for `all`.

    Raises:
        SystemExit: there is none of a name.
    """
    from sb_dqn.algorithms import ALGORITHMS

    if names.lower() == "all":
        return list(ALGORITHMS.values())
    found = {name.lower(): cls for name, cls in ALGORITHMS.items()}
    unknown = [name for name in names.split(",") if name.lower() not in found]
    if unknown:
        raise SystemExit(f"unknown algorithm {unknown[0]!r}; there are: {', '.join(ALGORITHMS)}")
    return [found[name.lower()] for name in names.split(",")]


def make_env(env_id: str, lanes: int, keywords: dict[str, Any]) -> Any:
    """Lanes of an id, with the preset's keywords for it; Atari ids take those of `make_atari_env`."""
    from sb_dqn import make_atari_env, make_vec_env

    if "NoFrameskip" in env_id or env_id.startswith("ALE/"):
        return make_atari_env(env_id, lanes, **keywords)
    return make_vec_env(env_id, lanes, env_kwargs=keywords)


def training_env(preset: Any, env_id: str) -> Any:
    """Lanes to learn from; with process actors or groups a function that makes those of one of them."""
    from sb_dqn.actors import OverlappedActors, ProcessActors, as_actors

    actors, keywords = as_actors(preset.settings.get("actors")), dict(preset.env_kwargs)
    if isinstance(actors, (OverlappedActors, ProcessActors)):
        return partial(make_env, env_id, actors.lanes, keywords)
    return make_env(env_id, preset.n_envs, keywords)


def train(preset: Any, cls: Any, env_id: str, seed: int, options: argparse.Namespace) -> Trained:
    """One seed, or what its curve says if that is complete."""
    steps = options.timesteps or preset.n_timesteps
    actors = preset.settings.get("actors")
    name = f"{cls.__name__}_{env_id.replace('/', '-')}{'' if actors is None else '_' + actors.replace(':', '-')}"
    path = options.out / f"{name}_seed{seed}.csv"
    found = None if options.again else read(path, steps)
    if found is None:
        env = training_env(preset, env_id)
        model = cls(preset.policy, env, seed=seed, device=options.device, **preset.settings)
        test = make_env(env_id, min(options.episodes, 8), dict(preset.env_kwargs))
        curve = Curve(path, max(steps // 100, 1), test, options.eval_every, options.episodes)
        model.learn(steps, callback=curve)
        seconds = curve.seconds
        found = Trained(*mean_sd(curve.finish()), seconds, model.num_timesteps)
        model.close()
    kind = "" if actors is None else f", {actors}"
    print(
        f"{cls.__name__}, {env_id}{kind}, seed {seed}: {found.mean:.1f} ({found.seconds:.0f} s), curve in {path}",
        file=sys.stderr,
        flush=True,
    )
    return found


def read(path: Path, steps: int) -> Trained | None:
    """The end of a complete curve; None where it is missing, or short of `steps`."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    if not lines or not lines[-1]["greedy_mean"] or int(lines[-1]["env_steps"]) < steps:
        return None
    last = lines[-1]
    return Trained(float(last["greedy_mean"]), float(last["greedy_sd"]), float(last["seconds"]), int(last["env_steps"]))


def one_table(cls: Any, env_id: str, seeds: Sequence[int], found: Sequence[Trained]) -> str:
    """A line for each seed."""
    lines = [f"| {cls.__name__}, {env_id} | mean ± sd | env steps | wall-clock |", "|---|---|---|---|"]
    for seed, one in zip(seeds, found, strict=True):
        lines.append(f"| seed {seed} | {one.mean:.1f} ± {one.sd:.1f} | {one.steps:,} | {one.seconds:.0f} s |")
    mean, sd = mean_sd([one.mean for one in found])
    return "\n".join([*lines, f"| over {len(found)} seeds | {mean:.1f} ± {sd:.1f} | | |"])


def wide_table(env_id: str, seeds: Sequence[int], rows: Sequence[tuple[str, Sequence[Trained]]]) -> str:
    """A line for each algorithm, a column for each seed."""
    names = [env_id, *(f"seed {seed}" for seed in seeds), "mean ± sd", "env steps", "wall-clock of one seed"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, found in rows:
        mean, sd = mean_sd([one.mean for one in found])
        seconds, _ = mean_sd([one.seconds for one in found])
        cells = [name, *(f"{one.mean:.1f}" for one in found), f"{mean:.1f} ± {sd:.1f}"]
        lines.append(f"| {' | '.join([*cells, f'{found[0].steps:,}', f'{seconds:.0f} s'])} |")
    return "\n".join(lines)


def actors_table(cls: Any, preset: Any, env_id: str, options: argparse.Namespace) -> str:
    """Trains one class with each kind of actors; a line for each."""
    rows = []
    for actors in options.actors:
        settings = dict(preset.settings) if actors == "none" else {**preset.settings, "actors": actors}
        changed = replace(preset, settings=settings)
        rows.append((f"`{actors}`", [train(changed, cls, env_id, seed, options) for seed in options.seeds]))
    return f"{options.episodes} greedy episodes for each seed; preset {preset.name}.\n\n{wide_table(env_id, options.seeds, rows)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("algo", help="one, several with commas (DQN,QRDQN,IQN), or all")
    parser.add_argument("env", help="id, or several with commas, for instance CartPole-v1,LunarLander-v3")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=20, help="greedy episodes at the end")
    parser.add_argument("--timesteps", type=int, help="env steps, instead of the preset's")
    parser.add_argument("--eval-every", type=int, default=0, help="env steps between evaluations on the way; 0: none")
    parser.add_argument("--preset", help="an entry by its name, instead of the one for ENV")
    parser.add_argument("--again", action="store_true", help="train what has a complete curve, too")
    parser.add_argument(
        "--actors", nargs="+", help="of one algorithm: none, overlapped, process:2, ...; a row for each"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/presets"), help="folder of the curves")
    options = parser.parse_args(arguments)
    classes = algorithms(options.algo)
    if options.actors and len(classes) > 1:
        parser.error(f"--actors takes one algorithm, got {len(classes)}")
    for env_id in options.env.split(","):
        print(f"{run(classes, env_id, options)}\n", flush=True)


def run(classes: Sequence[Any], env_id: str, options: argparse.Namespace) -> str:
    """Train every class on one environment; the table.

    Raises:
        SystemExit: none of them has a preset for it.
    """
    from sb_dqn.presets import find_preset

    presets = {cls: find_preset(cls.__name__, env_id, options.preset) for cls in classes}
    without = [cls.__name__ for cls, preset in presets.items() if preset is None]
    if len(without) == len(classes):
        raise SystemExit(f"there is no preset of {', '.join(without)} for {env_id}; see sb-dqn presets")
    if without:
        print(f"left out, for want of a preset for {env_id}: {', '.join(without)}", file=sys.stderr, flush=True)
    if options.actors:
        ((cls, preset),) = presets.items()
        return actors_table(cls, preset, env_id, options)
    rows = [
        (cls, preset, [train(preset, cls, env_id, seed, options) for seed in options.seeds])
        for cls, preset in presets.items()
        if preset is not None
    ]
    said = f"{options.episodes} greedy episodes for each seed"
    if len(classes) == 1:
        cls, preset, found = rows[0]
        return f"{said}; preset {preset.name} ({preset.source}).\n\n{one_table(cls, env_id, options.seeds, found)}"
    return f"{said}.\n\n{wide_table(env_id, options.seeds, [(cls.__name__, found) for cls, _, found in rows])}"


if __name__ == "__main__":
    main()
