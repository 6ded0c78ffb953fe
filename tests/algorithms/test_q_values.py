"""`q_values` and `distribution`: the numbers behind `predict`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn.algorithms import C51, DQN, FQF, IQN, PPO, QRDQN, R2D2
from sb_dqn.errors import MissingPart, SpaceError
from tests.tiny import OBSERVATIONS, Q_AGENTS, Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")

OBS = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)


class Branches(Tiny):
    """Has two branches, of three and two choices."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = spaces.MultiDiscrete([3, 2])


@pytest.mark.parametrize("name", Q_AGENTS)
def test_the_best_value_is_the_greedy_action(name: str) -> None:
    model = quick(Tiny(start=5), algorithm=Q_AGENTS[name])
    q = model.q_values(OBS)
    assert q.shape == (7, 3)
    assert q.dtype == np.float32
    assert (q.argmax(-1) + 5 == model.predict(OBS, deterministic=True)[0]).all()
    np.testing.assert_allclose(model.q_values(OBS[0]), q[0], atol=1e-6)


@pytest.mark.parametrize("algorithm", [C51, QRDQN, IQN, FQF])
@pytest.mark.parametrize("env", [Tiny, Branches])
def test_a_distribution_has_the_mean_of_the_values(algorithm: Any, env: Any) -> None:
    model = quick(env(), algorithm=algorithm)
    branches = (2,) if env is Branches else ()
    found = model.distribution(OBS)
    assert found.atoms.shape == found.probabilities.shape == (7, *branches, 3, found.atoms.shape[-1])
    np.testing.assert_allclose(found.probabilities.sum(-1), 1.0, rtol=1e-5)
    q = model.q_values(OBS)
    exists = q > -1e9
    assert exists.sum() == 7 * (5 if branches else 3)
    np.testing.assert_allclose(found.mean[exists], q[exists], atol=1e-5)
    assert model.distribution(OBS[0]).atoms.shape == found.atoms.shape[1:]


def test_values_of_a_risk_averse_agent_are_below_the_mean() -> None:
    model = quick(algorithm=IQN, risk="cvar 0.1")
    assert np.abs(model.q_values(OBS) - model.distribution(OBS).mean).max() > 1e-4
    assert (model.q_values(OBS).argmax(-1) == model.predict(OBS, deterministic=True)[0]).all()


def test_illegal_actions_have_the_lowest_value() -> None:
    q = quick().q_values(OBS[0], action_masks=[False, True, False])
    assert (q == [-(2.0**100), q[1], -(2.0**100)]).all()
    assert abs(q[1]) < 100


def test_a_recurrent_model_continues_from_its_state() -> None:
    model = quick(algorithm=R2D2)
    _, state = model.predict(OBS[0], deterministic=True)
    first, second = model.q_values(OBS[1]), model.q_values(OBS[1], state, reward=0.5)
    assert np.abs(first - second).max() > 1e-6
    assert second.argmax() == model.predict(OBS[1], state, deterministic=True, reward=0.5)[0]


def test_what_is_refused() -> None:
    with pytest.raises(MissingPart, match="q_values requires an algorithm that learns action values, got PPO"):
        quick(algorithm=PPO).q_values(OBS)
    with pytest.raises(MissingPart, match="distribution requires .* got DQN"):
        quick(algorithm=DQN).distribution(OBS)
    with pytest.raises(SpaceError, match=r"must have shape \(2,\)"):
        quick().q_values(np.zeros(3))
    with pytest.raises(SpaceError, match="must have the keys"):
        quick(Tiny("dict"), "MultiInputPolicy").q_values(OBSERVATIONS["vector"].sample())
