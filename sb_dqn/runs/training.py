"""Training runs from plan to result: start, resume, save on interruption, final evaluation."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sb_dqn.core.construction import open_training_env
from sb_dqn.envs.by_id import open_env, policy_alias
from sb_dqn.errors import CheckpointError, LearnerLost
from sb_dqn.presets.preset_env import PresetEnv
from sb_dqn.runs.checkpoint_timer import CheckpointTimer, checkpoints, remove_checkpoints, stop_on_signals
from sb_dqn.runs.episode_log import drop_episodes
from sb_dqn.runs.evaluation_options import (
    LANES,
    RunOptions,
    check_episodes,
    make_callbacks,
    make_tracker,
    with_evaluations,
    with_final,
)
from sb_dqn.runs.folder import (
    BEST,
    CURVE,
    MODEL,
    FinalEvaluation,
    drop_rows,
    evaluation_keywords,
    machine,
    new_run_folder,
    read_config,
    read_result,
    write_config,
    write_result,
)
from sb_dqn.runs.folder_lock import lock_folder
from sb_dqn.runs.greedy import final_step_limit, play
from sb_dqn.runs.learner_processes import rank
from sb_dqn.runs.plan import Plan
from sb_dqn.runs.run import Run
from sb_dqn.runs.settings_syntax import algorithm_class
from sb_dqn.runs.training_film import FILM
from sb_dqn.types import Kwargs, Settings

if TYPE_CHECKING:
    from sb_dqn.core.base_algorithm import BaseAlgorithm
    from sb_dqn.envs.streams.open import Stream


def start_run(plan: Plan, root: Path, options: RunOptions) -> Path:
    """Trains by `plan` in a new folder under `root`; returns the folder."""
    if options.track is not None:
        make_tracker(root, options.track)  # raises before a folder is made
    with closing(open_training_env(plan.env_id, plan.n_envs, plan.env_kwargs, plan.settings)) as stream:
        policy = plan.policy or policy_alias(stream, plan.algorithm)
        model = algorithm_class(plan.algorithm)(policy, stream, **plan.settings)
        if plan.preset is not None:
            model.preset_env = PresetEnv(plan.env_id, plan.preset.name, plan.env_kwargs)
        made = None if model.rank else new_run_folder(root, plan.algorithm, plan.env_id)
        folder: Path = model.learners.gather(made)[0]
        if model.rank:
            _follow(model, folder, plan.n_timesteps, options)
            return folder
        with _lock_run(folder):
            config = with_evaluations(plan.config(policy), options, plan.n_timesteps, new_steps=True)
            if model.world_size > 1:
                config["learners"] = model.world_size
            config["machine"] = machine(model.device)
            write_config(folder, config)
            _print_plan(plan, folder)
            _fit(model, folder, config, plan.n_timesteps, options)
    return folder


def resume_run(run: Run, timesteps: int | None, device: str, options: RunOptions) -> Path:
    """Finishes an interrupted run, or trains a run for `timesteps` more; exact if there is a full checkpoint.

    Raises:
        click.UsageError: the run has no configuration, another process trains in its folder, or it is finished.
    """
    if not run.config:
        raise click.UsageError(
            f"{run.folder} must be the folder of a run, got a folder without config.yaml. Pass the folder that "
            f"`sb-dqn train` created."
        )
    with nullcontext() if rank() else _lock_run(run.folder):
        config = read_config(run.folder)  # again: another process may have changed it before the lock was taken
        environment = (config["env_id"], config["n_envs"], config["env_kwargs"], config["settings"])
        with closing(open_training_env(*environment)) as stream:
            _resume_with(stream, config, run, timesteps, device, options)
    return run.folder


def _lock_run(folder: Path) -> AbstractContextManager[None]:
    """Locks the folder of a run, because two processes in it would truncate each other's logs."""
    return lock_folder(
        folder,
        f"Another sb-dqn process trains in {folder}. Wait until it ends, or stop it with Ctrl-C, which saves the run.",
    )


def _resume_with(
    stream: Stream, config: Kwargs, run: Run, timesteps: int | None, device: str, options: RunOptions
) -> None:
    model, exact = _load_newest(run, config, stream, device)
    planned = model._total_timesteps if exact else config["n_timesteps"]
    steps = timesteps or planned - model.num_timesteps
    if model.rank:
        if steps > 0:
            _follow(model, run.folder, steps, options, exact)
        return
    if steps <= 0 and not read_result(run.folder).finished:
        click.echo(f"{run.folder} has trained all {model.num_timesteps:,} steps but was stopped before its evaluation")
        conclude(model, run.folder, with_final(config, options), options.progress)
        return
    if steps <= 0:
        raise click.UsageError(
            f"{run.folder} must be a run with steps left, got one that has finished its {model.num_timesteps:,} "
            f"steps. Pass the number of further steps with --timesteps N."
        )
    if not exact:  # nothing of a model file, which may be another person's, says where to send a run
        config.pop("track", None)
    else:
        _check_callbacks(config, options)
    config = with_evaluations(config, options, steps, new_steps=timesteps is not None)
    check_episodes(run.folder, config)
    write_config(run.folder, config)
    click.echo(f"resuming {run.folder} at step {model.num_timesteps:,} for {steps:,} more")
    drop_rows(run.folder / "progress.csv", model.num_timesteps)  # entries after this model was saved are lost
    drop_episodes(run.folder / "monitor.csv", model.num_timesteps)
    _fit(model, run.folder, config, steps, options, exact=exact)


