"""The commands on a saved model: `sb-dqn evaluate`, `enjoy`, `doctor` and `export`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import number_option, path_option, run_argument
from sb_dqn.cli.train import bar_wanted
from sb_dqn.runs.trust import ask_before_import, trust_option

if TYPE_CHECKING:
    from sb_dqn.evaluation import Episodes
    from sb_dqn.runs.run import Run

env_option = click.option("--env", "env_id", metavar="ID", help="Environment. Default: the training environment.")
best_option = click.option("--best", is_flag=True, help="Use the best model of the evaluations during training.")
seed_option = number_option("--seed", least=0, default=0, help="Random seed of the games.")
explore_option = click.option("--explore", is_flag=True, help="Act with the exploration of training. Default: greedy.")


@click.command(short_help="Play episodes and print the mean return.")
@run_argument
@env_option
@number_option("--episodes", default=20)
@number_option("--n-envs", default=5, help="Number of parallel environments (lanes).")
@seed_option
@best_option
@explore_option
@number_option(
    "--max-steps", metavar="N", help="Stop after N env steps and report the finished episodes. Default: no limit."
)
@click.option(
    "--progress/--no-progress", default=None, help="Progress bar instead of lines. Default: bar in a terminal."
)
@click.option("--device", default="auto", show_default=True)
@trust_option
def evaluate(
    run: Path,
    env_id: str | None,
    episodes: int,
    n_envs: int,
    seed: int,
    best: bool,
    explore: bool,
    max_steps: int | None,
    progress: bool | None,
    device: str,
    trust: bool,
) -> None:
    """Play full games with the model in RUN (the folder of a run, or a zip) and print their mean return.

    Returns are raw game scores; losing a life does not end an episode.
    """
    from sb_dqn.envs.by_id import open_env
    from sb_dqn.runs.greedy import play

    found, model, env, env_kwargs = _open(run, best, env_id, trust, device)
    bar = bar_wanted(progress)
    with closing(open_env(env, min(n_envs, episodes), env_kwargs, model.action_mask)) as stream:
        played = play(model, stream, episodes, bar=bar, max_steps=max_steps, deterministic=not explore, seed=seed)
    finished = played.episodes
    click.echo(f"{found.model} on {env}: {played.describe('episodes')}{_spread(finished)}")
    if finished.cut:
        click.echo(f"{finished.cut} of them did not end and were cut off")


def _spread(episodes: Episodes) -> str:
    """Returns the lowest and highest return and the mean length as text."""
    if not episodes.returns:
        return ""
    return (
        f" (lowest {min(episodes.returns):.2f}, highest {max(episodes.returns):.2f}, "
        f"mean length {sum(episodes.lengths) / len(episodes.lengths):,.0f} steps)"
    )


@click.command(short_help="Watch a model play in a window, or record a video.")
@run_argument
@env_option
@number_option("--episodes", default=3)
@click.option(
    "--video",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Record a video (.mp4, .gif) instead of opening a window.",
)
@seed_option
@best_option
@explore_option
@click.option("--device", default="auto", show_default=True)
@trust_option
def enjoy(
    run: Path,
    env_id: str | None,
    episodes: int,
    video: Path | None,
    seed: int,
    best: bool,
    explore: bool,
    device: str,
    trust: bool,
) -> None:
    """Watch the model in RUN (the folder of a run, or a zip) play; close the window to stop."""
    from sb_dqn.checks import check_output_path
    from sb_dqn.runs.rendering import VIDEO_SUFFIXES, VideoFile, Window, play_rendered

    if video is not None:
        check_output_path(video, "video", VIDEO_SUFFIXES)
    found, model, env, env_kwargs = _open(run, best, env_id, trust, device)

    def make_screen(rate: float) -> Any:
        return Window(f"{env} – {found.model}", rate) if video is None else VideoFile(video, rate)

    played = play_rendered(model, env, env_kwargs, make_screen, episodes, deterministic=not explore, seed=seed)
    for number, (score, length) in enumerate(zip(played.returns, played.lengths, strict=True), 1):
        click.echo(f"episode {number}: return {score:.2f} in {length:,} steps")
    if video is not None:
        click.echo(video)


@click.command(short_help="Tell what keeps a model from learning.")
@run_argument
@env_option
@number_option("--episodes", default=5, help="Greedy episodes to measure.")
@best_option
@trust_option
def doctor(run: Path, env_id: str | None, episodes: int, best: bool, trust: bool) -> None:
    """Measure the model in RUN (the folder of a run, or a zip) on greedy episodes, and its log.

    Prints a table of measures, and below it each finding with the setting that usually helps. Measures of single updates are
    those that a DiagnoseCallback has logged during training.
    """
    import numpy as np

    from sb_dqn.diagnosis.measures import MEASURES
    from sb_dqn.envs.by_id import open_env

    found, model, env, env_kwargs = _open(run, best, env_id, trust, "cpu")
    with closing(open_env(env, 1, env_kwargs, model.action_mask)) as stream:
        diagnosis = model.diagnose(env=stream, episodes=episodes)
    for column, values in found.log.items():
        name, finite = column.removeprefix("diagnose/"), values[np.isfinite(values)]
        if column != name and name in MEASURES and len(finite):
            diagnosis.values.setdefault(name, float(finite[-1]))
    click.echo(f"{found.model} on {env}, {model.num_timesteps:,} env steps\n\n{diagnosis}")
    returns = found.curve.returns
    if count := len(returns) // 10:
        first, last = returns[:count].mean(), returns[-count:].mean()
        click.echo(f"\nmean return of the first tenth of the episodes {first:.2f}, of the last {last:.2f}")


@click.command(short_help="Write the greedy policy as an ONNX file.")
@run_argument
@path_option("--out", "-o", metavar="FILE", help="Default: the model's name with .onnx.")
@best_option
def export(run: Path, out: Path | None, best: bool) -> None:
    """Write the greedy policy of the model in RUN (the folder of a run, or a zip) as an ONNX file, and check it."""
    from sb_dqn.onnx_export import export_onnx
    from sb_dqn.runs.run import find_run, load_model

    saved_run = find_run(run, best=best)
    target = out or saved_run.model.with_suffix(".onnx")
    model = load_model(saved_run, "cpu")
    try:
        exported = export_onnx(model, target)
    except OSError as error:
        raise click.BadParameter(
            f"must be a file that can be written, got {target} ({error.strerror}). Choose another one.",
            param_hint="--out",
        ) from error
    click.echo(f"{exported.path}: {', '.join(exported.inputs)} -> {', '.join(exported.outputs)}")
    if exported.difference is None:
        click.echo('not compared with predict: onnxruntime is not installed. Run pip install "sb_dqn[onnx]".')
    else:
        click.echo(f"the same actions as predict, largest difference of a number {exported.difference:.1e}")


def _open(path: Path, best: bool, env_id: str | None, trust: bool, device: str) -> tuple[Run, Any, str, dict[str, Any]]:
    """Returns the run, its model, and id and keywords of the environment to play, once it may import its modules."""
    from sb_dqn.runs.run import env_of, find_run, load_model

    run = find_run(path, best=best)
    ask_before_import(run, trust, env_id)
    env, env_kwargs = env_of(run, env_id)
    model = load_model(run, device)
    if not env_kwargs and model.preset_env is not None and model.preset_env.is_named(env):
        env_kwargs = dict(model.preset_env.keywords)
    return run, model, env, env_kwargs
