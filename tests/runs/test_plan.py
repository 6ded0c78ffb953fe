"""Training plan: arguments override the preset, the preset overrides class defaults."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click
import pytest

from sb_dqn.envs.by_id import open_env, policy_alias
from sb_dqn.nn.torsos.convolutions import NatureCNN
from sb_dqn.nn.torsos.impala import ImpalaCNN
from sb_dqn.presets.catalogue import merge_policy_kwargs
from sb_dqn.runs.plan import STEPS_WITHOUT_PRESET, make_plan
from sb_dqn.runs.settings_syntax import algorithm_class


def test_preset_without_arguments() -> None:
    plan = make_plan("dqn", "CartPole-v1", seed=3)
    assert (plan.algorithm, plan.n_timesteps, plan.n_envs, plan.policy) == ("DQN", 50_000, 1, "MlpPolicy")
    assert plan.settings["learning_rate"] == "linear 0.001"
    assert plan.settings["seed"] == 3


def test_arguments_override_the_preset() -> None:
    plan = make_plan(
        "dqn", "CartPole-v1", timesteps=7, n_envs=2, policy="CnnPolicy", seed=1, device="cpu",
        assignments=["learning_rate=1e-3", "seed=1"], env_assignments=["sutton_barto_reward=True"],
    )  # fmt: skip
    assert (plan.n_timesteps, plan.n_envs, plan.policy) == (7, 2, "CnnPolicy")
    assert (plan.settings["learning_rate"], plan.settings["seed"], plan.settings["device"]) == (1e-3, 1, "cpu")
    assert plan.settings["batch_size"] == 64
    assert plan.env_kwargs == {"sutton_barto_reward": True}


@pytest.mark.parametrize(
    ("option", "assignment", "message"),
    [
        ({"seed": 0}, "seed=2", "seed must be 0 as in --seed, got 2. Remove one of them"),
        ({"device": "cpu"}, "device=cuda", "device must be cpu as in --device, got cuda. Remove one of them"),
    ],
)
def test_contradicting_values_are_rejected(option: dict[str, Any], assignment: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        make_plan("dqn", "CartPole-v1", assignments=[assignment], **option)


def test_keywords_that_disable_atari_preprocessing_are_rejected_with_an_atari_preset() -> None:
    message = (
        "ALE/Pong-v5 with render_mode='rgb_array', sound_obs=False .*, and the preset ALE/. is not tuned for that. "
        "Remove render_mode, sound_obs .use `sb-dqn enjoy RUN` to watch a run., or add obs_type=rgb"
    )
    env_assignments = ["render_mode=rgb_array", "sound_obs=False"]
    with pytest.raises(click.BadParameter, match=message) as rejected:
        make_plan("dqn", "ALE/Pong-v5", env_assignments=env_assignments)
    assert rejected.value.param_hint == "--env-set"
    with pytest.warns(UserWarning, match="mode=1, obs_type='rgb' .*, and the preset ALE/. is not tuned for that"):
        plan = make_plan("dqn", "ALE/Pong-v5", env_assignments=["mode=1", "obs_type=rgb"])
    assert plan.env_kwargs == {"mode": 1, "obs_type": "rgb"}
    assert make_plan("dqn", "CartPole-v1", env_assignments=env_assignments).env_kwargs == {
        "render_mode": "rgb_array",
        "sound_obs": False,
    }
    assert make_plan("dqn", "Pong-v4", env_assignments=env_assignments).preset is None


def test_word_none_is_rejected_for_keywords_without_text() -> None:
    with pytest.raises(click.BadParameter, match="max_grad_norm must not be text, got none. Use max_grad_norm=null"):
        make_plan("DoubleDQN", "CartPole-v1", assignments=["max_grad_norm=none"])
    assignments = ["max_grad_norm=null", "exploration=none", "odd=none"]
    settings = make_plan("DoubleDQN", "CartPole-v1", assignments=assignments).settings
    assert (settings["max_grad_norm"], settings["exploration"]) == (None, "none")


def test_without_a_preset_class_defaults_hold_and_a_seed_is_drawn() -> None:
    plan = make_plan("DoubleDQN", "Taxi-v3")
    assert plan.preset is None
    assert plan.n_timesteps == STEPS_WITHOUT_PRESET
    assert plan.policy is None
    assert set(plan.settings) == {"seed"}
    assert 0 <= plan.settings["seed"] < 2**31
    assert plan.settings["seed"] != make_plan("DoubleDQN", "Taxi-v3").settings["seed"]


def test_config_includes_class_defaults_and_preset() -> None:
    config = make_plan("DoubleDQN", "CartPole-v1", seed=3).config("MlpPolicy")
    assert config["settings"]["double_q"] is True
    assert config["settings"]["max_grad_norm"] == 10.0
    assert config["settings"]["learning_rate"] == "linear 0.001"
    assert config["preset"]["name"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("policy_kwargs", "expected"),
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
def test_policy_kwargs_are_merged_with_those_of_the_preset(policy_kwargs: str, expected: object) -> None:
    before = make_plan("Rainbow", "CartPole-v1").settings["policy_kwargs"]
    assert before == {"net_arch": [256, 256], "layer_norm": True, "optimizer_kwargs": {"eps": 1e-8}}
    settings = make_plan("Rainbow", "CartPole-v1", assignments=[f"policy_kwargs={policy_kwargs}"]).settings
    assert settings["policy_kwargs"] == expected
    assert make_plan("Rainbow", "CartPole-v1").settings["policy_kwargs"] == before


def test_another_extractor_drops_the_keywords_of_the_presets() -> None:
    """`width` is no keyword of NatureCNN; the optimizer's keywords stay, and so do those of the same extractor."""
    bbf = {
        "features_extractor_class": "ImpalaCNN",
        "features_extractor_kwargs": {"width": 4},
        "optimizer_kwargs": {"eps": 1e-4},
    }
    changed = merge_policy_kwargs(
        bbf, {"features_extractor_class": NatureCNN, "features_extractor_kwargs": {"paddings": [2, 2, 1]}}
    )
    assert changed == {
        "features_extractor_class": NatureCNN,
        "features_extractor_kwargs": {"paddings": [2, 2, 1]},
        "optimizer_kwargs": {"eps": 1e-4},
    }
    assert "features_extractor_kwargs" not in merge_policy_kwargs(bbf, {"features_extractor_class": "NatureCNN"})
    settings = make_plan(
        "CategoricalDQN",
        "ALE/Pong-v5",
        preset="bbf",
        assignments=["policy_kwargs={features_extractor_class: NatureCNN}"],
    ).settings
    assert settings["policy_kwargs"]["features_extractor_class"] == "NatureCNN"
    assert "features_extractor_kwargs" not in settings["policy_kwargs"]
    for same in ("ImpalaCNN", ImpalaCNN):
        assert merge_policy_kwargs(bbf, {"features_extractor_class": same})["features_extractor_kwargs"] == {"width": 4}


