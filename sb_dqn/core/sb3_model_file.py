"""Models from the zips of Stable-Baselines3."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.checkpoint import AllocationGuard, Allowance, decode_space
from sb_dqn.checkpoint.format.sb3_zip import MAX_TEXT, SERIALIZED, SB3Zip, literal, pickled_constants
from sb_dqn.core import model_file
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.core.construction import environment_for, open_environment
from sb_dqn.core.sb3_optimizers import Rename, take_over
from sb_dqn.errors import CheckpointError, user_stacklevel, with_article
from sb_dqn.schedules import Linear
from sb_dqn.types import Blueprint

POLICY_MODULES = {
    "stable_baselines3.dqn.policies": "DQN",
    "sb3_contrib.qrdqn.policies": "QRDQN",
    "stable_baselines3.sac.policies": "SAC",
    "stable_baselines3.common.policies": "PPO",
    "sb3_contrib.common.maskable.policies": "PPO",
}
"""Module of a policy to the algorithm; A2C and TRPO have the policies of PPO."""
OTHERS = {"recurrent": "RecurrentPPO", "tqc": "TQC", "crossq": "CrossQ", "ars": "ARS"}
"""Package of a policy to the algorithm that this library cannot continue."""
DDPG = {"policy_delay": 1, "target_noise_clip": 0.0}
"""Settings with which TD3 is DDPG."""
NOT_SETTINGS = ("seed", "device", "tensorboard_log", "policy_kwargs", "train_freq", "n_quantiles", "action_noise")
"""Arguments that are not read from the file, or not as they are."""
TEMPERATURE = "nets.log_alpha.value"
"""Name of SAC's temperature in this library."""
UNKNOWN = object()
"""A value that only a pickle has."""

Renames = tuple[tuple[str, str], ...]
ACTOR_CRITIC: Renames = (
    (r"mlp_extractor\.policy_net\.(\d+)\.", r"net.policy_tower.linears.{half}."),
    (r"mlp_extractor\.value_net\.(\d+)\.", r"net.value_tower.linears.{half}."),
    (r"action_net\.", r"net.action_head.outputs."),
    (r"value_net\.", r"net.value_head."),
    (r"log_std$", r"net.action_head.log_std"),
)
SHARED: Renames = ((r"features_extractor\.", r"net.features.extractor."),)
SEPARATE: Renames = (
    (r"pi_features_extractor\.", r"net.features.extractor."),
    (r"vf_features_extractor\.", r"net.value_features.extractor."),
)
SOFT: Renames = (
    (r"actor\.features_extractor\.", r"nets.actor.features.extractor."),
    (r"critic\.features_extractor\.", r"nets.critics.features.extractor."),
    (r"critic_target\.features_extractor\.", r"critics_target.features.extractor."),
    (r"actor\.latent_pi\.(\d+)\.", r"nets.actor.tower.linears.{half}."),
    (r"critic\.qf(\d+)\.(\d+)\.", r"nets.critics.stacks.{layer}."),
    (r"critic_target\.qf(\d+)\.(\d+)\.", r"critics_target.stacks.{layer}."),
)
STATE_DEPENDENT: Renames = (
    (r"actor\.mu\.", r"nets.actor.head.outputs."),
    (r"actor\.log_std$", r"nets.actor.head.std.log"),
)


