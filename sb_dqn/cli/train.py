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
        click.option(
            "--checkpoint-minutes",
            "minutes",
            type=click.FloatRange(0),
            default=10.0,
            show_default=True,
            metavar="M",
            help="Minutes between full checkpoints, which `resume` goes on from; the last two are kept. 0: only when it is stopped.",
        ),
        click.option(
            "--final-steps",
            type=click.IntRange(0),
            metavar="N",
            help="End the final evaluation after N env steps; 0: never. Default: as many as trained, 20,000 to 100,000.",
        ),
        click.option(
            "--final-episodes",
            type=click.IntRange(0),
            metavar="N",
            help="Greedy episodes after the training; 0: none. Default: 20, or the run's.",
        ),
        click.option("--eval-episodes", type=click.IntRange(1), help="Episodes of each. Default: 5, or the run's."),
        click.option(
            "--eval-freq",
            type=click.IntRange(0),
            metavar="N",
            help="Steps between evaluations; 0: none. Default: ten in all, or the run's.",
        ),
        click.option("--tensorboard", is_flag=True, help="Log for TensorBoard, too."),
        click.option(
            "--progress/--no-progress", default=None, help="Bar instead of log lines. Default: in a terminal."
        ),
    ):
        function = option(function)
    return function


def _said_or_resumed(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """ALGO and ENV may be left out only with `--resume`."""
    if value is None and context.params.get("run") is None:
        raise click.UsageError(
            "say what to train on what: sb-dqn train ALGO ENV, or go on: sb-dqn train --resume RUN", context
        )
    return value


@click.command(short_help="Learn from an environment.")
@click.argument("algo", metavar="ALGO", required=False, callback=_said_or_resumed)
@click.argument("env_id", metavar="ENV", required=False, callback=_said_or_resumed)
@click.option(
    "--resume",
    "run",
    type=click.Path(path_type=Path),
    metavar="RUN",
    is_eager=True,
    help="Go on with this run; see `sb-dqn resume`.",
)
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
    "--policy",
    metavar="NAME",
    help="MlpPolicy, CnnPolicy or MultiInputPolicy, with a memory MlpLstmPolicy and so on. Default: by the observations.",
)
@click.option("--n-envs", type=click.IntRange(1), metavar="N", help="Lanes: environments side by side.")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1.")
@click.option(
    "--folder",
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    help="Where runs are kept, each in a folder of its own.",
)
@watching_options
def train(
    algo: str | None, env_id: str | None, run: Path | None, folder: Path, progress: bool | None, tensorboard: bool,
    eval_freq: int | None, eval_episodes: int | None, minutes: float, final_episodes: int | None,
    final_steps: int | None, **said: Any,
) -> None:  # fmt: skip
    """Learn from an environment; log, learning curve and models go to a folder of the run's own.

    \b
    sb-dqn train dqn CartPole-v1
    sb-dqn train NStepDQN ALE/Pong-v5 --seed 1
    sb-dqn train dqn LunarLander-v3 --set learning_rate=1e-3 --set "policy_kwargs={net_arch: [128, 128]}"
    """
    from sb_dqn.cli.plan import make_plan
    from sb_dqn.cli.training import begin
    from sb_dqn.cli.watching import Watching

    watching = Watching(
        bar_wanted(progress), tensorboard, eval_freq, eval_episodes, minutes, final_episodes, final_steps
    )
    if run is not None:
        _go_on_as_said(run, algo, env_id, watching, **said)
        return
    assert algo is not None
    assert env_id is not None
    begin(make_plan(algo, env_id, **said), folder, watching)


def _go_on_as_said(
    path: Path,
    algo: str | None,
    env_id: str | None,
    watching: Any,
    timesteps: int | None,
    device: str | None,
    **said: Any,
) -> None:
    """`train ... --resume RUN`: the run's own settings hold, so what contradicts them is refused."""
    from sb_dqn.cli.names import canonical, typed_options
    from sb_dqn.cli.runs import find_run
    from sb_dqn.cli.training import go_on

    run = find_run(path, unfinished=True)
    known = {"algorithm": None if algo is None else canonical(algo), "env_id": env_id}
    differing = [
        f"{given}, it is {run.config.get(key)}"
        for key, given in known.items()
        if given not in (None, run.config.get(key))
    ]
    late = [option for name, option in typed_options().items() if name in (*said, "folder")]
    if differing or late:
        raise click.UsageError(
            f"{path} goes on where it lies, with the settings that it began with ({'; '.join([*differing, *late])}); leave "
            f"them out, or begin another run without --resume"
        )
    go_on(run, timesteps, device or "auto", watching)


@click.command(short_help="Go on with a run that was interrupted, or is to learn more.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--timesteps", "-n", type=click.IntRange(1), metavar="N", help="Further steps. Default: what is left.")
@click.option("--device", metavar="NAME", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@watching_options
def resume(
    run: Path, timesteps: int | None, device: str, progress: bool | None, tensorboard: bool, eval_freq: int | None,
    eval_episodes: int | None, minutes: float, final_episodes: int | None, final_steps: int | None,
) -> None:  # fmt: skip
    """Go on in the folder of a run: from its newest full checkpoint as if it had never stopped, else from its model."""
    from sb_dqn.cli.runs import find_run
    from sb_dqn.cli.training import go_on
    from sb_dqn.cli.watching import Watching

    watching = Watching(
        bar_wanted(progress), tensorboard, eval_freq, eval_episodes, minutes, final_episodes, final_steps
    )
    go_on(find_run(run, unfinished=True), timesteps, device, watching)


def bar_wanted(progress: bool | None) -> bool:
    """Returns the choice of `--progress/--no-progress`, by default whether the output is a terminal."""
    return sys.stdout.isatty() if progress is None else progress
