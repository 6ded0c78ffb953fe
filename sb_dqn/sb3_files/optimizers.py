"""Moments from the optimizers in zips of Stable-Baselines3, for the one optimizer of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from sb_dqn.nn.parameters.flat import flat_copy
from sb_dqn.nn.parameters.optimizers import MOMENT_OPTIONS
from sb_dqn.sb3_files.parameters import Rename, renaming
from sb_dqn.sb3_files.reader import SB3Zip
from sb_dqn.types import ModelLike, Settings, State

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "RMSprop": ("square_avg",),
    "RMSpropTFLike": ("square_avg",),
}
"""Class of the optimizer of a model to the moments that it has of each parameter."""
TARGETS = ("q_net_target.", "quantile_net_target.")
"""Beginnings of the names of parameters of target networks."""


class Unfit(Exception):
    """The reason why moments cannot be taken over."""


def load_moments(model: ModelLike, saved: SB3Zip) -> str:
    """Loads the moments of a file into the optimizer of a model.

    Args:
        model: model with the parameters of the file.
        saved: contents of the file.

    Returns:
        The reason why the optimizer starts without moments; empty if it has those of the file, or the file has none.
    """
    if not any(state is None or state.get("state") for state in saved.optimizers.values()):
        return ""
    try:
        model.learner.optimizer_step.take_moments(_state(model, saved, renaming(model, saved.policy)))
    except (Unfit, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        return str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
    return ""


def _state(model: ModelLike, saved: SB3Zip, rename: Rename) -> State:
    """Returns the `state_dict` of the optimizer of one flat parameter."""
    kind = type(model.learner.optimizer).__name__
    if kind not in MOMENTS:
        raise Unfit(f"moments of {kind} are not read")
    group = model.learner.optimizer.param_groups[0]
    moments, steps = _moments(saved, MOMENTS[kind], group)
    if len(steps) != 1 and kind != "RMSpropTFLike":
        raise Unfit(f"its parameters have different numbers of steps, {sorted(steps)}")
    names = {id(parameter): name for name, parameter in model.policy.named_parameters()}
    masters = [names[id(parameter)] for parameter in model.learner.store.masters]
    state: State = {}
    for moment, theirs in moments.items():
        ours = rename(*_filled(saved, theirs))
        state[moment] = flat_copy([ours[name] for name in masters])
    if kind != "RMSpropTFLike":
        state["step"] = torch.tensor(steps.pop())
    return {"state": {0: state}, "param_groups": [{**group, "params": [0]}]}


def _moments(saved: SB3Zip, names: Sequence[str], group: Settings) -> tuple[dict[str, dict[str, Tensor]], set[float]]:
    """Returns each kind of moment by the name of its parameter, and the numbers of steps."""
    moments: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    steps = set()
    for member, content in saved.optimizers.items():
        if content is None:
            raise Unfit(f"member '{member}.pth' holds other things than tensors, which are not run")
        theirs = content["param_groups"][0]
        if any(theirs.get(option) or group.get(option) for option in MOMENT_OPTIONS):
            raise Unfit(f"an optimizer with one of {', '.join(MOMENT_OPTIONS)} has further moments")
        indices = [index for each in content["param_groups"] for index in each["params"]]
        states = [content["state"].get(index, {}) for index in indices]
        for (parameter, like), state in zip(_parameters_of(saved, member, len(indices)), states, strict=True):
            if not state and parameter.startswith(TARGETS):  # Stable-Baselines3 2.0 passes it to the optimizer
                continue
            for name in names:
                value = state.get(name)
                if not (isinstance(value, Tensor) and value.shape == like.shape and value.is_floating_point()):
                    raise Unfit(f"member '{member}.pth' has no {name} in the shape of {parameter}")
                moments[name][parameter] = value.float()
            if "step" in state:
                steps.add(float(state["step"]))
    return moments, steps


def _parameters_of(saved: SB3Zip, member: str, count: int) -> list[tuple[str, Tensor]]:
    """Returns the parameters of an optimizer, in the sequence of its state, with their names."""
    if member == "ent_coef_optimizer":
        return [(name, saved.variables[name]) for name in ("log_ent_coef",)]
    part = "" if member == "policy.optimizer" else f"{member.partition('.')[0]}."
    every = list(_distinct(saved.policy, part))
    online = [(name, tensor) for name, tensor in every if not name.startswith(TARGETS)]
    heads = [(name, tensor) for name, tensor in every if not name.startswith(f"{part}features_extractor.")]
    for found in (every, online, heads):
        if len(found) == count:
            return found
    raise Unfit(f"member '{member}.pth' has {count} parameters, its networks have {len(every)}")


def _distinct(policy: Mapping[str, Tensor], prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Yields the parameters whose names begin with a prefix; those with several names once."""
    seen = set()
    for name, tensor in policy.items():
        if name.startswith(prefix) and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, tensor


def _filled(saved: SB3Zip, moments: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns moments under all names of the parameters, with zeros for those that no optimizer has, such as target networks."""
    by_place = {saved.policy[name].data_ptr(): moment for name, moment in moments.items() if name in saved.policy}
    policy = {name: by_place.get(tensor.data_ptr(), torch.zeros_like(tensor)) for name, tensor in saved.policy.items()}
    return policy, {name: moments[name] for name in saved.variables if name in moments}
