"""`sb-dqn resume`: settings, evaluations and logs of interrupted, killed and failed runs."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from click.testing import Result
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from sb_dqn.checkpoint import model_info
from sb_dqn.errors import EnvironmentFault
from sb_dqn.runs.checkpoint_timer import checkpoints
from sb_dqn.runs.episode_log import EpisodeLog, drop_episodes
from tests.command import call, run_main
from tests.marks import SLOW, a_few

pytestmark = pytest.mark.usefixtures("eagerly")

TRAIN = (
    "train", "dqn", "CartPole-v1", "--seed", "1", "--device", "cpu", "--no-progress",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call_with_actions(actions: dict[int, Callable[[EpisodeLog], object]], *arguments: object) -> Result:
    """Returns the result of a command; `actions` are called at the env steps that are their keys."""
    original_on_step = EpisodeLog._on_step

    def act(log: EpisodeLog) -> bool:
        if log.num_timesteps in actions:
            actions[log.num_timesteps](log)
        return original_on_step(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", act)
        return call(*arguments, catch_exceptions=True)


def interrupt(log: EpisodeLog) -> None:
    raise KeyboardInterrupt


def kill(log: EpisodeLog) -> None:
    """Simulates `kill -9` after the current checkpoint is written: nothing is saved on exit."""
    for thread in threading.enumerate():
        if thread.name.startswith("sb_dqn checkpoint"):
            thread.join()
    raise SystemExit(137)


def interrupted_at(step: int, *arguments: object) -> None:
    done = call_with_actions({step: interrupt}, *arguments)
    assert done.exit_code == 130, done.output


def killed_at(step: int, *arguments: object) -> None:
    done = call_with_actions({step: kill}, *arguments)
    assert done.exit_code == 137, done.output


def evaluation_steps(folder: Path) -> list[int]:
    """Returns the env steps of the evaluations."""
    with np.load(folder / "evaluations.npz") as saved:
        steps: list[int] = saved["timesteps"].tolist()
    return steps


def episodes(folder: Path) -> list[dict[str, str]]:
    """Returns the rows of the monitor file."""
    with (folder / "monitor.csv").open() as file:
        file.readline()
        return list(csv.DictReader(file))


def logged(folder: Path) -> list[int]:
    """Returns the env steps of the rows of the log."""
    with (folder / "progress.csv").open() as file:
        return [int(row["time/total_timesteps"]) for row in csv.DictReader(file)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder of the run that `TRAIN --folder tmp_path` creates."""
    return tmp_path / "dqn_CartPole-v1_1"


