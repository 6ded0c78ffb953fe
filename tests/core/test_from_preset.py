"""`from_preset`: a model with the tuned settings of its class for an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from sb_dqn import DQN, PPO, R2D2, CategoricalDQN, NStepDQN, algorithms
from sb_dqn.actors import OverlappedActors
from sb_dqn.errors import ConfigurationError
from sb_dqn.presets import find_preset, list_presets
from sb_dqn.presets import list as listed
from tests.marks import SLOW


class OwnDQN(DQN):
    """A class outside the package."""


@pytest.mark.parametrize("cls", [DQN, CategoricalDQN, NStepDQN, PPO])
def test_model_has_settings_lanes_and_policy_of_the_preset(cls: type[DQN]) -> None:
    preset = find_preset(cls.__name__, "CartPole-v1")
    assert preset is not None
    model = cls.from_preset("CartPole-v1", seed=3)
    assert {name: model.arguments[name] for name in preset.settings} == preset.settings
    assert (model.n_envs, model.arguments["policy"], model.arguments["seed"]) == (preset.n_envs, preset.policy, 3)


def test_changes_are_over_the_preset_and_policy_kwargs_are_merged() -> None:
    model = DQN.from_preset(
        "LunarLander-v3", n_envs=2, gamma=0.5, policy_kwargs={"net_arch": [8]}, env_kwargs={"gravity": -9.0}
    )
    assert (model.gamma, model.n_envs) == (0.5, 2)
    assert model.arguments["policy_kwargs"] == {"net_arch": [8], "layer_norm": True}
    assert model.get_env().envs[0].unwrapped.gravity == -9.0


def test_keywords_of_the_environment_and_actors_of_a_preset(tmp_path: Path) -> None:
    assert PPO.from_preset("sb_dqn/TMaze-v0").blueprint.observation_space.shape == (4,)
    path = tmp_path / "mine.yaml"
    path.write_text(
        "presets: {CartPole-v1: {n_timesteps: 9, policy: MlpPolicy, actors: 'overlapped:2x2', buffer_size: 99}}"
    )
    model = DQN.from_preset("CartPole-v1", preset=str(path))
    assert (model.n_envs, isinstance(model._actors, OverlappedActors)) == (4, True)
    model.close()


@SLOW
def test_fast_rainbow_has_the_settings_of_its_code_and_learns() -> None:
    pytest.importorskip("ale_py")
    preset = find_preset("DQN", "ALE/Pong-v5", "fast-rainbow")
    assert preset is not None
    assert (preset.n_timesteps, preset.n_envs, preset.env_kwargs) == (10_000_000, 64, {"protocol": "classic"})
    lanes: dict[str, Any] = {
        "n_envs": 4,
        "buffer_size": 2_000,
        "learning_starts": 64,
        "batch_size": 4,
        "seed": 0,
        "device": "cpu",
    }
    model = DQN.from_preset("ALE/Pong-v5", preset="fast-rainbow", **lanes)
    try:
        settings = model.arguments
        assert settings["batch_size"] == 4  # changed above; 256 in the preset
        expected = {
            "double_q": True,
            "dueling": True,
            "n_steps": 3,
            "gamma": 0.99,
            "train_freq": 64,
            "gradient_steps": 2,
        }
        assert {name: settings[name] for name in expected} == expected
        assert (preset.settings["batch_size"], preset.settings["buffer_size"]) == (256, 2**20)
        sampler: Any = model.replay.sampler
        priorities = sampler.settings
        assert (priorities.alpha, priorities.eps, priorities.beta(0, 100), priorities.beta(100, 100)) == (
            0.5,
            1e-6,
            0.45,
            1.0,
        )
        assert model.learner.optimizer.param_groups[0]["eps"] == 0.005 / 256
        assert model.exploration_rate == 0.0
        net = model.policy.q_net
        means = {name: parameter.numel() for name, parameter in net.named_parameters() if "sigma" not in name}
        streams, outputs = 2 * (64 * 8 * 8 * 256 + 256), 257 + 257 * 6
        assert sum(means.values()) == 389_024 + streams + outputs == 2_488_487
        model.learn(200)
        assert model._n_updates == 2 * 2
        assert torch.isfinite(model.learner.flat).all()
    finally:
        model.close()


@SLOW
@pytest.mark.parametrize("name", ["spr", "sr-spr", "bbf"])
def test_agents_for_few_steps_have_the_settings_of_their_papers_and_learn(name: str) -> None:
    """The table of BBF's configurations; learning rates, ranges and priorities are common to all three."""
    pytest.importorskip("ale_py")
    preset = find_preset("CategoricalDQN", "ALE/Pong-v5", name)
    assert preset is not None
    assert (preset.n_timesteps, preset.env_kwargs) == (100_000, {"protocol": "classic"})
    assert (
        preset.settings["batch_size"] * preset.settings["gradient_steps"] == {"spr": 64, "sr-spr": 256, "bbf": 64}[name]
    )
    small = {
        "features_extractor_kwargs": {
            **preset.settings["policy_kwargs"]["features_extractor_kwargs"],
            "features_dim": 16,
        }
    }
    if name == "bbf":
        small["features_extractor_kwargs"]["width"] = 1
    kwargs = {**preset.settings["policy_kwargs"], **small}
    model: Any = CategoricalDQN.from_preset(
        "ALE/Pong-v5",
        preset=name,
        buffer_size=500,
        learning_starts=40,
        batch_size=4,
        seed=0,
        device="cpu",
        policy_kwargs=kwargs,
    )
    try:
        assert model.exploration_rate == {"spr": 0.0}.get(name, 1.0)
        if name != "spr":
            schedule = model.exploration.schedule
            assert [schedule(step, 100_000) for step in (0, 2_000, 3_000, 4_001)] == pytest.approx(
                [1.0, 1.0, 0.50025, 0.0], abs=1e-4
            )
        model.learn(44)
        updates = {"spr": 2, "sr-spr": 8, "bbf": 2}[name] * 4
        assert model._n_updates == updates
        horizon = model.replay.view.horizon.current
        assert horizon == ((10, 0.99) if name != "bbf" else (10, pytest.approx(0.97, abs=1e-3)))
        decays = [group["weight_decay"] for group in model.learner.optimizer.param_groups]
        assert decays == ([0.1, 0.0] if name == "bbf" else [0])
        # the target moved by as much as in one step of 0.005 after each update
        shares = {"spr": 1.0, "sr-spr": 1 - 0.995**8, "bbf": 1 - 0.995**2}
        assert model.target_config.tau == pytest.approx(shares[name], abs=1e-4)
        shape = {"spr": (64, 7, 7), "sr-spr": (64, 11, 11), "bbf": (32, 11, 11)}[name]
        assert model.policy.q_net.latent_model.shape == shape
    finally:
        model.close()


