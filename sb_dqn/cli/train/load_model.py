"""Saved models of the commands: loading, and the environment that a model was trained on."""

from __future__ import annotations

from typing import Any

import click

from sb_dqn.cli.train.folder import SavedRun
from sb_dqn.cli.train.settings_syntax import algorithm_class


def load_model(run: SavedRun, device: str = "auto") -> Any:
    """Loads the model of a run without an environment.

    Raises:
        CheckpointError: the file is damaged or was not written by this library.
    """
    from sb_dqn.checkpoint import model_info

    return algorithm_class(str(model_info(run.model).get("class"))).load(run.model, device=device)


def env_of(run: SavedRun, env_id: str | None) -> tuple[str, dict[str, Any]]:
    """Returns id and keywords of the environment to play: `env_id` if it is not None, else the training environment.

    The keywords are those of training, or none if `env_id` is another environment.

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
    return run.config["env_id"], dict(run.config["env_kwargs"])
