"""The command `sb-dqn enjoy`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sb_dqn.runs.trust import trust_option


@click.command(short_help="Watch a model play in a window, or record a video.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--env", "env_id", metavar="ID", help="Environment. Default: the training environment.")
@click.option("--episodes", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--video",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Record a video (.mp4, .gif) instead of opening a window.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed of the games.")
@click.option("--best", is_flag=True, help="Use the best model of the evaluations during training.")
@click.option("--explore", is_flag=True, help="Act with the exploration of training. Default: greedy.")
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
    from sb_dqn.runs.run import env_of, find_run, load_model
    from sb_dqn.runs.trust import ask_before_import

    if video is not None:
        check_output_path(video, "video", VIDEO_SUFFIXES)
    saved_run = find_run(run, best=best)
    ask_before_import(saved_run, trust, env_id)
    env, env_kwargs = env_of(saved_run, env_id)
    model = load_model(saved_run, device)

    def make_screen(rate: float) -> Any:
        return Window(f"{env} – {saved_run.model}", rate) if video is None else VideoFile(video, rate)

    played = play_rendered(model, env, env_kwargs, make_screen, episodes, deterministic=not explore, seed=seed)
    for number, (score, length) in enumerate(zip(played.returns, played.lengths, strict=True), 1):
        click.echo(f"episode {number}: return {score:.2f} in {length:,} steps")
    if video is not None:
        click.echo(video)
