"""The commands `sb-dqn train` and `sb-dqn resume`: arguments and options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import number_option, path_option, run_argument, settings_option
from sb_dqn.runs.learner_processes import start_learners
from sb_dqn.runs.trust import ask_before_import, ask_before_starting, trust_option

if TYPE_CHECKING:
    from sb_dqn.runs.evaluation_options import RunOptions
    from sb_dqn.runs.run import Run


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of logging, evaluation and checkpoints that `train` and `resume` share, as one argument `options`."""

    @wraps(function)
    def collect(progress: bool | None, **values: Any) -> Any:
        from sb_dqn.runs.evaluation_options import RunOptions

        own = {field.name: values.pop(field.name) for field in fields(RunOptions) if field.name != "progress"}
        return function(options=RunOptions(progress=bar_wanted(progress), **own), **values)

    command: Callable[..., Any] = collect
    for option in (
        click.option(
            "--checkpoint-minutes",
            "minutes",
            type=click.FloatRange(0),
            default=10.0,
            show_default=True,
            metavar="M",
            help="Minutes between full checkpoints for `resume`; the last two are kept. 0: only when stopped.",
        ),
        number_option(
            "--final-steps",
            least=0,
            metavar="N",
            help="Maximum env steps of the final evaluation; 0: no limit. Default: the trained steps, within 20,000 to 100,000.",
        ),
        number_option(
            "--final-episodes",
            least=0,
            metavar="N",
            help="Greedy episodes after training; 0: none. Default: 20, or as before on resume.",
        ),
        number_option("--eval-episodes", help="Episodes of each evaluation. Default: 5, or as before on resume."),
        number_option(
            "--eval-freq",
            least=0,
            metavar="N",
            help="Env steps between evaluations; 0: none. Default: ten evaluations in all, or as before on resume.",
        ),
        settings_option(
            "--eval-env-set", "eval_env", help="A keyword of the evaluation environment, over those of --env-set"
        ),
        click.option(
            "--record-training",
            is_flag=True,
            default=None,
            help="Film a greedy episode at each evaluation: film/step-N.mp4, and training.mp4 at the end.",
        ),
        click.option(
            "--track",
            type=click.Choice(["wandb", "mlflow"]),
            help="Send the run to Weights & Biases or MLflow; project or experiment: WANDB_PROJECT, MLFLOW_EXPERIMENT_NAME.",
        ),
        click.option("--tensorboard", is_flag=True, help="Write TensorBoard logs too."),
        click.option(
            "--progress/--no-progress",
            default=None,
            help="Progress bar instead of a line every ten seconds. Default: bar in a terminal.",
        ),
    ):
        command = option(command)
    return command


