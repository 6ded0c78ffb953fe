"""Experiments of bsuite as environments; with a stand-in for the package, and with the package where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from sb_dqn import DQN, make_vec_env
from sb_dqn.callbacks import StopTrainingOnMaxEpisodes
from sb_dqn.envs.bsuite_tasks import BsuiteTask
from sb_dqn.envs.make import make_env
from sb_dqn.errors import ConfigurationError


class TwoSteps:
    """Task of dm_env that ends in its second step, with discount 0 or, in every second episode, 1."""

    def __init__(self, seed: int | None) -> None:
        self.seed, self.episodes = seed, 0

    def observation_spec(self) -> Any:
        return SimpleNamespace(shape=(1, 3))

    def action_spec(self) -> Any:
        return SimpleNamespace(num_values=2)

    def reset(self) -> Any:
        self.episodes += 1
        self.steps: Iterator[tuple[bool, float]] = iter([(False, 1.0), (True, float(self.episodes % 2 == 0))])
        return self._step(False, 1.0)

    def step(self, action: int) -> Any:
        return self._step(*next(self.steps))

    def _step(self, last: bool, discount: float) -> Any:
        return SimpleNamespace(last=lambda: last, discount=discount, reward=2.0, observation=np.ones((1, 3)))


@pytest.fixture
def bsuite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the package, with an experiment that has a seed and one that has none."""

    def load(name: str, settings: dict[str, Any]) -> TwoSteps:
        assert settings.pop("size") in (3, 4)
        assert settings.keys() == (set() if name == "deep_sea_stochastic" else {"seed"})
        return TwoSteps(settings.get("seed"))

    ids = ["catch/0", "catch/1", "deep_sea_stochastic/0", "mnist/0"]
    sweep: Any = SimpleNamespace(
        SWEEP=ids,
        SETTINGS={name: {"size": 3 + place % 2} for place, name in enumerate(ids)},
        EPISODES=dict.fromkeys(ids, 7),
    )
    seeded, unseeded = (lambda size, seed: None), (lambda size: None)
    loaders = {"catch": seeded, "mnist": seeded, "deep_sea_stochastic": unseeded}
    monkeypatch.setitem(sys.modules, "bsuite.sweep", sweep)
    monkeypatch.setitem(
        sys.modules, "bsuite.bsuite", SimpleNamespace(load=load, EXPERIMENT_NAME_TO_ENVIRONMENT=loaders)
    )


@pytest.mark.usefixtures("bsuite")
def test_discount_of_the_last_step_says_how_an_episode_ends() -> None:
    env = BsuiteTask("catch", setting=1)
    assert (env.bsuite_id, env.num_episodes, env.observation_space.shape) == ("catch/1", 7, (3,))
    assert env.reset()[0].tolist() == [1.0, 1.0, 1.0]
    assert env.step(0)[1:4] == (2.0, False, False)
    assert env.step(0)[1:4] == (2.0, True, False)
    env.reset()
    assert [env.step(0)[2:4], env.step(0)[2:4]] == [(False, False), (False, True)]


@pytest.mark.usefixtures("bsuite")
def test_random_numbers_follow_from_seed_and_setting() -> None:
    seeds = list[int]()
    for setting, seed in ((0, 5), (0, 5), (1, 5), (0, 6)):
        env = BsuiteTask("catch", setting)
        unseeded = env.env.seed
        assert unseeded is None
        env.reset(seed=seed)
        seeds.append(env.env.seed)
        env.reset()
        assert env.env.episodes == 2  # an unseeded reset goes on
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3
    BsuiteTask("deep_sea_stochastic").reset(seed=5)  # it takes no seed


@pytest.mark.usefixtures("bsuite")
def test_setting_that_an_experiment_does_not_have_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="setting must be an integer from 0 to 1, got 2"):
        BsuiteTask("catch", 2)


@pytest.mark.usefixtures("bsuite")
def test_training_ends_after_the_episodes_of_a_setting() -> None:
    task = BsuiteTask("catch")
    model = DQN("MlpPolicy", task, seed=0, learning_starts=5)
    model.learn(10**9, callback=StopTrainingOnMaxEpisodes(20))
    assert task.env.episodes in (20, 21)  # an environment may be reset at once or at the next step


@pytest.mark.usefixtures("bsuite")
@pytest.mark.parametrize(("experiment", "expected"), [("mnist", [0, 127, 128, 255]), ("catch", [0, 127, -128, -1])])
def test_pixels_of_mnist_are_not_negative(experiment: str, expected: list[float]) -> None:
    env = BsuiteTask(experiment)
    signed = np.array([[0, 127], [-128, -1]], np.int8).astype(np.float32) / 255  # as bsuite computes them
    env.env.reset = lambda: SimpleNamespace(observation=signed)
    obs, _ = env.reset()
    assert obs.dtype == np.float32
    assert obs * 255 == pytest.approx(np.array(expected), abs=1e-4)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bsuite.sweep", None)
    registry = {name: spec for name, spec in gymnasium.registry.items() if not name.startswith("bsuite/")}
    monkeypatch.setattr(gymnasium, "registry", registry)
    with pytest.raises(ConfigurationError, match=r'pip install "sb_dqn\[bsuite\]"'):
        make_env("bsuite/catch-v0")


def test_experiments_of_the_package_are_made_by_their_ids() -> None:
    pytest.importorskip("bsuite")
    env: Any = make_env("bsuite/memory_len-v0", {"setting": 3})
    assert (env.unwrapped.bsuite_id, env.unwrapped.num_episodes) == ("memory_len/3", 10_000)
    assert len([name for name in gymnasium.registry if name.startswith("bsuite/")]) == 23
    for experiment in ("cartpole_noise", "deep_sea", "catch_scale", "umbrella_length"):
        first, second = (make_env(f"bsuite/{experiment}-v0", {"setting": 2}) for _ in range(2))
        left: Any
        right: Any
        left, right = first.reset(seed=3), second.reset(seed=3)
        for _ in range(30):
            assert np.array_equal(left[0], right[0])
            ended = len(left) > 2 and (left[2] or left[3])
            left, right = (each.reset() if ended else each.step(1) for each in (first, second))
            assert left[1:] == right[1:]
    lanes = make_vec_env("bsuite/catch-v0", 2, env_kwargs={"setting": 19})
    DQN("MlpPolicy", lanes, seed=0, learning_starts=20).learn(60)
