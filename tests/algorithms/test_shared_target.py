"""`target="shared"`: no second network, shifts as often as intervals pass, refusals, files, actors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn import DQN, FQF, IQN, CategoricalDQN
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.scalar import Outputs
from sb_dqn.nn.heads.shared import SharedOutputs, shared_outputs
from sb_dqn.policies import MlpPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from tests.marks import SLOW
from tests.tiny import lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")


def numbers(part: Any) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


@pytest.mark.parametrize("algorithm", [DQN, CategoricalDQN, IQN, FQF])
def test_one_network_is_all_there_is(algorithm: type[DQN]) -> None:
    wide: dict[str, Any] = {"algorithm": algorithm, "policy_kwargs": {"net_arch": [64, 64]}}
    copied, shared = quick(**wide), quick(**wide, target="shared")
    head = numbers(copied.policy.q_net.head)
    assert numbers(shared.policy) == numbers(copied.policy.q_net) + head == numbers(copied.policy) // 2 + head
    assert shared.learner.flat.numel() == numbers(shared.policy)
    assert shared.learner.flat_target is shared.learner.flat
    assert shared.learner.target is shared.learner.online
    with pytest.raises(AttributeError, match="no second network: with target='shared' head 0"):
        _ = shared.policy.q_net_target
    assert not [name for name in shared.policy.state_dict() if "target" in name]


@pytest.mark.parametrize(
    ("count", "interval", "expected"),
    [
        (1, 20, {1: 5}),  # of 119 steps: after 20, ..., 100
        (4, 20, {1: 6}),  # of 120 steps
        (4, 3, {1: 20, 2: 10}),  # of 40 intervals a tick of four steps crosses one or two
    ],
)
def test_heads_are_shifted_for_each_interval(
    monkeypatch: pytest.MonkeyPatch, count: int, interval: int, expected: dict[int, int]
) -> None:
    seen: list[int] = []
    shift = SharedOutputs.shift

    def counted(self: SharedOutputs, times: int = 1) -> None:
        seen.append(times)
        shift(self, times)

    monkeypatch.setattr(SharedOutputs, "shift", counted)
    settings: dict[str, Any] = {"target": "shared", "iterations": 3, "train_freq": count}
    quick(lanes(count), **settings, target_update_interval=interval).learn(119)
    assert {times: seen.count(times) for times in set(seen)} == expected


def test_a_shift_is_all_that_changes_the_target_of_a_run() -> None:
    model = quick(target="shared", target_update_interval=40, train_freq=1, learning_rate=1e-2)
    outputs: Any = shared_outputs(model.policy.q_net)[0]
    found: list[list[float]] = []

    def look(locals_: Any, globals_: Any) -> bool:
        found.append(outputs.heads_of(outputs.of_actions.bias)[:, 0].flatten().tolist())
        return True

    model.learn(130, callback=look)
    changes = [step for step in range(1, len(found)) if found[step] != found[step - 1]]
    assert len(changes) == 3
    assert np.diff(changes).tolist() == [40, 40]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"iterations": 2}, "iterations must be 1 with target='copy'.*got 2. Set target='shared'"),
        ({"target": "shared", "iterations": 0}, "iterations must be an integer >= 1, got 0. Use 1 or more"),
        (
            {"target": "shared", "tau": 0.5},
            "tau must be 1 with target='shared'.*got 0.5. Set tau=1, or target='copy'",
        ),
        (
            {"target": "shared", "act_with": "target"},
            "act_with must be 'online' with target='shared'.*got 'target'. Remove it, or set target='copy'",
        ),
        ({"target": "share"}, r"target must be one of \['copy', 'shared'\], got 'share'.*Did you mean 'shared'"),
        (
            {"target": "shared", "policy": "MlpLstmPolicy", "policy_kwargs": {}},
            "policy must be feed-forward with target='shared', got 'MlpLstmPolicy'.*Use 'MlpPolicy'",
        ),
    ],
)
def test_what_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**kwargs)


def test_tau_stays_1_between_two_runs() -> None:
    model: Any = quick(target="shared")
    with pytest.raises(ConfigurationError, match="tau must be 1 with target='shared'"):
        model.tau = 0.5
    model.target_update_interval = 30
    assert model.target_config.interval == 30


def test_a_policy_whose_network_has_one_head_is_refused() -> None:
    class Mine(MlpPolicy):
        def make_q_net(self) -> Any:
            return self.network_class(self.make_features(), self._torso, self.actions, QNetworkConfig())

    with pytest.raises(ConfigurationError, match="QNetwork must have several heads with target='shared', got one"):
        quick(policy=Mine, target="shared")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_file_brings_all_heads_back(precision: str) -> None:
    model = quick(target="shared", iterations=3, precision=precision, noisy=True).learn(60)
    file = io.BytesIO()
    model.save(file)
    loaded: Any = DQN.load(file)
    assert torch.equal(loaded.learner.flat, model.learner.flat)
    assert (loaded.target, loaded.iterations) == ("shared", 3)
    obs = model.observation_space.sample()
    assert np.array_equal(loaded.q_values(obs), model.q_values(obs))


def test_values_are_those_of_the_last_head() -> None:
    model = quick(target="shared", iterations=3).learn(60)
    obs = model.observation_space.sample()
    outputs: Any = shared_outputs(model.policy.q_net)[0]
    with torch.no_grad():
        x, _ = model.policy.q_net.embed({"obs": torch.from_numpy(obs).unsqueeze(0)})
        every = Outputs.forward(outputs, x)[0]
    assert model.q_values(obs).tolist() == every[:, -1].tolist()
    assert model.predict(obs, deterministic=True)[0] == every[:, -1].argmax()


def test_recycled_units_are_forgotten_by_all_heads() -> None:
    model: Any = quick(target="shared", iterations=2, redo=10, train_freq=1, policy_kwargs={"net_arch": [6]})
    hidden: Any = model.policy.q_net.last.linears[0]
    outputs: Any = shared_outputs(model.policy.q_net)[0]
    with torch.no_grad():
        hidden.weight[2] = 0.0
        hidden.bias[2] = -1.0
    seen: list[bool] = []

    def look(locals_: Any, globals_: Any) -> bool:
        seen.append(bool(outputs.heads_of(outputs.of_actions.weight)[..., 2].any()))
        return True

    model.learn(60, callback=look)
    assert seen[0]
    assert False in seen  # after the first recycling all three heads have weights of 0 for it
    assert hidden.weight[2].any()


@SLOW
@pytest.mark.parametrize("actors", ["overlapped", "process:1x2"])
def test_actors_draw_heads_too(actors: str) -> None:
    model = quick(lanes(2), target="shared", iterations=2, actors=actors).learn(60)
    assert model._n_updates > 0
    assert torch.isfinite(model.learner.flat).all()
