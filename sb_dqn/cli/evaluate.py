"""`sb-dqn evaluate`."""

from __future__ import annotations

from pathlib import Path

import click


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
@click.option("--device", default="auto", show_default=True)
def evaluate(
    run: Path, env_id: str | None, episodes: int, n_envs: int, seed: int, best: bool, explore: bool, device: str
) -> None:
    """Play full games with the model in RUN, a run's folder or a zip, and print what they returned.

    The score is the raw one of the game; a lost life ends nothing.
    """
    from sb_dqn.cli.train.folder import find_run
    from sb_dqn.cli.train.load_model import env_of, load_model
    from sb_dqn.cli.train.make_env import open_env
    from sb_dqn.evaluation import play_episodes

    found = find_run(run, best=best)
    env, env_kwargs = env_of(found, env_id)
    model = load_model(found, device)
    stream = open_env(env, min(n_envs, episodes), env_kwargs, model.action_mask)
    played = play_episodes(model, stream, episodes, not explore, seed=seed)
    stream.close()
    count = len(played.returns)
    mean = sum(played.returns) / count
    spread = (sum((value - mean) ** 2 for value in played.returns) / count) ** 0.5
    click.echo(
        f"{found.model} on {env}: mean return {mean:.2f} ± {spread:.2f} over {count} episodes "
        f"(lowest {min(played.returns):.2f}, highest {max(played.returns):.2f}, "
        f"mean length {sum(played.lengths) / count:,.0f} steps)"
    )
    if played.cut:
        click.echo(f"{played.cut} of them did not end and were cut")
