"""Runs of `sb-dqn train` that are killed, asked to stop, or meet damaged checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from sb_dqn.checkpoint import model_info
from sb_dqn.cli.main import commands
from sb_dqn.cli.train.checkpoint_timer import Keeper, checkpoints, stopping_in_order
from sb_dqn.cli.train.episode_log import EpisodeLog
from sb_dqn.cli.train.folder import drop_rows
from sb_dqn.cli.train.result_file import Result as Outcome
from sb_dqn.cli.train.result_file import read_result

ROOT = Path(__file__).parents[2]
TRAIN = (
    "train", "PERDQN", "CartPole-v1", "-n", "400", "--seed", "1", "--device", "cpu", "--no-progress", "--eval-freq", "0",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def test_killed_runs_end_as_the_run_that_nobody_killed() -> None:
    command = [sys.executable, "scripts/benchmarks/kills.py", "--runs", "2", "--steps", "700"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["runs"] == 2
    assert found["different"] == []


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that SIGTERM stopped at step 300, with checkpoints at every step before that."""
    root = tmp_path_factory.mktemp("stopped")
    written = EpisodeLog._on_step

    def ask(log: EpisodeLog) -> bool:
        if log.num_timesteps == 300:
            os.kill(os.getpid(), signal.SIGTERM)
        return written(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", ask)
        patch.setattr("sb_dqn.cli.train.checkpoint_timer.PATIENCE", 0)
        patch.setattr(os, "fsync", lambda handle: None)  # 300 checkpoints, and no power is cut
        done = call(*TRAIN, "--folder", root, "--checkpoint-minutes", 1e-9)
    assert done.exit_code == 130, done.output
    assert "interrupted at step 300" in done.output
    return root / "perdqn_CartPole-v1_1"


def test_sigterm_stops_in_order_and_the_last_two_are_kept(stopped: Path) -> None:
    assert [path.name for path in checkpoints(stopped)] == ["300_steps.zip", "299_steps.zip"]
    named = {one["name"] for path in checkpoints(stopped) for one in model_info(path)["segments"]["files"]}
    assert {path.name for path in (stopped / "checkpoints" / "replay_rows").iterdir()} == named
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_damaged_checkpoint_gives_way_to_the_one_before(stopped: Path) -> None:
    newest = checkpoints(stopped)[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    refused = call("train", "--resume", stopped, "DQN", "--set", "gamma=0.5")
    assert refused.exit_code == 2
    assert "algorithm" not in refused.output
    assert "DQN, it is PERDQN; --set)" in " ".join(refused.output.split())
    done = call("train", "--resume", stopped, "--no-progress")
    assert done.exit_code == 0, done.output
    assert "truncated" in done.output
    assert "at step 299 for 101 more" in done.output
    assert not (stopped / "checkpoints").exists()
    assert model_info(stopped / "model.zip")["state"]["counters"]["num_timesteps"] == 400


def test_train_without_anything_says_what_to_say() -> None:
    refused = call("train")
    assert refused.exit_code == 2
    assert "sb-dqn train ALGO ENV" in refused.output


def test_asked_twice_it_stops_at_once(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, 1.0)
    with stopping_in_order(keeper):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert keeper.stopping
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)


def test_a_keeper_that_cannot_write_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Full:
        num_timesteps = 7
        learner = SimpleNamespace(finite=True)

        def save(self, path: str, **kwargs: object) -> None:
            raise OSError(28, "No space left on device")

    keeper = Keeper(tmp_path, 1.0)
    keeper.model = Full()  # type: ignore[assignment]  # all that a save needs
    keeper.save()
    keeper.save()
    assert capsys.readouterr().err.count("No space left") == 1


def test_seconds_up_to_the_last_checkpoint_are_counted(tmp_path: Path) -> None:
    class Saves:
        num_timesteps = 7
        learner = SimpleNamespace(finite=True)

        def save(self, path: str, **kwargs: object) -> object:
            return SimpleNamespace(finished=True, wait=lambda: None)

    def killed() -> Outcome:
        keeper = Keeper(tmp_path, 1.0)
        keeper.model = Saves()  # type: ignore[assignment]  # all that a save needs
        time.sleep(0.02)
        keeper.save()
        keeper.save()  # waits for the one before
        return read_result(tmp_path)

    first, second = killed(), killed()
    assert first.steps == second.steps == 7
    assert 0.02 <= first.seconds < 0.04 <= second.seconds < 10


def test_rows_of_the_log_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("a,time/total_timesteps\n1,100\n2,200\n,\n3,300\n4,4")
    drop_rows(path, 200)
    assert path.read_text() == "a,time/total_timesteps\n1,100\n2,200\n,\n4,4\n"
    drop_rows(tmp_path / "none.csv", 1)
