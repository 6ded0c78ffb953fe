"""Presets: lookup, inheritance between entries, and validity of the shipped files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sb_dqn.errors import ConfigurationError
from sb_dqn.presets import catalogue
from sb_dqn.presets.catalogue import Preset, find_preset, list_presets


def get_preset(algo: str, env_id: str, name: str | None = None) -> Preset:
    preset = find_preset(algo, env_id, name)
    assert preset is not None
    return preset


def test_ppo_lunar_lander_has_the_settings_of_the_rl_zoo() -> None:
    preset = get_preset("PPO", "LunarLander-v3")
    assert (preset.n_timesteps, preset.n_envs, preset.policy) == (1_000_000, 16, "MlpPolicy")
    settings = {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
    assert preset.settings == settings


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_a2c_names_the_optimizer_that_its_results_were_measured_with(env_id: str) -> None:
    expected = {"optimizer_class": "RMSpropTFLike", "optimizer_kwargs": {"eps": 1e-5}}
    assert get_preset("A2C", env_id).settings["policy_kwargs"] == expected


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_btr_on_atari_starts_with_no_ops(env_id: str) -> None:
    """Besides the sticky actions of `ALE/*`, as in its paper."""
    assert get_preset("BTR", env_id).env_kwargs == {"noop_max": 30}


@pytest.mark.parametrize("env_id", ["ALE/Breakout-v5", "BreakoutNoFrameskip-v4"])
def test_atari_ids_match_a_pattern(env_id: str) -> None:
    preset = get_preset("dqn", env_id)
    assert preset.policy == "CnnPolicy"
    assert preset.settings["learning_rate"] == 1e-4


def test_a_variant_uses_its_parents_entry_unless_it_has_its_own() -> None:
    assert get_preset("DoubleDQN", "CartPole-v1") == get_preset("DQN", "CartPole-v1")
    assert get_preset("NStepDQN", "CartPole-v1").algorithm == "dqn"
    assert get_preset("NStepDQN", "ALE/Pong-v5").algorithm == "nstepdqn"
    assert get_preset("NStepDQN", "ALE/Breakout-v5").algorithm == "dqn"


def test_none_without_a_matching_entry() -> None:
    assert find_preset("DQN", "Taxi-v3") is None
    assert find_preset("NoSuchAlgorithm", "CartPole-v1") is None
    assert find_preset("DQN", "CartPole-v1", "none") is None


def test_a_name_has_priority_over_the_environment() -> None:
    assert get_preset("DQN", "Breakout-v4", "ALE/*").name == "ALE/*"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    message = r"preset of DQN must be one of \[.*\], got 'CartPole-v0'.*Did you mean 'CartPole-v1'"
    with pytest.raises(ConfigurationError, match=message):
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


def test_exact_id_before_long_pattern_before_short_pattern(folder: Path) -> None:
    lines = [f"  {name!r}: {ENTRY.format(steps)}" for name, steps in [("*", 1), ("Cart*", 2), ("CartPole-v1", 3)]]
    (folder / "dqn.yaml").write_text("presets:\n" + "\n".join(lines))
    steps = [get_preset("dqn", env_id).n_timesteps for env_id in ("CartPole-v1", "CartPole-v0", "Acrobot-v1")]
    assert steps == [3, 2, 1]


def test_own_pattern_before_the_parents_exact_entry(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(f"presets:\n  CartPole-v1: {ENTRY.format(1)}\n")
    (folder / "child.yaml").write_text(f"parent: DQN\npresets:\n  'Cart*': {ENTRY.format(2)}\n")
    assert get_preset("child", "CartPole-v1").n_timesteps == 2
    assert [preset.name for preset in list_presets("child")] == ["CartPole-v1", "Cart*"]


def test_numbers_that_yaml_reads_as_text_become_numbers(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(
        "presets:\n  A-v0: {source: here, n_timesteps: 5, policy: MlpPolicy, learning_rate: 1e-4, x: {y: [1e2]}}\n"
    )
    assert get_preset("dqn", "A-v0").settings == {"learning_rate": 1e-4, "x": {"y": [100.0]}}


def test_an_entry_without_a_source_is_refused(folder: Path) -> None:
    (folder / "dqn.yaml").write_text("presets:\n  A-v0: {n_timesteps: 5, policy: MlpPolicy}\n")
    with pytest.raises(
        ConfigurationError, match=r"preset 'A-v0' in dqn.yaml must have source, got \['n_timesteps', 'p"
    ):
        find_preset("dqn", "A-v0")


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("presets:\n  A-v0: {n_timesteps: 5, policy: MlpPolicy, gamma: 9e-1}\n")
    preset = get_preset("dqn", "B-v0", str(path))  # its only entry
    assert (preset.source, preset.n_timesteps, preset.settings) == (str(path), 5, {"gamma": 0.9})
    path.write_text(path.read_text() + "  'C-*': {n_timesteps: 6, policy: MlpPolicy}\n")
    assert get_preset("dqn", "C-v0", str(path)).n_timesteps == 6
    with pytest.raises(ConfigurationError, match=r"must have one entry, or one for B-v0, got \['A-v0', 'C-\*'\]"):
        find_preset("dqn", "B-v0", str(path))
    with pytest.raises(
        ConfigurationError, match=r"preset must be a readable YAML file, got .*none.yaml \(No such file"
    ):
        find_preset("dqn", "B-v0", str(tmp_path / "none.yaml"))


def test_like_copies_settings_but_not_the_result(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(
        "presets:\n  A-v0: {source: there, result: good, n_timesteps: 5, n_envs: 2, policy: MlpPolicy, gamma: 0.5, tau: 1e-2}\n"
    )
    (folder / "iqn.yaml").write_text("presets:\n  A-v0: {like: DQN, source: here, tau: 1e-1, n_taus: 8}\n")
    preset = get_preset("iqn", "A-v0")
    assert (preset.source, preset.result, preset.n_timesteps, preset.n_envs) == ("here", None, 5, 2)
    assert preset.settings == {"gamma": 0.5, "tau": 0.1, "n_taus": 8}
    assert get_preset("dqn", "A-v0").settings == {"gamma": 0.5, "tau": 0.01}


def test_like_a_missing_entry_is_refused(folder: Path) -> None:
    (folder / "dqn.yaml").write_text(f"presets:\n  B-v0: {ENTRY.format(1)}\n")
    (folder / "iqn.yaml").write_text("presets:\n  A-v0: {like: DQN, source: here}\n")
    message = r"preset 'A-v0' in iqn.yaml must have an entry of the same name in dqn.yaml, got like: DQN"
    with pytest.raises(ConfigurationError, match=message):
        find_preset("iqn", "A-v0")


def test_every_shipped_entry_is_complete() -> None:
    presets = list_presets()
    assert len(presets) >= 8
    for preset in presets:
        assert preset.source
        assert preset.n_timesteps > 0
        assert preset.n_envs >= 1
        assert preset.policy in {"MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy"}


def test_preset_is_printed_on_a_line_without_its_settings() -> None:
    preset = find_preset("DQN", "CartPole-v1")
    assert (
        repr(preset) == "Preset(name='CartPole-v1', algorithm='dqn', n_timesteps=50000, policy='MlpPolicy', n_envs=1)"
    )
