"""Settings in files of Stable-Baselines3: the algorithm, its constructor arguments, spaces and counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from gymnasium import spaces

from sb_dqn.checkpoint import Allowance, decode_space
from sb_dqn.errors import CheckpointError, ConfigurationError, with_article
from sb_dqn.sb3_files.reader import MAX_TEXT, SERIALIZED, SB3Zip, literal, pickled_constants
from sb_dqn.schedules import Linear
from sb_dqn.types import Blueprint, Kwargs, Settings

POLICY_MODULES = {
    "stable_baselines3.dqn.policies": "DQN",
    "sb3_contrib.qrdqn.policies": "QRDQN",
    "stable_baselines3.sac.policies": "SAC",
    "stable_baselines3.common.policies": "PPO",
    "sb3_contrib.common.maskable.policies": "PPO",
    "sb3_contrib.common.recurrent.policies": "PPO",
}
"""Module of a policy to the algorithm; A2C and TRPO have the policies of PPO."""
OTHERS = {"tqc": "TQC", "crossq": "CrossQ", "ars": "ARS"}
"""Package of a policy to the algorithm that this library cannot continue."""
DDPG = {"policy_delay": 1, "target_noise_clip": 0.0}
"""Settings with which TD3 is DDPG."""
NOT_SETTINGS = ("seed", "device", "tensorboard_log", "policy_kwargs", "train_freq", "n_quantiles", "action_noise")
"""Arguments that are not read from the file, or not as they are."""
UNKNOWN = object()
"""A value that only a pickle has."""


def algorithm_of(saved: SB3Zip) -> str:
    """Returns the name of the class of this library that continues a model.

    Raises:
        CheckpointError: there is none, or the policy is a class of the user.
    """
    constants = pickled_constants(saved.settings.get("policy_class"))
    module = next((text for text in constants if isinstance(text, str)), "")
    name = POLICY_MODULES.get(module, "")
    if name == "PPO" and "n_epochs" not in saved.settings:
        name = "TRPO" if "cg_max_steps" in saved.settings else "A2C"
    if name and name != "TRPO":
        return name
    found = re.match(r"(?:stable_baselines3|sb3_contrib)\.(?:common\.)?(\w+)\.policies$", module)
    if found and found[1] == "td3":  # DDPG has the policies of TD3
        name = "DDPG" if [saved.settings.get(key) for key in DDPG] == list(DDPG.values()) else "TD3"
    elif found and not name:
        name = OTHERS.get(found[1], found[1])
    kind = with_article(name) if name else "a model with a policy class of its own"
    raise CheckpointError(
        f"{saved.label} must hold a DQN, QRDQN, PPO, A2C or SAC of Stable-Baselines3, got {kind}, whose files this library does not "
        f"read. Load it with Stable-Baselines3."
    )


def arguments_of(saved: SB3Zip, names: Iterable[str], lanes: int) -> tuple[dict[str, Any], list[str]]:
    """Returns the constructor arguments of a file, of those that are among `names`, and the names of those that only a pickle has.

    Raises:
        CheckpointError: a key of `policy_kwargs` is a pickle.
    """
    settings = saved.settings
    _, policy, *_ = [*pickled_constants(settings.get("policy_class")), "", ""]
    kind = next((kind for kind in ("MultiInput", "Cnn") if kind in str(policy)), "Mlp")
    recurrent = "Lstm" if "Recurrent" in str(policy) else ""
    arguments: dict[str, Any] = {"policy": f"{kind}{recurrent}Policy"}
    unread = []
    for name in names:
        if name not in settings or name in NOT_SETTINGS:
            continue
        value = _plain(settings[name])
        if value is UNKNOWN:
            unread.append(name)
        else:
            arguments[name] = value
    if isinstance(arguments.get("ent_coef"), (int, float)):
        arguments.pop("target_entropy", None)  # has no effect on a constant
    if "train_freq" in settings:
        constants = pickled_constants(settings["train_freq"])
        count = next((item for item in constants if type(item) is int and item > 0), None)
        if count is None:
            unread.append("train_freq")
        else:
            arguments["train_freq"] = (count, "episode") if "episode" in constants else count * lanes
    found, missing = _policy_kwargs(settings.get("policy_kwargs"))
    if missing:
        raise CheckpointError(
            f"{saved.label} has policy_kwargs[{missing[0]!r}] as a pickle, which is not run. Pass load(path, "
            f"policy_kwargs={{...}}) with all keys, among them {', '.join(missing)}."
        )
    kwargs = with_lstm_dropout("a file", found)
    if recurrent and not (kwargs.pop("enable_critic_lstm", True) or kwargs.get("shared_lstm")):
        raise CheckpointError(
            f"{saved.label} must hold a RecurrentPPO whose value has an LSTM or reads that of the policy, got "
            f"enable_critic_lstm=False, with a linear layer that this library does not have. Load it with Stable-Baselines3."
        )
    if "Maskable" in str(policy) and "MultiBinary" in str(settings.get("action_space")):
        kwargs["binary_logits"] = 2
    if "n_quantiles" in kwargs:
        arguments["n_quantiles"] = kwargs.pop("n_quantiles")
    return arguments | ({"policy_kwargs": kwargs} if kwargs else {}), unread


def with_lstm_dropout(name: str, policy_kwargs: Settings) -> Kwargs:
    """Returns `policy_kwargs` with `lstm_dropout` in place of the `lstm_kwargs` of RecurrentPPO.

    Raises:
        ConfigurationError: `lstm_kwargs` has other keys than `dropout`.
    """
    kwargs = dict(policy_kwargs)
    lstm = kwargs.pop("lstm_kwargs", None) or {}
    if not isinstance(lstm, Mapping) or lstm.keys() - {"dropout"}:
        raise ConfigurationError(
            f"policy_kwargs['lstm_kwargs'] must be dict(dropout=...) for {name}, got {lstm}. Remove the others."
        )
    if lstm.get("dropout") and kwargs.get("n_lstm_layers", 1) > 1:  # between layers, torch ignores it for one
        kwargs["lstm_dropout"] = lstm["dropout"]
    return kwargs


def with_their_layers(name: str, policy: object, policy_kwargs: Settings | None) -> Kwargs:
    """Returns `policy_kwargs` with the hidden layers that Stable-Baselines3 makes by default, where this library makes others.

    There, only `NatureCNN` has none behind it, and those of SAC do not depend on the features.
    """
    kwargs = dict(policy_kwargs or {})
    extractor = kwargs.get("features_extractor_class")
    if kwargs.get("net_arch") is not None or not isinstance(policy, str):
        return kwargs
    if name == "SAC":
        kwargs["net_arch"] = [256, 256]
    elif extractor is not None:
        kwargs["net_arch"] = [] if getattr(extractor, "__name__", extractor) == "NatureCNN" else [64, 64]
    return kwargs


def _plain(value: Any) -> Any:
    """Returns a setting without pickles: plain data, or a schedule by its numbers; else `UNKNOWN`."""
    if not isinstance(value, dict) or ":type:" not in value:
        return value
    if "LinearSchedule" in str(value[":type:"]) and "start" in value:
        return _linear(value)
    shown = str(value.get("value_schedule", ""))
    if constant := re.fullmatch(r"ConstantSchedule\(val=([-+.\de]+)\)", shown):
        return float(constant[1])
    if linear := re.fullmatch(r"LinearSchedule\(start=(\S+), end=(\S+), end_fraction=(\S+)\)", shown):
        return _linear(dict(zip(("start", "end", "end_fraction"), linear.groups(), strict=True)))
    return _older_schedule(pickled_constants(value))


def _older_schedule(constants: list[Any]) -> Any:
    """Returns the schedule of a pickled function of `stable_baselines3.common.utils`, from the texts and numbers of the pickle;
    `UNKNOWN` for another function. Older versions have such functions in place of classes."""
    modules = {following for text, following in pairwise(constants) if text == "__name__"}
    numbers = [constant for constant in constants if isinstance(constant, float)]
    if modules == {"stable_baselines3.common.utils"}:
        if "constant_fn.<locals>.func" in constants and len(numbers) == 1:
            return numbers[0]
        if "get_linear_fn.<locals>.func" in constants and len(numbers) == 3:
            return _linear(dict(zip(("end", "end_fraction", "start"), numbers, strict=True)))
    return UNKNOWN


def _linear(numbers: Mapping[str, Any]) -> Any:
    return Linear(float(numbers["start"]), float(numbers["end"]), fraction=float(numbers["end_fraction"]))


def _policy_kwargs(value: Any) -> tuple[dict[str, Any], list[str]]:
    """Returns `policy_kwargs` from the texts in a file, classes of torch by name; and the keys whose value is unknown."""
    kwargs, missing = {}, []
    for key, shown in (value or {}).items():
        if key in (":type:", SERIALIZED):
            continue
        found = literal(shown)
        torch_class = re.fullmatch(r"<class 'torch\.[\w.]*?\.?(\w+)'>", str(shown))
        if key == "use_sde":  # an argument of the algorithm
            continue
        if torch_class:
            kwargs[key] = torch_class[1]
        elif isinstance(found, str) and (found.startswith(("<", "functools")) or len(found) > MAX_TEXT):
            missing.append(key)
        else:
            kwargs[key] = found
    return kwargs, missing


def blueprint_of(saved: SB3Zip) -> Blueprint:
    """Returns the spaces that the settings show as text.

    Raises:
        CheckpointError: the text does not hold all of a space, or one far larger than the parameters.
    """
    found, allowance = [], Allowance(saved.policy)
    for name in ("observation_space", "action_space"):
        space = _space(saved.settings.get(name), allowance)
        if space is None:
            raise CheckpointError(
                f"{saved.label} has the {name} as a pickle, which is not run. Pass load(path, env=...) with such an environment."
            )
        found.append(space)
    blueprint = Blueprint(found[0], found[1], _count(saved, "n_envs") or 1, 1)
    allowance.take_lanes(blueprint.num_envs)
    return blueprint


def _space(data: Any, allowance: Allowance) -> spaces.Space[Any] | None:
    """Returns the space that a setting shows; None where it does not show all of it.

    Raises:
        CheckpointError: it is larger than the allowance.
    """
    if not isinstance(data, dict):
        return None
    kind = str(data.get(":type:", ""))
    try:
        if "Discrete'" in kind and "Multi" not in kind:
            found = {"kind": "Discrete", "n": int(data["n"]), "start": int(data.get("start", 0)), "dtype": "int64"}
        elif "MultiBinary" in kind:
            found = {"kind": "MultiBinary", "n": literal(data["n"])}
        elif "MultiDiscrete" in kind:
            counts = [int(number) for number in _numbers(data["nvec"])]
            found = {"kind": "MultiDiscrete", "nvec": counts, "start": [0] * len(counts), "dtype": "int64"}
        elif "Box" in kind:
            shape = [int(length) for length in data["_shape"]]
            bounds = {name: _bound(data[name], math.prod(shape)) for name in ("low", "high")}
            found = {"kind": "Box", "shape": shape, "dtype": str(data["dtype"]), **bounds}
        else:
            return None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return decode_space(found, allowance)


def _bound(text: Any, count: int) -> Any:
    """Returns a bound from NumPy's text of it: one number for all elements, or a list; a text that is cut has equal numbers."""
    numbers = _numbers(str(text).replace("...", " "))
    if "..." in str(text) and len(set(numbers)) == 1:
        return numbers[0]
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} of {count} elements")
    return numbers


def _numbers(text: Any) -> list[float]:
    if len(str(text)) > MAX_TEXT:
        raise ValueError("a long text")
    return [float(word) for word in re.sub(r"[\[\]]", " ", str(text)).split()]


def counts_of(saved: SB3Zip) -> dict[str, int]:
    """Returns the counts of env steps and updates, as the state of `Counters`."""
    steps, updates, total = (_count(saved, name) for name in ("num_timesteps", "_n_updates", "_total_timesteps"))
    return {"num_timesteps": steps, "lifetime": steps, "horizon": max(steps, total), "n_updates": updates}


def exploration_of(saved: SB3Zip) -> dict[str, float] | None:
    """Returns the state of epsilon-greedy exploration; None if the file has none."""
    rate = saved.settings.get("exploration_rate")
    return {"epsilon": min(max(float(rate), 0.0), 1.0)} if isinstance(rate, (int, float)) else None


def _count(saved: SB3Zip, name: str) -> int:
    value = saved.settings.get(name, 0)
    return value if type(value) is int and 0 <= value < 2**62 else 0
