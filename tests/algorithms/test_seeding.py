"""Which seed reaches the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sb_dqn import DQN, make_atari_env, make_vec_env
from sb_dqn.rng import Generators
from tests.marks import SLOW

pytestmark = pytest.mark.usefixtures("eagerly")


def test_environment_seeds_leave_room_for_the_lanes_in_31_bits() -> None:
    seeds = [Generators(seed, torch.device("cpu")).env_seed for seed in range(200)]
    assert max(seeds) < 2**30
    assert len(set(seeds)) == 200


@SLOW
def test_atari_takes_the_seed_of_a_model_whose_raw_seed_has_32_bits() -> None:
    model = DQN("CnnPolicy", make_atari_env("ALE/Pong-v5", n_envs=2), seed=2, buffer_size=64, learning_starts=100)
    model.learn(4)
    assert model.num_timesteps >= 4


def first_observation(seed_of_env: int, seed_of_model: int | None) -> float:
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=seed_of_env), seed=seed_of_model, buffer_size=64)
    model.learn(1)
    return float(model.replay.ring.obs["obs"][0, 0])


def test_an_unseeded_model_leaves_the_environment_its_own_seed_and_a_seeded_one_does_not() -> None:
    assert first_observation(5, None) == first_observation(5, None) != first_observation(6, None)
    assert first_observation(5, 1) == first_observation(6, 1)


def test_a_model_made_without_environment_takes_any_number_of_lanes(tmp_path: Path) -> None:
    DQN("MlpPolicy", "CartPole-v1", seed=0, buffer_size=64).save(tmp_path / "m.zip")
    model = DQN.load(tmp_path / "m.zip")
    model.set_env(make_vec_env("CartPole-v1", n_envs=3))
    model.learn(30)
    assert model.n_envs == model.statistics.num_envs == model.exploration.num_lanes == 3


def test_a_verbose_model_says_the_size_of_its_replay_and_what_its_lanes_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    DQN("CnnPolicy", make_atari_env("ALE/Pong-v5", n_envs=2), buffer_size=1000, verbose=1)
    said = capsys.readouterr().out
    assert "1,000 rows" in said
    assert "'sticky'" in said
    assert "over all of them" in said
