"""Saving, loading and resuming models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from sb_dqn.actors.settings import RayActors, as_actors, asks_too_much
from sb_dqn.checkpoint import AllocationGuard, CustomObjects, read_archive
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.core import model_file
from sb_dqn.core.arguments import changed_arguments, check_keywords, constructor_arguments
from sb_dqn.core.construction import environment_for, open_environment
from sb_dqn.core.model_file import ResumeState
from sb_dqn.errors import CheckpointError, ConfigurationError, checkpoint_errors, user_stacklevel
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.presets.preset_env import find_preset_env
from sb_dqn.rng import later_seed
from sb_dqn.sb3_files import SB3Zip, algorithm_of, is_sb3_zip, read_sb3_zip
from sb_dqn.sb3_files.optimizers import load_moments
from sb_dqn.sb3_files.parameters import native_parameters
from sb_dqn.sb3_files.settings import arguments_of, blueprint_of, counts_of, exploration_of, with_their_layers
from sb_dqn.types import EnvLike, Rows, Settings, State

Model = Any
"""A `BaseAlgorithm`, which imports this module."""

OPTIMIZER = "policy.optimizer"
"""Name of the optimizer in `get_parameters`."""

FRACTION_OPTIMIZER = "policy.apart.optimizer"
"""Name of FQF's optimizer of the fractions."""

OTHER_PPO = {"MaskablePPO", "RecurrentPPO"}
"""Classes of `sb_dqn.sb3` that are PPO with other settings."""


def save_model(model: Model, path: Target, full: bool, trust: bool, incremental: bool, background: bool) -> Any:
    """Writes a model to a zip file; see `BaseAlgorithm.save`."""
    if (incremental and not full) or (background and not incremental):
        raise ConfigurationError(
            f"full must be True with incremental=True, and both must be True with background=True, got full={full}, "
            f"incremental={incremental} and background={background}. Add them."
        )
    if full:
        state, path = resume_state(model, trust, incremental), model_file.own_learner_file(path, model.learners)
    elif model.rank:
        return path  # the first learner writes
    else:
        state = None
    return model_file.write_model(path, model, state, background)


def resume_state(model: Model, trust: bool, incremental: bool) -> ResumeState:
    """Returns the state of a `learn` between two ticks.

    Raises:
        ConfigurationError: the model has not learned yet.
    """
    run = model.training_run
    if model.collector is None or run is None:
        raise ConfigurationError(
            "full must be False before the first learn, got True: there is nothing to resume yet. Remove it."
        )
    tick, stream, why = model.collector.state(run.settled, trust)
    if why:
        warnings.warn(
            f"the full checkpoint is without the environment's state ({why}): a resumed run starts new episodes, and the "
            f"interrupted ones are stored as truncated. Give the environment a state_dict(); Atari has it with exact_resume=True.",
            stacklevel=user_stacklevel(),
        )
    rows = model.replay.segmented_rows() if incremental and model.keeps_replay else None
    segmented = rows if rows is not None and rows.cursor.any() else None
    columns = () if segmented is None else segmented.columns
    return ResumeState(
        session=run.state_dict(),
        parts={name: part.state_dict() for name, part in model.run_parts().items()},
        experience={name: tensor for name, tensor in model._experience.state_dict().items() if name not in columns},
        tick=tick,
        stream=stream,
        why=why,
        process=process_state(),
        segmented_rows=segmented,
    )


def load_model(
    cls: type[Any],
    path: Target,
    env: EnvLike,
    device: str | torch.device,
    custom_objects: Settings | None,
    trust: bool,
    changes: Settings,
) -> Any:
    """Returns a model from a zip file; see `BaseAlgorithm.load`."""
    if is_sb3_zip(path):
        return _load_sb3_model(cls, read_sb3_zip(path), env, {**(custom_objects or {}), **changes, "device": device})
    replacements = CustomObjects({**(custom_objects or {}), **changes})
    learners = LearnerGroup.of_process()
    path = path if env is None else model_file.find_learner_file(path, learners)
    saved = model_file.read_model(path, replacements, trust, env is not None)
    replacements.warn_of_unused(custom_objects or {}, saved.arguments)
    made_by = model_file.find_class(cls, saved.class_name)
    check_keywords(made_by, {name: value for name, value in changes.items() if name in made_by.replaced_arguments})
    arguments = made_by.loaded_arguments({**saved.arguments, **changes, "device": device}, saved)
    # so a class may set an argument of its parent itself, and a default that has changed since does not change old models
    arguments = changed_arguments(made_by, arguments)
    if "actors" in arguments and not trust and "actors" not in replacements:
        arguments["actors"] = _startable(as_actors(arguments["actors"]))
    actors = as_actors(arguments.get("actors"))
    with checkpoint_errors("the environment of the file's preset is none"):
        preset_env = find_preset_env(made_by, saved.preset_env) if saved.preset_env else None
    environment = environment_for(saved.blueprint, env, arguments.get("action_mask"), actors, preset_env)
    model = model_file.build_model(made_by, environment, arguments, saved.policy)
    model.preset_env = preset_env
    parts = model.saved_parts()
    if "normalizer" not in saved.parts:
        parts.pop("normalizer", None)  # starts without statistics
    if learners.rank and saved.continuation is None:
        parts.pop("rng")  # of the first learner: each keeps its own
    model_file.restore_parts(parts, saved.parts, {**(custom_objects or {}), **changes})
    if model.exploration is not None and any(name.startswith("exploration") for name in changes):
        model.exploration.warn_if_ineffective()
    model.learner.refresh()
    if saved.continuation is not None:
        _restore_run(model, saved, trust)
    return model


