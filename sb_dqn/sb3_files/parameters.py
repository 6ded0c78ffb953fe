"""Parameters of Stable-Baselines3's policies under the names of this library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

TEMPERATURE = "nets.log_alpha.value"
"""Name of SAC's temperature in this library."""

Rename = Callable[[dict[str, Tensor], dict[str, Tensor]], Mapping[str, Tensor]]
"""From tensors under the names of the file, of the policy and besides it, to tensors under the names of this library."""
Renames = tuple[tuple[str, str], ...]
ACTOR_CRITIC: Renames = (
    (r"mlp_extractor\.policy_net\.(\d+)\.", r"net.policy_tower.linears.{half}."),
    (r"mlp_extractor\.value_net\.(\d+)\.", r"net.value_tower.linears.{half}."),
    (r"action_net\.", r"net.action_head.outputs."),
    (r"value_net\.", r"net.value_head."),
    (r"log_std$", r"net.action_head.log_std"),
    (r"lstm_actor\.", r"net.recurrent_layers.0.core."),
    (r"lstm_critic\.", r"net.recurrent_layers.1.core."),
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


def native_parameters(
    model: Any, policy: Mapping[str, Tensor], variables: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Returns the parameters of a policy of Stable-Baselines3 under the names of a model of this library.

    Args:
        model: model with networks of the same layers.
        policy: `state_dict` of the policy.
        variables: further tensors of its model, the temperature of SAC; None: that of `model` stays.
    """
    parameters = dict(renaming(model, policy)(dict(policy), dict(variables or {})))
    if parameters and TEMPERATURE in (ours := model.policy.state_dict()):
        parameters.setdefault(TEMPERATURE, ours[TEMPERATURE])  # a constant is no parameter of theirs
    return parameters


def renaming(model: Any, theirs: Mapping[str, Tensor]) -> Rename:
    """Returns the function from tensors of Stable-Baselines3 to those of this library, by name.

    It takes the parameters of a policy, or moments of an optimizer in their shapes.
    """
    parts = {key: number for number, key in enumerate(getattr(model.observation_space, "spaces", ()))}
    rename = _renaming(model, theirs)

    def named(match: re.Match[str]) -> str:
        return f".extractor.parts.{parts[match[1]]}."  # of a key of a Dict

    return lambda policy, variables: {
        re.sub(r"\.extractor\.extractors\.([^.]+)\.", named, name): tensor
        for name, tensor in rename(policy, variables).items()
    }


def _renaming(model: Any, theirs: Mapping[str, Tensor]) -> Rename:
    """Returns the function of `renaming`, with the names of Stable-Baselines3 for the extractors of a Dict."""
    ours, actions = model.policy.state_dict(), model.predictor.actions
    num_actions = actions.num_actions
    if any(name.startswith("actor.") for name in theirs):
        names = [name for name in theirs if name.startswith("actor.features_extractor.")]
        shared = all(torch.equal(theirs[name], theirs[name.replace("actor.", "critic.", 1)]) for name in names)
        twice = shared and not any(name.startswith("nets.actor.features.") for name in ours)
        return partial(_soft, SOFT[1:] if twice else SOFT)
    if any(name.startswith(("q_net.", "quantile_net.")) for name in theirs):
        return lambda policy, variables: dict(_q_values(ours, policy, num_actions))
    one, other = "pi_features_extractor.", "vf_features_extractor."
    names = [name.removeprefix(one) for name in theirs if name.startswith(one)]
    separate = any(not torch.equal(theirs[one + name], theirs[other + name]) for name in names)
    renames = (*ACTOR_CRITIC, *(SEPARATE if separate else SHARED))
    if any(name.endswith(".action_head.std.log") for name in ours):
        renames = ((r"log_std$", r"net.action_head.std.log"), *renames)
    legal = None if num_actions == 0 or actions.legal.all() else torch.from_numpy(actions.legal.flatten())
    return lambda policy, variables: {
        name: _spread(tensor, legal) if ".action_head.outputs." in name else tensor
        for name, tensor in _renamed(policy, renames).items()
    }


def _spread(outputs: Tensor, legal: Tensor | None) -> Tensor:
    """Returns the outputs `[A, ...]` of the actions of all branches, with zeros for those that a branch lacks.

    Args:
        outputs: theirs, without these actions.
        legal: `[A]` bool, the actions that exist; None: all.
    """
    if legal is None or len(outputs) != int(legal.sum()):
        return outputs
    return outputs.new_zeros(len(legal), *outputs.shape[1:]).index_put_((legal,), outputs)


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


def _soft(renames: Renames, policy: Mapping[str, Tensor], variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the parameters of actor, critics and temperature."""
    last = max(int(match[1]) for name in policy if (match := re.match(r"critic\.qf0\.(\d+)\.", name)))
    found = _renamed(policy, renames, last)
    if "actor.log_std" in policy:
        found |= _renamed(policy, STATE_DEPENDENT)
    else:
        for kind in ("weight", "bias"):
            parts = [policy[f"actor.{part}.{kind}"] for part in ("mu", "log_std")]
            found[f"nets.actor.head.outputs.{kind}"] = torch.cat(parts)
    if "log_ent_coef" in variables:
        found[TEMPERATURE] = variables["log_ent_coef"].reshape(())
    return found
