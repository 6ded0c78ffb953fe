"""Suites of benchmarks: the YAML files in `presets/suites`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sb_dqn.algorithms.registry import NAMES
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.presets import catalogue, find_preset
from sb_dqn.presets.literals import load_yaml_file

FOLDER = Path(catalogue.__file__).parent / "suites"
FIRST_SEED = 100
"""Lowest seed of published results; settings are tuned on the seeds below it."""


@dataclass(frozen=True)
class Task:
    """An environment of a suite, with the algorithms that are trained on it and how they are evaluated."""

    name: str
    """Name in tables and folders; the id of the environment unless the same one is in the suite twice."""
    env: str
    algorithms: Sequence[str]
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name of a peer to its algorithms, of which those with settings for `env` are trained."""
    timesteps: int | None = None
    """Env steps over all lanes; None: those of each preset."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the environment, over those of the preset."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the algorithms, over those of their presets."""
    preset: str | None = None
    """Name of the preset; None: the one for `env`."""
    eval_episodes: int = 5
    """Greedy episodes of each of the ten evaluations during training."""
    final_episodes: int = 20
    """Greedy episodes after training, whose mean return is the score."""
    final_steps: int | None = None
    """Maximum env steps of the final episodes, as for `sb-dqn train`."""
    reference: Sequence[float] = ()
    """Scores of a random agent and of a very good one, which normalized scores map to 0 and 1; empty: not part of them."""
    protocol: str = ""
    """What else a reader must know to compare a score."""


@dataclass(frozen=True)
class Suite:
    """Environments with a common protocol."""

    name: str
    title: str
    protocol: str
    tasks: Sequence[Task]


def suite_names() -> list[str]:
    """Returns the names of all suites."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """Reads a suite.

    Raises:
        ConfigurationError: there is no suite of this name.
    """
    if name not in suite_names():
        raise ConfigurationError(
            f"SUITE must be one of {', '.join(suite_names())}, got {name!r}. Use one of them.{nearest(name, suite_names())}"
        )
    content = load_yaml_file(FOLDER / f"{name}.yaml", "suite")
    shared = {key: value for key, value in content.items() if key not in {"title", "protocol", "tasks"}}
    tasks = [_task(task, {"env": task, **shared, **own}) for task, own in content["tasks"].items()]
    return Suite(name, content["title"], content["protocol"].strip(), tasks)


def _task(name: str, values: dict[str, Any]) -> Task:
    if values["algorithms"] == "all":
        values["algorithms"] = [each for each in NAMES if find_preset(each, values["env"], values.get("preset"))]
    return Task(name, **values)