def load(
    cls: type[Any], saved: SB3Zip, env: Any, device: Any, custom_objects: Mapping[str, Any], changes: Mapping[str, Any]
) -> Any:
    """Returns a model from a file of Stable-Baselines3.

    The optimizer continues with the moments of the file where they fit the parameters one to one, else without, with a warning.
    A replay buffer starts empty. Settings that only a pickle has keep the defaults, with a warning that names them.

    Args:
        cls: class of the model, or a parent.
        saved: contents of the file.
        env: environment, or None.
        device: torch device, or "auto".
        custom_objects: arguments by name, like `changes`.
        changes: arguments that replace those of the file.

    Raises:
        CheckpointError: the file is damaged, of an algorithm that this library lacks, or its spaces are unknown.
        SpaceError: `env` does not fit the parameters.
    """
    made_by = model_file.find_class(cls, algorithm_of(saved))
    replaced = {**custom_objects, **changes}
    kept = {name: value for name, value in saved.settings.items() if name not in replaced}
    what = f"the settings of {saved.label} make no {made_by.__name__}"
    with model_file.reading(what):
        blueprint, stream = (
            (_blueprint(saved), None) if env is None else open_environment(env, replaced.get("action_mask"))
        )
        arguments, unread = _arguments(made_by, saved._replace(settings=kept), blueprint.num_envs)
    arguments |= {**replaced, "device": device}
    with model_file.reading(what), AllocationGuard(saved.policy):
        model = made_by(
            arguments.pop("policy"), environment_for(blueprint, None) if stream is None else stream, **arguments
        )
    with model_file.reading(f"the parameters of {saved.label} do not fit"):
        model_file.write_policy(model.policy, native_parameters(model, saved.policy, saved.variables))
    model.learner.refresh()
    unfit = take_over(model, saved, _renaming(model, saved.policy))
    _restore_counts(model, saved)
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
        f"{saved.label} must hold a DQN, QRDQN, PPO, A2C or SAC of Stable-Baselines3, got {kind}, which this library does not have. "
        f"Load it with Stable-Baselines3."
    )


def _arguments(made_by: type[Any], saved: SB3Zip, lanes: int) -> tuple[dict[str, Any], list[str]]:
    """Returns the constructor arguments of a file, and the names of those that only a pickle has."""
    settings = saved.settings
    _, policy, *_ = [*pickled_constants(settings.get("policy_class")), "", ""]
    kind = next((kind for kind in ("MultiInput", "Cnn") if kind in str(policy)), "Mlp")
    arguments: dict[str, Any] = {"policy": f"{kind}Policy"}
    unread = []
    for name in constructor_arguments(made_by):
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
    kwargs, missing = _policy_kwargs(settings.get("policy_kwargs"))
    if missing:
        raise CheckpointError(
            f"{saved.label} has policy_kwargs[{missing[0]!r}] as a pickle, which is not run. Pass load(path, "
            f"policy_kwargs={{...}}) with all keys, among them {', '.join(missing)}."
        )
    if "n_quantiles" in kwargs:
        arguments["n_quantiles"] = kwargs.pop("n_quantiles")
    return arguments | ({"policy_kwargs": kwargs} if kwargs else {}), unread


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


# -- spaces


def _blueprint(saved: SB3Zip) -> Blueprint:
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
    allowance.take(blueprint.num_envs * model_file.LANE_BYTES, "a number of lanes")
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
            found = {"kind": "Discrete", "n": int(data["n"]), "start": int(data["start"]), "dtype": "int64"}
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
    """Returns a bound from NumPy's text of it: one number for all elements, or a list; a text that is cut has equal numbers.

    Raises:
        ValueError: the text does not show all elements.
    """
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


# -- parameters


