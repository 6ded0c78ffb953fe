"""Model files: the contents of the zip that `save` writes and `load` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium import spaces
from torch import Tensor

from sb_dqn.actors.settings import OverlappedActors, ProcessActors, RayActors
from sb_dqn.buffers import Prioritized, ReplayBuffer, Sequences
from sb_dqn.buffers.hindsight import Hindsight
from sb_dqn.checkpoint import (
    AllocationGuard,
    Allowance,
    BackgroundWrite,
    SegmentedRows,
    WrittenBlocks,
    copy_members,
    decode_space,
    decode_value,
    encode_space,
    encode_value,
    file_to_write,
    find_checkpoint,
    model_info,
    pack,
    read_archive,
    read_rows,
    unpack,
    write_archive,
    write_checkpoint,
)
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.errors import (
    CheckpointError,
    ConfigurationError,
    SpaceError,
    checkpoint_errors,
    printable,
    with_article,
)
from sb_dqn.exploration.action_noise import ActionNoise
from sb_dqn.learning.augmentation import Augmentation
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.learning.redo import Redo
from sb_dqn.learning.resets import Resets
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.nn.parameters.optimizers import RMSpropTFLike
from sb_dqn.nn.torsos.features import EXTRACTORS, images_of
from sb_dqn.normalize import NormalizeObservations, NormalizeRewards
from sb_dqn.objectives.bootstrap import Munchausen
from sb_dqn.objectives.self_prediction import SelfPrediction
from sb_dqn.policies import ACTOR_CRITIC_POLICIES, SAC_POLICIES, VALUE_POLICIES
from sb_dqn.policies.base import Policy
from sb_dqn.schedules import SCHEDULES
from sb_dqn.spaces import flatten_space, image_channels_last, is_bytes, is_image, leaf_shape
from sb_dqn.types import Blueprint, Kwargs, ModelLike, Settings

SWITCHES: tuple[type, ...] = (
    ActionNoise,
    Augmentation,
    OverlappedActors,
    ProcessActors,
    RayActors,
    Bins,
    Hindsight,
    Munchausen,
    Noisy,
    NormalizeObservations,
    NormalizeRewards,
    Prioritized,
    Redo,
    Resets,
    SelfPrediction,
    Sequences,
)
POLICIES: tuple[type, ...] = (
    *VALUE_POLICIES.values(), *ACTOR_CRITIC_POLICIES.values(), *SAC_POLICIES.values(),
)  # fmt: skip
TABLE: dict[str, type] = {
    **EXTRACTORS, **SCHEDULES, **{ours.__name__: ours for ours in (*POLICIES, *SWITCHES, RMSpropTFLike)},
}  # fmt: skip
"""Classes that a file may name without `trust=True`."""


CONTINUATION = ("session", "parts", "tick", "stream", "why", "process")
"""Fields of a `ResumeState` in the member `full` of the file."""


@dataclass(frozen=True)
class ResumeState:
    """State of a `learn` between two ticks.

    The tick, whose rows are stored and whose updates are done, is present only together with the state of the environment:
    without that state the next rows cannot follow it.
    """

    session: dict[str, Any]
    """State of log and callbacks."""
    parts: dict[str, Any]
    """State of each part of `run_parts`."""
    experience: dict[str, Tensor]
    """State of the replay or rollout, without the columns in `segmented_rows`."""
    tick: dict[str, Any] | None
    stream: dict[str, Any] | None
    why: str
    """Reason why the state of the environment is missing; empty if it is present."""
    process: dict[str, Any]
    """torch's global generators, for modules that draw from them (dropout)."""
    rng: dict[str, Any] = field(default_factory=dict)
    """The model's generators; in the file they are one of the model's parts."""
    trusted: bool = False
    """True if pickled parts of the file may be unpickled (`load(trust=True)`)."""
    segmented_rows: SegmentedRows | None = None
    """Rows to write to segments; only while saving."""
    written: WrittenBlocks = field(default_factory=WrittenBlocks)
    """Segments that the rows came from; only while loading."""

    @property
    def learner(self) -> tuple[int, int]:
        """Rank of the learner, and number of learners."""
        rank, size = self.session.get("learners", (0, 1))
        return int(rank), int(size)


@dataclass(frozen=True)
class SavedModel:
    """Contents of a model file."""

    class_name: str
    arguments: Kwargs
    blueprint: Blueprint
    policy: dict[str, Tensor]
    parts: dict[str, Any]
    continuation: ResumeState | None = None
    """Only in full checkpoints."""
    preset_env: Mapping[str, str] | None = None
    """Names of the environment of a preset."""


