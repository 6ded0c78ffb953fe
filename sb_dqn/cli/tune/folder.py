"""Folder of a study: `study.yaml` with its setup, and the files that are written from its trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from sb_dqn.cli.tune.storage import masked
from sb_dqn.files import plain_data, read_yaml, write_yaml

STUDY = "study.yaml"
STORAGE = "study.db"
TRIALS = "trials.csv"
BEST = "best.yaml"
PICTURE = "study.png"


@dataclass(frozen=True)
class StudySetup:
    """StudySetup of a study, without the number of trials, which may grow."""

    name: str
    algorithm: str
    env_id: str
    timesteps: int | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()
    env_settings: tuple[str, ...] = ()
    n_envs: int | None = None
    policy: str | None = None
    seed: int | None = None
    sampler: str = "tpe"
    pruner: str = "median"
    storage: str | None = None
    """With its password, which the file has not."""
    evaluations: int = 10
    eval_episodes: int = 5
    final_episodes: int = 20
    finalists: int = 3
    finalist_seeds: int = 3
    space: Mapping[str, Any] = field(default_factory=dict)


def _plain(setup: StudySetup) -> dict[str, Any]:
    """Returns the fields of `setup` as plain data for YAML, without the password of the storage."""
    plain: dict[str, Any] = plain_data(asdict(setup))
    return {**plain, "storage": setup.storage and masked(setup.storage)}


def read_study(out: Path) -> tuple[StudySetup, int] | None:
    """Reads `study.yaml`; returns the setup and the number of trials, or None if the file does not exist."""
    content = read_yaml(out / STUDY)
    if content is None:
        return None
    setup = content["setup"]
    lists = {name: tuple(setup[name]) for name in ("settings", "env_settings")}
    return StudySetup(**{**setup, **lists}), content["trials"]


def check_study(out: Path, setup: StudySetup) -> None:
    """Checks that a study in `out` has the same setup.

    Raises:
        click.UsageError: it has another one.
    """
    requested, stored = _plain(setup), read_study(out)
    for name, value in (_plain(stored[0]) if stored else {}).items():
        if requested[name] != value:
            raise click.UsageError(
                f"{name} must be {value!r} as in the study in {out}, got {requested[name]!r}. Use the same, or choose another "
                f"folder with --out."
            )


def write_study(out: Path, setup: StudySetup, trials: int) -> None:
    """Writes `study.yaml`."""
    write_yaml(out / STUDY, {"trials": trials, "setup": _plain(setup)})