def _load_sb3_model(cls: type[Any], saved: SB3Zip, env: Any, replaced: Mapping[str, Any]) -> Any:
    """Returns a model from a file of Stable-Baselines3.

    The optimizer continues with the moments of the file where they fit the parameters one to one, else without, with a warning.
    A replay buffer starts empty. Settings that only a pickle has keep the defaults, with a warning that names them.

    Args:
        cls: class of the model, or a parent.
        saved: contents of the file.
        env: environment, or None.
        replaced: arguments that replace those of the file.

    Raises:
        CheckpointError: the file is damaged, of an algorithm that this library lacks, or its spaces are unknown.
        SpaceError: `env` does not fit the parameters.
    """
    found = algorithm_of(saved)
    names = {base.__name__ for base in cls.__mro__}
    made_by = cls if found == "PPO" and names & OTHER_PPO else model_file.find_class(cls, found)
    replaced = {"action_mask": "info", **replaced} if "MaskablePPO" in names else replaced
    kept = {name: value for name, value in saved.settings.items() if name not in replaced}
    what = f"the settings of {saved.label} make no {made_by.__name__}"
    with checkpoint_errors(what):
        source = blueprint_of(saved) if env is None else env
        blueprint, stream = open_environment(source, replaced.get("action_mask"))
        arguments, unread = arguments_of(
            saved._replace(settings=kept), constructor_arguments(made_by), blueprint.num_envs
        )
    arguments |= replaced
    arguments["policy_kwargs"] = with_their_layers(
        made_by.__name__, arguments["policy"], arguments.get("policy_kwargs")
    )
    with checkpoint_errors(what), AllocationGuard(saved.policy):
        model = made_by(arguments.pop("policy"), blueprint if stream is None else stream, **arguments)
    with checkpoint_errors(f"the parameters of {saved.label} do not fit"):
        model_file.write_policy(model.policy, native_parameters(model, saved.policy, saved.variables))
    model.learner.refresh()
    unfit = load_moments(model, saved)
    model.counters.load_state_dict(counts_of(saved))
    if model.exploration is not None and (state := exploration_of(saved)) is not None:
        model.exploration.load_state_dict(state)
    if unfit:
        warnings.warn(
            f"the optimizer of {saved.label} is not continued ({unfit}): it starts without moments. The first updates may be larger "
            f"than those of the file's training.",
            stacklevel=user_stacklevel(),
        )
    if unread:
        warnings.warn(
            f"{saved.label} has {', '.join(unread)} as pickles, which are not run: the defaults are used. To continue as "
            f"before, pass them: load(path, {unread[0]}=...).",
            stacklevel=user_stacklevel(),
        )
    return model


def _startable(actors: Any) -> Any:
    """Returns the actors of a file without the address of a cluster, whose nodes could run code in this process; None instead of
    more workers than a file may start."""
    if asks_too_much(actors):
        warnings.warn(
            f"the file asks for {actors!r}: the model does not start as many, learn steps its environment itself. To use them, pass "
            f"load(path, env, actors={actors!r}).",
            stacklevel=user_stacklevel(),
        )
        return None
    if not isinstance(actors, RayActors) or actors.address in (None, "auto"):
        return actors
    warnings.warn(
        f"the actors of the file are on the Ray cluster at {actors.address!r}: the model does not connect to it, learn would start "
        f"a cluster of this machine alone. To use it, pass load(path, actors=RayActors({actors.processes}, "
        f"lanes={actors.lanes}, address={actors.address!r})).",
        stacklevel=user_stacklevel(),
    )
    return replace(actors, address=None)