def write_model(path: Target, model: ModelLike, continuation: ResumeState | None, background: bool) -> Any:
    """Writes class name, constructor arguments, spaces, parameters and the state of each part of a model; for a full checkpoint
    also `continuation`."""
    path = file_to_write(path)
    state, tensors = pack({name: part.state_dict() for name, part in model.saved_parts().items()})
    manifest = {
        "kind": "model",
        "class": type(model).__name__,
        "arguments": {name: encode_value(name, value, TABLE) for name, value in model.arguments.items()},
        "spaces": _encode_blueprint(model.blueprint),
        "images": {key: image.channels for key, image in images_of(model.policy).items()},
        "state": state,
    }
    if model.preset_env is not None and (names := model.preset_env.names(type(model))):
        manifest["preset_env"] = names
    members = {"policy": dict(model.policy.state_dict()), "state": tensors}
    if continuation is not None:
        whole = {name: getattr(continuation, name) for name in CONTINUATION}
        manifest["full"], members["full"] = pack(whole)
        members["experience"] = continuation.experience
        if continuation.segmented_rows is not None:
            return write_checkpoint(path, manifest, members, continuation.segmented_rows, background)
    if background:
        return BackgroundWrite(partial(write_archive, path, manifest, copy_members(members)))
    return write_archive(path, manifest, members)


def read_model(path: Target, custom_objects: Settings, trust: bool, full: bool = False) -> SavedModel:
    """Reads a file that `write_model` wrote; the resumable part of a full checkpoint only if `full`.

    Raises:
        CheckpointError: the file is damaged, foreign, not a model, or names objects that need trust.
    """
    path = find_checkpoint(path)
    manifest = model_info(path)
    if manifest.get("kind") != "model":
        raise CheckpointError(
            f"the file must hold a model, got a {manifest.get('kind')!r}. Read replay buffers with load_replay_buffer."
        )
    wanted = ("policy", "state", "full", "experience") if full and "full" in manifest else ("policy", "state")
    manifest, members = read_archive(path, only=wanted)
    with checkpoint_errors("the manifest of the file does not describe a model"):
        arguments = {
            name: decode_value(name, value, TABLE, custom_objects, trust)
            for name, value in manifest["arguments"].items()
        }
        parts = unpack(manifest["state"], members["state"])
        arguments["policy"], parts["rng"]  # every model has them
        blueprint = _decode_blueprint(manifest["spaces"], Allowance(members["policy"]))
        return SavedModel(
            str(manifest["class"]),
            with_saved_channels(arguments, blueprint, manifest.get("images")),
            blueprint,
            members["policy"],
            parts,
            _continuation(path, manifest, members) if "full" in members else None,
            manifest.get("preset_env"),
        )


def _continuation(path: Target, manifest: Mapping[str, Any], members: Mapping[str, dict[str, Tensor]]) -> ResumeState:
    whole, experience = unpack(manifest["full"], members["full"]), members["experience"]
    rows, written = (
        read_rows(path, manifest, experience["ring/cursor"]) if "segments" in manifest else ({}, WrittenBlocks())
    )
    kept = {name: whole[name] for name in CONTINUATION}
    return ResumeState(**kept, experience=experience | rows, written=written)


def build_model(cls: type[Any], env: object, arguments: Settings, parameters: Mapping[str, Tensor]) -> Any:
    """Returns a model of class `cls` from the arguments and parameters of a file.

    Raises:
        CheckpointError: the arguments are invalid, or describe a model much larger than the file.
        ConfigurationError: an argument is out of its range.
    """
    keywords = dict(arguments)
    with checkpoint_errors(f"the arguments of the file make no {cls.__name__}"), AllocationGuard(parameters):
        model = cls(keywords.pop("policy"), env, **keywords)
    write_policy(model.policy, parameters)
    return model


def restore_parts(parts: Mapping[str, Any], states: Mapping[str, Any], changes: Iterable[str] = ()) -> None:
    """Loads the state of each part.

    Args:
        parts: parts by name.
        states: their states.
        changes: names of the settings with which `load` replaced those of the file; an error names them.

    Raises:
        CheckpointError: a state is missing or does not fit its part.
    """
    changed = ", ".join(changes)
    fix = (
        f"Load it without {changed}; if that fails, too, it is damaged."
        if changed
        else "The file is damaged. Load another copy."
    )
    for name, part in parts.items():
        with checkpoint_errors(f"the state of {name!r} in the file does not fit", fix=fix):
            part.load_state_dict(states[name])


def own_learner_file(path: Target, learners: LearnerGroup) -> Target:
    """Returns the path of a learner's part of a full checkpoint, and makes its folder.

    Raises:
        ConfigurationError: the path is an open file, and there are several learners.
    """
    if learners.size == 1:
        return path
    target = file_to_write(path)
    if not isinstance(target, Path):
        raise ConfigurationError(
            f"path of a full checkpoint of several learners must name a file, since each writes its own, got {path!r}. Pass a path."
        )
    own = learners.own_path(target)
    own.parent.mkdir(parents=True, exist_ok=True)
    return own


