"""Package: the files of a repository, made from a run, a model file or a model."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.envs.by_id import open_env
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import play_episodes
from sb_dqn.hub.card import CardContent, write_card
from sb_dqn.hub.files import CARD, ENV_ID, FILM, LOGS, WEIGHTS, check_cluster, check_links, check_own_model
from sb_dqn.plotting import plot_curve
from sb_dqn.runs.evaluation_options import LANES
from sb_dqn.runs.folder import BEST, CONFIG, CURVE, MODEL, read_config
from sb_dqn.runs.load_model import load_model
from sb_dqn.runs.rendering import VideoFile, play_rendered
from sb_dqn.runs.result_file import RESULT, FinalEvaluation, Result, read_result
from sb_dqn.runs.run import Run
from sb_dqn.runs.training import title_of
from sb_dqn.runs.trust import foreign_modules

EPISODES = 20
"""Default number of greedy episodes of a model without a result."""
MAX_STEPS = 100_000
"""Limit on the env steps of these episodes."""
FILM_STEPS = 1_000
"""Limit on the env steps of the film."""


@dataclass(frozen=True)
class Source:
    """A model file to push, and the run that it belongs to."""

    model: Path
    manifest: Mapping[str, Any]
    folder: Path | None = None
    """Folder of the run; None for a model without one."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Configuration of the run; empty without one."""

    @property
    def is_last_of_run(self) -> bool:
        """True for the model at the end of a run, to which its result belongs."""
        return self.folder is not None and bool(self.config) and self.model.name == MODEL

    @property
    def result(self) -> Result:
        return read_result(self.folder) if self.folder is not None and self.is_last_of_run else Result(0, 0.0)

    def environment(self, env_id: str | None) -> tuple[str | None, dict[str, Any]]:
        """Returns id and keywords of the environment: those of the run, unless `env_id` is another one."""
        if env_id is not None and env_id != self.config.get("env_id"):
            return env_id, {}
        return self.config.get("env_id"), dict(self.config.get("env_kwargs", {}))


def find_source(run: Any, scratch: Path) -> Source:
    """Returns the model at a path, or the one that is passed in, after a check of its file.

    Args:
        run: folder of a run, model file (the ending may be missing), or model.
        scratch: empty folder for the file of a model.

    Raises:
        ConfigurationError: there is no model.
        CheckpointError: its file is damaged.
    """
    if isinstance(run, BaseAlgorithm):
        saved = scratch / MODEL
        run.save(saved)
        return Source(saved, check_own_model(saved))
    path = Path(run)
    if path.is_dir():
        check_links(path)
        candidates, what = [path / MODEL], f"a folder with {MODEL}"
    else:
        candidates, what = [path, path.with_name(f"{path.name}.zip")], "the folder of a run, or a model file"
    model = next((candidate for candidate in candidates if candidate.is_file()), None)
    if model is None:
        raise ConfigurationError(f"the run to push must be {what}, got {path}. Pass a path that `sb-dqn train` wrote.")
    if (model.parent / CONFIG).is_file() and not path.is_dir():
        check_links(model.parent, besides=model.name)
    config = read_config(model.parent)
    check_cluster(config.get("settings", {}), str(model.parent / CONFIG))
    return Source(model, check_own_model(model), model.parent if config else None, config)


