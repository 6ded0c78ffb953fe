"""Recurrent policies: the names that model files store, and steps that agree with unrolled sequences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.recurrent import RecurrentConfig, RecurrentLayer
from sb_dqn.policies import (
    ACTOR_CRITIC_POLICIES,
    VALUE_POLICIES,
    ActorCriticPolicy,
    Policy,
    QPolicy,
    RecurrentActorCriticPolicy,
    RecurrentQPolicy,
    split_policy_kwargs,
)
from sb_dqn.policies.q_network import QNetworkConfig

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
ACTIONS = spaces.Discrete(3)
SMALL: dict[str, Any] = {"lstm_hidden_size": 5, "net_arch": [6]}
Q_NAMES = [
    "q_net.encoder.linears.0.bias", "q_net.encoder.linears.0.weight",
    "q_net.memory.core.bias_hh_l0", "q_net.memory.core.bias_ih_l0", "q_net.memory.core.weight_hh_l0",
    "q_net.memory.core.weight_ih_l0",
    "q_net.answer.last.of_state.linears.0.bias", "q_net.answer.last.of_state.linears.0.weight",
    "q_net.answer.last.of_actions.linears.0.bias", "q_net.answer.last.of_actions.linears.0.weight",
    "q_net.answer.head.outputs.of_actions.bias", "q_net.answer.head.outputs.of_actions.weight",
    "q_net.answer.head.outputs.of_state.bias", "q_net.answer.head.outputs.of_state.weight",
]  # fmt: skip
"""Names in the model files of version 0.1.0."""
ACTOR_CRITIC_NAMES = [
    "net.features.0.extractor.linear.weight", "net.features.0.extractor.linear.bias",
    "net.features.1.extractor.linear.weight", "net.features.1.extractor.linear.bias",
    *[f"net.memories.{i}.core.{name}_l0" for i in (0, 1) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")],
    *[f"net.encoders.{i}.linears.0.{name}" for i in (0, 1) for name in ("weight", "bias")],
    *[f"net.answer.{tower}_tower.linears.0.{name}" for tower in ("policy", "value") for name in ("weight", "bias")],
    "net.answer.action_head.outputs.weight", "net.answer.action_head.outputs.bias",
    "net.answer.value_head.weight", "net.answer.value_head.bias",
]  # fmt: skip


class Linear(torch.nn.Module):
    """Features extractor with one layer."""

    features_dim = 7

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x)
        return out


def recurrent(family: str, **kwargs: Any) -> Any:
    """Returns a small recurrent policy with all kinds of parts."""
    if family == "q":
        return VALUE_POLICIES["MlpLstmPolicy"](VECTOR, ACTIONS, config=QNetworkConfig(dueling=True), **SMALL, **kwargs)
    kwargs = {"share_features_extractor": False, "encoder_arch": [3], "features_extractor_class": Linear, **kwargs}
    return ACTOR_CRITIC_POLICIES["MlpLstmPolicy"](VECTOR, ACTIONS, **SMALL, **kwargs)


@pytest.mark.parametrize(("family", "names"), [("q", Q_NAMES), ("actor-critic", ACTOR_CRITIC_NAMES)])
def test_state_dicts_keep_the_names_of_earlier_model_files(family: str, names: list[str]) -> None:
    policy, other = recurrent(family), recurrent(family)
    state = policy.state_dict()
    target = [name.replace("q_net.", "q_net_target.") for name in names if name.startswith("q_net.")]
    assert sorted(state) == sorted(names + target)
    other.load_state_dict(state)
    for name, parameter in other.named_parameters():
        assert torch.equal(parameter, policy.get_parameter(name))
    partial = {name: state[name] for name in names[:2]}
    assert len(other.load_state_dict(partial, strict=False).missing_keys) == len(state) - 2


def test_parameters_keep_the_order_of_earlier_optimizer_states() -> None:
    """The flat tensor of parameters, and so the moments in a file, follow the order of the modules."""
    parts = {
        "q": ["encoder", "recurrent_layer", "last", "head"],
        "actor-critic": [
            "features", "value_features", "encoders", "recurrent_layers", "policy_tower", "value_tower", "action_head",
            "value_head",
        ],
    }  # fmt: skip
    for family, expected in parts.items():
        names = [name.split(".")[0] for name, _ in recurrent(family).networks[0].named_parameters()]
        assert list(dict.fromkeys(names)) == expected


@pytest.mark.parametrize("family", ["q", "actor-critic"])
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_steps_agree_with_unrolled_sequences(family: str, rnn: str) -> None:
    policy = recurrent(family, rnn=rnn, n_lstm_layers=2, previous_action=True, previous_reward=True)
    obs = {"obs": torch.randn(5, 2, 4)}
    action, reward = torch.randint(3, (5, 2)), torch.randn(5, 2)
    begins = torch.zeros(5, 2, dtype=torch.bool)
    begins[1, 1] = True
    first = torch.randn(2, policy.state_size)
    state, outputs = first, []
    for t in range(5):
        state = torch.where(begins[t].unsqueeze(-1), 0.0, state)
        step = policy.values_step if family == "q" else policy.value_step
        output, state = step({"obs": obs["obs"][t]}, None, action[t], reward[t], state)
        outputs.append(output)
    flat = {"obs": obs["obs"].flatten(0, 1)}
    if family == "q":
        extra = {
            "previous_action": action.flatten(), "previous_reward": reward.flatten(), "begins": begins.flatten(),
            "state": first, "end": torch.zeros(4, dtype=torch.int64),
        }  # fmt: skip
        features = policy.q_net.unroll(flat, extra, warmup=2, length=2)
        expected = policy.q_net({"features": features.trained.flatten(0, 1)}).q
        assert features.after.shape == (1, 2, 5)
        outputs = outputs[2:4]
    else:
        features, last = policy.net.unroll(flat, action.flatten(), reward.flatten(), first, begins)
        expected = policy.net(features).value
        torch.testing.assert_close(last, state)
    torch.testing.assert_close(torch.cat(outputs), expected)


@pytest.mark.parametrize("family", ["q", "actor-critic"])
def test_greedy_and_distribution_of_a_recurrent_policy_are_those_at_the_start_of_an_episode(family: str) -> None:
    policy = recurrent(family)
    obs = {"obs": torch.randn(9, 4)}
    zeros = torch.zeros(9), torch.zeros(9, policy.state_size)
    expected, state = policy.greedy_step(obs, None, torch.full((9,), -1), *zeros)
    assert torch.equal(policy.greedy(obs), expected)
    assert state.shape == (9, policy.state_size)
    assert policy.no_action(9).tolist() == [-1] * 9


def test_dropout_is_between_recurrent_layers_and_in_training_only() -> None:
    layer = RecurrentLayer(3, RecurrentConfig(hidden_size=50, num_layers=2, previous_action=False, dropout=0.5))
    x, state = torch.randn(1, 4, 3), torch.zeros(4, 200)
    torch.manual_seed(0)
    for run in (layer, partial(layer._run_layers, layers=layer._gathered())):
        layer.train()
        (first, after), (second, again) = run(x, state), run(x, state)
        assert not torch.equal(first, second)
        assert torch.equal(after[:, :50], again[:, :50])  # of the first layer, whose inputs are whole
        layer.eval()
        out, _ = run(x, state)
        torch.testing.assert_close(out, run(x, state)[0], rtol=0, atol=0)
    for wrong in ({"lstm_dropout": 0.5}, {"lstm_dropout": 1.0, "n_lstm_layers": 2}):
        with pytest.raises(ConfigurationError, match=r"lstm_dropout'\] must be below 1, and 0 with one layer"):
            recurrent("actor-critic", **wrong)


def test_feed_forward_policies_have_no_state() -> None:
    for policy in (VALUE_POLICIES["MlpPolicy"](VECTOR, ACTIONS), ACTOR_CRITIC_POLICIES["MlpPolicy"](VECTOR, ACTIONS)):
        assert (policy.recurrent, policy.state_size, policy.reads_reward) == (False, 0, False)
        obs = {"obs": torch.randn(9, 4)}
        (action,) = policy.greedy_step(obs, None)
        assert torch.equal(action, policy.greedy(obs))


@pytest.mark.parametrize("key", ["rnn", "lstm_hidden_size", "n_lstm_layers", "previous_action", "encoder_arch"])
@pytest.mark.parametrize("policies", [VALUE_POLICIES, ACTOR_CRITIC_POLICIES])
def test_recurrent_keywords_are_for_recurrent_policies(key: str, policies: dict[str, type[Policy]]) -> None:
    assert key in split_policy_kwargs(policies["CnnLstmPolicy"], {key: 1})[0]
    with pytest.raises(ConfigurationError, match=f"keys of policy_kwargs must be .* got '{key}'"):
        split_policy_kwargs(policies["CnnPolicy"], {key: 1})


def test_families_are_known_by_their_classes() -> None:
    for name, policy in VALUE_POLICIES.items():
        assert issubclass(policy, QPolicy)
        assert issubclass(policy, RecurrentQPolicy) is policy.recurrent is ("Lstm" in name)
    for name, actor_critic in ACTOR_CRITIC_POLICIES.items():
        assert issubclass(actor_critic, ActorCriticPolicy)
        assert issubclass(actor_critic, RecurrentActorCriticPolicy) is actor_critic.recurrent is ("Lstm" in name)
