"""What a model writes to files and reads from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from sb_dqn.algorithms.continuation import Continuation
from sb_dqn.algorithms.saved_channels import with_saved_channels
from sb_dqn.checkpoint import (
    NetBound,
    Writing,
    Written,
    checkpoint_at,
    copied,
    decode_space,
    decode_value,
    encode_space,
    encode_value,
    file_to_write,
    model_info,
    pack,
    read_archive,
    read_rows,
    unpack,
    write_archive,
    write_checkpoint,
)
from sb_dqn.envs.stream import open_stream
from sb_dqn.envs.stream_sb3_frames import has_stacks_of
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.nn.extractors import EXTRACTORS
from sb_dqn.nn.linear import Noisy
from sb_dqn.nn.optimizers import RMSpropTFLike
from sb_dqn.normalize import NormalizeObservations, NormalizeRewards
from sb_dqn.objectives.backup import Munchausen
from sb_dqn.policies import ACTOR_CRITIC_POLICIES, SAC_POLICIES, VALUE_POLICIES
from sb_dqn.policies.base import Policy, images_of
from sb_dqn.replay import Prioritized, Replay, Sequences
from sb_dqn.schedules import SCHEDULES
from sb_dqn.types import Blueprint

SWITCHES: tuple[type, ...] = (Munchausen, Noisy, NormalizeObservations, NormalizeRewards, Prioritized, Sequences)
POLICIES: tuple[type, ...] = (
    *VALUE_POLICIES.values(), *ACTOR_CRITIC_POLICIES.values(), *SAC_POLICIES.values(),
)  # fmt: skip
TABLE: dict[str, type] = {
    **EXTRACTORS, **SCHEDULES, **{ours.__name__: ours for ours in (*POLICIES, *SWITCHES, RMSpropTFLike)},
}  # fmt: skip
"""Classes of ours that a file may name without trust."""


CONTINUATION = ("session", "parts", "tick", "stream", "why", "process")
"""Fields of a `Continuation` that lie in the file under `full`."""


class Stateful(Protocol):
    """A part that can say its state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Saved:
    """A model as its file describes it."""

    class_name: str
    arguments: dict[str, Any]
    blueprint: Blueprint
    policy: dict[str, Tensor]
    parts: dict[str, Any]
    continuation: Continuation | None = None
    """Of a full checkpoint."""


def save_model(
    path: Any,
    class_name: str,
    arguments: Mapping[str, Any],
    blueprint: Blueprint,
    policy: Policy,
    parts: Mapping[str, Stateful],
    continuation: Continuation | None = None,
    background: bool = False,
) -> Any:
    """Writes class, constructor arguments, spaces, parameters and the state of each part; a full checkpoint has more."""
    path = file_to_write(path)
    state, tensors = pack({name: part.state_dict() for name, part in parts.items()})
    manifest = {
        "kind": "model",
        "class": class_name,
        "arguments": {name: encode_value(name, value, TABLE) for name, value in arguments.items()},
        "spaces": _encode_blueprint(blueprint),
        "images": {key: image.channels for key, image in images_of(policy).items()},
        "state": state,
    }
    members = {"policy": dict(policy.state_dict()), "state": tensors}
    if continuation is not None:
        whole = {name: getattr(continuation, name) for name in CONTINUATION}
        manifest["full"], members["full"] = pack(whole)
        members["experience"] = continuation.experience
        if continuation.strips is not None:
            return write_checkpoint(path, manifest, members, continuation.strips, background)
    if background:
        return Writing(partial(write_archive, path, manifest, copied(members)))
    return write_archive(path, manifest, members)


def read_model(path: Any, custom_objects: Mapping[str, Any], trust: bool, full: bool = False) -> Saved:
    """Reads what `save_model` wrote; of a full checkpoint the rest only where `full` is asked for.

    Raises:
        CheckpointError: the file is damaged, foreign, no model, or names what needs trust.
    """
    path = checkpoint_at(path)
    manifest = model_info(path)
    if manifest.get("kind") != "model":
        raise CheckpointError(
            f"the file holds a {manifest.get('kind')!r}, not a model; replay buffers are read by load_replay_buffer"
        )
    wanted = ("policy", "state", "full", "experience") if full and "full" in manifest else ("policy", "state")
    manifest, members = read_archive(path, only=wanted)
    with reading("the manifest of the file does not describe a model"):
        arguments = {
            name: decode_value(name, value, TABLE, custom_objects, trust)
            for name, value in manifest["arguments"].items()
        }
        parts = unpack(manifest["state"], members["state"])
        arguments["policy"], parts["rng"]  # every model has them
        blueprint = _decode_blueprint(manifest["spaces"])
        return Saved(
            str(manifest["class"]),
            with_saved_channels(arguments, blueprint, manifest.get("images")),
            blueprint,
            members["policy"],
            parts,
            _continuation(path, manifest, members) if "full" in members else None,
        )


def _continuation(path: Any, manifest: Mapping[str, Any], members: Mapping[str, dict[str, Tensor]]) -> Continuation:
    whole, experience = unpack(manifest["full"], members["full"]), members["experience"]
    rows, written = read_rows(path, manifest, experience["ring/cursor"]) if "segments" in manifest else ({}, Written())
    kept = {name: whole[name] for name in CONTINUATION}
    return Continuation(**kept, experience=experience | rows, written=written)