def _check_callbacks(config: Settings, options: RunOptions) -> None:
    """Checks that no option asks for a callback that a full checkpoint has no state of."""
    if options.track not in (None, config.get("track")):
        raise click.UsageError(
            f"--track must be {config.get('track') or 'left out'} as before the full checkpoint, got {options.track}. Remove it."
        )
    if options.record_training and not config.get("record_training"):
        raise click.UsageError(
            "--record-training must be set from the start of a run, got it with a full checkpoint without films. Remove it."
        )


def _load_newest(run: Run, config: Settings, stream: Stream, device: str) -> tuple[BaseAlgorithm, bool]:
    """Loads the newest readable full checkpoint and returns it with True, else the saved model with False."""
    algorithm = algorithm_class(config["algorithm"])
    actors = {name: value for name, value in config["settings"].items() if name == "actors"}  # with a cluster's address
    parts = [{path.name for path in checkpoints(run.folder, other)} for other in range(config.get("learners", 1))]
    for path in checkpoints(run.folder):
        if not all(path.name in names for names in parts):  # a learner was ended before it had written its part
            continue
        try:
            return algorithm.load(path, env=stream, device=device, **actors), True
        except CheckpointError as error:
            click.echo(f"Warning: {error} Using the previous checkpoint.", err=True)
    if not run.model.is_file():
        raise click.UsageError(
            f"{run.folder} must have a model or a full checkpoint, got neither. Start a new run with `sb-dqn train`."
        )
    return algorithm.load(run.model, env=stream, device=device, **actors), False


def _fit(
    model: BaseAlgorithm, folder: Path, config: Settings, steps: int, options: RunOptions, exact: bool = False
) -> None:
    """Trains `model` for `steps` env steps, saves it, and evaluates it; saves it on interruption and errors too."""
    import rich

    from sb_dqn.logger import configure

    trackers = [make_tracker(folder, config["track"])] if config.get("track") else []
    rich.reconfigure(force_terminal=None if options.progress else False)  # lines instead of a bar, in a terminal too
    logger = configure(str(folder), ["csv", *(["tensorboard"] if options.tensorboard else [])])
    model.set_logger(logger)
    first, started = model.num_timesteps, time.monotonic()
    timer = CheckpointTimer(folder, options.minutes, at_once=first > 0)
    episodes, evaluation = make_callbacks(folder, config)
    callbacks = [episodes, evaluation, timer, *trackers]
    try:
        with stop_on_signals(timer):
            if exact:
                model.counters.horizon = first + steps
                model.resume(callbacks, progress_bar=True)
            else:
                model.learn(steps, callbacks, reset_num_timesteps=False, progress_bar=True)
    except KeyboardInterrupt:
        timer.stopping = True
        timer.save()
    except LearnerLost:
        raise
    except Exception:
        if model.num_timesteps > first:
            _save_after_error(model, folder, config, timer)
        raise
    finally:
        logger.close()
        if config["eval_freq"]:
            evaluation.eval_env.close()
    seconds = time.monotonic() - started
    model.save(folder / MODEL)
    write_result(folder, timer.result)
    if timer.stopping:
        click.echo(f"\ninterrupted at step {model.num_timesteps:,}; saving")
        draw_curve(folder, config)
        click.echo(f"saved in {folder}; resume with\n  {program_name()} resume {folder}")
        sys.exit(130)
    remove_checkpoints(folder)
    done = model.num_timesteps - first
    click.echo(f"\n{done:,} steps in {seconds:,.0f} s, {done / seconds:,.0f} steps/s, evaluations included")
    conclude(model, folder, config, options.progress)


def _follow(model: BaseAlgorithm, folder: Path, steps: int, options: RunOptions, exact: bool = False) -> None:
    """Trains a learner after the first, which writes the logs and evaluates; this one writes its part of full checkpoints."""
    first = model.num_timesteps
    timer = CheckpointTimer(folder, options.minutes, at_once=first > 0)
    with stop_on_signals(timer):
        if exact:
            model.counters.horizon = first + steps
            model.resume([timer])
        else:
            model.learn(steps, [timer], reset_num_timesteps=False)
    if timer.stopping:
        sys.exit(130)
    remove_checkpoints(folder, model.rank)


