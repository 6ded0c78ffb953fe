"""Options of logging, evaluation and checkpoints that `train` and `resume` share, and the callbacks made from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from sb_dqn.callbacks import BaseCallback, MLflowCallback, WandbCallback
from sb_dqn.callbacks.evaluation import EvalCallback
from sb_dqn.envs.by_id import open_env
from sb_dqn.plotting import read_evaluations
from sb_dqn.runs.episode_log import EpisodeLog
from sb_dqn.runs.folder import BEST, evaluation_keywords
from sb_dqn.runs.greedy import FINAL_EPISODES
from sb_dqn.runs.settings_syntax import parse_assignments
from sb_dqn.runs.training_film import TrainingFilm
from sb_dqn.types import Kwargs, Settings

EVALUATIONS = 10
"""Default number of evaluations during training."""
EPISODES = 5
"""Default number of episodes of an evaluation."""
LANES = 5
"""Maximum number of lanes of an evaluation."""


@dataclass(frozen=True)
class RunOptions:
    """Options of logging, evaluation and checkpoints."""

    progress: bool
    """Show a progress bar instead of a line every ten seconds."""
    tensorboard: bool
    """Write TensorBoard logs."""
    eval_freq: int | None
    """Env steps between two evaluations; 0: none; None: ten in all, or the setting of the resumed run."""
    eval_episodes: int | None
    """Episodes of each evaluation; None: five, or the setting of the resumed run."""
    minutes: float
    """Minutes between two full checkpoints; 0: only one when the run is stopped."""
    final_episodes: int | None = None
    """Greedy episodes after training; 0: none; None: 20, or the setting of the resumed run."""
    final_steps: int | None = None
    """Maximum env steps of the final episodes; 0: no limit; None: set by the training steps, or the setting of the resumed run."""
    eval_env: tuple[str, ...] = ()
    """Keywords of the evaluation environment over those of training, as `name=value`; empty: those of the resumed run."""
    record_training: bool | None = None
    """Film an episode at each evaluation; None: no, or the setting of the resumed run."""
    track: str | None = None
    """Experiment tracker, "wandb" or "mlflow"; None: none, or that of a run which is resumed from a full checkpoint."""


def with_final(config: Settings, options: RunOptions) -> Kwargs:
    """Returns `config` with the `final_episodes` and `final_steps` of the final evaluation."""
    chosen = {"final_episodes": options.final_episodes, "final_steps": options.final_steps}
    stored = {"final_episodes": config.get("final_episodes", FINAL_EPISODES), "final_steps": config.get("final_steps")}
    return {**config, **stored, **{name: value for name, value in chosen.items() if value is not None}}


def with_evaluations(config: Settings, options: RunOptions, steps: int, new_steps: bool) -> Kwargs:
    """Returns `config` with the evaluation settings of the next part of the run.

    Args:
        config: current configuration of the run.
        options: command-line options.
        steps: env steps of the next part.
        new_steps: True if the user chose `steps`. Ten evaluations then divide them, unless evaluations are off.
    """
    stored, eval_freq = config.get("eval_freq"), options.eval_freq
    if eval_freq is None:
        divide = stored is None or (new_steps and stored > 0)
        eval_freq = max(steps // EVALUATIONS, 1) if divide else stored
    episodes = options.eval_episodes or config.get("eval_episodes") or EPISODES
    changed: Kwargs = {"eval_freq": eval_freq, "eval_episodes": episodes}
    if options.eval_env:
        changed["eval_env_kwargs"] = parse_assignments(options.eval_env, "--eval-env-set")
    if options.record_training is not None:
        changed["record_training"] = options.record_training
    if options.track is not None:
        changed["track"] = options.track
    return {**with_final(config, options), **changed}


def check_episodes(folder: Path, config: Settings) -> None:
    """Checks that the number of evaluation episodes is that of the earlier evaluations, which share one array.

    Raises:
        click.UsageError: the earlier evaluations have another number of episodes.
    """
    (steps, results), episodes = read_evaluations(folder), config["eval_episodes"]
    if len(steps) and results.shape[1] != episodes:
        raise click.UsageError(
            f"--eval-episodes must be {results.shape[1]} as in the earlier evaluations of {folder}, got {episodes}. Use "
            f"--eval-episodes {results.shape[1]}, or start another run."
        )


def make_tracker(folder: Path, tracker: str) -> BaseCallback:
    """Returns the callback of `--track`, under the name of the run's folder.

    The project of wandb and the experiment of MLflow are those of the environment variables `WANDB_PROJECT` and
    `MLFLOW_EXPERIMENT_NAME`, else "sb_dqn".

    Raises:
        ConfigurationError: the package of the tracker is not installed.
    """
    if tracker == "wandb":
        return WandbCallback(os.environ.get("WANDB_PROJECT", "sb_dqn"), name=folder.name)
    return MLflowCallback(os.environ.get("MLFLOW_EXPERIMENT_NAME", "sb_dqn"), run_name=folder.name)


def make_callbacks(folder: Path, config: Settings) -> tuple[EpisodeLog, EvalCallback]:
    """Returns the callbacks that log episodes and evaluations.

    Both exist without evaluations too, because full checkpoints store the state of each callback.
    """
    keywords = evaluation_keywords(config)
    eval_freq, episodes, env_id = config["eval_freq"], config["eval_episodes"], config["env_id"]
    lanes, mask = min(episodes, LANES), config["settings"].get("action_mask")
    evaluation = EvalCallback(
        open_env(env_id, lanes, keywords, mask) if eval_freq else env_id,  # an id is never opened
        callback_after_eval=TrainingFilm(folder, env_id, keywords) if config.get("record_training") else None,
        n_eval_episodes=episodes,
        eval_freq=eval_freq,
        log_path=folder,
        best_model_save_path=folder,
        verbose=0,
    )
    steps, results = read_evaluations(folder)
    if len(steps) and (folder / BEST).is_file():
        evaluation.best_mean_reward = float(results.mean(axis=1).max())  # the score of `best_model.zip`
    return EpisodeLog(folder, env_id), evaluation
