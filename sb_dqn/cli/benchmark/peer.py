"""Agents of other libraries in a benchmark: their settings, and the command `sb-dqn peer` that trains one as `train` does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import cache, partial
from importlib.util import find_spec
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import number_option, path_option, settings_option
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.presets import Preset, catalogue
from sb_dqn.presets.catalogue import make_preset, merge_settings
from sb_dqn.presets.literals import load_yaml_file
from sb_dqn.runs.settings_syntax import parse_assignments

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs, ModelLike, Settings

FOLDER = Path(catalogue.__file__).parent / "peers"
PACKAGES = {"sb3": ("stable_baselines3", "sb3_contrib")}
"""Name of a peer to the packages that it needs; it is also the name of the extra that has them."""
EVAL_SEED = 10_000
"""Seed of the environments of evaluations."""


def find_peer_preset(library: str, algorithm: str, env_id: str, assignments: Iterable[str] = ()) -> Preset | None:
    """Returns the settings of a peer for an environment, with those of `--set` over them, or None if there are none.

    They are without `normalize`, which is no keyword of the peer's classes.
    """
    values = _read(library).get(algorithm, {}).get(env_id)
    if values is None:
        return None
    settings = {name: value for name, value in values.items() if name != "normalize"}
    return make_preset(env_id, library, {"source": library, **merge_settings(settings, parse_assignments(assignments))})


@cache
def _read(library: str) -> Kwargs:
    content: Kwargs = load_yaml_file(FOLDER / f"{library}.yaml", "settings")
    return content


def check_peer(library: str) -> None:
    """Checks that a peer is known and installed.

    Raises:
        ConfigurationError: it is not.
    """
    if library not in PACKAGES:
        raise ConfigurationError(
            f"--peers must be {', '.join(PACKAGES)}, got {library!r}. Use one of them.{nearest(library, PACKAGES)}"
        )
    if missing := [package for package in PACKAGES[library] if find_spec(package) is None]:
        raise ConfigurationError(
            f"the package {missing[0]} must be installed for --peers {library}, got none. Run pip install 'sb_dqn[{library}]'."
        )


@click.command(short_help="Train an agent of another library, as `benchmark --peers` does.")
@click.argument("library", metavar="LIBRARY")
@click.argument("algorithm", metavar="ALGO")
@click.argument("env_id", metavar="ENV")
@number_option("--timesteps", "-n", metavar="N", help="Env steps. Default: by its settings.")
@number_option("--seed", least=0, default=0)
@settings_option("--set", "assignments", help="A keyword of its constructor")
@number_option("--eval-episodes", default=5, help="Episodes of an evaluation.")
@number_option("--final-episodes", default=20, help="Episodes after training.")
@path_option("--folder", default="runs", show_default=True, help="Parent folder.")
def peer(
    library: str,
    algorithm: str,
    env_id: str,
    timesteps: int | None,
    seed: int,
    assignments: tuple[str, ...],
    eval_episodes: int,
    final_episodes: int,
    folder: Path,
) -> None:
    """Train ALGO of LIBRARY (sb3) on ENV with the settings of its own Zoo, on the CPU, evaluated as by `sb-dqn train`.

    \b
    sb-dqn peer sb3 DQN CartPole-v1 --seed 100
    """
    from sb_dqn.runs.folder import new_run_folder, write_config, write_result

    check_peer(library)
    preset = find_peer_preset(library, algorithm, env_id, assignments)
    if preset is None:
        pairs = [f"{name} on {env}" for name, envs in _read(library).items() for env in envs]
        raise ConfigurationError(
            f"ALGO on ENV must have settings of {library}, got {algorithm} on {env_id}. Use one of {', '.join(pairs)}."
        )
    model, test = _make_model(library, algorithm, env_id, preset, seed, min(eval_episodes, 5))
    run = new_run_folder(folder, f"{library}-{algorithm}", env_id)
    steps = timesteps or preset.n_timesteps
    config = _config(library, algorithm, env_id, preset, seed, steps)
    write_config(run, config)
    click.echo(f"{library} {algorithm} on {env_id}: {steps:,} steps, seed {seed}; writing to {run}")
    result = _train(model, test, run, config, eval_episodes, final_episodes)
    write_result(run, result)
    click.echo(f"mean return {result.mean:.2f} over {final_episodes} greedy episodes")


def _config(library: str, algorithm: str, env_id: str, preset: Preset, seed: int, steps: int) -> Kwargs:
    """Returns the content of `config.yaml`, in the form of that of `sb-dqn train`."""
    from importlib.metadata import version

    from sb_dqn.runs.folder import machine, versions

    return {
        "algorithm": f"{library} {algorithm}",
        "env_id": env_id,
        "n_envs": preset.n_envs,
        "env_kwargs": dict(preset.env_kwargs),
        "policy": preset.policy,
        "n_timesteps": steps,
        "settings": {**preset.settings, "seed": seed},
        "versions": {**versions(), library: version(PACKAGES[library][0])},
        "machine": machine("cpu"),
    }


def _train(model: ModelLike, test: Any, run: Path, config: Settings, eval_episodes: int, final_episodes: int) -> Any:
    """Trains a model of Stable-Baselines3 with ten evaluations, and returns the result of the run.

    The final episodes are played as those of `train`, from the same starts: returns on Pendulum depend on them more than on
    the agent.
    """
    from stable_baselines3.common.callbacks import EvalCallback

    from sb_dqn.envs.by_id import open_env
    from sb_dqn.runs.evaluation_options import LANES
    from sb_dqn.runs.folder import FinalEvaluation, Result
    from sb_dqn.runs.greedy import play

    steps = config["n_timesteps"]
    often = max(steps // 10 // config["n_envs"], 1)
    callback = EvalCallback(test, n_eval_episodes=eval_episodes, eval_freq=often, log_path=str(run), verbose=0)
    wall, cpu = time.monotonic(), time.process_time()
    model.learn(steps, callback=callback)
    seconds, cpu_seconds = time.monotonic() - wall, time.process_time() - cpu
    with closing(open_env(config["env_id"], min(final_episodes, LANES), config["env_kwargs"])) as stream:
        played = play(NormalizedInputs(model), stream, final_episodes, bar=False)
    final = FinalEvaluation(final_episodes, played.episodes.steps, played.seconds)
    return Result(model.num_timesteps, seconds, tuple(played.episodes.returns), final, cpu_seconds)


class NormalizedInputs:
    """A model of Stable-Baselines3 that predicts from observations as the environment returns them."""

    def __init__(self, model: ModelLike) -> None:
        self.model = model

    def predict(self, observation: object, **inputs: object) -> Any:
        statistics = self.model.get_vec_normalize_env()
        return self.model.predict(
            observation if statistics is None else statistics.normalize_obs(observation), **inputs
        )


def _make_model(library: str, algorithm: str, env_id: str, preset: Preset, seed: int, lanes: int) -> tuple[Any, Any]:
    """Returns a model of Stable-Baselines3 or its contrib package, and environments for its evaluations."""
    import gymnasium
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from sb_dqn.envs.make import spec_of

    spec_of(env_id)  # registers the environments of this library
    make = partial(gymnasium.make, env_id, **preset.env_kwargs)  # by its id they would ask for pictures
    env, test = make_vec_env(make, preset.n_envs, seed=seed), make_vec_env(make, lanes, seed=EVAL_SEED)
    if _read(library)[algorithm][env_id].get("normalize"):
        gamma = preset.settings.get("gamma", 0.99)
        env = VecNormalize(env, gamma=gamma)
        test = VecNormalize(test, training=False, norm_reward=False, gamma=gamma)
    cls: Any = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    settings = {name: _with_objects(value) for name, value in preset.settings.items()}
    if "replay_buffer_class" in settings:
        settings["replay_buffer_class"] = getattr(stable_baselines3, settings["replay_buffer_class"])
    return cls(preset.policy, env, seed=seed, device="cpu", **settings), test


def _with_objects(value: object) -> Any:
    """Returns a setting with the class or function that its text names."""
    import torch

    if isinstance(value, str) and value.startswith("linear "):
        return partial(mul, float(value.removeprefix("linear ")))
    if isinstance(value, Mapping):
        return {key: getattr(torch.nn, inner) if key == "activation_fn" else inner for key, inner in value.items()}
    return value
