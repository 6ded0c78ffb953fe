"""`sb-dqn evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sb_dqn.episode_tally import Episodes


@click.command(short_help="Play episodes and print their mean return.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--env", "env_id", metavar="ID", help="Default: the one it was trained on.")
@click.option("--episodes", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--n-envs", type=click.IntRange(1), default=5, show_default=True, help="Lanes: environments side by side."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed plays the same games."
)
@click.option("--best", is_flag=True, help="The best model of the evaluations on the way, not the last.")
@click.option("--explore", is_flag=True, help="Act as in training, epsilon and all; default: greedily.")
@click.option(
    "--max-steps", type=click.IntRange(1), metavar="N",
    help="End after N env steps with the episodes that are finished. Default: no bound.",
)  # fmt: skip
@click.option("--progress/--no-progress", default=None, help="Bar instead of lines. Default: in a terminal.")
@click.option("--device", default="auto", show_default=True)
def evaluate(
    run: Path, env_id: str | None, episodes: int, n_envs: int, seed: int, best: bool, explore: bool,
    max_steps: int | None, progress: bool | None, device: str,
) -> None:  # fmt: skip
    """Play full games with the model in RUN, a run's folder or a zip, and print what they returned.

    The score is the raw one of the game; a lost life ends nothing.
    """
    from sb_dqn.cli.environments import open_env
    from sb_dqn.cli.greedy import play
    from sb_dqn.cli.runs import find_run
    from sb_dqn.cli.saved import env_of, load_model
    from sb_dqn.cli.train import bar_wanted

    found = find_run(run, best=best)
    env, env_kwargs = env_of(found, env_id)
    model = load_model(found, device)
    stream = open_env(env, min(n_envs, episodes), env_kwargs, model.action_mask)
    bar = bar_wanted(progress)
    played = play(model, stream, episodes, bar=bar, bound=max_steps, deterministic=not explore, seed=seed)
    stream.close()
    found_episodes = played.episodes
    click.echo(f"{found.model} on {env}: {played.describe('episodes')}{_spread(found_episodes)}")
    if found_episodes.cut:
        click.echo(f"{found_episodes.cut} of them did not end and were cut")


def _spread(episodes: Episodes) -> str:
    """The lowest and highest return, and the mean length."""
    if not episodes.returns:
        return ""
    return (
        f" (lowest {min(episodes.returns):.2f}, highest {max(episodes.returns):.2f}, "
        f"mean length {sum(episodes.lengths) / len(episodes.lengths):,.0f} steps)"
    )