def find_learner_file(path: Target, learners: LearnerGroup) -> Target:
    """Returns the path of a learner's part of a full checkpoint; `path` itself if it has none."""
    found = find_checkpoint(path)
    if learners.rank and isinstance(found, (str, Path)):
        own = learners.own_path(Path(found))
        return next((part for part in (own, own.with_name(own.name + ".zip")) if part.is_file()), found)
    return found


def find_class(cls: type[Any], name: str) -> type[Any]:
    """Returns `cls`, or its subclass, whose name is `name`.

    Raises:
        CheckpointError: there is none.
    """
    waiting = [cls]
    while waiting:
        found = waiting.pop()
        if found.__name__ == name:
            return found
        waiting += found.__subclasses__()
    raise CheckpointError(
        f"the file must hold {with_article(cls.__name__)}, got {printable(with_article(name))}. Load it with {printable(name)}.load."
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
            f"parameters must fit the networks of this policy, got others ({error}). Use the same policy_kwargs, dueling, noisy and "
            f"size of the distribution."
        ) from error


def save_replay(path: Target, blueprint: Blueprint, replay: ReplayBuffer) -> Any:
    """Writes the rows of a replay buffer to a zip file."""
    path = file_to_write(path)
    manifest = {"kind": "replay", "spaces": _encode_blueprint(blueprint)}
    return write_archive(path, manifest, {"replay": replay.state_dict()})


def load_replay(path: Target, blueprint: Blueprint, replay: ReplayBuffer) -> None:
    """Loads the rows that `save_replay` wrote.

    Raises:
        CheckpointError: the file is damaged, not a replay buffer, or its rows are of another kind.
    """
    manifest = model_info(path)
    if manifest.get("kind") != "replay" or "spaces" not in manifest:
        raise CheckpointError(
            f"{path} must hold a replay buffer, got a {manifest.get('kind')!r}. Read models with load."
        )
    if manifest["spaces"] != _encode_blueprint(blueprint):
        kept = _decode_blueprint(manifest["spaces"], Allowance({}))
        if kept != blueprint:
            raise CheckpointError(
                f"rows of {path} must be of {blueprint}, as the model, got {kept}. Load them into such a model."
            )
    replay.load_state_dict(read_archive(path)[1]["replay"])


def _encode_blueprint(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "observation": encode_space(blueprint.observation_space),
        "action": encode_space(blueprint.action_space),
        "num_envs": blueprint.num_envs,
        "frame_stack": blueprint.frame_stack,
    }


def _decode_blueprint(data: Mapping[str, Any], allowance: Allowance) -> Blueprint:
    observation, action = (decode_space(data[name], allowance) for name in ("observation", "action"))
    blueprint = Blueprint(observation, action, int(data["num_envs"]), int(data["frame_stack"]))
    allowance.take_lanes(blueprint.num_envs)
    depth, frames = (observation.shape or (1,))[0], blueprint.frame_stack
    if frames < 1 or depth % frames:
        raise CheckpointError(
            f"frame_stack of the file must divide the first axis of {observation}, got {frames}. The file is damaged. Load "
            f"another copy."
        )
    return blueprint


def with_saved_channels(arguments: Settings, blueprint: Blueprint, saved: Mapping[str, str] | None) -> dict[str, Any]:
    """Returns the arguments of a model file with `policy_kwargs["channels"]` where the shape alone gives another axis.

    Args:
        arguments: constructor arguments.
        blueprint: spaces of the model.
        saved: "first" or "last" by key of each image; None in older files, which do not have it.
    """
    kwargs = arguments.get("policy_kwargs") or {}
    channels = kwargs.get("channels")
    if isinstance(channels, str) or blueprint.frame_stack > 1:
        return dict(arguments)
    normalized = kwargs.get("normalize_images") is False
    images = {
        key: leaf
        for key, leaf in flatten_space(blueprint.observation_space).items()
        if isinstance(leaf, spaces.Box) and is_image(leaf, normalized) and key not in (channels or {})
    }
    trained = {key: _formerly(leaf) for key, leaf in images.items()} if saved is None else saved
    differing = {key: trained[key] for key, leaf in images.items() if key in trained and trained[key] != _now(leaf)}
    if not differing:
        return dict(arguments)
    return {**arguments, "policy_kwargs": {**kwargs, "channels": {**(channels or {}), **differing}}}


def _now(image: spaces.Box) -> str | None:
    try:
        return "last" if image_channels_last(image) else "first"
    except SpaceError:
        return None


def _formerly(image: spaces.Box) -> str:
    """Returns the axis by the rule of older files: bytes have their channels last if that axis is 1, 3 or 4."""
    first, middle, last = leaf_shape(image)
    if is_bytes(image):
        return "last" if last in (1, 3, 4) else "first"
    if middle in (first, last):
        return "last" if first == middle else "first"
    return "last" if last < first else "first"
