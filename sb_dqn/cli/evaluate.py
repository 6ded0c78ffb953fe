"""The command `sb-dqn evaluate`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sb_dqn.runs.trust import trust_option

if TYPE_CHECKING:
    from sb_dqn.episode_tally import Episodes


@click.command(short_help="Play episodes and print the mean return.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--env", "env_id", metavar="ID", help="Environment. Default: the training environment.")
@click.option("--episodes", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--n-envs", type=click.IntRange(1), default=5, show_default=True, help="Number of parallel environments (lanes)."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed of the games.")
@click.option("--best", is_flag=True, help="Use the best model of the evaluations during training.")
@click.option("--explore", is_flag=True, help="Act with the exploration of training. Default: greedy.")
@click.option(
    "--max-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N env steps and report the finished episodes. Default: no limit.",
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
    from sb_dqn.cli.train import bar_wanted
    from sb_dqn.envs.by_id import open_env
    from sb_dqn.runs.greedy import play
    from sb_dqn.runs.run import env_of, find_run, load_model
    from sb_dqn.runs.trust import ask_before_import

    saved_run = find_run(run, best=best)
    ask_before_import(saved_run, trust, env_id)
    env, env_kwargs = env_of(saved_run, env_id)
    model = load_model(saved_run, device)
    bar = bar_wanted(progress)
    with closing(open_env(env, min(n_envs, episodes), env_kwargs, model.action_mask)) as stream:
        played = play(model, stream, episodes, bar=bar, max_steps=max_steps, deterministic=not explore, seed=seed)
    finished = played.episodes
    click.echo(f"{saved_run.model} on {env}: {played.describe('episodes')}{_spread(finished)}")
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
