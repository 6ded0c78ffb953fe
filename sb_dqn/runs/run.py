"""A run and the files in its folder: configuration, result, learning curve, log and models, which are found and loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.files import plain_data
from sb_dqn.logger.csv_sink import CLOCK
from sb_dqn.plotting import Curve, Points, read_curve, read_evaluations, read_log
from sb_dqn.runs.checkpoint_timer import checkpoints
from sb_dqn.runs.comparison import read_comparison
from sb_dqn.runs.folder import BEST, CONFIG, MODEL, Result, evaluation_keywords, read_config, read_result
from sb_dqn.runs.settings_syntax import algorithm_class
from sb_dqn.types import Kwargs, Settings

if TYPE_CHECKING:
    from sb_dqn.core.base_algorithm import BaseAlgorithm

AGENT = ("algorithm", "policy", "n_envs", "env_kwargs", "learners")
"""Keys of `config.yaml` next to `settings` that make an agent."""
SAME_AGENT = ("seed", "device", "verbose", "tensorboard_log")
"""Settings in which runs of one agent may differ."""


@dataclass(frozen=True)
class Run:
    """Folder of a run and the content of its files, each read on first use.

    The run may be going on or have been killed; then files are missing, or lack their end.
    """

    folder: Path
    model_name: str = MODEL
    """File of the model to load."""
    name: str = ""
    """Name that the user chose for figures; empty: none."""

    def __str__(self) -> str:
        return f"{self.label} on {self.env_id}, seed {self.seed} ({self.folder})"

    @property
    def model(self) -> Path:
        return self.folder / self.model_name

    @property
    def label(self) -> str:
        """Name in figures and tables."""
        return self.name or self.algorithm

    @cached_property
    def config(self) -> Settings:
        """Content of `config.yaml`; empty for a model outside the folder of a run."""
        return read_config(self.folder)

    @cached_property
    def result(self) -> Result:
        """Content of `result.yaml`."""
        return read_result(self.folder)

    @cached_property
    def curve(self) -> Curve:
        """Episodes and evaluations so far."""
        return read_curve(self.folder)

    @cached_property
    def log(self) -> Mapping[str, Points]:
        """Numeric columns of `progress.csv`."""
        return read_log(self.folder)

    @cached_property
    def evaluations(self) -> tuple[Points, Points]:
        """Env steps of the evaluations so far and their mean returns, each `[V]`."""
        steps, returns = read_evaluations(self.folder)
        return steps, returns.mean(axis=1)

    @property
    def algorithm(self) -> str:
        return str(self.config.get("algorithm"))

    @property
    def env_id(self) -> str:
        return str(self.config.get("env_id"))

    @property
    def settings(self) -> Settings:
        return dict(self.config.get("settings") or {})

    @property
    def seed(self) -> Any:
        return self.settings.get("seed")

    @property
    def clock(self) -> Points:
        """`[L]` env steps of the lines of the log."""
        return self.log.get(CLOCK, np.zeros(0))

    @cached_property
    def steps(self) -> int:
        """Env steps so far, by the file that knows most."""
        logged = np.concatenate([self.clock, self.curve.steps, self.curve.eval_steps])
        return int(max([self.result.steps, *logged[np.isfinite(logged)]]))

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return float(max([self.result.seconds, *self.curve.seconds[-1:].tolist()]))

    @property
    def returns(self) -> Points:
        """`[n]` returns of the final greedy episodes."""
        return np.array(self.result.returns, np.float64)

    @property
    def budget(self) -> int:
        """Planned env steps; those that were made if the run was extended, or ended with others."""
        planned, done = self.config.get("n_timesteps"), self.result.steps
        if not isinstance(planned, int):
            return done
        ended = self.result.finished or done > planned
        return done if ended and not self.has_trained(planned) else planned

    def has_trained(self, steps: int) -> bool:
        """Returns True if the run has trained for `steps`, which its last step of all lanes may exceed by less than their number."""
        return 0 <= self.result.steps - steps < int(self.config.get("n_envs") or 1)

    @cached_property
    def agent(self) -> Settings:
        """Everything that makes the agent, without the settings in which runs of one agent may differ."""
        return agent_of(self.config)

    def check(self) -> None:
        """Reads all files.

        Raises:
            ConfigurationError: a file is damaged.
        """
        try:
            wrong = _unexpected(self.config, self.result)
            if wrong:
                raise ValueError(f"unexpected {', '.join(wrong)}")
            for name, steps in (
                ("curve", self.curve.steps),
                ("evaluations", self.curve.eval_steps),
                ("log", self.clock),
            ):
                if np.isinf(steps).any():
                    raise ValueError(f"infinite env steps in the {name}")
        except Exception as error:  # damaged files raise errors of many types in YAML and NumPy
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigurationError(
                f"the files of a run must be as `sb-dqn train` wrote them, got damaged ones in {self.folder} ({reason}). Restore "
                f"them, or leave this run out."
            ) from error


def agent_of(config: Settings) -> Kwargs:
    """Returns the part of a configuration that makes the agent; keys that another version did not write are missing."""
    agent = {name: config[name] for name in AGENT if name in config}
    settings = sorted((config.get("settings") or {}).items())
    agent |= {name: value for name, value in settings if name not in SAME_AGENT}
    return {name: plain_data(value) for name, value in agent.items()}


def _unexpected(config: Settings, result: Result) -> list[str]:
    """Returns the parts of the configuration and the result that are missing or have another type."""
    expected: Kwargs = {
        **dict.fromkeys(("settings", "versions", "machine", "env_kwargs", "preset"), dict),
        **dict.fromkeys(("n_timesteps", "n_envs"), int),
        **dict.fromkeys(("algorithm", "env_id"), str),
    }
    wrong = [name for name, kind in expected.items() if not isinstance(config.get(name), (kind, type(None)))]
    wrong += [name for name in ("algorithm", "env_id", "settings") if config.get(name) is None]
    if config.get("preset") and not {"name", "source"} <= config["preset"].keys():
        wrong.append("preset")
    numbers = np.array([result.steps, result.seconds, *result.returns], np.float64)
    return wrong if np.isfinite(numbers).all() else [*wrong, "result.yaml"]


def newest_run(home: Path) -> Run | None:
    """Returns the run in a subfolder of `home` with the highest number; None if there is none."""
    folders = numbered_folders(home)
    return Run(folders[-1]) if folders else None


def numbered_folders(home: Path) -> list[Path]:
    """Returns the folders of runs in `home` by their number; not those with other names, such as copies."""
    folders = [path.parent for path in home.glob(f"*/{CONFIG}")]
    numbers = {folder: folder.name.rpartition("_")[2] for folder in folders}
    return sorted(
        (each for each in folders if numbers[each].isdecimal()), key=lambda each: (int(numbers[each]), each.name)
    )


def runs_below(folder: Path, name: str = "") -> list[Run]:
    """Returns the run in `folder`, or those below it: of a comparison the newest of each seed, else all by name and number."""
    if (folder / CONFIG).is_file():
        return [Run(folder, name=name)]
    seeds = read_comparison(folder).get("seeds", {})
    homes = [folder / algorithm / f"seed_{seed}" for algorithm, count in seeds.items() for seed in range(count)]
    found = [run.folder for home in homes if (run := newest_run(home))]
    found = found or sorted((file.parent for file in folder.rglob(CONFIG)), key=_by_number)
    return [Run(path, name=name) for path in found]


def _by_number(folder: Path) -> tuple[Any, ...]:
    """Orders paths by their names, with numbers at the end of a name in numeric order."""
    stem, _, number = folder.name.rpartition("_")
    return (*folder.parent.parts, stem, int(number) if number.isdecimal() else 0, folder.name)


def common_folder(folders: Sequence[Path]) -> Path:
    """Returns the only folder, or the deepest one that contains all."""
    if len(folders) == 1:
        return folders[0]
    common = Path(os.path.commonpath([folder.absolute() for folder in folders]))
    return common.relative_to(Path.cwd()) if common.is_relative_to(Path.cwd()) else common


def find_run(path: Path, *, best: bool = False, unfinished: bool = False) -> Run:
    """Finds the model at `path`, which is a zip (the ending may be missing) or the folder of a run.

    Args:
        path: path from the command line.
        best: select the best model of the evaluations instead of the last one.
        unfinished: accept a killed run that has full checkpoints but no model yet.

    Raises:
        click.BadParameter: there is no such model. The message lists models nearby.
    """
    if path.is_dir():
        run = Run(path, BEST if best else MODEL)
        if run.model.is_file() or (unfinished and checkpoints(path)):
            return run
        zips = sorted(str(file) for file in path.rglob("*.zip"))
        raise click.BadParameter(
            f"must be a folder with {run.model_name}, got {path}. {_suggest(zips, path)}", param_hint="RUN"
        )
    for model in (path, path.with_name(path.name + ".zip")):
        if model.is_file() and best:
            raise click.BadParameter(
                f"must be the folder of a run with --best, got the file {model}. Pass the folder, or leave --best out.",
                param_hint="RUN",
            )
        if model.is_file():
            return Run(model.parent, model.name)
    runs = sorted(str(file.parent) for file in Path("runs").glob(f"*/{CONFIG}"))
    raise click.BadParameter(
        f"must be a run or model file that exists, got {path}. {_suggest(runs, Path('runs'))}", param_hint="RUN"
    )


def _suggest(paths: list[str], searched: Path) -> str:
    return f"Use one of {', '.join(paths[-5:])}." if paths else f"Train a model first: {searched} has none."


def load_model(run: Run, device: str = "auto") -> BaseAlgorithm:
    """Loads the model of a run without an environment; also one that Stable-Baselines3 wrote.

    Raises:
        CheckpointError: the file is damaged, was not written by this library, or holds no model.
    """
    model: BaseAlgorithm = algorithm_class(_class_name(run.model)).load(run.model, device=device)
    return model


def _class_name(model: Path) -> str:
    """Returns the class of a model file."""
    from sb_dqn.sb3_files import algorithm_of, is_sb3_zip, read_sb3_zip

    if is_sb3_zip(model):
        return algorithm_of(read_sb3_zip(model))
    return str(model_manifest(model)["class"])


def model_manifest(path: Path) -> Kwargs:
    """Returns the manifest of a model file of this library.

    Raises:
        CheckpointError: the file is damaged, or holds no model.
    """
    from sb_dqn.checkpoint import model_info

    manifest: Kwargs = model_info(path)
    if manifest.get("kind") != "model":
        raise CheckpointError(f"{path} must hold a model, got a {manifest.get('kind')!r}. Use the file of a model.")
    if not str(manifest.get("class")).isidentifier() or not isinstance(manifest.get("arguments"), dict):
        raise CheckpointError(f"{path} has a manifest without class or arguments, so it is damaged. Use another copy.")
    return manifest


def env_of(run: Run, env_id: str | None) -> tuple[str, Kwargs]:
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