def _restore_run(model: Model, saved: model_file.SavedModel, trust: bool) -> None:
    """Restores the rest of a full checkpoint, except what waits for `resume`."""
    state, lanes = saved.continuation, saved.blueprint.num_envs
    assert state is not None
    rank, size = state.learner
    if (rank, size) != (model.rank, model.world_size):
        raise CheckpointError(
            f"the full checkpoint must be resumed by {size} learners, each with its own file, got learner {model.rank} of "
            f"{model.world_size} with the file of learner {rank}. Start with torchrun --nproc-per-node {size} and the whole "
            f"folder, or load(path) and then set_env(env) to start without the rows."
        )
    if model.n_envs != lanes:
        raise CheckpointError(
            f"the environment must have {lanes} lanes, as the full checkpoint, got {model.n_envs}. Give as many, or load(path) "
            f"and then set_env(env) to start without the rows."
        )
    model_file.restore_parts(model.run_parts(), state.parts)
    model_file.restore_parts({"experience": model._experience}, {"experience": state.experience})
    ring = model._experience.ring
    if state.written and int(state.experience["ring/rows"]) == ring.rows:
        ring.written.update(state.written)  # the segments that loaded rows lie in, so that they are not written again
    # the rows are in the buffer now: do not keep a second copy
    model._resume_state = replace(state, experience={}, rng=saved.parts["rng"], trusted=trust)


def restore_tick(model: Model, state: ResumeState) -> Rows | None:
    """Restores the environment, then the generators; the last thing before the first step, as nothing may draw afterwards.

    Returns:
        The tick to continue from; None if the environment must be reset.
    """
    collector = model.collector
    with checkpoint_errors("the state of the environment in the file does not fit"):
        rows: Rows | None = collector.restore(state.tick, state.stream, state.trusted)
        if rows is None and collector.env_seed is not None:
            collector.env_seed = later_seed(collector.env_seed, model.counters.lifetime)
        set_process_state(state.process)
    model_file.restore_parts({"rng": model.rng}, {"rng": state.rng})
    return rows


def get_parameters(model: Model) -> dict[str, State]:
    """Returns a copy of all parameters by name; see `BaseAlgorithm.get_parameters`."""
    learner = model.learner
    parameters = {"policy": model.policy.state_dict(), OPTIMIZER: learner.optimizer.state_dict()}
    if learner.optimizer_step.fraction_optimizer is not None:
        parameters[FRACTION_OPTIMIZER] = learner.optimizer_step.fraction_optimizer.state_dict()
    return deepcopy(parameters)


def set_parameters(model: Model, source: Any, exact_match: bool) -> None:
    """Sets parameters from a dict or a zip file; see `BaseAlgorithm.set_parameters`."""
    before = get_parameters(model)
    parameters = source if isinstance(source, Mapping) else {"policy": _policy_of(model, source)}
    if not parameters.keys() <= before.keys() or (exact_match and "policy" not in parameters):
        raise ConfigurationError(
            f"names of parameters must be among {sorted(before)}, with 'policy', got {sorted(parameters)}. Rename them."
        )
    try:
        _write_parameters(model, parameters, exact_match)
    except Exception:
        _write_parameters(model, before, exact_match=True)
        raise


def _policy_of(model: Model, path: Target) -> State:
    """Returns the parameters of the networks in a zip file of this library or of Stable-Baselines3."""
    if not is_sb3_zip(path):
        return read_archive(path, only=("policy",))[1]["policy"]
    saved = read_sb3_zip(path)
    try:
        return native_parameters(model, saved.policy, saved.variables)
    except (KeyError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            f"{saved.label} must have the layers of this model, got others ({error}). Use the same policy_kwargs, or read it by load."
        ) from None


def _write_parameters(model: Model, parameters: Mapping[str, Any], exact_match: bool) -> None:
    learner = model.learner
    setters = {OPTIMIZER: learner.optimizer_step.take_moments}
    if learner.optimizer_step.fraction_optimizer is not None:
        setters[FRACTION_OPTIMIZER] = learner.optimizer_step.take_fraction_moments
    for name, set_state in setters.items():
        try:
            if name in parameters:
                set_state(deepcopy(parameters[name]))  # the optimizer keeps what it gets
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{name!r} must be the state of an optimizer of the same parameters, got another ({error}). Remove "
                f"it, or use the same networks and optimizer_class."
            ) from None
    if "policy" in parameters:
        model_file.write_policy(model.policy, parameters["policy"], exact_match)
        learner.refresh()


def process_state() -> State:
    """Returns the state of torch's global generators, of the CPU and of each CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_process_state(state: State) -> None:
    """Restores torch's global generators; ignores CUDA devices that are not present."""
    torch.set_rng_state(state["cpu"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)
