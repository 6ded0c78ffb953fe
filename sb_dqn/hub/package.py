"""Package: the files of a repository, made from a run, a model file or a model."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.envs.by_id import open_env
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import play_episodes
from sb_dqn.hub.card import CardContent, write_card
from sb_dqn.hub.checks import ENV_ID, check_cluster, check_links, check_own_model
from sb_dqn.plotting import plot_curve
from sb_dqn.remotes.files import BEST, CARD, CONFIG, CURVE, FILM, LOGS, MODEL, RESULT, WEIGHTS
from sb_dqn.runs.evaluation_options import LANES
from sb_dqn.runs.folder import FinalEvaluation, Result
from sb_dqn.runs.rendering import VideoFile, play_rendered
from sb_dqn.runs.run import Run, env_of, load_model
from sb_dqn.runs.training import title_of
from sb_dqn.runs.trust import foreign_modules
from sb_dqn.types import Kwargs, Settings

EPISODES = 20
"""Default number of greedy episodes of a model without a result."""
MAX_STEPS = 100_000
"""Limit on the env steps of these episodes."""
FILM_STEPS = 1_000
"""Limit on the env steps of the film."""


def find_source(run: Any, scratch: Path) -> tuple[Run, Kwargs]:
    """Returns the run of the model at a path, or of the one that is passed in, and the manifest of its file, which is checked.

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
        return Run(scratch), check_own_model(saved)
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
    found = Run(model.parent, model.name)
    check_cluster(found.settings, str(model.parent / CONFIG))
    return found, check_own_model(model)


def make_package(
    run: Run,
    manifest: Mapping[str, Any],
    folder: Path,
    repo: str,
    env_id: str | None,
    n_eval_episodes: int | None,
    video: bool,
) -> list[str]:
    """Writes all files of a repository to `folder`; returns a sentence for each part that could not be made.

    Args:
        run: run with the model; without a configuration the model is on its own.
        manifest: that of the model.
        folder: empty folder.
        repo: repository id, for the card.
        env_id: environment; None: that of the run.
        n_eval_episodes: greedy episodes to play; 0: none; None: the result of the run, or else `EPISODES`.
        video: record a film.

    Raises:
        ConfigurationError: the environment cannot be made.
    """
    if run.config and (modules := foreign_modules(run.folder, run.config, env_id)):
        raise ConfigurationError(
            f"env_id must be set to push {run.folder}, which was pulled and whose environment imports {', '.join(modules)}, got "
            f"{env_id}. Name the environment (--env, env_id=)."
        )
    env, env_kwargs = env_of(run, env_id) if env_id or "env_id" in run.config else (None, {})
    if env is not None and not ENV_ID.fullmatch(env):
        raise ConfigurationError(
            f"env_id must have letters, digits and the characters _:./- only, got {env!r}. Register the environment under such an id."
        )
    notes: list[str] = []
    shutil.copyfile(run.model, folder / MODEL)
    with zipfile.ZipFile(run.model) as archive, archive.open(WEIGHTS) as member, (folder / WEIGHTS).open("wb") as out:
        shutil.copyfileobj(member, out)
    stored = run.result if run.config and run.model_name == MODEL else Result(0, 0.0)  # that of its last model
    _copy_run(run, folder)
    is_known = n_eval_episodes is None and stored.returns and env == run.config.get("env_id")
    score = stored if is_known else None
    episodes = EPISODES if n_eval_episodes is None else n_eval_episodes
    if env is None and (episodes or video):
        notes.append("no result and no film: the environment is not known. Name it (--env, env_id=).")
    elif env is not None:
        if score is None and episodes:
            score = _evaluate(run, env, env_kwargs, episodes)
            if score is None:
                notes.append(f"no result: none of {episodes} episodes finished within {MAX_STEPS:,} env steps.")
        if video:
            notes += _record(run, env, env_kwargs, folder / FILM)
    notes += _draw(run, folder / CURVE)
    counters = manifest.get("state", {}).get("counters", {})
    content = CardContent(
        repo=repo,
        algorithm=str(manifest["class"]),
        env_id=env,
        result=replace(
            score or Result(0, 0.0),
            steps=int(counters.get("lifetime", counters.get("num_timesteps", 0))),
            seconds=stored.seconds,
        ),
        settings=run.settings or manifest["arguments"],
        files=[path.name for path in folder.iterdir()],
    )
    (folder / CARD).write_text(write_card(content), encoding="utf-8")
    return notes


def _copy_run(run: Run, folder: Path) -> None:
    """Copies configuration and logs of the run, and for its last model its result and best model."""
    if not run.config:
        return
    names = [CONFIG, *LOGS]
    if run.model_name == MODEL:
        names.append(RESULT)
        if (run.folder / BEST).is_file():
            check_own_model(run.folder / BEST)
            names.append(BEST)
    for name in names:
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)


def _evaluate(run: Run, env: str, env_kwargs: Settings, episodes: int) -> Result | None:
    try:
        model = load_model(run)
    except (CheckpointError, click.ClickException) as error:
        raise ConfigurationError(
            f"the model must be loadable to be evaluated, got an error ({_first_line(error)}). Push it without a result "
            f"(--episodes 0, n_eval_episodes=0)."
        ) from error
    with contextlib.closing(open_env(env, min(episodes, LANES), env_kwargs, model.action_mask)) as stream:
        played = play_episodes(model, stream, episodes, max_total_steps=MAX_STEPS)
    evaluation = FinalEvaluation(episodes, played.steps, 0.0)
    return Result(0, 0.0, tuple(played.returns), evaluation) if played.returns else None


def _record(run: Run, env: str, env_kwargs: Settings, film: Path) -> list[str]:
    """Records an episode; returns a note if that is not possible."""
    try:
        play_rendered(load_model(run), env, env_kwargs, lambda rate: VideoFile(film, rate), max_total_steps=FILM_STEPS)
    except Exception as error:  # a film is optional, and environments raise anything while they render
        with contextlib.suppress(OSError):
            film.unlink(missing_ok=True)
        return [f"no film: {_first_line(error)}"]
    return []


def _draw(run: Run, picture: Path) -> list[str]:
    """Draws the learning curve; returns a note if there is none."""
    if not run.config:
        return []
    try:
        plot_curve(run.folder, picture, title_of(run.config))
    except ConfigurationError as error:
        return [f"no learning curve: {_first_line(error)}"]
    return []


def _first_line(error: Exception) -> str:
    text = error.message if isinstance(error, click.ClickException) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
