"""Checkpoint callback: file names, intervals, replay buffer and normalizer statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sb_dqn.callbacks import CheckpointCallback, EveryNTimesteps
from sb_dqn.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("eagerly")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_names_and_steps_of_the_files(make_model: Any, make_loop: Any, tmp_path: Path) -> None:
    callback = CheckpointCallback(100, tmp_path / "deep" / "er", name_prefix="dqn")
    make_loop(make_model(8), callback).learn(ticks=40)  # 320 steps
    assert names(tmp_path / "deep" / "er") == ["dqn_104_steps.zip", "dqn_200_steps.zip", "dqn_304_steps.zip"]
    assert (tmp_path / "deep" / "er" / "dqn_104_steps.zip").read_text() == "104"


def test_the_replay_buffer_is_saved_and_the_paths_printed(
    model: Any, make_loop: Any, tmp_path: Path, capsys: Any
) -> None:
    make_loop(model, CheckpointCallback(5, str(tmp_path), save_replay_buffer=True, verbose=2)).learn(ticks=5)
    assert names(tmp_path) == ["rl_model_5_steps.zip", "rl_model_replay_buffer_5_steps.zip"]
    output = capsys.readouterr().out
    assert all(name in output for name in names(tmp_path))


def test_no_output_by_default(model: Any, make_loop: Any, tmp_path: Path, capsys: Any) -> None:
    make_loop(model, CheckpointCallback(5, tmp_path)).learn(ticks=5)
    assert capsys.readouterr().out == ""


def test_as_a_child_of_every_n_timesteps(model: Any, make_loop: Any, tmp_path: Path) -> None:
    make_loop(model, EveryNTimesteps(10, CheckpointCallback(1, tmp_path))).learn(ticks=25)
    assert names(tmp_path) == ["rl_model_10_steps.zip", "rl_model_20_steps.zip"]


def test_statistics_of_a_normalizer_are_saved(model: Any, make_loop: Any, tmp_path: Path) -> None:
    class VecFrameStack:
        def __init__(self, venv: Any) -> None:
            self.venv = venv

    class VecNormalize(VecFrameStack):
        def save(self, path: str) -> None:
            Path(path).write_text("statistics")

    model.env = VecFrameStack(VecNormalize(object()))
    make_loop(model, CheckpointCallback(5, tmp_path, save_vecnormalize=True)).learn(ticks=5)
    assert names(tmp_path) == ["rl_model_5_steps.zip", "rl_model_vecnormalize_5_steps.pkl"]
    model.env = object()  # without VecNormalize
    make_loop(model, CheckpointCallback(5, tmp_path / "none", save_vecnormalize=True)).learn(ticks=5)
    assert names(tmp_path / "none") == ["rl_model_10_steps.zip"]


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="save_freq.*0"):
        CheckpointCallback(0, tmp_path)
    with pytest.raises(ConfigurationError, match="full must be True with incremental=True, got False. Add full=True"):
        CheckpointCallback(5, tmp_path, incremental=True)
