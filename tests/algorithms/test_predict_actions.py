"""`predict` where actions are masked, branched, noisy, or explored in another way than by epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.accelerate import Mode
from sb_dqn.acting.network_runner import NetworkRunner
from sb_dqn.acting.predictor import batch_masks
from sb_dqn.algorithms import DQN
from sb_dqn.errors import SpaceError
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.policies.q_policy import MlpPolicy, MultiInputPolicy, QPolicy
from sb_dqn.spaces import ActionShape
from tests.tiny import PLACE, Tiny, quick

UNEVEN = spaces.MultiDiscrete([3, 2, 4], start=[0, 5, -1])
LEGAL_KEY = spaces.Dict({"legal": spaces.MultiBinary(3), "place": PLACE})


class Branched(Tiny):
    """Several choices at once."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = UNEVEN

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observation_space.sample(), float(action[0] == 0), self.t >= self.length, False, {}


class Keyed(gymnasium.Env[Any, Any]):
    """Tells its legal actions in the observation: all but one, another one each time; none at the end."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = LEGAL_KEY, spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def _observe(self) -> dict[str, Any]:
        legal = (np.arange(3) != self.t % 3) & (self.t < 6)
        return {"legal": legal.astype(np.int8), "place": np.array([self.t, 1], np.float32)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action - 5 != self.t % 3, "an action that is not legal"
        self.t += 1
        return self._observe(), 1.0, self.t == 6, False, {}


def prefers(model: DQN, *best: int) -> DQN:
    """The model with its greedy action set, one index for each branch."""
    with torch.no_grad():
        model.learner.flat.zero_()
        bias = model.policy.get_parameter("q_net.head.outputs.of_actions.bias")
        bias.view(len(best), -1)[range(len(best)), best] = 1.0
    return model


def masked(best: int = 2, **kwargs: Any) -> DQN:
    return prefers(quick(Tiny(start=5), **kwargs), best)


# -- masks


@pytest.mark.parametrize("mask", [[True, False, False], np.array([1, 0, 0], np.int8), np.array([[1.0, 0, 0]])])
def test_a_mask_for_one_observation(mask: Any) -> None:
    action, _ = masked().predict(np.zeros(2), deterministic=True, action_masks=mask)
    assert np.shape(action) == ()
    assert action == 5
    assert masked().predict(np.zeros(2), deterministic=True)[0] == 7


def test_masks_for_each_observation_and_for_all() -> None:
    model, obs = masked(), np.zeros((3, 2))
    each = np.array([[0, 1, 0], [1, 1, 1], [1, 0, 0]])
    assert model.predict(obs, deterministic=True, action_masks=each)[0].tolist() == [6, 7, 5]
    assert model.predict(obs, deterministic=True, action_masks=[0, 1, 0])[0].tolist() == [6, 6, 6]


@pytest.mark.parametrize("exploration", ["epsilon", {"kind": "boltzmann", "temperature": 1e6}, "none"])
def test_masks_are_obeyed_whatever_explores(exploration: Any) -> None:
    model = masked(exploration=exploration)
    masks = np.tile([[0, 1, 1], [1, 0, 0]], (100, 1))
    action, _ = model.predict(np.zeros((200, 2)), action_masks=masks)
    assert masks[range(200), action - 5].all()
    assert set(action[::2].tolist()) == ({7} if exploration == "none" else {6, 7})


@pytest.mark.parametrize(
    "mask",
    [[1, 0], np.ones((2, 3)), [0, 1, 2], [0.5, 0, 1], "all", [[1, 0, 1], [1, 0]], np.ones((1, 1, 3)), 1, [None] * 3],
)
def test_masks_that_are_refused(mask: Any) -> None:
    with pytest.raises(SpaceError, match=r"(?s)action_masks must be .* of one of the shapes \(3,\), \(1, 3\), got"):
        masked().predict(np.zeros(2), action_masks=mask)


def test_a_mask_that_allows_nothing_is_refused() -> None:
    with pytest.raises(SpaceError, match="action_masks must allow an action .* got none for observation 1. Allow one"):
        masked().predict(np.zeros((2, 2)), action_masks=[[1, 0, 0], [0, 0, 0]])


def test_the_observation_tells_what_is_legal(tmp_path: Path) -> None:
    model = prefers(quick(Keyed(), "MultiInputPolicy", action_mask="legal"), 2)
    model.save(tmp_path / "model")
    for one in (model, DQN.load(tmp_path / "model")):
        observation = {"legal": np.array([1, 1, 0]), "place": np.zeros(2)}
        assert one.predict(observation, deterministic=True)[0] == 5
        assert {int(one.predict(observation)[0]) for _ in range(50)} == {5, 6}
        assert one.predict(observation, deterministic=True, action_masks=[0, 0, 1])[0] == 7
        final = {"legal": np.zeros((2, 3), np.int8), "place": np.zeros((2, 2))}
        assert one.predict(final, deterministic=True)[0].tolist() == [7, 7]


def test_without_the_keyword_the_observation_tells_nothing() -> None:
    model = prefers(quick(Keyed(), "MultiInputPolicy"), 2)
    assert model.predict({"legal": np.array([1, 1, 0]), "place": np.zeros(2)}, deterministic=True)[0] == 7


# -- branches

SHAPE = ActionShape.of(UNEVEN)
FLAT = [1, 0, 1, 0, 1, 0, 0, 1, 0]
PADDED = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("given", [FLAT, [FLAT, FLAT], PADDED, [PADDED] * 2, np.array(PADDED, bool)])
def test_masks_of_branches(given: Any) -> None:
    found = batch_masks(SHAPE, given, 2)
    assert found.dtype == np.bool_
    assert found.astype(int).tolist() == [PADDED] * 2


def test_one_branch_alone_may_not_be_empty() -> None:
    with pytest.raises(SpaceError, match="got none for observation 0"):
        batch_masks(SHAPE, [1, 0, 1, 0, 0, 0, 0, 1, 0], 1)


def test_actions_of_several_branches() -> None:
    model = prefers(quick(Branched()), 1, 1, 3)
    one, _ = model.predict(np.zeros(2), deterministic=True)
    assert one.tolist() == [1, 6, 2]
    assert one.dtype == np.int64
    many, _ = model.predict(np.zeros((4, 2)), deterministic=True)
    assert many.tolist() == [[1, 6, 2]] * 4
    assert model.predict(np.zeros(2), deterministic=True, action_masks=FLAT)[0].tolist() == [0, 6, 1]


@pytest.mark.parametrize("exploration", ["epsilon", {"kind": "boltzmann", "temperature": 1e6}])
def test_branches_are_explored(exploration: Any) -> None:
    model = prefers(quick(Branched(), exploration=exploration), 1, 1, 3)
    many, _ = model.predict(np.zeros((500, 2)))
    assert [sorted(set(branch.tolist())) for branch in many.T] == [[0, 1, 2], [5, 6], [-1, 0, 1, 2]]
    some, _ = model.predict(np.zeros((500, 2)), action_masks=FLAT)
    assert [sorted(set(branch.tolist())) for branch in some.T] == [[0, 2], [6], [1]]


def test_branches_learn_and_come_back(tmp_path: Path) -> None:
    model = quick(Branched()).learn(40)
    model.save(tmp_path / "model")
    obs = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    expected, _ = model.predict(obs, deterministic=True)
    assert DQN.load(tmp_path / "model").predict(obs, deterministic=True)[0].tolist() == expected.tolist()


# -- how much is explored


def test_predict_has_an_epsilon_of_its_own() -> None:
    model, draws = masked(1, evaluation_eps=0.3), 20_000
    assert model.exploration_rate == 1.0
    action, _ = model.predict(np.zeros((draws, 2), np.float32))
    shares = np.bincount(action - 5, minlength=3) / draws
    assert np.abs(shares - [0.1, 0.8, 0.1]).max() < 4.5 * np.sqrt(0.8 * 0.2 / draws)
    assert set(masked(1, evaluation_eps=0.0).predict(np.zeros((200, 2)))[0].tolist()) == {6}


def test_boltzmann_shares() -> None:
    model, draws = masked(1, exploration={"kind": "boltzmann", "temperature": 0.5}), 20_000
    action, _ = model.predict(np.zeros((draws, 2), np.float32))
    shares = np.bincount(action - 5, minlength=3) / draws
    expected = np.exp([0.0, 2.0, 0.0]) / np.exp([0.0, 2.0, 0.0]).sum()  # 0.1065, 0.787, 0.1065; decoy tau 1: 0.576
    assert np.abs(shares - expected).max() < 4.5 * np.sqrt(0.79 * 0.21 / draws)


# -- what the nets are asked

VECTOR = PLACE
OBS = {"obs": np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)}
MASK = np.array([[1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]], bool)


def net(noisy: str | None = None, space: Any = VECTOR) -> QPolicy:
    torch.manual_seed(0)
    design = QNetworkConfig(noisy=None if noisy is None else Noisy(noisy, 2.0))
    make = MultiInputPolicy if isinstance(space, spaces.Dict) else MlpPolicy
    return make(space, spaces.Discrete(4), net_arch=[8], config=design)


MODES: list[Mode] = ["eager", "traced"]


def values_of(policy: QPolicy, mode: Mode, generator: torch.Generator | None = None) -> Any:
    """A function from observations and a mask to Q-values."""
    runner = NetworkRunner(policy, policy.values, mode, generator=generator)
    return lambda obs, mask=None: runner.run_single(obs, mask)


def greedy_of(policy: QPolicy, mode: Mode) -> Any:
    """A function from observations and a mask to greedy actions."""
    runner = NetworkRunner(policy, policy.greedy, mode)
    return lambda obs, mask=None: runner.run_single(obs, mask)


@pytest.mark.parametrize("mode", MODES)
def test_values_and_the_best_of_them(mode: Mode) -> None:
    policy = net()
    q, best = values_of(policy, mode), greedy_of(policy, mode)
    for mask in (None, MASK, None):
        values = q(OBS, mask)
        assert values.shape == (3, 4)
        assert best(OBS, mask).tolist() == values.argmax(-1).tolist()
        assert mask is None or (values[~mask] < -1e8).all()
        assert mask is not None or (np.abs(values) < 100).all()
    fewer = {"obs": OBS["obs"][:2]}
    np.testing.assert_allclose(q(fewer), q(OBS)[:2], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["factorised", "independent"])
def test_noise_is_fresh_in_each_call(mode: Mode, kind: str) -> None:
    policy = net(kind)
    acting = values_of(policy, mode, torch.Generator().manual_seed(3))
    same = {"obs": np.zeros((3, 2), np.float32)}
    first, second, masked_q = acting(same).copy(), acting(same).copy(), acting(same, MASK).copy()
    assert (first != second).all()
    assert (masked_q[MASK] != second[MASK]).all()
    rows_differ = bool((first[0] != first[1]).all())
    assert rows_differ is (kind == "factorised")  # independent noise: one draw for all lanes
    still = values_of(policy, mode)
    assert (still(same) == still(same)).all()
    mean = policy.values({"obs": torch.zeros(3, 2)}).detach().numpy()
    np.testing.assert_allclose(still(same), mean, rtol=1e-5)


@pytest.mark.parametrize("kind", ["factorised", "independent"])
def test_noise_is_the_same_in_every_mode(kind: str) -> None:
    policy = net(kind)
    eager, traced = (values_of(policy, mode, torch.Generator().manual_seed(3)) for mode in MODES)
    for _ in range(3):
        np.testing.assert_allclose(eager(OBS), traced(OBS), rtol=1e-4, atol=1e-5)


def test_a_dict_with_a_mask() -> None:
    policy = net(space=spaces.Dict({"place": PLACE, "more": spaces.Box(-1, 1, (3,), np.float32)}))
    obs = {"place": OBS["obs"], "more": np.zeros((3, 3), np.float32)}
    for mode in MODES:
        assert MASK[range(3), greedy_of(policy, mode)(obs, MASK)].all()


def test_predict_uses_mean_weights() -> None:
    model = quick(Tiny(), noisy=True)
    found = {int(model.predict(np.ones(2), deterministic=True)[0]) for _ in range(30)}
    assert len(found) == 1
