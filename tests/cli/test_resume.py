"""What `sb-dqn resume` remembers of a run, and what it makes of what lies in its folder, after an error too."""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from sb_dqn.checkpoint import model_info
from sb_dqn.cli.main import commands, main
from sb_dqn.cli.train.checkpoint_timer import checkpoints
from sb_dqn.cli.train.episode_log import EpisodeLog, drop_episodes
from sb_dqn.errors import EnvironmentFault

TRAIN = (
    "train", "dqn", "CartPole-v1", "--seed", "1", "--device", "cpu", "--no-progress",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def call_meeting(actions: dict[int, Callable[[EpisodeLog], object]], *arguments: object) -> Result:
    """What a command says in whose run something happens at some env steps."""
    written = EpisodeLog._on_step

    def meet(log: EpisodeLog) -> bool:
        if log.num_timesteps in actions:
            actions[log.num_timesteps](log)
        return written(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", meet)
        return call(*arguments)


def interrupt(log: EpisodeLog) -> None:
    raise KeyboardInterrupt


def kill(log: EpisodeLog) -> None:
    """As `kill -9` once a checkpoint that was begun is written: nobody may save on the way out."""
    for thread in threading.enumerate():
        if thread.name == "sb_dqn checkpoint":
            thread.join()
    raise SystemExit(137)


def interrupted_at(step: int, *arguments: object) -> None:
    done = call_meeting({step: interrupt}, *arguments)
    assert done.exit_code == 130, done.output


def killed_at(step: int, *arguments: object) -> None:
    done = call_meeting({step: kill}, *arguments)
    assert done.exit_code == 137, done.output


def evaluated(folder: Path) -> list[int]:
    """Steps of the evaluations."""
    with np.load(folder / "evaluations.npz") as saved:
        steps: list[int] = saved["timesteps"].tolist()
    return steps


def episodes(folder: Path) -> list[dict[str, str]]:
    """Rows of the monitor file."""
    with (folder / "monitor.csv").open() as file:
        file.readline()
        return list(csv.DictReader(file))


def logged(folder: Path) -> list[int]:
    """Steps of the rows of the log."""
    with (folder / "progress.csv").open() as file:
        return [int(row["time/total_timesteps"]) for row in csv.DictReader(file)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the run that `TRAIN --folder tmp_path` makes."""
    return tmp_path / "dqn_CartPole-v1_1"


def test_what_a_run_began_with_is_not_said_again(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.zip").touch()
    late = {"--seed": 0, "--folder": "runs", "--set": "gamma=0.5", "--env-set": "a=1", "--preset": "CartPole-v1"}
    for option, value in {**late, "--n-envs": 1, "--policy": "MlpPolicy"}.items():
        refused = call("train", "--resume", folder, option, value)
        assert refused.exit_code == 2, refused.output
        assert f"with the settings that it began with ({option}); leave them out" in " ".join(refused.output.split())
    both = call("train", "--resume", folder, "--set", "gamma=0.5", "--set", "tau=1", "--seed", 0, "--device", "cpu")
    assert "(--seed; --set)" in " ".join(both.output.split())


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


def test_what_a_lost_part_wrote_is_dropped(tmp_path: Path, folder: Path) -> None:
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


def test_further_steps_are_remembered_from_the_first_of_them(tmp_path: Path, folder: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "-n", 100, "--eval-freq", 0)
    killed_at(200, "resume", folder, "-n", 300, "--no-progress")
    done = call("resume", folder, "--no-progress")
    assert "at step 101 for 299 more" in done.output
    assert sum(int(row["l"]) for row in episodes(folder)) <= 400


def test_more_steps_than_were_left_go_on_exactly(tmp_path: Path, folder: Path) -> None:
    def hurry(log: EpisodeLog) -> None:
        model: Any = log.model
        model.statistics._start_time -= 1000  # the clock of episodes, before the first of them ends

    stopped = call_meeting({3: hurry, 150: interrupt}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
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


def test_episodes_that_do_not_fit_are_dropped(tmp_path: Path) -> None:
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
    """CartPole that breaks once, at a step that is counted over all its copies."""

    left = 0

    def step(self, action: Any) -> Any:
        Fragile.left -= 1
        return super().step(action if Fragile.left else 1 / 0)


def test_an_environment_that_breaks_leaves_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gymnasium.registry, "Fragile-v0", EnvSpec("Fragile-v0", lambda **given: Fragile(**given)))
    monkeypatch.setattr(Fragile, "left", 150)
    settings = [str(one) for one in TRAIN[3:]]
    arguments = ["train", "dqn", "Fragile-v0", *settings, "--folder", str(tmp_path), "-n", "200", "--eval-freq", "0"]
    monkeypatch.setattr(sys, "argv", ["sb-dqn", *arguments])
    with pytest.warns(UserWarning, match="in the middle of a step"), pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    folder = tmp_path / "dqn_Fragile-v0_1"
    assert ended.value.code == 1
    assert "Traceback" not in err
    assert err.startswith("Error: the environment in lane 0 raised at step")
    assert f"ZeroDivisionError: division by zero ({__file__}, line " in err
    assert "an error at step 149" in out
    assert f"resume {folder}" in out
    assert (folder / "model.zip").is_file()
    with pytest.warns(UserWarning, match="has no state_dict"):  # said of the checkpoint in its first step
        done = call("resume", folder, "--no-progress")
    assert done.exit_code == 0, done.output
    assert "at step 149 for 51 more" in done.output


def fail(*_: object) -> None:
    raise KeyError("by hand")


def test_an_error_of_another_kind_is_not_hidden(tmp_path: Path, folder: Path) -> None:
    done = call_meeting({150: fail}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    assert repr(done.exception) == "KeyError('by hand')"
    assert "at step 150 for 50 more" in call("resume", folder, "--no-progress").output


def test_an_error_while_saving_does_not_hide_the_first(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_first(log: EpisodeLog) -> None:
        raise OSError("first")

    monkeypatch.setattr("sb_dqn.cli.train.training.draw_curve", fail)
    done = call_meeting({150: fail_first}, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    assert "not saved: 'by hand'" in done.output
    assert repr(done.exception) == "OSError('first')"


def test_a_model_that_may_hold_nan_is_never_saved(tmp_path: Path, folder: Path) -> None:
    def spoil(log: EpisodeLog) -> None:
        model: Any = log.model
        model.learner.finite.fill_(False)

    interrupted_at(100, *TRAIN, "--folder", tmp_path, "-n", 200, "--eval-freq", 0)
    done = call_meeting({150: spoil}, "resume", folder, "--no-progress")
    assert isinstance(done.exception, EnvironmentFault)
    assert f"resume {folder}" in done.output
    assert model_info(folder / "model.zip")["state"]["counters"]["num_timesteps"] == 100
    assert [path.name for path in checkpoints(folder)] == ["101_steps.zip", "100_steps.zip"]
    assert "at step 101 for 99 more" in call("resume", folder, "--no-progress").output
