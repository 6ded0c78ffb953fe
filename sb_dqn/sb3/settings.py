"""Constructor arguments of Stable-Baselines3, and those in files, as those of this library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm as TheirAlgorithm
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule, get_device
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her import GoalSelectionStrategy, HerReplayBuffer
from torch import nn

from sb_dqn.checkpoint import find_checkpoint, model_info
from sb_dqn.checkpoint.encoding.state_tree import TAG
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, user_stacklevel
from sb_dqn.sb3_files import is_sb3_zip
from sb_dqn.sb3_files.settings import with_lstm_dropout
from sb_dqn.sb3_names import HER, UNUSED_KEYWORDS, wants_her
from sb_dqn.schedules import Linear, Sampled, Schedule
from sb_dqn.types import Blueprint, EnvLike, Kwargs, Settings

NO_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "optimize_memory_usage": (False, True),  # each observation is stored once in any case
    "replay_buffer_class": (None, ReplayBuffer, DictReplayBuffer),
    "replay_buffer_kwargs": (None, {}),
    "rollout_buffer_class": (None, RolloutBuffer, DictRolloutBuffer),
    "rollout_buffer_kwargs": (None, {}),
    "_init_setup_model": (True,),
}
"""Keywords that this library does not have, with the values that need nothing."""

SMALLEST = 8
"""Rows that each environment has in the smallest replay buffer."""


def native_env(env: EnvLike, verbose: int) -> EnvLike:
    """Returns an environment as Stable-Baselines3 makes it: a `VecEnv` with a Monitor and images with channels first.

    Vector environments of other libraries are returned unchanged.
    """
    if isinstance(env, (Stream, Blueprint)) or env is None:
        return env
    made = maybe_make_env(env, verbose)
    if not isinstance(made, VecEnv) and isinstance(getattr(made, "num_envs", None), int):
        return made
    return TheirAlgorithm._wrap_env(made, verbose, True)


def native_settings(name: str, arguments: Settings, num_envs: int) -> Kwargs:
    """Returns the keyword arguments of this library for those of Stable-Baselines3.

    Args:
        name: name of the class, for messages.
        arguments: keyword arguments, without `policy` and `env`.
        num_envs: number of environments; `train_freq` counts steps of all of them there and env steps here.

    Raises:
        ConfigurationError: a value that this library cannot follow; the message has the reason.
    """
    settings = native_buffer(name, {key: native_schedule(value) for key, value in arguments.items()})
    if isinstance(settings.get("ent_coef"), (int, float)):
        settings.pop("target_entropy", None)  # has no effect on a constant
    for key, allowed in NO_EFFECT.items():
        if key in settings:
            value = settings.pop(key)
            if not any(value is known or (type(value) is type(known) and value == known) for known in allowed):
                reason, fix = HER if wants_her(key, value) else (UNUSED_KEYWORDS[key], f"Set it to {allowed[0]!r}")
                raise ConfigurationError(f"{key} must be {allowed[0]!r} for {name}, got {value!r}: {reason}. {fix}.")
    if "action_noise" in settings:
        settings["action_noise"] = native_noise(settings["action_noise"])
    if "buffer_size" in settings:  # few rows hold no transition with its n steps and frames
        settings["buffer_size"] = max(settings["buffer_size"], num_envs * (settings.get("n_steps", 1) + SMALLEST))
    if "device" in settings:
        settings["device"] = native_device(settings["device"])
    if (frequency := settings.get("train_freq")) is not None:
        count, unit = frequency if isinstance(frequency, tuple) else (frequency, "step")
        unit = getattr(unit, "value", unit)  # of their enumeration
        settings["train_freq"] = count * num_envs if unit == "step" and isinstance(count, int) else (count, unit)
    return settings


def native_device(device: Any) -> Any:
    """Returns a device; the CPU, with a warning, for one that torch does not find, as Stable-Baselines3 takes it."""
    try:
        found = str(device) == "auto" or get_device(device).type == torch.device(device).type
    except (RuntimeError, TypeError):  # no device: the constructor says so
        found = True
    if found:
        return device
    warnings.warn(
        f"device={str(device)!r} is not available, the CPU is used. Pass device='cpu', or install torch for this device.",
        stacklevel=user_stacklevel(),
    )
    return "cpu"


def native_buffer(name: str, arguments: Kwargs) -> Kwargs:
    """Returns keyword arguments with `n_steps` or `hindsight` in place of Stable-Baselines3's replay buffers and their keywords.

    Raises:
        ConfigurationError: time limits as terminations, or another discount than that of the model.
    """
    kind, kwargs = arguments.get("replay_buffer_class"), dict(arguments.get("replay_buffer_kwargs") or {})
    if not kwargs.pop("handle_timeout_termination", True):
        if not arguments.get("optimize_memory_usage"):
            raise ConfigurationError(
                f"handle_timeout_termination must be True for {name}, got False: a time limit is no termination here. Leave it out, "
                f"or wrap the environment so that step returns terminated=True at the limit."
            )
        warnings.warn(  # Stable-Baselines3 has one only without the other
            "handle_timeout_termination=False has no effect with optimize_memory_usage=True: a time limit is no termination here, "
            "and frames are stored once anyway. Remove both.",
            stacklevel=user_stacklevel(),
        )
    if kind is HerReplayBuffer:
        return native_hindsight(arguments, kwargs)
    if kind is NStepReplayBuffer:
        gamma = arguments.get("gamma", 0.99)
        if kwargs.pop("gamma", gamma) != gamma:
            raise ConfigurationError(
                f"gamma of replay_buffer_kwargs must be that of the model for {name}, {gamma!r}, got "
                f"{arguments['replay_buffer_kwargs']!r}. Leave it out there."
            )
        arguments |= {"replay_buffer_class": None, "n_steps": kwargs.pop("n_steps", 3)}  # their default
    return {**arguments, "replay_buffer_kwargs": kwargs} if "replay_buffer_kwargs" in arguments else arguments


def native_hindsight(arguments: Kwargs, kwargs: Kwargs) -> Kwargs:
    """Returns keyword arguments with `hindsight` in place of Stable-Baselines3's `HerReplayBuffer` and its keywords `kwargs`."""
    arguments = {key: value for key, value in arguments.items() if not key.startswith("replay_buffer_")}
    if kwargs.pop("copy_info_dict", False):
        warnings.warn(
            "copy_info_dict=True has no effect: infos are not stored, and compute_reward gets empty ones. Put what it reads into the "
            "observation.",
            stacklevel=user_stacklevel(),
        )
    strategy = kwargs.get("goal_selection_strategy")
    if isinstance(strategy, GoalSelectionStrategy):
        kwargs["goal_selection_strategy"] = strategy.name.lower()
    return {**arguments, "hindsight": kwargs or True}


