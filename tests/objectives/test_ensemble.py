"""Ensembles: worked losses with decoys, members as networks of their own, priors that never change, members that act for an episode,
and a chain that needs them."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn import DQN, FQF, IQN, QRDQN, CategoricalDQN, Rainbow
from sb_dqn.acting.lane_state import ActingMembers
from sb_dqn.errors import ConfigurationError, MissingPart
from sb_dqn.nn.ensemble import Ensemble, EnsembleLinear
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.ensemble import EnsembleObjective, learns
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import MlpPolicy
from sb_dqn.policies.q_network import QNetwork, QNetworkConfig
from sb_dqn.types import Rows, Slot
from tests.marks import SLOW
from tests.objectives.test_shared_heads import BATCH
from tests.tiny import Tiny, lanes, quick

TABLES = torch.tensor([
    [[7.0, -9.0], [2.0, 30.0]],  # member 0: values of two states and two actions
    [[4.0, -8.0], [8.0, -1.0]],
])  # fmt: skip
TARGETS = torch.tensor([[[0.0, 0.0], [5.0, 1.0]], [[0.0, 0.0], [3.0, 12.0]]])


def of_tables(tables: Tensor) -> QNetwork:
    """A network whose two members have these values."""
    config = QNetworkConfig(ensemble=Ensemble(2, prior_scale=0.0))
    net: QNetwork = MlpPolicy(spaces.Discrete(2), spaces.Discrete(2), net_arch=[], config=config).q_net
    with torch.no_grad():
        net.head.outputs.of_actions.bias.zero_()
        net.head.outputs.of_actions.weight.copy_(tables.transpose(1, 2).reshape(4, 2))
    return net


@pytest.mark.parametrize(
    ("double_q", "errors"),
    [
        # 7 - (1 + 5 / 2) and 4 - (1 + 12 / 2); decoy of the second: 0.5 with the target of the first
        (False, [(3.5, -3.0), (6.0, 3.0)]),
        # a member chooses for itself: 7 - (1 + 1 / 2) and 4 - (1 + 3 / 2)
        (True, [(5.5, 1.5), (6.0, 3.0)]),
    ],
)
def test_each_member_learns_from_its_own_target(double_q: bool, errors: list[tuple[float, float]]) -> None:
    objective = EnsembleObjective(QLearning(Bootstrap(double_q), loss="mse"), Ensemble(2, share=1.0))
    loss, extras = objective(of_tables(TABLES), of_tables(TARGETS), BATCH)
    assert loss.tolist() == [sum(e * e / 2 for e in row) / 2 for row in errors]  # a mean over members, not a sum
    assert extras["priority"].tolist() == [sum(abs(e) for e in row) / 2 for row in errors]


def test_a_member_that_does_not_learn_from_a_transition_counts_as_zero() -> None:
    settings = Ensemble(2, share=0.5)
    place = torch.stack([torch.zeros(64, dtype=torch.long), torch.arange(64)])
    mask = learns(place, 2, 0.5)
    only_first = int((mask[0] & ~mask[1]).nonzero()[0, 0])
    batch = BATCH._replace(place=torch.tensor([[0, 0], [only_first, only_first]]))
    objective = EnsembleObjective(QLearning(loss="mse"), settings)
    loss, _ = objective(of_tables(TABLES), of_tables(TARGETS), batch)
    assert loss.tolist() == [3.5**2 / 4, 6.0**2 / 4]  # decoy, a mean over those that learn: twice that


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_members_learn_from_independent_shares(share: float) -> None:
    rows, members = 40_000, 4
    place = torch.stack([torch.arange(rows) % 8, torch.arange(rows) // 8 + 3_000_000])
    mask = learns(place, members, share).double()
    assert torch.equal(mask, learns(place, members, share).double())
    spread = math.sqrt(share * (1 - share) / rows)
    assert (mask.mean(1) - share).abs().max() < 5 * spread
    correlation = torch.corrcoef(mask)
    assert (correlation - torch.eye(members)).abs().max() < 0.03
    lane = mask[0].view(-1, 8)  # rows of a lane, and lanes of a row
    assert torch.corrcoef(lane.T).sub(torch.eye(8)).abs().max() < 0.08
    assert torch.corrcoef(torch.stack([lane[1:].flatten(), lane[:-1].flatten()]))[0, 1].abs() < 0.03


def single(net: QNetwork, member: int, members: int) -> dict[str, Tensor]:
    """The parameters of one member, as those of a network without an ensemble."""
    return {name: p.unflatten(0, (members, -1))[member] for name, p in net.named_parameters()}


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("arch", [[], [5], [6, 5]])
def test_members_are_networks_of_their_own(dueling: bool, arch: list[int]) -> None:
    members = 3
    space, actions = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)
    several = QNetworkConfig(dueling=dueling, ensemble=Ensemble(members, prior_scale=0.0))
    net = MlpPolicy(space, actions, net_arch=arch, config=several).q_net
    one = MlpPolicy(space, actions, net_arch=arch, config=QNetworkConfig(dueling=dueling)).q_net
    obs = {"obs": torch.randn(7, 4)}
    mask = torch.rand(7, 2) < 0.7
    found = net(obs, mask).q.unflatten(0, (members, -1))
    for member in range(members):
        one.load_state_dict(single(net, member, members))
        torch.testing.assert_close(found[member], one(obs, mask).q)


@pytest.mark.parametrize("algorithm", [DQN, CategoricalDQN, QRDQN, IQN, FQF])
def test_a_prior_is_added_and_never_changes(algorithm: type[DQN], tmp_path: Path) -> None:
    model = quick(
        algorithm=algorithm,
        ensemble={"members": 3, "prior_scale": 2.0},
        resets=5,
        tau=0.5,
        n_steps=3,
        learning_rate=0.1,
    )
    policy: Any = model.policy
    before = {name: value.clone() for name, value in policy.q_net.prior.state_dict().items()}
    start = model.learner.flat.clone()
    model.learn(80)
    assert model._n_updates > 5
    assert not torch.equal(start, model.learner.flat)
    model.save(tmp_path / "model")
    loaded: Any = algorithm.load(tmp_path / "model")
    for net in (policy.q_net, policy.q_net_target, loaded.policy.q_net):
        for name, value in net.prior.state_dict().items():
            assert torch.equal(value, before[name])
    assert not list(policy.q_net.prior.parameters())
    obs = np.zeros((2, 2), np.float32)
    assert np.array_equal(loaded.q_values(obs), model.q_values(obs))


def test_a_prior_is_worth_its_scale() -> None:
    config = QNetworkConfig(ensemble=Ensemble(3, prior_scale=2.0))
    net: Any = MlpPolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), net_arch=[8], config=config).q_net
    obs = {"obs": torch.randn(5, 4)}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        prior = net.prior
        hidden = torch.relu(torch.einsum("ni,koi->kno", obs["obs"], prior.hidden.linears[0].weight.view(3, 8, 4)))
        expected = torch.einsum("kni,koi->kno", hidden, prior.outputs.weight.view(3, 2, 8))
        torch.testing.assert_close(net(obs).q.view(3, 5, 2), 2.0 * expected)


def test_members_start_and_stay_different() -> None:
    layer = EnsembleLinear(4, 5, 3)
    x = torch.randn(1, 6, 4)
    once, each = layer(x), layer(x.expand(3, -1, -1))
    torch.testing.assert_close(once, each)
    assert not torch.allclose(once[0], once[1])
    model = quick(ensemble=3)
    model.learn(80)
    assert (model.uncertainty(np.zeros((2, 2), np.float32)) > 0).all()


# -- acting


def rows(action: bool, last: list[bool]) -> Rows:
    count = len(last)
    flags = np.array(last)
    slot = Slot({}, np.zeros(count, np.float32), np.zeros(count, np.float32), flags, flags, np.ones(count, bool))
    return Rows(np.zeros(count, np.int64) if action else None, (slot,), np.ones(count, bool), count)


def test_a_member_acts_until_the_end_of_an_episode() -> None:
    acting = ActingMembers(1_000_000, 2, np.random.default_rng(0))
    first = acting.of(rows(False, [False, False])).copy()
    assert acting.of(rows(True, [False, False])).tolist() == first.tolist()
    assert acting.of(rows(True, [True, False])).tolist() == first.tolist()  # the last row of an episode
    later = acting.of(rows(True, [False, False]))
    assert later[0] != first[0]
    assert later[1] == first[1]
    copied = ActingMembers(1_000_000, 2, np.random.default_rng(1))
    copied.load_state_dict(acting.state_dict())
    assert copied.of(rows(True, [False, False])).tolist() == later.tolist()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("prioritized", [False, {"initial": "td_error"}])
def test_actions_are_those_of_the_member(prioritized: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick(lanes(3), ensemble=4, learning_starts=0, learning_rate=1e-9, prioritized_replay=prioritized)
    policy: Any = model.policy
    chosen: list[npt.NDArray[np.int64]] = []
    of = ActingMembers.of

    def recorded(self: ActingMembers, tick: Rows) -> npt.NDArray[np.int64]:
        found = of(self, tick)
        obs = {"obs": torch.from_numpy(tick.slots[-1].obs["obs"])}
        with torch.no_grad():
            q = policy.values_of_members(obs)[0].numpy()
        if not tick.slots[-1].last.all():  # the next tick is a reset, not a step
            chosen.append(q[np.arange(3), found].argmax(-1))
            others.append(q.mean(1).argmax(-1))
        return found

    others: list[npt.NDArray[np.int64]] = []
    monkeypatch.setattr(ActingMembers, "of", recorded)
    taken: list[Any] = []

    def keep(names: Any, _: Any) -> bool:
        taken.append(np.array(names["actions"]))
        return True

    model.learn(90, callback=keep)
    assert np.array_equal(np.array(taken), np.array(chosen[: len(taken)]))
    assert not np.array_equal(np.array(taken), np.array(others[: len(taken)]))  # of the mean


def test_predict_follows_the_mean_and_uncertainty_is_their_spread() -> None:
    model = quick(ensemble=4)
    policy: Any = model.policy
    obs = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    with torch.no_grad():
        q = policy.values_of_members({"obs": torch.from_numpy(obs)})[0].numpy()
    assert q.shape == (6, 4, 3)
    np.testing.assert_allclose(model.q_values(obs), q.mean(1), rtol=1e-5)
    np.testing.assert_allclose(model.uncertainty(obs), q.std(1), rtol=1e-4)
    assert model.uncertainty(obs[0]).shape == (3,)
    assert model.predict(obs, deterministic=True)[0].tolist() == q.mean(1).argmax(-1).tolist()
    with pytest.raises(MissingPart, match="ensemble=True"):
        quick().uncertainty(obs)


@SLOW
@pytest.mark.parametrize(
    "settings",
    [
        {"actors": {"processes": 2, "lanes": 1}, "env": Tiny},
        {"algorithm": Rainbow, "noisy": False},
        {"precision": "bf16", "dueling": True},
        {"act_with": "target", "tau": 0.5},
        {"policy_kwargs": {"net_arch": [8, 8], "xavier_init": True}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_runs_with_other_parts(settings: dict[str, Any]) -> None:
    model = quick(ensemble=3, **settings).learn(80)
    assert model._n_updates > 0
    assert np.isfinite(model.uncertainty(np.zeros(2, np.float32))).all()


def test_xavier_weights_are_drawn_for_each_member() -> None:
    config = QNetworkConfig(ensemble=Ensemble(50, prior_scale=1.0))
    net: Any = MlpPolicy(
        spaces.Box(-1, 1, (6,)), spaces.Discrete(2), net_arch=[8], xavier_init=True, config=config
    ).q_net
    hidden = net.last.linears[0]
    assert hidden.weight.detach().abs().max() == pytest.approx(
        math.sqrt(6 / (6 + 8)), rel=0.01
    )  # decoy, of one matrix: sqrt(6 / (6 + 400))
    assert not hidden.bias.any()
    assert net.prior.hidden.linears[0].weight.std() == pytest.approx(1 / math.sqrt(6), rel=0.1)


@pytest.mark.parametrize("algorithm", [CategoricalDQN, QRDQN, IQN, FQF])
def test_the_distribution_is_a_mixture(algorithm: type[DQN]) -> None:
    model = quick(algorithm=algorithm, ensemble=3)
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    found = model.distribution(obs)
    np.testing.assert_allclose(found.probabilities.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.mean, model.q_values(obs), rtol=1e-4, atol=1e-5)


def test_its_greedy_actions_are_no_lack_of_exploration() -> None:
    assert "exploration" not in quick(ensemble=2).diagnose().values
    assert quick(exploration="none").diagnose().values["exploration"] == 0.0


# -- what it is for


class Chain(gymnasium.Env[Any, int]):
    """A deep sea (Osband et al. 2019, arXiv 1703.07608) of N rows: right costs 0.01 / N, and N times right ends with a reward of 1;
    which of the actions is right differs from cell to cell."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.right = np.random.default_rng(7).integers(2, size=(size, size))
        self.observation_space = spaces.Box(0, 1, (size * size,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.row = self.column = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = action == self.right[self.row, self.column]
        reward = 0.0
        if right:
            reward = float(self.column == self.size - 1) - 0.01 / self.size
        self.column = min(self.column + 1, self.size - 1) if right else max(self.column - 1, 0)
        self.row += 1
        return self._obs(), reward, self.row == self.size, False, {}

    def _obs(self) -> npt.NDArray[np.float32]:
        obs = np.zeros((self.size, self.size), np.float32)
        if self.row < self.size:
            obs[self.row, self.column] = 1.0
        return obs.ravel()


DEEP: dict[str, Any] = {
    "learning_rate": 1e-3, "batch_size": 32, "buffer_size": 10_000, "learning_starts": 100, "train_freq": 1,
    "target_update_interval": 4, "loss": "mse", "max_grad_norm": None, "policy_kwargs": {"net_arch": [50, 50]}, "seed": 0,
    "device": "cpu",
}  # fmt: skip


@SLOW
def test_an_ensemble_explores_a_chain_that_epsilon_does_not() -> None:
    """Random actions reach the reward in one of 2^12 episodes."""
    found = {}
    agents: dict[str, dict[str, Any]] = {"ensemble": {"ensemble": 10}, "epsilon": {"exploration_final_eps": 0.05}}
    for name, settings in agents.items():
        model = DQN("MlpPolicy", partial(Chain, 12), **DEEP, **settings).learn(12 * 800)
        env, total = Chain(12), 0.0
        obs, ended = env.reset()[0], False
        while not ended:
            obs, reward, ended, _, _ = env.step(int(model.predict(obs, deterministic=True)[0]))
            total += reward
        found[name] = total
        if name == "ensemble":
            start, unreachable = np.eye(12 * 12, dtype=np.float32)[
                [0, 11]
            ]  # the second: eleven times right in the first row
            assert model.uncertainty(start)[env.right[0, 0]] < 0.5 * model.uncertainty(unreachable).min()
    assert found["ensemble"] == pytest.approx(0.99)
    assert found["epsilon"] <= 0.0


# -- refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noisy": True}, "noisy must be False"),
        ({"target": "shared"}, "target must be 'copy'"),
        ({"self_prediction": True, "policy_kwargs": {"net_arch": [8, 8]}}, "self_prediction must be False"),
        ({"redo": 10}, "redo must be False"),
        ({"policy": "MlpLstmPolicy"}, "feed-forward"),
        ({"policy_kwargs": {"net_arch": [8], "spectral_norm": True}}, "spectral_norm"),
    ],
)
def test_what_an_ensemble_does_not_combine_with(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(ensemble=True, **settings)


def test_an_own_network_must_have_members() -> None:
    class OneHead(MlpPolicy):
        def make_q_net(self) -> QNetwork:
            return QNetwork(self.make_features(), self._torso, self.actions, QNetworkConfig())

    with pytest.raises(ConfigurationError, match="several members"):
        quick(policy=OneHead, ensemble=True)