def _required_unless_resumed(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Requires ALGO and ENV unless `--resume` is used."""
    if value is None and context.params.get("run") is None:
        missing = "ALGO and ENV" if parameter.name == "algo" else "ENV"
        raise click.UsageError(
            f"{missing} must be set, got none. Use sb-dqn train ALGO ENV, or sb-dqn train --resume RUN.", context
        )
    return value


@click.command(short_help="Train an agent on an environment.")
@click.argument("algo", metavar="ALGO", required=False, callback=_required_unless_resumed)
@click.argument("env_id", metavar="ENV", required=False, callback=_required_unless_resumed)
@path_option("--resume", "run", metavar="RUN", is_eager=True, help="Resume this run; see `sb-dqn resume`.")
@number_option("--timesteps", "-n", metavar="N", help="Env steps over all lanes.")
@number_option("--seed", least=0, metavar="S", help="Random seed. Default: drawn, and saved with the run.")
@settings_option("--set", "assignments", help="A keyword of the constructor")
@settings_option("--env-set", "env_assignments", help="A keyword of the environment")
@click.option(
    "--preset",
    metavar="NAME",
    help="Preset to start from, or a .yaml file such as best.yaml of `sb-dqn tune`, or none: the defaults of the class; see "
    "`sb-dqn presets`. Default: the one for ENV.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help="MlpPolicy, CnnPolicy or MultiInputPolicy; recurrent: MlpLstmPolicy etc. Default: by the observation space.",
)
@number_option("--n-envs", metavar="N", help="Number of parallel environments (lanes).")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1.")
@click.option(
    "--actors",
    metavar="WHO",
    help="overlapped: environments step while the learner learns. overlapped:2x4: two groups of 4 lanes in turn. "
    "process:8, process:8x2: 8 processes, of 2 lanes each. ray:16@auto: 16 actors on a Ray cluster.",
)
@number_option(
    "--learners",
    metavar="N",
    help="Processes that learn together, each with its own --n-envs and replay; gradients are averaged. Default: 1.",
)
@path_option(
    "--folder",
    "--out",
    "folder",
    default="runs",
    show_default=True,
    help="Parent folder; each run gets a new folder in it.",
)
@run_options
def train(
    algo: str | None,
    env_id: str | None,
    run: Path | None,
    folder: Path,
    options: RunOptions,
    learners: int | None,
    **plan_options: Any,
) -> None:
    """Train ALGO on ENV; log, learning curve and models are written to a new folder.

    \b
    sb-dqn train dqn CartPole-v1
    sb-dqn train NStepDQN ALE/Pong-v5 --seed 1
    sb-dqn train dqn LunarLander-v3 --set learning_rate=1e-3 --set "policy_kwargs={net_arch: [128, 128]}"
    """
    from sb_dqn.runs.plan import make_plan
    from sb_dqn.runs.training import start_run

    if run is not None:
        _resume_from_train(run, algo, env_id, options, **plan_options, learners=learners)
        return
    assert algo is not None
    assert env_id is not None
    plan = make_plan(algo, env_id, **plan_options)
    start_learners(learners or 1, ["--seed", str(plan.settings["seed"])] if plan.drew_seed else [])
    start_run(plan, folder, options)


def _resume_from_train(
    path: Path,
    algo: str | None,
    env_id: str | None,
    options: RunOptions,
    timesteps: int | None,
    device: str | None,
    **plan_options: object,
) -> None:
    """Runs `train ... --resume RUN`; rejects settings that contradict those of the run."""
    from sb_dqn.runs.run import find_run
    from sb_dqn.runs.settings_syntax import canonical, typed_options

    run = find_run(path, unfinished=True)
    identity = {"algorithm": None if algo is None else canonical(algo), "env_id": env_id}
    different = [
        f"{value} instead of {run.config.get(key)}"
        for key, value in identity.items()
        if value not in (None, run.config.get(key))
    ]
    fixed = [option for name, option in typed_options().items() if name in (*plan_options, "folder")]
    if different or fixed:
        raise click.UsageError(
            f"{path} must be resumed with its own settings, got {', '.join([*different, *fixed])}. Remove these arguments, or "
            f"start another run without --resume."
        )
    _resume(run, timesteps, device or "auto", False, options)


def _resume(run: Run, timesteps: int | None, device: str, trust: bool, options: RunOptions) -> None:
    """Asks what must be asked before, and resumes a run with as many learners as it had."""
    from sb_dqn.runs.training import resume_run

    ask_before_import(run, trust)
    ask_before_starting(run, trust)
    start_learners(run.config.get("learners", 1))
    resume_run(run, timesteps, device, options)


@click.command(short_help="Resume an interrupted run, or train a finished one further.")
@run_argument
@number_option("--timesteps", "-n", metavar="N", help="Further env steps. Default: the remaining ones.")
@click.option("--device", metavar="NAME", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@trust_option
@run_options
def resume(run: Path, timesteps: int | None, device: str, trust: bool, options: RunOptions) -> None:
    """Resume RUN in its folder: exactly from the newest full checkpoint, else from the saved model."""
    from sb_dqn.runs.run import find_run

    _resume(find_run(run, unfinished=True), timesteps, device, trust, options)


def bar_wanted(progress: bool | None) -> bool:
    """Returns the choice of `--progress/--no-progress`; by default True if the output is a terminal."""
    return sys.stdout.isatty() if progress is None else progress
