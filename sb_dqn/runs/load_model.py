"""Saved models of the commands: loading, and the environment that a model was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sb_dqn.runs.evaluation_options import evaluation_keywords
from sb_dqn.runs.run import Run
from sb_dqn.runs.settings_syntax import algorithm_class


def load_model(run: Run, device: str = "auto") -> Any:
    """Loads the model of a run without an environment; also one that Stable-Baselines3 wrote.

    Raises:
        CheckpointError: the file is damaged or was not written by this library.
    """
    return algorithm_class(_class_name(run.model)).load(run.model, device=device)


def _class_name(model: Path) -> str:
    """Returns the class of a model file."""
    from sb_dqn.checkpoint import model_info
    from sb_dqn.checkpoint.format.sb3_zip import is_sb3_zip, read_sb3_zip
    from sb_dqn.core.sb3_model_file import algorithm_of

    if is_sb3_zip(model):
        return algorithm_of(read_sb3_zip(model))
    return str(model_info(model).get("class"))


def env_of(run: Run, env_id: str | None) -> tuple[str, dict[str, Any]]:
    """Returns id and keywords of the environment to play: `env_id` if it is not None, else the training environment.

    The keywords are those of evaluations during training, or none if `env_id` is another environment.

    Raises:
        click.UsageError: neither is known.
    """
    if env_id is not None and env_id != run.config.get("env_id"):
        return env_id, {}
    if "env_id" not in run.config:
        raise click.UsageError(
            f"--env must be set for {run.model}, whose folder has no config.yaml, got none. Name the environment with "
            f"--env, for example --env CartPole-v1."
        )
    return run.config["env_id"], evaluation_keywords(run.config)
