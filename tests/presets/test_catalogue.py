"""Presets: which entry is found for whom, and that every shipped file is sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sb_dqn.errors import ConfigurationError
from sb_dqn.presets import catalogue
from sb_dqn.presets.catalogue import Preset, find_preset, list_presets


def found(algo: str, env_id: str, name: str | None = None) -> Preset:
    preset = find_preset(algo, env_id, name)
    assert preset is not None
    return preset


def test_zoo_row_of_lunar_lander_is_what_the_zoo_says() -> None:
    preset = found("PPO", "LunarLander-v3")
    assert (preset.n_timesteps, preset.n_envs, preset.policy) == (1_000_000, 16, "MlpPolicy")
    given = {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
    assert preset.settings == given


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_a2c_names_the_optimizer_that_its_results_were_measured_with(env_id: str) -> None:
    expected = {"optimizer_class": "RMSpropTFLike", "optimizer_kwargs": {"eps": 1e-5}}
    assert found("A2C", env_id).settings["policy_kwargs"] == expected


@pytest.mark.parametrize("env_id", ["ALE/Breakout-v5", "BreakoutNoFrameskip-v4"])
def test_atari_ids_find_the_pattern(env_id: str) -> None:
    preset = found("dqn", env_id)
    assert preset.policy == "CnnPolicy"
    assert preset.settings["learning_rate"] == 1e-4


def test_a_variant_uses_its_parents_entry_unless_it_has_its_own() -> None:
    assert found("DoubleDQN", "CartPole-v1") == found("DQN", "CartPole-v1")
    assert found("NStepDQN", "CartPole-v1").algorithm == "dqn"
    assert found("NStepDQN", "ALE/Pong-v5").algorithm == "nstepdqn"
    assert found("NStepDQN", "ALE/Breakout-v5").algorithm == "dqn"


def test_none_where_nothing_matches() -> None:
    assert find_preset("DQN", "Taxi-v3") is None
    assert find_preset("NoSuchAlgorithm", "CartPole-v1") is None


def test_a_name_wins_over_the_environment_and_a_wrong_one_names_the_right_ones() -> None:
    assert found("DQN", "Breakout-v4", "ALE/*").name == "ALE/*"
    with pytest.raises(ConfigurationError, match=r"no preset 'CartPole-v0' for DQN.*Did you mean 'CartPole-v1'"):
        find_preset("DQN", "CartPole-v1", "CartPole-v0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(catalogue, "_FOLDER", tmp_path)
    catalogue._read.cache_clear()
    catalogue._entries.cache_clear()
    yield tmp_path
    catalogue._read.cache_clear()
    catalogue._entries.cache_clear()


ENTRY = "{{source: here, n_timesteps: {}, policy: MlpPolicy}}"


def test_exact_before_long_pattern_before_short_pattern(folder: Path) -> None:
    lines = [f"  {name!r}: {ENTRY.format(steps)}" for name, steps in [("*", 1), ("Cart*", 2), ("CartPole-v1", 3)]]
    (folder / "dqn.yaml").write_text("presets:\n" + "\n".join(lines))
    steps = [found("dqn", env_id).n_timesteps for env_id in ("CartPole-v1", "CartPole-v0", "Acrobot-v1")]
    assert steps == [3, 2, 1]


def test_own_pattern_before_the_parents_exact_entry(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(f"presets:\n  CartPole-v1: {ENTRY.format(1)}\n")
    (folder / "child.yaml").write_text(f"parent: DQN\npresets:\n  'Cart*': {ENTRY.format(2)}\n")
    assert found("child", "CartPole-v1").n_timesteps == 2
    assert [preset.name for preset in list_presets("child")] == ["CartPole-v1", "Cart*"]


def test_numbers_that_yaml_reads_as_text_become_numbers(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(
        "presets:\n  A-v0: {source: here, n_timesteps: 5, policy: MlpPolicy, learning_rate: 1e-4, x: {y: [1e2]}}\n"
    )
    assert found("dqn", "A-v0").settings == {"learning_rate": 1e-4, "x": {"y": [100.0]}}


def test_an_entry_without_a_source_is_refused(folder: Path) -> None:
    (folder / "dqn.yaml").write_text("presets:\n  A-v0: {n_timesteps: 5, policy: MlpPolicy}\n")
    with pytest.raises(ConfigurationError, match=r"preset 'A-v0' in dqn.yaml lacks source"):
        find_preset("dqn", "A-v0")


def test_an_entry_takes_over_the_settings_of_the_one_it_is_like_but_not_its_result(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(
        "presets:\n  A-v0: {source: there, result: good, n_timesteps: 5, n_envs: 2, policy: MlpPolicy, gamma: 0.5, tau: 1e-2}\n"
    )
    (folder / "iqn.yaml").write_text("presets:\n  A-v0: {like: DQN, source: here, tau: 1e-1, n_taus: 8}\n")
    preset = found("iqn", "A-v0")
    assert (preset.source, preset.result, preset.n_timesteps, preset.n_envs) == ("here", None, 5, 2)
    assert preset.settings == {"gamma": 0.5, "tau": 0.1, "n_taus": 8}
    assert found("dqn", "A-v0").settings == {"gamma": 0.5, "tau": 0.01}


def test_an_entry_like_one_that_there_is_not_is_refused(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(f"presets:\n  B-v0: {ENTRY.format(1)}\n")
    (folder / "iqn.yaml").write_text("presets:\n  A-v0: {like: DQN, source: here}\n")
    with pytest.raises(ConfigurationError, match=r"preset 'A-v0' in iqn.yaml is like DQN, but dqn.yaml has none"):
        find_preset("iqn", "A-v0")


def test_every_shipped_entry_is_whole() -> None:
    presets = list_presets()
    assert len(presets) >= 8
    for preset in presets:
        assert preset.source
        assert preset.n_timesteps > 0
        assert preset.n_envs >= 1
        assert preset.policy in {"MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy"}