def build(made_by: type[Any], outside: Any, arguments: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> Any:
    """A model of a class from the arguments and parameters of a file.

    Raises:
        CheckpointError: they make none, or one much larger than the file.
        ConfigurationError: an argument is out of its range.
    """
    given = dict(arguments)
    with reading(f"the arguments of the file make no {made_by.__name__}"), NetBound(parameters):
        model = made_by(given.pop("policy"), outside, **given)
    write_policy(model.policy, parameters)
    return model


def restore(parts: Mapping[str, Stateful], states: Mapping[str, Any]) -> None:
    """Hands each part its state.

    Raises:
        CheckpointError: a state is missing, or is not what its part can take.
    """
    for name, part in parts.items():
        with reading(f"the state of {name!r} in the file does not fit"):
            part.load_state_dict(states[name])


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Says in words what Python says of data that is not as it should be."""
    try:
        yield
    except (CheckpointError, ConfigurationError, EnvironmentFault):
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise CheckpointError(f"{what} ({type(error).__name__}: {error}); the file is damaged") from error


def find_class(cls: type[Any], name: str) -> type[Any]:
    """`cls` or the subclass of it that is called `name`.

    Raises:
        CheckpointError: there is none.
    """
    waiting = [cls]
    while waiting:
        found = waiting.pop()
        if found.__name__ == name:
            return found
        waiting += found.__subclasses__()
    raise CheckpointError(f"the file holds a {name}, which is no {cls.__name__}; load it by {name}.load")


def outside_of(made: Blueprint, env: Any, action_mask: str | None = None) -> Any:
    """What to build a saved model with: the environment given, if its spaces are those of the file, else the blueprint.

    Raises:
        SpaceError: the spaces differ.
    """
    if env is None:
        return made
    frame_stack = made.frame_stack if made.frame_stack > 1 or has_stacks_of(env, made) else None
    stream = open_stream(env, frame_stack=frame_stack, action_mask=action_mask)
    check_same_spaces(stream.blueprint, made)
    return stream


def check_same_spaces(given: Blueprint, made: Blueprint) -> None:
    """Raises SpaceError unless an environment looks as the one that the model was made for; lanes may differ."""
    if replace(given, num_envs=1) == replace(made, num_envs=1):
        return
    for name in ("observation_space", "action_space", "frame_stack"):
        ours, theirs = getattr(made, name), getattr(given, name)
        if ours != theirs:
            raise SpaceError(
                f"the environment's {name} is {theirs}, the model was made for {ours}; give an environment like that, "
                f"or make a new model for this one"
            )


def write_policy(policy: Policy, state: Mapping[str, Tensor], exact_match: bool = True) -> None:
    """Copies parameters into a policy.

    Raises:
        ConfigurationError: names or shapes do not fit.
    """
    try:
        policy.load_state_dict(dict(state), strict=exact_match)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"the parameters do not fit this policy, whose nets are others: policy_kwargs, dueling, noisy and the size of a "
            f"distribution must be as they were. {error}"
        ) from error


def read_parameters(source: Any, known: Collection[str], exact_match: bool) -> dict[str, Any]:
    """Parameters by name, one of those `known`, from a dict such as `get_parameters` returns, or from a zip.

    Raises:
        ConfigurationError: an unknown name, or the policy's are missing.
    """
    given = source if isinstance(source, Mapping) else {"policy": read_archive(source, only=("policy",))[1]["policy"]}
    if not given.keys() <= set(known) or (exact_match and "policy" not in given):
        raise ConfigurationError(f"parameters have the names {sorted(given)}; allowed are {sorted(known)}")
    return dict(given)


def save_replay(path: Any, blueprint: Blueprint, replay: Replay) -> Any:
    """Writes the rows that a replay holds."""
    path = file_to_write(path)
    manifest = {"kind": "replay", "spaces": _encode_blueprint(blueprint)}
    return write_archive(path, manifest, {"replay": replay.state_dict()})


def load_replay(path: Any, blueprint: Blueprint, replay: Replay) -> None:
    """Takes over rows that `save_replay` wrote.

    Raises:
        CheckpointError: the file is damaged, no replay, or its rows are of another kind.
    """
    manifest = model_info(path)
    if manifest.get("kind") != "replay":
        raise CheckpointError(f"{path} holds a {manifest.get('kind')!r}, not a replay buffer; models are read by load")
    kept = _decode_blueprint(manifest["spaces"])
    if kept != blueprint:
        raise CheckpointError(f"{path} holds rows of {kept}, the model has {blueprint}; load them into such a model")
    replay.load_state_dict(read_archive(path)[1]["replay"])


def _encode_blueprint(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "observation": encode_space(blueprint.observation_space),
        "action": encode_space(blueprint.action_space),
        "num_envs": blueprint.num_envs,
        "frame_stack": blueprint.frame_stack,
    }


def _decode_blueprint(data: Mapping[str, Any]) -> Blueprint:
    return Blueprint(
        decode_space(data["observation"]), decode_space(data["action"]), int(data["num_envs"]), int(data["frame_stack"])
    )
