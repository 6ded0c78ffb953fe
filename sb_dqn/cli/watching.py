"""What is shown and measured while a run trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sb_dqn.callbacks.evaluation import EvalCallback
from sb_dqn.cli.environments import open_env
from sb_dqn.cli.episodes import EpisodeLog
from sb_dqn.cli.greedy import FINAL_EPISODES
from sb_dqn.cli.runs import BEST

EVALUATIONS = 10
"""Evaluations on the way, unless `--eval-freq` says otherwise."""
EPISODES = 5
"""Of each of them."""
LANES = 5
"""Lanes of an evaluation, at most."""


@dataclass(frozen=True)
class Watching:
    """What is shown and measured on the way."""

    progress: bool
    tensorboard: bool
    eval_freq: int | None
    """Environment steps between two evaluations; 0 for none, None for ten in all or, of a run that goes on, as before."""
    eval_episodes: int | None
    """Of each; None for five or, of a run that goes on, as many as before."""
    minutes: float
    """Between two full checkpoints; 0 for none but the last."""
    final_episodes: int | None = None
    """Greedy episodes after the training; 0 for none, None for 20 or, of a run that goes on, as before."""
    final_steps: int | None = None
    """Env steps after which these end; 0 for no bound, None for one by the steps trained or, of a run that goes on, as before."""


def with_final(config: Mapping[str, Any], watching: Watching) -> dict[str, Any]:
    """Returns the configuration of a run with the `final_episodes` and `final_steps` of its evaluation at the end."""
    chosen = {"final_episodes": watching.final_episodes, "final_steps": watching.final_steps}
    before = {"final_episodes": config.get("final_episodes", FINAL_EPISODES), "final_steps": config.get("final_steps")}
    return {**config, **before, **{name: value for name, value in chosen.items() if value is not None}}


def with_evaluations(config: Mapping[str, Any], watching: Watching, steps: int, anew: bool) -> dict[str, Any]:
    """The configuration of a run with the `eval_freq` and `eval_episodes` of its next part, and its evaluation at the end.

    Args:
        config: as it was before.
        watching: what was said.
        steps: of the next part.
        anew: whether these steps were asked for, so that ten evaluations in all divide them, unless the run has had none.
    """
    before, every = config.get("eval_freq"), watching.eval_freq
    if every is None:
        every = max(steps // EVALUATIONS, 1) if before is None or (anew and before > 0) else before
    episodes = watching.eval_episodes or config.get("eval_episodes") or EPISODES
    return {**with_final(config, watching), "eval_freq": every, "eval_episodes": episodes}


def check_episodes(folder: Path, config: Mapping[str, Any]) -> None:
    """The evaluations of a run are rows of one table.

    Raises:
        click.UsageError: those before had another number of episodes.
    """
    results, episodes = _results(folder), config["eval_episodes"]
    if results is not None and results.shape[1] != episodes:
        raise click.UsageError(
            f"the evaluations of {folder} have {results.shape[1]} episodes each, --eval-episodes={episodes}; say "
            f"--eval-episodes {results.shape[1]}, or begin another run"
        )


def watchers(folder: Path, config: Mapping[str, Any]) -> tuple[EpisodeLog, EvalCallback]:
    """Callbacks that write down episodes and evaluations; both are there without evaluations too, for full checkpoints."""
    every, episodes, env_id = config["eval_freq"], config["eval_episodes"], config["env_id"]
    lanes, mask = min(episodes, LANES), config["settings"].get("action_mask")
    evaluation = EvalCallback(
        open_env(env_id, lanes, config["env_kwargs"], mask) if every else env_id,  # by its id it is never opened
        n_eval_episodes=episodes,
        eval_freq=every,
        log_path=folder,
        best_model_save_path=folder,
        verbose=0,
    )
    results = _results(folder)
    if results is not None and len(results) and (folder / BEST).is_file():
        evaluation.best_mean_reward = float(results.mean(axis=1).max())  # what `best_model.zip` has to beat
    return EpisodeLog(folder, env_id), evaluation


def _results(folder: Path) -> Any:
    """Returns of the evaluations before, `[E, N]`; None where there were none."""
    import numpy as np

    path = folder / "evaluations.npz"
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as saved:
        return saved["results"]
