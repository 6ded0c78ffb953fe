"""Runs of `sb-dqn train` that are killed, stopped by a signal, or resumed from damaged checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sb_dqn.checkpoint import model_info
from sb_dqn.runs.checkpoint_timer import CheckpointTimer, checkpoints, stop_on_signals
from sb_dqn.runs.episode_log import EpisodeLog
from sb_dqn.runs.folder import Result as RunResult
from sb_dqn.runs.folder import drop_rows, read_result
from tests.command import call
from tests.marks import FULL, SLOW

ROOT = Path(__file__).parents[2]
TRAIN = (
    "train", "PERDQN", "CartPole-v1", "-n", "400", "--seed", "1", "--device", "cpu", "--no-progress", "--eval-freq", "0",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


@FULL
def test_killed_runs_end_like_the_uninterrupted_run() -> None:
    command = [sys.executable, "scripts/benchmarks/kills.py", "--runs", "2", "--steps", "400"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["runs"] == 2
    assert report["different"] == []


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a run that SIGTERM stopped at step 300, with a checkpoint at every step before."""
    root = tmp_path_factory.mktemp("stopped")
    original_on_step = EpisodeLog._on_step

    def send_sigterm(log: EpisodeLog) -> bool:
        if log.num_timesteps == 300:
            os.kill(os.getpid(), signal.SIGTERM)
        return original_on_step(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", send_sigterm)
        patch.setattr("sb_dqn.runs.checkpoint_timer.MIN_PAUSE_FACTOR", 0)
        patch.setattr(os, "fsync", lambda handle: None)  # speeds up 300 checkpoints
        done = call(*TRAIN, "--folder", root, "--checkpoint-minutes", 1e-9)
    assert done.exit_code == 130, done.output
    assert "interrupted at step 300" in done.output
    return root / "perdqn_CartPole-v1_1"


@SLOW
def test_sigterm_saves_and_the_last_two_checkpoints_are_kept(stopped: Path) -> None:
    assert [path.name for path in checkpoints(stopped)] == ["300_steps.zip", "299_steps.zip"]
    referenced = {file["name"] for path in checkpoints(stopped) for file in model_info(path)["segments"]["files"]}
    assert {path.name for path in (stopped / "checkpoints" / "replay_rows").iterdir()} == referenced
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@SLOW
def test_damaged_checkpoint_falls_back_to_the_previous_one(stopped: Path, tmp_path: Path) -> None:
    stopped = Path(shutil.copytree(stopped, tmp_path / stopped.name))  # a worker may run the other test later
    newest = checkpoints(stopped)[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    rejected = call("train", "--resume", stopped, "DQN", "--set", "gamma=0.5")
    assert rejected.exit_code == 2
    assert "algorithm" not in rejected.output
    assert "got DQN instead of PERDQN, --set." in " ".join(rejected.output.split())
    done = call("train", "--resume", stopped, "--no-progress")
    assert done.exit_code == 0, done.output
    assert "truncated" in done.output
    assert "at step 299 for 101 more" in done.output
    assert not (stopped / "checkpoints").exists()
    assert model_info(stopped / "model.zip")["state"]["counters"]["num_timesteps"] == 400


def test_second_signal_stops_at_once(tmp_path: Path) -> None:
    timer = CheckpointTimer(tmp_path, 1.0)
    with stop_on_signals(timer):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert timer.stopping
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)


def test_failed_checkpoints_warn_once(tmp_path: Path) -> None:
    class Full:
        num_timesteps, rank = 7, 0
        learner = SimpleNamespace(finite=True)

        def save(self, path: str, **kwargs: object) -> None:
            raise OSError(28, "No space left on device")

    timer = CheckpointTimer(tmp_path, 1.0)
    timer.model = Full()  # type: ignore[assignment]  # a minimal model for save
    with pytest.warns(UserWarning, match="the checkpoint was not written, training continues: No space left") as said:
        timer.save()
    timer.save()
    assert len(said) == 1


def test_training_time_is_counted_up_to_the_last_checkpoint(tmp_path: Path) -> None:
    class Saving:
        num_timesteps, rank = 7, 0
        learner = SimpleNamespace(finite=True)

        def save(self, path: str, **kwargs: object) -> object:
            return SimpleNamespace(finished=True, wait=lambda: None)

    def save_and_read() -> RunResult:
        timer = CheckpointTimer(tmp_path, 1.0)
        timer.model = Saving()  # type: ignore[assignment]  # a minimal model for save
        time.sleep(0.02)
        timer.save()
        timer.save()  # waits for the previous one
        return read_result(tmp_path)

    first, second = save_and_read(), save_and_read()
    assert first.steps == second.steps == 7
    assert 0.02 <= first.seconds <= second.seconds - 0.019 < 10


def test_log_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("a,time/total_timesteps\n1,100\n2,200\n,\n3,300\n4,4")
    drop_rows(path, 200)
    assert path.read_text() == "a,time/total_timesteps\n1,100\n2,200\n,\n4,4\n"
    drop_rows(tmp_path / "none.csv", 1)