def native_parameters(
    model: Any, policy: Mapping[str, Tensor], variables: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Returns the parameters of a policy of Stable-Baselines3 under the names of a model of this library.

    Args:
        model: model with networks of the same layers.
        policy: `state_dict` of the policy.
        variables: further tensors of its model, the temperature of SAC; None: that of `model` stays.
    """
    parameters = dict(_renaming(model, policy)(dict(policy), dict(variables or {})))
    if parameters and TEMPERATURE in (ours := model.policy.state_dict()):
        parameters.setdefault(TEMPERATURE, ours[TEMPERATURE])  # a constant is no parameter of theirs
    return parameters


def _renaming(model: Any, theirs: Mapping[str, Tensor]) -> Rename:
    """Returns the function from tensors of Stable-Baselines3 to those of this library, by name.

    It takes the parameters of a policy, or moments of an optimizer in their shapes.
    """
    ours, num_actions = model.policy.state_dict(), model.predictor.actions.num_actions
    if any(name.startswith("actor.") for name in theirs):
        return _soft
    if any(name.startswith(("q_net.", "quantile_net.")) for name in theirs):
        return lambda policy, variables: dict(_q_values(ours, policy, num_actions))
    one, other = "pi_features_extractor.", "vf_features_extractor."
    names = [name.removeprefix(one) for name in theirs if name.startswith(one)]
    separate = any(not torch.equal(theirs[one + name], theirs[other + name]) for name in names)
    renames = (*ACTOR_CRITIC, *(SEPARATE if separate else SHARED))
    if "net.action_head.std.log" in ours:
        renames = ((r"log_std$", r"net.action_head.std.log"), *renames)
    return lambda policy, variables: _renamed(policy, renames)


def _renamed(theirs: Mapping[str, Tensor], renames: Renames, last: int = 0) -> dict[str, Tensor]:
    """Returns tensors under the names of this library; `last` is the number of the critics' last layer."""
    found = {}
    for name, tensor in theirs.items():
        for pattern, ours in renames:
            if match := re.match(pattern, name):
                critic, number = (0, 0, *map(int, match.groups()))[-2:]
                half = number // 2  # every second module is an activation
                layer = f"heads.{critic}" if number == last else f"towers.{critic}.linears.{half}"
                found[ours.format(half=half, layer=layer) + name[match.end() :]] = tensor
                break
    return found


def _q_values(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], num_actions: int
) -> Iterator[tuple[str, Tensor]]:
    """Yields the parameters of both networks, which have the same layers in the same order."""
    for prefix, names in (
        ("q_net.", ("q_net.", "quantile_net.")),
        ("q_net_target.", ("q_net_target.", "quantile_net_target.")),
    ):
        mine = [name for name in ours if name.startswith(prefix)]
        found = [(name, tensor) for name, tensor in theirs.items() if name.startswith(names)]
        for name, (source, tensor) in zip(mine, found, strict=True):
            if ".head." in name and source.startswith("quantile_net"):
                # the outputs of all quantiles of an action together, [A * N, ...]; theirs are [N * A, ...]
                tensor = tensor.view(-1, num_actions, *tensor.shape[1:]).transpose(0, 1).flatten(0, 1)
            yield name, tensor


def _soft(policy: Mapping[str, Tensor], variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the parameters of actor, critics and temperature."""
    last = max(int(match[1]) for name in policy if (match := re.match(r"critic\.qf0\.(\d+)\.", name)))
    found = _renamed(policy, SOFT, last)
    if "actor.log_std" in policy:
        found |= _renamed(policy, STATE_DEPENDENT)
    else:
        for kind in ("weight", "bias"):
            parts = [policy[f"actor.{part}.{kind}"] for part in ("mu", "log_std")]
            found[f"nets.actor.head.outputs.{kind}"] = torch.cat(parts)
    if "log_ent_coef" in variables:
        found[TEMPERATURE] = variables["log_ent_coef"].reshape(())
    return found


def _restore_counts(model: Any, saved: SB3Zip) -> None:
    """Continues the counts and the exploration of the file."""
    steps, updates, total = (_count(saved, name) for name in ("num_timesteps", "_n_updates", "_total_timesteps"))
    model.counters.load_state_dict(
        {"num_timesteps": steps, "lifetime": steps, "horizon": max(steps, total), "n_updates": updates}
    )
    rate = saved.settings.get("exploration_rate")
    if model.exploration is not None and isinstance(rate, (int, float)):
        model.exploration.load_state_dict({"epsilon": min(max(float(rate), 0.0), 1.0)})


def _count(saved: SB3Zip, name: str) -> int:
    value = saved.settings.get(name, 0)
    return value if type(value) is int and 0 <= value < 2**62 else 0