def native_noise(noise: object) -> Any:
    """Returns action noise of Stable-Baselines3 as the settings of this library; each environment has its own process anyway.

    Raises:
        ConfigurationError: a class of the user's own, or a process with an initial value.
    """
    if noise is None:
        return False
    if isinstance(noise, VectorizedActionNoise):
        noise = noise.base_noise
    if type(noise) is NormalActionNoise:
        return {"sigma": np.ravel(noise._sigma).tolist(), "mean": np.ravel(noise._mu).tolist()}
    if type(noise) is OrnsteinUhlenbeckActionNoise and noise.initial_noise is None:
        scale = {"sigma": np.ravel(noise._sigma).tolist(), "mean": np.ravel(noise._mu).tolist()}
        return {**scale, "theta": float(noise._theta), "dt": float(noise._dt)}
    if isinstance(noise, ActionNoise):
        raise ConfigurationError(
            f"action_noise must be a NormalActionNoise or an OrnsteinUhlenbeckActionNoise that starts at 0, got {noise!r}. Use one "
            f"of these."
        )
    return noise


def native_schedule(value: object) -> Any:
    """Returns a schedule of Stable-Baselines3 as one of this library, which a model file can hold; other values unchanged."""
    if isinstance(value, ConstantSchedule):
        return value.val
    if isinstance(value, FloatSchedule):
        return native_schedule(value.value_schedule)
    if isinstance(value, LinearSchedule):
        return Linear(value.start, value.end, fraction=value.end_fraction)
    return value


