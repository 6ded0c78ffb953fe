"""What is said goes over the preset, the preset over the class."""

from __future__ import annotations

from typing import Any

import click
import pytest

from sb_dqn.cli.train.plan import STEPS_WITHOUT_PRESET, make_plan


def test_the_preset_alone() -> None:
    plan = make_plan("dqn", "CartPole-v1", seed=3)
    assert (plan.algorithm, plan.n_timesteps, plan.n_envs, plan.policy) == ("DQN", 50_000, 1, "MlpPolicy")
    assert plan.settings["learning_rate"] == "linear 0.001"
    assert plan.settings["seed"] == 3


def test_what_is_said_wins() -> None:
    plan = make_plan(
        "dqn", "CartPole-v1", timesteps=7, n_envs=2, policy="CnnPolicy", seed=1, device="cpu",
        assignments=["learning_rate=1e-3", "seed=1"], env_assignments=["sutton_barto_reward=True"],
    )  # fmt: skip
    assert (plan.n_timesteps, plan.n_envs, plan.policy) == (7, 2, "CnnPolicy")
    assert (plan.settings["learning_rate"], plan.settings["seed"], plan.settings["device"]) == (1e-3, 1, "cpu")
    assert plan.settings["batch_size"] == 64
    assert plan.env_kwargs == {"sutton_barto_reward": True}


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ({"seed": 0}, "seed=2", "seed=2 contradicts --seed 0; say one of them"),
        ({"device": "cpu"}, "device=cuda", "device=cuda contradicts --device cpu; say one of them"),
    ],
)
def test_two_values_for_one_thing_are_refused(option: dict[str, Any], given: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        make_plan("dqn", "CartPole-v1", assignments=[given], **option)


def test_keywords_that_take_the_preprocessing_away_meet_no_preset_of_atari_in_silence() -> None:
    said = (
        "ALE/Pong-v5 with render_mode='rgb_array', sound_obs=False is made by gymnasium.make.*, and the preset ALE/. is not for that; "
        "leave render_mode, sound_obs out .`sb-dqn enjoy RUN` shows a run., or say that this is meant: obs_type=rgb"
    )
    given = ["render_mode=rgb_array", "sound_obs=False"]
    with pytest.raises(click.BadParameter, match=said) as refused:
        make_plan("dqn", "ALE/Pong-v5", env_assignments=given)
    assert refused.value.param_hint == "--env-set"
    with pytest.warns(UserWarning, match="mode=1, obs_type='rgb' is made by .*, and the preset ALE/. is not for that"):
        plan = make_plan("dqn", "ALE/Pong-v5", env_assignments=["mode=1", "obs_type=rgb"])
    assert plan.env_kwargs == {"mode": 1, "obs_type": "rgb"}
    assert make_plan("dqn", "CartPole-v1", env_assignments=given).env_kwargs == {
        "render_mode": "rgb_array",
        "sound_obs": False,
    }
    assert make_plan("dqn", "Pong-v4", env_assignments=given).preset is None


def test_none_is_null_where_no_text_is_allowed() -> None:
    with pytest.raises(click.BadParameter, match="max_grad_norm=none is a word; say max_grad_norm=null"):
        make_plan("DoubleDQN", "CartPole-v1", assignments=["max_grad_norm=none"])
    given = ["max_grad_norm=null", "exploration=none", "odd=none"]
    settings = make_plan("DoubleDQN", "CartPole-v1", assignments=given).settings
    assert (settings["max_grad_norm"], settings["exploration"]) == (None, "none")


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
    ("said", "wanted"),
    [
        ("{net_arch: [32]}", {"net_arch": [32], "layer_norm": True, "optimizer_kwargs": {"eps": 1e-8}}),
        ("{layer_norm: false}", {"net_arch": [256, 256], "layer_norm": False, "optimizer_kwargs": {"eps": 1e-8}}),
        (
            "{optimizer_kwargs: {weight_decay: 0.1}}",
            {"net_arch": [256, 256], "layer_norm": True, "optimizer_kwargs": {"eps": 1e-8, "weight_decay": 0.1}},
        ),
        ("{optimizer_kwargs: null, layer_norm: null}", {"net_arch": [256, 256]}),
        ("null", None),
    ],
)
def test_policy_kwargs_go_over_those_of_the_preset(said: str, wanted: object) -> None:
    before = make_plan("Rainbow", "CartPole-v1").settings["policy_kwargs"]
    assert before == {"net_arch": [256, 256], "layer_norm": True, "optimizer_kwargs": {"eps": 1e-8}}
    settings = make_plan("Rainbow", "CartPole-v1", assignments=[f"policy_kwargs={said}"]).settings
    assert settings["policy_kwargs"] == wanted
    assert make_plan("Rainbow", "CartPole-v1").settings["policy_kwargs"] == before


def test_extractor_keywords_go_over_those_of_the_preset_and_none_among_them_stays() -> None:
    given = ["policy_kwargs={features_extractor_kwargs: {features_dim: null}}"]
    kwargs = make_plan("R2D2", "ALE/Pong-v5", preset="pong-single-frames", assignments=given).settings["policy_kwargs"]
    assert kwargs["features_extractor_kwargs"] == {"features_dim": None, "layer_norm": True}
    assert kwargs["lstm_hidden_size"] == 256


def test_other_dicts_replace_those_of_the_preset() -> None:
    assert make_plan("Rainbow", "CartPole-v1").settings["noisy"] == {"sigma": 0.1}
    given = ["noisy={kind: independent}"]
    assert make_plan("Rainbow", "CartPole-v1", assignments=given).settings["noisy"] == {"kind": "independent"}


@pytest.mark.parametrize(
    ("said", "option"),
    [("n_envs=2", "--n-envs N"), ("policy=CnnPolicy", "--policy NAME"), ("env=3", "the environment's id")],
)
def test_what_has_an_option_of_its_own(said: str, option: str) -> None:
    with pytest.raises(click.BadParameter, match=f"is no setting; `sb-dqn train` has {option}"):
        make_plan("DQN", "CartPole-v1", assignments=[said])