def test_settings_of_a_run_cannot_be_changed_on_resume(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.zip").touch()
    fixed = {"--seed": 0, "--folder": "runs", "--set": "gamma=0.5", "--env-set": "a=1", "--preset": "CartPole-v1"}
    for option, value in {**fixed, "--n-envs": 1, "--policy": "MlpPolicy"}.items():
        rejected = call("train", "--resume", folder, option, value)
        assert rejected.exit_code == 2, rejected.output
        assert f"must be resumed with its own settings, got {option}. Remove these arguments" in " ".join(
            rejected.output.split()
        )
    both = call("train", "--resume", folder, "--set", "gamma=0.5", "--set", "tau=1", "--seed", 0, "--device", "cpu")
    assert "got --seed, --set." in " ".join(both.output.split())


@SLOW
def test_number_of_evaluation_episodes_cannot_change(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", 50, "--eval-episodes", 2)
    rejected = call("resume", folder, "-n", 100, "--eval-episodes", 3)
    assert rejected.exit_code == 2
    assert "--eval-episodes must be 2 as in the earlier evaluations" in " ".join(rejected.output.split())
    done = call("resume", folder, "-n", 100, "--no-progress", "--eval-freq", 60)
    assert done.exit_code == 0, done.output
    assert evaluation_steps(folder) == [50, 100, 120, 180]
    assert yaml.safe_load((folder / "config.yaml").read_text())["eval_episodes"] == 2


@SLOW
@pytest.mark.parametrize(("before", "after"), a_few([(0, None), (0, 40), (40, 0)], (40, 0)))
def test_evaluations_can_be_switched_on_and_off_on_resume(
    before: int, after: int | None, tmp_path: Path, folder: Path
) -> None:
    interrupted_at(60, *TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", before, "--eval-episodes", 1)
    options = () if after is None else ("--eval-freq", after)
    done = call("resume", folder, "--no-progress", *options)
    assert done.exit_code == 0, done.output
    assert "at step 60 for 40 more" in done.output
    expected = {(0, None): [], (0, 40): [80], (40, 0): [40]}[before, after]
    assert (evaluation_steps(folder) if expected else (folder / "evaluations.npz").exists()) == (expected or False)


@SLOW
def test_evaluation_interval_of_a_stopped_part_is_kept(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 50, "--eval-freq", 10, "--eval-episodes", 1)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    interrupted_at(150, "resume", folder, "-n", 400, "--no-progress")
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {**config, "eval_freq": 40}
    assert call("resume", folder, "--no-progress").exit_code == 0
    assert evaluation_steps(folder) == [10, 20, 30, 40, 50, *range(80, 451, 40)]


@SLOW
def test_run_without_evaluations_stays_without(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 50, "--eval-freq", 0)
    assert call("resume", folder, "-n", 50, "--no-progress").exit_code == 0
    assert not (folder / "evaluations.npz").exists()


@SLOW
def test_log_of_a_lost_part_is_dropped(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", 0)
    before = episodes(folder)
    killed_at(400, "resume", folder, "-n", 900, "--no-progress", "--checkpoint-minutes", 0)
    assert sum(int(row["l"]) for row in episodes(folder)) > 200
    done = call("resume", folder, "-n", 100, "--no-progress")
    assert "at step 100 for 100 more" in done.output
    rows = episodes(folder)
    assert rows[: len(before)] == before
    assert 100 < sum(int(row["l"]) for row in rows) <= 200
    steps = logged(folder)
    assert steps == sorted(set(steps))
    assert 100 < steps[-1] <= 200
    assert not (folder / "progress.1.csv").exists()


@SLOW
def test_new_number_of_steps_is_saved_after_the_first_step(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", 0)
    killed_at(200, "resume", folder, "-n", 300, "--no-progress")
    done = call("resume", folder, "--no-progress")
    assert "at step 101 for 299 more" in done.output
    assert sum(int(row["l"]) for row in episodes(folder)) <= 400


@SLOW
def test_resume_for_more_steps_than_remained_is_exact(tmp_path: Path, folder: Path) -> None:
    def advance_clock(log: EpisodeLog) -> None:
        model: Any = log.model
        model.statistics._start_time -= 1000  # the clock of the episode log, before the first episode ends

    stopped = call_with_actions(
        {3: advance_clock, 150: interrupt}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0
    )
    assert stopped.exit_code == 130
    before = episodes(folder)
    done = call("resume", folder, "-n", 300, "--no-progress")
    assert "at step 150 for 300 more" in done.output
    rows = episodes(folder)
    assert rows[: len(before)] == before
    assert sum(int(row["l"]) for row in rows) <= 450
    assert model_info(folder / "model.zip")["state"]["counters"]["num_timesteps"] == 450
    times = [float(row["t"]) for row in rows]
    assert times == sorted(times)
    assert 1000 < times[0] < times[-1] < 1900


def test_episodes_beyond_the_steps_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    path.write_text("#{}\nr,l,t\n1,10,0.1\n2,20,0.2\n3,5,0.3\n4,6,0")
    drop_episodes(path, 35)
    assert path.read_text() == "#{}\nr,l,t\n1,10,0.1\n2,20,0.2\n3,5,0.3\n"
    drop_episodes(path, 34)
    assert path.read_text() == "#{}\nr,l,t\n1,10,0.1\n2,20,0.2\n"
    drop_episodes(path, 9)
    assert path.read_text() == "#{}\nr,l,t\n"
    drop_episodes(tmp_path / "none.csv", 1)


class Fragile(CartPoleEnv):
    """CartPole that raises once, after `remaining` steps over all copies."""

    remaining = 0

    def step(self, action: Any) -> Any:
        Fragile.remaining -= 1
        return super().step(action if Fragile.remaining else 1 / 0)


@SLOW
def test_run_can_be_resumed_after_an_environment_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gymnasium.registry, "Fragile-v0", EnvSpec("Fragile-v0", lambda **kwargs: Fragile(**kwargs)))
    monkeypatch.setattr(Fragile, "remaining", 150)
    arguments = ["train", "dqn", "Fragile-v0", *TRAIN[3:], "--folder", tmp_path, "-n", 200, "--eval-freq", 0]
    with pytest.warns(UserWarning, match="in the middle of a step"):
        assert run_main(*arguments) == 1
    out, err = capsys.readouterr()
    folder = tmp_path / "dqn_Fragile-v0_1"
    assert "Traceback" not in err
    assert err.startswith("Error: the environment in lane 0 raised at step")
    assert f"ZeroDivisionError: division by zero. Fix the environment. ({__file__}, line " in err
    assert "error at step 149" in out
    assert f"resume {folder}" in out
    assert (folder / "model.zip").is_file()
    with pytest.warns(UserWarning, match="has no state_dict"):  # from the checkpoint after the first step
        done = call("resume", folder, "--no-progress")
    assert done.exit_code == 0, done.output
    assert "at step 149 for 51 more" in done.output


def fail(*_: object) -> None:
    raise KeyError("by hand")


@SLOW
def test_other_errors_are_raised_after_saving(tmp_path: Path, folder: Path) -> None:
    done = call_with_actions({150: fail}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    assert repr(done.exception) == "KeyError('by hand')"
    assert "at step 150 for 50 more" in call("resume", folder, "--no-progress").output


def test_error_while_saving_does_not_hide_the_first(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_first(log: EpisodeLog) -> None:
        raise OSError("first")

    monkeypatch.setattr("sb_dqn.runs.training.draw_curve", fail)
    done = call_with_actions({150: fail_first}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    assert "not saved: 'by hand'" in done.output
    assert repr(done.exception) == "OSError('first')"


@SLOW
def test_model_that_may_hold_nan_is_never_saved(tmp_path: Path, folder: Path) -> None:
    def mark_not_finite(log: EpisodeLog) -> None:
        model: Any = log.model
        model.learner.finite.fill_(False)

    interrupted_at(100, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    done = call_with_actions({150: mark_not_finite}, "resume", folder, "--no-progress")
    assert isinstance(done.exception, EnvironmentFault)
    assert f"resume {folder}" in done.output
    assert model_info(folder / "model.zip")["state"]["counters"]["num_timesteps"] == 100
    assert [path.name for path in checkpoints(folder)] == ["101_steps.zip", "100_steps.zip"]
    assert "at step 101 for 99 more" in call("resume", folder, "--no-progress").output
