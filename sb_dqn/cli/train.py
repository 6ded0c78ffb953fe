"""`sb-dqn train` and `sb-dqn resume`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def watching_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `train` and `resume` share."""
    for option in (
        click.option("--eval-episodes", type=click.IntRange(1), default=5, show_default=True, help="Episodes of each."),
        click.option(
            "--eval-freq",
            type=click.IntRange(0),
            metavar="N",
            help="Steps between evaluations; 0: none. Default: ten in all.",
        ),
        click.option("--tensorboard", is_flag=True, help="Log for TensorBoard, too."),
        click.option(
            "--progress/--no-progress", default=None, help="Bar instead of log lines. Default: in a terminal."
        ),
    ):
        function = option(function)
    return function


@click.command(short_help="Learn from an environment.")
@click.argument("algo", metavar="ALGO")
@click.argument("env_id", metavar="ENV")
@click.option("--timesteps", "-n", type=click.IntRange(1), metavar="N", help="Environment steps over all lanes.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="S", help="Of every random stream. Default: one is drawn and kept."
)
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A keyword of the constructor; repeatable."
)
@click.option("--env-set", "env_assignments", multiple=True, metavar="NAME=VALUE", help="A keyword of the environment.")
@click.option("--preset", metavar="NAME", help="Settings to begin with; see `sb-dqn presets`. Default: ENV's own.")
@click.option(
    "--policy", metavar="NAME", help="MlpPolicy, CnnPolicy or MultiInputPolicy. Default: by the observations."
)
@click.option("--n-envs", type=click.IntRange(1), metavar="N", help="Lanes: environments side by side.")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1.")
@click.option(
    "--folder", type=click.Path(path_type=Path), default="runs", show_default=True, help="Where runs are kept."
)
@watching_options
def train(
    algo: str, env_id: str, folder: Path, progress: bool | None, tensorboard: bool, eval_freq: int | None,
    eval_episodes: int, **said: Any,
) -> None:  # fmt: skip
    """Learn from an environment; log, learning curve and models go to a folder of the run's own.

    \b
    sb-dqn train dqn CartPole-v1
    sb-dqn train NStepDQN ALE/Pong-v5 --seed 1
    sb-dqn train dqn LunarLander-v3 --set learning_rate=1e-3 --set "policy_kwargs={net_arch: [128, 128]}"
    """
    from sb_dqn.cli.plan import make_plan
    from sb_dqn.cli.training import Watching, begin

    plan = make_plan(algo, env_id, **said)
    begin(plan, folder, Watching(_bar(progress), tensorboard, eval_freq, eval_episodes))


@click.command(short_help="Go on with a run that was interrupted, or is to learn more.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--timesteps", "-n", type=click.IntRange(1), metavar="N", help="Further steps. Default: what is left.")
@click.option("--device", metavar="NAME", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@watching_options
def resume(
    run: Path, timesteps: int | None, device: str, progress: bool | None, tensorboard: bool, eval_freq: int | None,
    eval_episodes: int,
) -> None:  # fmt: skip
    """Go on in the folder of a run, from its model and, after Ctrl-C, from its replay.

    The environment begins new episodes: its state is not in the files.
    """
    from sb_dqn.cli.runs import find_run
    from sb_dqn.cli.training import Watching, go_on

    go_on(find_run(run), timesteps, device, Watching(_bar(progress), tensorboard, eval_freq, eval_episodes))


def _bar(progress: bool | None) -> bool:
    return sys.stdout.isatty() if progress is None else progress
