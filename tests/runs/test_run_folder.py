"""Run folders: creation, configuration file, lookup."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sb_dqn.files import read_yaml, write_yaml
from sb_dqn.runs.folder import new_run_folder, read_config, write_config
from sb_dqn.runs.run import find_run


def test_folders_are_numbered_and_slashes_are_replaced(tmp_path: Path) -> None:
    names = [new_run_folder(tmp_path / "runs", "NStepDQN", "ALE/Pong-v5").name for _ in range(2)]
    assert names == ["nstepdqn_ALE-Pong-v5_1", "nstepdqn_ALE-Pong-v5_2"]
    (tmp_path / "runs" / "nstepdqn_ALE-Pong-v5_9").mkdir()
    (tmp_path / "runs" / "nstepdqn_ALE-Pong-v5_x").mkdir()
    assert new_run_folder(tmp_path / "runs", "nstepdqn", "ALE/Pong-v5").name == "nstepdqn_ALE-Pong-v5_10"


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    with pytest.raises(
        click.ClickException, match=r"runs must be writable, got: .*Choose another folder with --folder"
    ):
        new_run_folder(tmp_path / "runs", "DQN", "CartPole-v1")


def test_config_round_trips_with_versions_and_command(tmp_path: Path) -> None:
    write_config(tmp_path, {"env_id": "CartPole-v1", "settings": {"train_freq": (4, "episode"), "odd": Path}})
    config = read_config(tmp_path)
    assert config["env_id"] == "CartPole-v1"
    assert config["settings"]["train_freq"] == [4, "episode"]
    assert isinstance(config["settings"]["odd"], str)
    assert {"sb_dqn", "python", "torch", "gymnasium", "ale-py", "numpy"} == config["versions"].keys()
    assert config["command"].startswith("sb-dqn")


def test_find_run_accepts_a_folder_or_a_zip_with_or_without_ending(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("env_id: CartPole-v1\n")
    for name in ("model.zip", "best_model.zip"):
        (tmp_path / name).touch()
    assert find_run(tmp_path).model.name == "model.zip"
    assert find_run(tmp_path, best=True).model.name == "best_model.zip"
    assert find_run(tmp_path / "best_model").config == {"env_id": "CartPole-v1"}


def test_missing_models_are_reported_with_those_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "dqn_CartPole-v1_1"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run / "best_model.zip").touch()
    with pytest.raises(click.BadParameter, match=r"must be a folder with model.zip, got .*best_model.zip"):
        find_run(run)
    with pytest.raises(
        click.BadParameter, match=r"must be .* that exists, got gone. Use one of runs/dqn_CartPole-v1_1"
    ):
        find_run(Path("gone"))


def test_the_best_model_is_chosen_in_a_folder_only(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"PK")
    with pytest.raises(click.BadParameter, match="must be the folder of a run with --best"):
        find_run(tmp_path / "model.zip", best=True)


def test_numbers_stay_numbers_as_keys_of_settings(tmp_path: Path) -> None:
    write_yaml(tmp_path / "config.yaml", {"env_kwargs": {"bonus": {0: 1, 1.5: (2, 3)}}})
    assert read_yaml(tmp_path / "config.yaml") == {"env_kwargs": {"bonus": {0: 1, 1.5: [2, 3]}}}
