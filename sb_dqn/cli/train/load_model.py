"""A saved model, ready to play."""

from __future__ import annotations

from typing import Any

import click

from sb_dqn.cli.train.folder import SavedRun
from sb_dqn.cli.train.settings_syntax import algorithm_class


def load_model(run: SavedRun, device: str = "auto") -> Any:
    """The model of a run, without an environment.

    Raises:
        CheckpointError: the file is damaged or foreign.
    """
    from sb_dqn.checkpoint import model_info

    return algorithm_class(str(model_info(run.model).get("class"))).load(run.model, device=device)


def env_of(run: SavedRun, said: str | None) -> tuple[str, dict[str, Any]]:
    """Id and keywords of the environment to play on: what was said, else what the run was trained on.

    Raises:
        click.UsageError: neither is known.
    """
    if said is not None and said != run.config.get("env_id"):
        return said, {}
    if "env_id" not in run.config:
        raise click.UsageError(f"no config.yaml lies beside {run.model}, so say the environment: --env CartPole-v1")
    return run.config["env_id"], dict(run.config["env_kwargs"])
