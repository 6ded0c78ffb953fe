"""What is said goes over the preset, the preset over the class."""

from __future__ import annotations

import click
import pytest

from sb_dqn.cli.plan import STEPS_WITHOUT_PRESET, make_plan


def test_the_preset_alone() -> None:
    plan = make_plan("dqn", "CartPole-v1", seed=3)
    assert (plan.algorithm, plan.n_timesteps, plan.n_envs, plan.policy) == ("DQN", 50_000, 1, "MlpPolicy")
    assert plan.settings["learning_rate"] == "linear 0.001"
    assert plan.settings["seed"] == 3


def test_what_is_said_wins() -> None:
    plan = make_plan(
        "dqn", "CartPole-v1", timesteps=7, n_envs=2, policy="CnnPolicy", seed=1, device="cpu",
        assignments=["learning_rate=1e-3", "seed=9"], env_assignments=["sutton_barto_reward=True"],
    )  # fmt: skip
    assert (plan.n_timesteps, plan.n_envs, plan.policy) == (7, 2, "CnnPolicy")
    assert (plan.settings["learning_rate"], plan.settings["seed"], plan.settings["device"]) == (1e-3, 1, "cpu")
    assert plan.settings["batch_size"] == 64
    assert plan.env_kwargs == {"sutton_barto_reward": True}


def test_without_a_preset_the_class_decides_and_a_seed_is_drawn() -> None:
    plan = make_plan("DoubleDQN", "Taxi-v3")
    assert plan.preset is None
    assert plan.n_timesteps == STEPS_WITHOUT_PRESET
    assert plan.policy is None
    assert set(plan.settings) == {"seed"}
    assert 0 <= plan.settings["seed"] < 2**31
    assert plan.settings["seed"] != make_plan("DoubleDQN", "Taxi-v3").settings["seed"]


def test_the_config_is_whole() -> None:
    config = make_plan("DoubleDQN", "CartPole-v1", seed=3).config("MlpPolicy")
    assert config["settings"]["double_q"] is True
    assert config["settings"]["max_grad_norm"] == 10.0
    assert config["settings"]["learning_rate"] == "linear 0.001"
    assert config["preset"]["name"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("said", "option"),
    [("n_envs=2", "--n-envs N"), ("policy=CnnPolicy", "--policy NAME"), ("env=3", "the environment's id")],
)
def test_what_has_an_option_of_its_own(said: str, option: str) -> None:
    with pytest.raises(click.BadParameter, match=f"is no setting; `sb-dqn train` has {option}"):
        make_plan("DQN", "CartPole-v1", assignments=[said])