@SLOW
def test_agent_for_few_steps_and_vectors_resets_anneals_and_decays() -> None:
    model: Any = DQN.from_preset(
        "CartPole-v1", preset="bbf-vectors", learning_starts=40, batch_size=8, seed=0, device="cpu"
    )
    model.learn(50)
    assert model._n_updates == 2 * 10
    assert model.replay.view.horizon.current == (10, pytest.approx(0.97, abs=1e-3))
    assert [group["weight_decay"] for group in model.learner.optimizer.param_groups] == [0.1, 0.0]
    assert model.policy.config.act_with == "target"
    resets = model.arguments["resets"]
    preset = find_preset("DQN", "CartPole-v1", "bbf-vectors")
    assert preset is not None
    assert resets["every"] < resets["until"] < 2 * preset.n_timesteps


def test_class_outside_the_package_has_the_presets_of_its_parent() -> None:
    assert OwnDQN.from_preset("CartPole-v1").arguments["tau"] == 0.05


@pytest.mark.parametrize("env", [gymnasium.make("CartPole-v1"), None])
def test_an_environment_that_is_no_id_is_refused(env: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="env must be the id of an environment, got (TimeLimit|NoneType). Pass its id"
    ):
        DQN.from_preset(env)


def test_environment_without_a_preset_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"for which R2D2 has a preset, got 'FrozenLake-v1'. Use one of sb_dqn/TMaze-v0"
    ):
        R2D2.from_preset("FrozenLake-v1")


def test_presets_of_an_environment() -> None:
    found = {preset.algorithm: preset.name for preset in listed(env="ALE/Pong-v5")}
    assert found["nstepdqn"] == "ALE/Pong-v5"
    assert found["dqn"] == "ALE/*"
    assert "sac" not in found
    assert [preset.name for preset in list_presets("DoubleDQN", "CartPole-v1")] == ["CartPole-v1"]
    assert list_presets("SAC", "ALE/Pong-v5") == []
    every = {preset.algorithm for preset in listed(env="CartPole-v1")}
    assert every <= {name.lower() for name in algorithms.ALGORITHMS}