def test_extractor_keywords_are_merged_and_keep_null() -> None:
    assignments = ["policy_kwargs={features_extractor_kwargs: {features_dim: null}}"]
    kwargs = make_plan("R2D2", "ALE/Pong-v5", preset="pong-single-frames", assignments=assignments).settings[
        "policy_kwargs"
    ]
    assert kwargs["features_extractor_kwargs"] == {"features_dim": None, "layer_norm": True}
    assert kwargs["lstm_hidden_size"] == 256


def test_other_dicts_replace_those_of_the_preset() -> None:
    assert make_plan("Rainbow", "CartPole-v1").settings["noisy"] == {"sigma": 0.1}
    assignments = ["noisy={kind: independent}"]
    assert make_plan("Rainbow", "CartPole-v1", assignments=assignments).settings["noisy"] == {"kind": "independent"}


@pytest.mark.parametrize(
    ("assignment", "option"),
    [("n_envs=2", "--n-envs N"), ("policy=CnnPolicy", "--policy NAME"), ("env=3", "the argument ENV")],
)
def test_names_with_an_option_of_their_own_are_rejected(assignment: str, option: str) -> None:
    with pytest.raises(
        click.BadParameter, match=f"must be set by its own option, got it with --set. Use {option} of `sb-dqn train`"
    ):
        make_plan("DQN", "CartPole-v1", assignments=[assignment])


@pytest.mark.parametrize(
    ("algorithm", "env_id", "policy"),
    [
        ("DQN", "CartPole-v1", "MlpPolicy"),
        ("R2D2", "CartPole-v1", "MlpLstmPolicy"),
        ("R2D2", "sb_dqn/BitFlip-v0", "MultiInputLstmPolicy"),
    ],
)
def test_without_a_preset_the_policy_fits_the_observations_and_the_class(
    algorithm: str, env_id: str, policy: str
) -> None:
    with closing(open_env(env_id, 1, {})) as stream:
        assert policy_alias(stream, algorithm) == policy
        algorithm_class(algorithm)(policy, stream, buffer_size=1_000, seed=0, device="cpu")
