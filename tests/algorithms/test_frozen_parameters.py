"""What a user does to the parameters of a model that exists: freezes some, writes others, exchanges modules."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sb_dqn import A2C, DQN, FQF, PPO, SAC
from sb_dqn.errors import ConfigurationError
from tests.marks import SLOW, a_few

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16, 16]}, "seed": 0}
REPLAY: dict[str, Any] = {**SMALL, "learning_starts": 20, "train_freq": 4, "buffer_size": 1000}
ROLLOUTS: dict[str, Any] = {**SMALL, "n_steps": 32, "batch_size": 32, "n_epochs": 2}
MAKERS: dict[str, Any] = {
    "dqn": lambda **kw: DQN("MlpPolicy", "CartPole-v1", **{**REPLAY, **kw}),
    "dqn-bf16": lambda: MAKERS["dqn"](precision="bf16"),
    "dqn-decay": lambda: MAKERS["dqn"](policy_kwargs={"net_arch": [16, 16], "optimizer_kwargs": {"weight_decay": 0.5}}),
    "fqf": lambda: FQF("MlpPolicy", "CartPole-v1", n_fractions=6, n_cosines=8, **REPLAY),
    "ppo": lambda: PPO("MlpPolicy", "CartPole-v1", **ROLLOUTS),
    "ppo-bf16": lambda: PPO("MlpPolicy", "CartPole-v1", precision="bf16", **ROLLOUTS),
    "a2c": lambda: A2C("MlpPolicy", "CartPole-v1", **SMALL),
    "sac": lambda: SAC("MlpPolicy", "Pendulum-v1", batch_size=32, **REPLAY),
}
BEFORE_AND_AFTER_LEARNING = pytest.mark.parametrize(
    ("kind", "learnt_before"),
    a_few(
        [
            *((kind, 0) for kind in ("dqn", "dqn-bf16", "ppo", "sac")),
            *(pytest.param(kind, 100, marks=pytest.mark.traced) for kind in ("dqn", "fqf", "ppo", "sac")),
            *((kind, 100) for kind in ("dqn-bf16", "dqn-decay", "ppo-bf16", "a2c")),
        ],
        "dqn",
        "dqn-bf16",
        "ppo",
        ("sac", 0),
    ),
)
"""Traced where there is a trace to be made anew, by one of each kind of update."""
pytestmark = pytest.mark.usefixtures("eagerly")


def learning(model: Any) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.policy.named_parameters() if parameter.requires_grad}


def moved(model: Any, steps: int) -> set[str]:
    """Names of those that `learn` changes, targets left out."""
    online = {name: parameter for name, parameter in model.policy.named_parameters() if "target" not in name}
    before = {name: parameter.detach().clone() for name, parameter in online.items()}
    model.learn(steps)
    return {name for name, parameter in online.items() if not torch.equal(before[name], parameter)}


@BEFORE_AND_AFTER_LEARNING
def test_parameters_frozen_after_construction_stay_until_they_are_thawed(kind: str, learnt_before: int) -> None:
    model = MAKERS[kind]()
    if learnt_before:
        model.learn(learnt_before)
    everything = set(learning(model))
    name = min(everything)
    frozen = learning(model)[name].requires_grad_(False)
    assert moved(model, 64) == everything - {name}
    frozen.requires_grad_(True)
    assert name in moved(model, 64)


@pytest.mark.traced
def test_a_trace_is_made_anew_when_a_callback_freezes() -> None:
    model = MAKERS["dqn"]()
    weight = model.policy.q_net.get_parameter("torso.linears.0.weight")
    seen = []

    def freeze_after_sixty(names: Any, _: Any) -> bool:
        if model.num_timesteps == 60:
            weight.requires_grad_(False)
            seen.append(weight.detach().clone())
        return True

    model.learn(120, callback=freeze_after_sixty)
    assert torch.equal(weight, seen[0])
    assert not torch.equal(weight, MAKERS["dqn"]().policy.q_net.get_parameter("torso.linears.0.weight"))


@pytest.mark.parametrize("kind", MAKERS)
def test_one_parameter_can_learn_alone(kind: str) -> None:
    model = MAKERS[kind]()
    chosen = min(learning(model))
    for name, parameter in learning(model).items():
        parameter.requires_grad_(name == chosen)
    assert moved(model, 64) == {chosen}


def test_all_frozen_is_refused() -> None:
    model = MAKERS["dqn"]()
    model.policy.requires_grad_(False)
    with pytest.raises(ConfigurationError, match="requires_grad must be True for some parameter, got False for all"):
        model.learn(40)


@BEFORE_AND_AFTER_LEARNING
def test_parameters_that_were_pointed_elsewhere_learn_on(kind: str, learnt_before: int) -> None:
    model, other = MAKERS[kind](), MAKERS[kind]()
    for each in (model, other):
        if learnt_before:
            each.learn(learnt_before)
    mine, theirs = model.learner.store.masters, other.learner.store.masters
    written = parameters_to_vector(mine).detach() * 0.5
    vector_to_parameters(written.clone(), mine)
    with torch.no_grad():
        for parameter in theirs:
            parameter.mul_(0.5)  # in place: never cut loose
    model.learn(100)
    other.learn(100)
    assert not torch.equal(parameters_to_vector(mine), written)
    assert torch.equal(parameters_to_vector(mine), parameters_to_vector(theirs))
    assert torch.equal(model.learner.flat, other.learner.flat)


def test_exchanged_modules_are_refused() -> None:
    model = MAKERS["dqn"]()
    model.policy.q_net.torso.linears[0] = nn.Linear(4, 16)
    with pytest.raises(ConfigurationError, match="parameters of the policy must be those that the model was made with"):
        model.learn(40)


@pytest.mark.parametrize("name", ["q_net", "q_net_target"])
def test_exchanged_nets_are_refused(name: str) -> None:
    model = MAKERS["dqn"]()
    own = getattr(model.policy, name)
    setattr(model.policy, name, copy.deepcopy(own))
    with pytest.raises(ConfigurationError, match="must be those that the model was made with"):
        model.learn(40)
    setattr(model.policy, name, own)
    model.learn(40)


@pytest.mark.traced
def test_a_pruned_layer_learns_on() -> None:
    model = MAKERS["dqn"]()
    layer = model.policy.q_net.torso.linears[0]
    torch.nn.utils.prune.l1_unstructured(layer, "weight", amount=0.5)
    before = layer.weight_orig.detach().clone()
    model.learn(100)
    assert not torch.equal(layer.weight_orig, before)
    assert torch.equal(layer.weight_orig[layer.weight_mask == 0], before[layer.weight_mask == 0])


def test_parameters_that_changed_places() -> None:
    model = MAKERS["dqn"](policy_kwargs={"net_arch": [4, 4]})  # CartPole has four numbers, too
    named = dict(model.policy.q_net.named_parameters())
    first, bias, other = (
        named[name] for name in ("torso.linears.0.weight", "torso.linears.0.bias", "head.outputs.of_actions.bias")
    )
    x, y = first.detach().clone(), bias.detach().clone()
    target = model.policy.q_net_target.get_parameter("torso.linears.0.bias")
    with torch.no_grad():
        target.fill_(7.0)
    first.data = first.data.t()
    bias.data, target.data = target.data, bias.data
    model.learner.store.gather(model.policy.parameters())
    assert torch.equal(first, x.t())
    assert first.is_contiguous()
    assert torch.equal(bias, torch.full((4,), 7.0))
    assert torch.equal(target, y)
    assert torch.equal(other, model.learner.flat[-2:])


@pytest.mark.parametrize("learnt_before", [0, 100])
def test_thawed_parameters_step_as_those_of_torch_do(learnt_before: int) -> None:
    """Adam with one gradient all along steps by its rate; one that had seen zeros meanwhile would step by its multiple."""
    learner = MAKERS["dqn"](policy_kwargs={"net_arch": [16, 16], "optimizer_kwargs": {"eps": 0.0}}).learner
    learner.set_learning_rate(1e-3)
    gradient, weight = torch.ones_like(learner.flat), learner.store.masters[0]
    for _ in range(learnt_before):
        learner.apply(gradient.clone())
    weight.requires_grad_(False)
    for _ in range(50):
        learner.apply(gradient.clone())
    weight.requires_grad_(True)
    for _ in range(10):
        before = weight.detach().clone()
        learner.apply(gradient.clone())
        torch.testing.assert_close(before - weight, torch.full_like(weight, 1e-3), rtol=1e-3, atol=0.0)


@SLOW
@pytest.mark.parametrize("kind", a_few(MAKERS, "dqn", "ppo", "sac"))
def test_what_frozen_parameters_left_in_a_file(kind: str, tmp_path: Path) -> None:
    model = MAKERS[kind]().learn(100)
    learning(model)[min(learning(model))].requires_grad_(False)
    model.learn(100).save(tmp_path / "model")
    again = type(model).load(tmp_path / "model", env="CartPole-v1" if kind != "sac" else "Pendulum-v1")
    assert str(again.learner.state_dict()) == str(model.learner.state_dict())
    assert all(parameter.requires_grad for parameter in again.learner.store.masters)
    fresh = MAKERS[kind]()
    fresh.set_parameters(model.get_parameters())
    assert str(fresh.get_parameters()) == str(model.get_parameters())
    model.set_parameters(MAKERS[kind]().learn(60).get_parameters())  # the other way round
    again.learn(100)
    model.learn(100)
