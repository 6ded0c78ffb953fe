"""`sb-dqn train --learners N`: one folder for all learners, parts of checkpoints, and exit statuses."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sb_dqn.cli.main import commands
from sb_dqn.runs import learner_processes
from sb_dqn.runs.episode_log import EpisodeLog
from tests.marks import SLOW
from tests.several_learners import run_learners

TRAIN = ["train", "dqn", "CartPole-v1", "--timesteps", "400", "--seed", "1", "--set", "learning_starts=50", "--learners", "2",
         "--set", "policy_kwargs={net_arch: [16]}", "--set", "train_freq=8", "--set", "gradient_steps=1",
         "--no-progress", "--eval-freq", "0", "--final-episodes", "0"]  # fmt: skip


@SLOW
def test_learners_stop_together_and_resume_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, original_on_step = tmp_path / "dqn_CartPole-v1_1", EpisodeLog._on_step

    def send_sigterm(log: EpisodeLog) -> bool:
        if log.num_timesteps == 300:
            os.kill(os.getpid(), signal.SIGTERM)  # to the first learner alone
        return original_on_step(log)

    def call(*arguments: str) -> tuple[int, list[str]]:
        done = CliRunner().invoke(commands, arguments, catch_exceptions=False)
        return done.exit_code, done.output.splitlines()

    monkeypatch.setattr(EpisodeLog, "_on_step", send_sigterm)
    (status, output), (other, quiet) = run_learners(2, lambda: call(*TRAIN, "--folder", str(tmp_path)))
    assert (status, other) == (130, 130), output
    assert any("DQN on CartPole-v1: 400 steps" in line for line in output)
    assert quiet == []
    assert yaml.safe_load((run / "config.yaml").read_text())["learners"] == 2
    for part in (run / "checkpoints", run / "checkpoints" / "learner1"):
        assert [path.name for path in part.glob("*.zip")] == ["300_steps.zip"]

    (status, output), _ = run_learners(2, lambda: call("resume", str(run), "--no-progress"))
    assert status == 0, output
    assert yaml.safe_load((run / "result.yaml").read_text())["steps"] == 400
    assert not (run / "checkpoints").exists()


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["trane"], 2)])
def test_the_status_is_that_of_the_learners(arguments: list[str], status: int) -> None:
    with pytest.raises(SystemExit) as exit_:
        learner_processes._run_learners(2, arguments)
    assert exit_.value.code == status


def test_learners_share_the_cores_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """`taskset -c 0-5 sb-dqn train --learners 2` on a machine with 64 cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    threads: list[str] = []

    def start(command: list[str], env: dict[str, str], **_: Any) -> SimpleNamespace:
        threads.append(env["OMP_NUM_THREADS"])
        return SimpleNamespace(returncode=0, poll=lambda: 0, kill=lambda: None)

    monkeypatch.setattr("sb_dqn.runs.learner_processes.subprocess.Popen", start)
    with pytest.raises(SystemExit):
        learner_processes._run_learners(2, ["--version"])
    assert threads == ["3", "3"]


def test_another_number_than_torchrun_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    done = CliRunner().invoke(commands, TRAIN)
    assert done.exit_code == 2
    assert "--learners must be 3 as started by torchrun, got 2" in done.output