def _save_after_error(model: BaseAlgorithm, folder: Path, config: Settings, timer: CheckpointTimer) -> None:
    """Saves a run that an error ended, unless the model may hold NaN, and prints how to resume; never raises."""
    click.echo(f"\nerror at step {model.num_timesteps:,}; saving the run")
    try:
        timer.stopping = True
        timer.save()
        if timer.finite:
            model.save(folder / MODEL)
            write_result(folder, timer.result)
            draw_curve(folder, config)
    except Exception as failure:  # the error that ended the run is raised instead
        click.echo(f"not saved: {failure}", err=True)
    if checkpoints(folder) or (folder / MODEL).is_file():
        click.echo(f"saved in {folder}; resume with\n  {program_name()} resume {folder}")


def conclude(model: BaseAlgorithm, folder: Path, config: Settings, bar: bool) -> None:
    """Evaluates the model, writes the result, draws the curve, and prints the files and the next commands."""
    click.echo(f"{_evaluate(model, folder, config, bar)}\n")
    drawn = draw_curve(folder, config)
    files = [
        (MODEL, "the trained model"),
        (BEST, "the best model of the evaluations during training"),
        (CURVE if drawn else "", "the learning curve"),
        ("config.yaml", "all settings, versions and the command; result.yaml has the results"),
        ("progress.csv", "the log; monitor.csv has every episode"),
        ("evaluations.npz", "the evaluations during training"),
        (FILM, "an episode at each evaluation, one after the other"),
    ]
    click.echo(f"files in {folder}")
    for name, meaning in files:
        if name and (folder / name).is_file():
            click.echo(f"  {name:16}{meaning}")
    click.echo("\nnext")
    for command, meaning in (
        (f"enjoy {folder}", "watch the agent play; --video film.mp4 records a video"),
        (f"evaluate {folder} --episodes 100", "a more precise mean return"),
        (f"report {folder}", "one HTML page with curves, settings and results"),
        (f"resume {folder} --timesteps {max(config['n_timesteps'] // 2, 1)}", "train further"),
        (another_setting(read_config(folder)), "try another setting"),
    ):
        click.echo(f"  {program_name()} {command}\n      {meaning}")


def another_setting(config: Settings) -> str:
    """Returns the arguments of the run's own `sb-dqn train` with another learning rate, or the shortest ones if there are none."""
    words = shlex.split(config["command"])[1:]
    if words[:1] != ["train"]:
        words = ["train", config["algorithm"], config["env_id"]]
    kept: list[str] = []
    for word in words:  # a setting must be set once
        if word.startswith("learning_rate=") and kept[-1] == "--set":
            kept.pop()
        elif not word.startswith("--set=learning_rate="):
            kept.append(word)
    return shlex.join([*kept, "--set", "learning_rate=3e-4"])


def _evaluate(model: BaseAlgorithm, folder: Path, config: Settings, bar: bool) -> str:
    """Plays the final episodes and writes the result of the run; returns the line to print."""
    count, trained = config["final_episodes"], replace(read_result(folder), steps=model.num_timesteps)
    if not count:
        write_result(folder, replace(trained, evaluation=FinalEvaluation(0, 0, 0.0)))
        return "not evaluated, because --final-episodes is 0"
    limit = final_step_limit(config["final_steps"], model.num_timesteps)
    with closing(
        open_env(config["env_id"], min(count, LANES), evaluation_keywords(config), model.action_mask)
    ) as stream:
        played = play(model, stream, count, bar=bar, max_steps=limit)
    returns, evaluation = played.episodes.returns, FinalEvaluation(count, played.episodes.steps, played.seconds)
    write_result(folder, replace(trained, returns=tuple(returns), evaluation=evaluation))
    hint = " (raise the limit with --final-steps N, 0 for none)" if played.missing else ""
    return f"{played.describe('greedy episodes')}{hint}, in {played.seconds:,.0f} s"


def draw_curve(folder: Path, config: Settings) -> bool:
    """Draws `curve.png`; on failure prints the reason and returns False."""
    from sb_dqn.errors import ConfigurationError
    from sb_dqn.plotting import plot_curve

    try:
        plot_curve(folder, folder / CURVE, title_of(config))
    except ConfigurationError as error:
        click.echo(f"no {CURVE}: {error}")
        return False
    return True


def title_of(config: Settings) -> str:
    """Returns a title such as `DQN on CartPole-v1, seed 3`; empty without a configuration."""
    if not config:
        return ""
    return f"{config['algorithm']} on {config['env_id']}, seed {config['settings'].get('seed')}"


def program_name() -> str:
    """Returns the command to type: `sb-dqn` if the shell finds it, else the path it was started by."""
    return sys.argv[0] if Path(sys.argv[0]).name == "sb-dqn" and not shutil.which("sb-dqn") else "sb-dqn"


def _print_plan(plan: Plan, folder: Path) -> None:
    source = f"preset {plan.preset.name} ({plan.preset.source})" if plan.preset else "no preset, class defaults"
    lanes = f", {plan.n_envs} lanes" if plan.n_envs > 1 else ""
    click.echo(
        f"{plan.algorithm} on {plan.env_id}: {plan.n_timesteps:,} steps{lanes}, seed {plan.settings['seed']}; {source}\n"
        f"writing to {folder}; Ctrl-C saves and stops"
    )
