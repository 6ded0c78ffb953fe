"""What `sb-dqn resume` remembers of a run, and what it makes of what lies in its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from sb_dqn.cli.episodes import EpisodeLog
from sb_dqn.cli.main import commands

TRAIN = (
    "train", "dqn", "CartPole-v1", "--seed", "1", "--device", "cpu", "--no-progress",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def interrupted_at(step: int, *arguments: object) -> Result:
    """What a command says that Ctrl-C stops at an env step."""
    written = EpisodeLog._on_step

    def interrupt(log: EpisodeLog) -> bool:
        if log.num_timesteps == step:
            raise KeyboardInterrupt
        return written(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", interrupt)
        done = call(*arguments)
    assert done.exit_code == 130, done.output
    return done


def evaluated(folder: Path) -> list[int]:
    """Steps of the evaluations."""
    with np.load(folder / "evaluations.npz") as saved:
        steps: list[int] = saved["timesteps"].tolist()
    return steps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the run that `TRAIN --folder tmp_path` makes."""
    return tmp_path / "dqn_CartPole-v1_1"


def test_evaluations_keep_their_number_of_episodes(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", 50, "--eval-episodes", 2)
    refused = call("resume", folder, "-n", 100, "--eval-episodes", 3)
    assert refused.exit_code == 2
    assert "have 2 episodes each, --eval-episodes=3; say --eval-episodes 2" in refused.output
    done = call("resume", folder, "-n", 100, "--no-progress", "--eval-freq", 60)
    assert done.exit_code == 0, done.output
    assert evaluated(folder) == [50, 100, 120, 180]
    assert yaml.safe_load((folder / "config.yaml").read_text())["eval_episodes"] == 2


@pytest.mark.parametrize(("before", "after"), [(0, None), (0, 40), (40, 0)])
def test_evaluations_are_switched_on_and_off_on_the_way(
    before: int, after: int | None, tmp_path: Path, folder: Path
) -> None:
    interrupted_at(60, *TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", before, "--eval-episodes", 1)
    said = () if after is None else ("--eval-freq", after)
    done = call("resume", folder, "--no-progress", *said)
    assert done.exit_code == 0, done.output
    assert "at step 60 for 40 more" in done.output
    wanted = {(0, None): [], (0, 40): [80], (40, 0): [40]}[before, after]
    assert (evaluated(folder) if wanted else (folder / "evaluations.npz").exists()) == (wanted or False)


def test_the_interval_of_the_part_that_was_stopped_holds(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 50, "--eval-freq", 10, "--eval-episodes", 1)
    begun = yaml.safe_load((folder / "config.yaml").read_text())
    interrupted_at(150, "resume", folder, "-n", 400, "--no-progress")
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {**begun, "eval_freq": 40}
    assert call("resume", folder, "--no-progress").exit_code == 0
    assert evaluated(folder) == [10, 20, 30, 40, 50, *range(80, 451, 40)]


def test_a_run_without_evaluations_stays_without(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 50, "--eval-freq", 0)
    assert call("resume", folder, "-n", 50, "--no-progress").exit_code == 0
    assert not (folder / "evaluations.npz").exists()