def make_package(
    source: Source, folder: Path, repo: str, env_id: str | None, n_eval_episodes: int | None, video: bool
) -> list[str]:
    """Writes all files of a repository to `folder`; returns a sentence for each part that could not be made.

    Args:
        source: model and run.
        folder: empty folder.
        repo: repository id, for the card.
        env_id: environment; None: that of the run.
        n_eval_episodes: greedy episodes to play; 0: none; None: the result of the run, or else `EPISODES`.
        video: record a film.

    Raises:
        ConfigurationError: the environment cannot be made.
    """
    if source.folder is not None and (modules := foreign_modules(source.folder, source.config, env_id)):
        raise ConfigurationError(
            f"env_id must be set to push {source.folder}, which was pulled and whose environment imports {', '.join(modules)}, got "
            f"{env_id}. Name the environment (--env, env_id=)."
        )
    env, env_kwargs = source.environment(env_id)
    if env is not None and not ENV_ID.fullmatch(env):
        raise ConfigurationError(
            f"env_id must have letters, digits and the characters _:./- only, got {env!r}. Register the environment under such an id."
        )
    notes: list[str] = []
    shutil.copyfile(source.model, folder / MODEL)
    with (
        zipfile.ZipFile(source.model) as archive,
        archive.open(WEIGHTS) as member,
        (folder / WEIGHTS).open("wb") as out,
    ):
        shutil.copyfileobj(member, out)
    _copy_run(source, folder)
    score = _stored_score(source, env) if n_eval_episodes is None else None
    episodes = EPISODES if n_eval_episodes is None else n_eval_episodes
    if env is None and (episodes or video):
        notes.append("no result and no film: the environment is not known. Name it (--env, env_id=).")
    elif env is not None:
        if score is None and episodes:
            score = _evaluate(source, env, env_kwargs, episodes)
            if score is None:
                notes.append(f"no result: none of {episodes} episodes finished within {MAX_STEPS:,} env steps.")
        if video:
            notes += _record(source, env, env_kwargs, folder / FILM)
    notes += _draw(source, folder / CURVE)
    counters = source.manifest.get("state", {}).get("counters", {})
    content = CardContent(
        repo=repo,
        algorithm=str(source.manifest["class"]),
        env_id=env,
        result=replace(
            score or Result(0, 0.0),
            steps=int(counters.get("lifetime", counters.get("num_timesteps", 0))),
            seconds=source.result.seconds,
        ),
        settings=source.config.get("settings") or source.manifest["arguments"],
        files=[path.name for path in folder.iterdir()],
    )
    (folder / CARD).write_text(write_card(content), encoding="utf-8")
    return notes


def _copy_run(source: Source, folder: Path) -> None:
    """Copies configuration and logs of the run, and for its last model its result and best model."""
    if source.folder is None:
        return
    names = [CONFIG, *LOGS]
    if source.is_last_of_run:
        names.append(RESULT)
        if (source.folder / BEST).is_file():
            check_own_model(source.folder / BEST)
            names.append(BEST)
    for name in names:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)


def _stored_score(source: Source, env: str | None) -> Result | None:
    """Returns the result of the run, if it has a final evaluation on the same environment."""
    return source.result if source.result.returns and env == source.config.get("env_id") else None


def _evaluate(source: Source, env: str, env_kwargs: Mapping[str, Any], episodes: int) -> Result | None:
    try:
        model = _load(source)
    except (CheckpointError, click.ClickException) as error:
        raise ConfigurationError(
            f"the model must be loadable to be evaluated, got an error ({_first_line(error)}). Push it without a result "
            f"(--episodes 0, n_eval_episodes=0)."
        ) from error
    stream = open_env(env, min(episodes, LANES), env_kwargs, model.action_mask)
    try:
        played = play_episodes(model, stream, episodes, max_total_steps=MAX_STEPS)
    finally:
        stream.close()
    evaluation = FinalEvaluation(episodes, played.steps, 0.0)
    return Result(0, 0.0, tuple(played.returns), evaluation) if played.returns else None


def _record(source: Source, env: str, env_kwargs: Mapping[str, Any], film: Path) -> list[str]:
    """Records an episode; returns a note if that is not possible."""
    try:
        play_rendered(_load(source), env, env_kwargs, lambda rate: VideoFile(film, rate), max_total_steps=FILM_STEPS)
    except Exception as error:  # a film is optional, and environments raise anything while they render
        with contextlib.suppress(OSError):
            film.unlink(missing_ok=True)
        return [f"no film: {_first_line(error)}"]
    return []


def _draw(source: Source, picture: Path) -> list[str]:
    """Draws the learning curve; returns a note if there is none."""
    if source.folder is None:
        return []
    try:
        plot_curve(source.folder, picture, title_of(source.config))
    except ConfigurationError as error:
        return [f"no learning curve: {_first_line(error)}"]
    return []


def _load(source: Source) -> Any:
    return load_model(Run(source.model.parent, source.model.name))


def _first_line(error: Exception) -> str:
    text = error.message if isinstance(error, click.ClickException) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
