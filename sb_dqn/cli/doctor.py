"""The command `sb-dqn doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from sb_dqn.runs.trust import trust_option


@click.command(short_help="Tell what keeps a model from learning.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--env", "env_id", metavar="ID", help="Environment. Default: the training environment.")
@click.option("--episodes", type=click.IntRange(1), default=5, show_default=True, help="Greedy episodes to measure.")
@click.option("--best", is_flag=True, help="Use the best model of the evaluations during training.")
@trust_option
def doctor(run: Path, env_id: str | None, episodes: int, best: bool, trust: bool) -> None:
    """Measure the model in RUN (the folder of a run, or a zip) on greedy episodes, and its log.

    Prints a table of measures, and below it each finding with the setting that usually helps. Measures of single updates are
    those that a DiagnoseCallback has logged during training.
    """
    from contextlib import closing

    import numpy as np

    from sb_dqn.diagnosis.measures import MEASURES
    from sb_dqn.envs.by_id import open_env
    from sb_dqn.runs.run import env_of, find_run, load_model
    from sb_dqn.runs.trust import ask_before_import

    found = find_run(run, best=best)
    ask_before_import(found, trust, env_id)
    model = load_model(found, "cpu")
    env, env_kwargs = env_of(found, env_id)
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
