"""A training run from its plan to its folder; a run that was interrupted goes on by the same road."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import click

from sb_dqn.cli.environments import open_env, policy_alias
from sb_dqn.cli.episodes import drop_episodes
from sb_dqn.cli.greedy import final_bound, play
from sb_dqn.cli.keeping import Keeper, checkpoints, remove_checkpoints, stopping_in_order
from sb_dqn.cli.locks import alone_in
from sb_dqn.cli.names import algorithm_class
from sb_dqn.cli.plan import Plan
from sb_dqn.cli.results import FinalEvaluation, Result, read_result, write_result
from sb_dqn.cli.runs import (
    BEST,
    CURVE,
    MODEL,
    SavedRun,
    drop_rows,
    new_run_folder,
    read_config,
    write_config,
)
from sb_dqn.cli.watching import LANES, Watching, check_episodes, watchers, with_evaluations, with_final
from sb_dqn.errors import CheckpointError


def begin(plan: Plan, root: Path, watching: Watching) -> Path:
    """Train as `plan` says; everything lies in the folder that is returned."""
    stream = open_env(plan.env_id, plan.n_envs, plan.env_kwargs, plan.settings.get("action_mask"))
    policy = plan.policy or policy_alias(stream)
    model = algorithm_class(plan.algorithm)(policy, stream, **plan.settings)
    folder = new_run_folder(root, plan.algorithm, plan.env_id)
    with _alone_in(folder):
        config = with_evaluations(plan.config(policy), watching, plan.n_timesteps, anew=True)
        write_config(folder, config)
        _announce(plan, folder)
        _fit(model, folder, config, plan.n_timesteps, watching)
    return folder


def go_on(run: SavedRun, timesteps: int | None, device: str, watching: Watching) -> Path:
    """Finish what was interrupted, or train further by `timesteps`; exactly where there is a full checkpoint.

    Raises:
        click.UsageError: the run has no configuration, another process is at work in its folder, or nothing is left to
            do, its evaluation included.
    """
    if not run.config:
        raise click.UsageError(f"{run.folder} has no config.yaml; a run can go on only in the folder that `train` made")
    with _alone_in(run.folder):
        _go_on(run, timesteps, device, watching)
    return run.folder


def _alone_in(folder: Path) -> AbstractContextManager[None]:
    """No second process trains in the folder of a run: each would cut back the log of the other."""
    return alone_in(
        folder, f"another sb-dqn trains in {folder}; wait until it has ended, or stop it with Ctrl-C, which saves"
    )


def _go_on(run: SavedRun, timesteps: int | None, device: str, watching: Watching) -> None:
    config = read_config(run.folder)  # once more: the run may have ended since it was looked up
    stream = open_env(config["env_id"], config["n_envs"], config["env_kwargs"], config["settings"].get("action_mask"))
    model, full = _newest(run, config, stream, device)
    planned = model._total_timesteps if full else config["n_timesteps"]
    steps = timesteps or planned - model.num_timesteps
    if steps <= 0 and not read_result(run.folder).finished:
        click.echo(f"{run.folder} has done its {model.num_timesteps:,} steps; it was stopped before its evaluation")
        conclude(model, run.folder, with_final(config, watching), watching.progress)
        return
    if steps <= 0:
        raise click.UsageError(
            f"{run.folder} has done its {model.num_timesteps:,} steps; say how many more: --timesteps N"
        )
    config = with_evaluations(config, watching, steps, anew=timesteps is not None)
    check_episodes(run.folder, config)
    write_config(run.folder, config)
    click.echo(f"going on in {run.folder} at step {model.num_timesteps:,} for {steps:,} more")
    drop_rows(run.folder / "progress.csv", model.num_timesteps)  # what came after this model was saved is lost with it
    drop_episodes(run.folder / "monitor.csv", model.num_timesteps)
    _fit(model, run.folder, config, steps, watching, exactly=full)


def _newest(run: SavedRun, config: Mapping[str, Any], stream: Any, device: str) -> tuple[Any, bool]:
    """The model of the newest full checkpoint that can be read, and True; else the saved model and False."""
    algorithm = algorithm_class(config["algorithm"])
    for path in checkpoints(run.folder):
        try:
            return algorithm.load(path, env=stream, device=device), True
        except CheckpointError as error:
            click.echo(f"{error}; taking the one before", err=True)
    if not run.model.is_file():
        raise click.UsageError(f"{run.folder} has neither a model nor a full checkpoint; begin anew with `train`")
    return algorithm.load(run.model, env=stream, device=device), False


def _fit(
    model: Any, folder: Path, config: Mapping[str, Any], steps: int, watching: Watching, exactly: bool = False
) -> None:
    from sb_dqn.logger import configure

    formats = ["csv", *([] if watching.progress else ["stdout"]), *(["tensorboard"] if watching.tensorboard else [])]
    logger = configure(str(folder), formats)
    model.set_logger(logger)
    first, started = model.num_timesteps, time.monotonic()
    keeper = Keeper(folder, watching.minutes, at_once=first > 0)
    callbacks = [*watchers(folder, config), keeper]
    try:
        with stopping_in_order(keeper):
            if exactly:
                model.counters.horizon = first + steps
                model.resume(callbacks, progress_bar=watching.progress)
            else:
                model.learn(steps, callbacks, reset_num_timesteps=False, progress_bar=watching.progress)
    except KeyboardInterrupt:
        keeper.stopping = True
        keeper.save()
    except Exception:
        if model.num_timesteps > first:
            _rescue(model, folder, config, keeper)
        raise
    finally:
        logger.close()
    seconds = time.monotonic() - started
    _write(model, folder, keeper.seconds)
    if keeper.stopping:
        _interrupted(model, folder, config)
    remove_checkpoints(folder)
    done = model.num_timesteps - first
    click.echo(f"\n{done:,} steps in {seconds:,.0f} s, {done / seconds:,.0f} steps/s, evaluations included")
    conclude(model, folder, config, watching.progress)


def _write(model: Any, folder: Path, seconds: float) -> None:
    model.save(folder / MODEL)
    write_result(folder, Result(model.num_timesteps, seconds))


def _rescue(model: Any, folder: Path, config: Mapping[str, Any], keeper: Keeper) -> None:
    """Saves a run that an error ended, unless the model may hold NaN, and says how to go on; raises nothing itself."""
    click.echo(f"\nan error at step {model.num_timesteps:,}; saving what is sound")
    try:
        keeper.stopping = True
        keeper.save()
        if keeper.sound:
            _write(model, folder, keeper.seconds)
            draw_curve(folder, config)
    except Exception as failure:  # the error that ended the run is the one to be seen
        click.echo(f"not saved: {failure}", err=True)
    if checkpoints(folder) or (folder / MODEL).is_file():
        click.echo(f"what is saved lies in {folder}; go on with\n  {program()} resume {folder}")


def _interrupted(model: Any, folder: Path, config: Mapping[str, Any]) -> NoReturn:
    click.echo(f"\ninterrupted at step {model.num_timesteps:,}; saving")
    draw_curve(folder, config)
    click.echo(f"saved in {folder}; go on with\n  {program()} resume {folder}")
    sys.exit(130)


def conclude(model: Any, folder: Path, config: Mapping[str, Any], bar: bool) -> None:
    """Evaluates, writes the result, draws, and says where everything lies and what to type next."""
    click.echo(f"{_evaluate(model, folder, config, bar)}\n")
    drawn = draw_curve(folder, config)
    lines = [
        (MODEL, "the trained model"),
        (BEST, "the best of the evaluations on the way"),
        (CURVE if drawn else "", "the learning curve"),
        ("config.yaml", "every setting, the versions, the command; result.yaml what came of it"),
        ("progress.csv", "the log; monitor.csv has every episode"),
        ("evaluations.npz", "the evaluations on the way"),
    ]
    click.echo(f"everything lies in {folder}")
    for name, meaning in lines:
        if name and (folder / name).is_file():
            click.echo(f"  {name:16}{meaning}")
    click.echo("\nnext")
    for command, meaning in (
        (f"enjoy {folder}", "watch it play; with --video film.mp4 as a film"),
        (f"evaluate {folder} --episodes 100", "a surer mean"),
        (f"resume {folder} --timesteps {max(config['n_timesteps'] // 2, 1)}", "let it learn more"),
        (f"train {config['algorithm']} {config['env_id']} --set learning_rate=3e-4", "try another setting"),
    ):
        click.echo(f"  {program()} {command}\n      {meaning}")


def _evaluate(model: Any, folder: Path, config: Mapping[str, Any], bar: bool) -> str:
    """Plays the final episodes and writes the result of the run; returns what to say of them."""
    count, done = config["final_episodes"], read_result(folder).seconds
    if not count:
        write_result(folder, Result(model.num_timesteps, done, (), FinalEvaluation(0, 0, 0.0)))
        return "not evaluated, as --final-episodes is 0"
    stream = open_env(config["env_id"], min(count, LANES), config["env_kwargs"], model.action_mask)
    played = play(model, stream, count, bar=bar, bound=final_bound(config["final_steps"], model.num_timesteps))
    stream.close()
    returns, evaluation = played.episodes.returns, FinalEvaluation(count, played.episodes.steps, played.seconds)
    write_result(folder, Result(model.num_timesteps, done, tuple(returns), evaluation))
    more = "; for more say --final-steps N, or 0 for no bound" if played.missing else ""
    return f"{played.describe('greedy episodes')}{more}, in {played.seconds:,.0f} s"


def draw_curve(folder: Path, config: Mapping[str, Any]) -> bool:
    """Draw `curve.png`; where that cannot be done, say why."""
    from sb_dqn.errors import ConfigurationError
    from sb_dqn.plotting import plot_curve

    try:
        plot_curve(folder, folder / CURVE, title_of(config))
    except ConfigurationError as error:
        click.echo(f"no {CURVE}: {error}")
        return False
    return True


def title_of(config: Mapping[str, Any]) -> str:
    """`DQN on CartPole-v1, seed 3`."""
    if not config:
        return ""
    return f"{config['algorithm']} on {config['env_id']}, seed {config['settings'].get('seed')}"


def program() -> str:
    """How this command is called again from here: by its name where the shell finds it, else by its path."""
    return sys.argv[0] if Path(sys.argv[0]).name == "sb-dqn" and not shutil.which("sb-dqn") else "sb-dqn"


def _announce(plan: Plan, folder: Path) -> None:
    source = f"preset {plan.preset.name} ({plan.preset.source})" if plan.preset else "no preset: the class's defaults"
    lanes = f", {plan.n_envs} lanes" if plan.n_envs > 1 else ""
    click.echo(
        f"{plan.algorithm} on {plan.env_id}: {plan.n_timesteps:,} steps{lanes}, seed {plan.settings['seed']}; {source}\n"
        f"into {folder}; Ctrl-C saves"
    )