def native_policy_kwargs(name: str, policy_kwargs: Any, observation_space: Any) -> dict[str, Any]:
    """Returns `policy_kwargs` without keys that need nothing; images have channels first, as the wrapped environment makes them.

    Raises:
        ConfigurationError: a value that this library cannot follow.
    """
    kwargs = with_lstm_dropout(name, policy_kwargs or {})
    if (use_sde := kwargs.pop("use_sde", False)) is not False:
        raise ConfigurationError(
            f"policy_kwargs['use_sde'] must be False for {name}, got {use_sde!r}, which is not built. Remove it."
        )
    net_arch = kwargs.get("net_arch")
    if isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], dict):
        warnings.warn(
            "net_arch is a list with a dict, the form of older versions: the dict is used. Pass the dict.",
            stacklevel=user_stacklevel(),
        )
        kwargs["net_arch"] = net_arch[0]
    extractor_kwargs = kwargs.get("features_extractor_kwargs") or {}
    if extractor_kwargs.get("normalized_image") and not is_image_space(observation_space):
        kwargs.setdefault("normalize_images", False)  # an image of other numbers
    if isinstance(observation_space, spaces.Dict):
        channels: Any = {key: "first" for key, leaf in observation_space.spaces.items() if is_image_space(leaf)}
    else:
        channels = "first" if observation_space is not None and is_image_space(observation_space) else None
    if channels:
        kwargs.setdefault("channels", channels)
    return kwargs


ZEROABLE = {"learning_rate": "rate_schedule", "clip_range": "clip_schedule", "clip_range_vf": "clip_vf_schedule"}
"""Attributes of a model with the schedules that programs load as 0, by argument."""
PARTS = ("lr_schedule", "exploration_schedule", "observation_space", "action_space")
"""Parts of a model of Stable-Baselines3 that a file of this library does not pickle."""


def native_custom_objects(custom_objects: Settings) -> tuple[dict[str, Any], list[str]]:
    """Returns custom objects without schedules that are 0 throughout, and the attributes that these set.

    Programs pass them instead of the functions in a file of Stable-Baselines3, in order to act only; also parts that are no
    arguments, which are left out.
    """
    zeros = [name for name in ZEROABLE if name in custom_objects and _is_zero(custom_objects[name])]
    kept = {name: value for name, value in custom_objects.items() if name not in (*zeros, *PARTS)}
    return kept, [ZEROABLE[name] for name in zeros]


def _is_zero(value: object) -> bool:
    if callable(value) and not isinstance(value, Schedule):
        return bool(value(1.0) == value(0.0) == 0.0)
    return isinstance(value, (int, float)) and value == 0.0


SAMPLES = 101
"""Points by which a model file holds a schedule that is a function."""


def saved_settings(arguments: Settings, exclude: Collection[str]) -> Kwargs:
    """Returns the constructor arguments for a file: without `exclude`, and functions of the progress as their values."""
    kept = {name: value for name, value in arguments.items() if name not in exclude}
    for name in ("learning_rate", "clip_range", "clip_range_vf"):
        function = kept.get(name)
        if callable(function) and not isinstance(function, Schedule):
            kept[name] = Sampled(tuple(float(function(1.0 - i / (SAMPLES - 1))) for i in range(SAMPLES)))
    return kept


def imported_modules_of(path: Any) -> dict[str, type[nn.Module]]:
    """Returns the `nn.Module` classes that a model file names by import path, by dotted argument name.

    Only modules that are imported already are looked into, so that loading imports and runs nothing.
    """
    if is_sb3_zip(path):
        return {}
    arguments = model_info(find_checkpoint(path)).get("arguments")
    found = {name: _class_at(str(data.get("path"))) for name, data in _imports("", arguments)}
    return {name: cls for name, cls in found.items() if cls is not None}


def _imports(name: str, data: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the nested entries that are import paths, with their dotted names."""
    if not isinstance(data, dict):
        return
    if data.get(TAG) == "import":
        yield name, data
        return
    for key, inner in data.items():
        yield from _imports(f"{name}.{key}".lstrip("."), inner)


def _class_at(path: str) -> type[nn.Module] | None:
    module, _, qualname = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, (type, type(sys))) else None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None
