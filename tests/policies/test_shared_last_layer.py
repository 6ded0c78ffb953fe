"""A dueling head on one hidden layer, and Xavier's initial weights."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from sb_dqn.accelerate import forced_mode
from sb_dqn.algorithms import DQN, FQF, IQN, PQN, QRDQN, CategoricalDQN
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import NoisyLinear
from tests.continuing import digest
from tests.marks import SLOW
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

ONE: dict[str, Any] = {"dueling": True, "policy_kwargs": {"net_arch": [8, 6], "share_last_layer": True}}


def test_values_by_hand() -> None:
    """One hidden unit, h = relu(2 x) = 6: v = 6 + 1, A = (6, 0, -12), whose mean is -2."""
    net: Any = quick(dueling=True, policy_kwargs={"net_arch": [1], "share_last_layer": True}).policy.q_net
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.last.linears[0].weight[0, 0] = 2.0
        net.head.outputs.of_state.weight.fill_(1.0)
        net.head.outputs.of_state.bias.fill_(1.0)
        advantages = torch.arange(net.num_actions).float()
        net.head.outputs.of_actions.weight.copy_(advantages.unsqueeze(1))
        x = torch.zeros(1, next(net.parameters()).shape[1])
        x[0, 0] = 3.0
        q = net({"obs": x}).q
    torch.testing.assert_close(q, (7.0 + 6.0 * (advantages - advantages.mean())).unsqueeze(0))


def test_it_is_a_smaller_network_than_two_streams() -> None:
    one = quick(**ONE).policy.q_net
    two = quick(dueling=True, policy_kwargs={"net_arch": [8, 6]}).policy.q_net
    count = [sum(parameter.numel() for parameter in net.parameters()) for net in (one, two)]
    assert count[1] - count[0] == 8 * 6 + 6
    assert type(one.last) is type(quick(policy_kwargs={"net_arch": [8, 6]}).policy.q_net.last)


@SLOW
@pytest.mark.parametrize("algorithm", [DQN, CategoricalDQN, QRDQN, IQN, FQF])
@pytest.mark.parametrize("noisy", [False, True])
def test_every_head_learns_the_same_traced_as_eagerly(algorithm: Any, noisy: bool) -> None:
    def run() -> Any:
        return quick(lanes(2, Tiny), algorithm=algorithm, noisy=noisy, double_q=True, redo=6, resets=5, **ONE).learn(60)

    model = run()
    assert model._n_updates >= 2
    assert digest(model) == digest(run())
    with forced_mode("eager"):
        eager = run()
    assert torch.allclose(model.learner.flat, eager.learner.flat, atol=1e-4)


@SLOW
@pytest.mark.parametrize(
    "changes",
    [
        {"self_prediction": {"steps": 2}},
        {"target": "shared", "iterations": 2},
        {"value_loss": "hl_gauss"},
        {"policy": "MlpLstmPolicy", "policy_kwargs": {**ONE["policy_kwargs"], "lstm_hidden_size": 4}},
        {"algorithm": PQN},
    ],
    ids=str,
)
def test_it_combines_and_loads(changes: dict[str, Any], tmp_path: Any) -> None:
    model = quick(**{**ONE, **changes}).learn(60)
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip")
    assert torch.equal(loaded.learner.flat, model.learner.flat)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy_kwargs": {"share_last_layer": True}}, "share_last_layer'. must be False without dueling=True"),
        (
            {"dueling": True, "policy_kwargs": {"share_last_layer": 1}},
            "share_last_layer'. must be True or False, got 1",
        ),
        (
            {"dueling": True, "policy_kwargs": {"share_last_layer": True, "scale_trunk_gradient": True}},
            "scale_trunk_gradient'. must be False with share_last_layer=True.*Give one of them",
        ),
        ({"policy_kwargs": {"xavier_init": "yes"}}, "xavier_init'. must be True or False.*got 'yes'"),
    ],
)
def test_contradictions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**settings)


IMAGE: dict[str, Any] = {"env": partial(Tiny, "image"), "policy": "CnnPolicy"}
CNN: dict[str, Any] = {"features_extractor_kwargs": SMALL_CNN}


@pytest.mark.parametrize(
    "settings",
    [
        {"policy_kwargs": {"net_arch": [40, 30]}},
        {**IMAGE, "policy_kwargs": {**CNN, "share_last_layer": True}, "dueling": True, "self_prediction": True},
        {"noisy": True, "policy_kwargs": {"net_arch": [40, 30]}},
    ],
    ids=["vector", "image", "noisy"],
)
def test_xavier_weights(settings: dict[str, Any]) -> None:
    """Uniform within sqrt(6 / (inputs + outputs)), of a filter times its pixels; PyTorch's are within 1 / sqrt(inputs)."""
    given = dict(settings)
    env = given.pop("env", Tiny)()
    kwargs = {**given.pop("policy_kwargs"), "xavier_init": True}
    net = quick(env, policy_kwargs=kwargs, **given).policy.q_net
    layers = [part for part in net.modules() if isinstance(part, (nn.Linear, nn.Conv2d, NoisyLinear))]
    assert len(layers) >= 3
    for layer in layers:
        outputs, inputs, *pixels = layer.weight.shape
        bound = math.sqrt(6.0 / ((inputs + outputs) * math.prod(pixels)))
        largest = layer.weight.abs().max().item()
        assert 0.5 * bound < largest <= bound
        assert layer.bias is None or not layer.bias.any()
    wide = max(layers, key=lambda layer: layer.weight.numel())
    outputs, inputs, *pixels = wide.weight.shape
    deviation = math.sqrt(2.0 / ((inputs + outputs) * math.prod(pixels)))
    assert wide.weight.std().item() == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize("algorithm", [IQN, FQF])
def test_xavier_weights_leave_the_embedding_of_fractions(algorithm: Any) -> None:
    plain: Any
    changed: Any
    plain, changed = (
        quick(algorithm=algorithm, seed=3, policy_kwargs={"net_arch": [8, 8], "xavier_init": xavier}).policy.q_net
        for xavier in (False, True)
    )
    for before, after in zip(plain.embedding.parameters(), changed.embedding.parameters(), strict=True):
        assert torch.equal(before, after)
    assert not torch.equal(plain.last.linears[0].weight, changed.last.linears[0].weight)
