"""`sb-dqn` on a full disk and in folders that cannot be written: training goes on, errors are one line, and nothing is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from sb_dqn.cli.tune import jobs
from sb_dqn.cli.tune.training import Outcome
from sb_dqn.runs.folder import Result, write_result
from tests.command import call, run_main
from tests.full_disk import POSIX, files_limited_to
from tests.marks import SLOW

QUICK = ["--no-progress", "--eval-episodes", "1", "--device", "cpu", "--set", "policy_kwargs={net_arch: [64, 64]}"]


class Failed(NamedTuple):
    status: int
    line: str
    """The error."""
    output: str


Failing = Callable[..., Failed]


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Failing:
    """Returns a function that runs `sb-dqn`, which must fail with one line."""

    def run(*words: object) -> Failed:
        status = run_main(*words)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        (line,) = [line for line in printed.err.splitlines() if line.startswith("Error: ")]
        return Failed(status, line, printed.out)

    return run


@POSIX
def test_run_on_a_full_disk_trains_to_the_end(failing: Failing, tmp_path: Path) -> None:
    """There is room for the small files only; no model fits."""
    with (
        files_limited_to(6_000),
        pytest.warns(UserWarning, match=r"best_model\.zip was not written, training continues: cannot write") as said,
    ):
        failed = failing("train", "dqn", "CartPole-v1", "-n", 400, *QUICK, "--eval-freq", 50, "--folder", tmp_path)
    assert len([each for each in said if "was not written" in str(each.message)]) == 1
    assert (failed.status, "model.zip: File too large" in failed.line) == (1, True)
    (run,) = tmp_path.iterdir()
    assert set(os.listdir(run)) == {".lock", "config.yaml", "evaluations.npz", "monitor.csv", "progress.csv"}
    steps = sum(int(row.split(",")[1]) for row in (run / "monitor.csv").read_text().splitlines()[2:])
    assert steps > 300


@SLOW
@POSIX
def test_episodes_that_cannot_be_logged_do_not_end_a_run(failing: Failing, tmp_path: Path) -> None:
    words = ["train", "dqn", "CartPole-v1", "-n", 4_500, *QUICK, "--eval-freq", 0, "--set", "learning_starts=9_000"]
    with files_limited_to(3_000), pytest.warns(UserWarning, match="was not written, training continues") as said:
        failed = failing(*words, "--folder", tmp_path)
    assert (failed.status, "model.zip" in failed.line) == (1, True)
    assert [str(each.message).split()[0] for each in said if "was not written" in str(each.message)] == ["monitor.csv"]


@pytest.mark.parametrize(
    "words", [("compare", "DQN", "--env", "CartPole-v1"), ("benchmark", "classic", "--algos", "DQN")]
)
def test_command_of_several_runs_in_a_folder_that_cannot_be_made(
    failing: Failing, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    failed = failing(*words, "--out", out)
    assert failed.status == 2
    assert failed.line.startswith(f"Error: {out} must be writable, got: Not a directory")


@POSIX
def test_table_that_cannot_be_written_is_printed(failing: Failing, tmp_path: Path) -> None:
    run = tmp_path / "DQN" / "seed_0" / "dqn_CartPole-v1_1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("n_envs: 1")
    (run / "model.zip").touch()
    write_result(run, Result(400, 9.0, (7.0, 8.0)))
    content = {"setup": {"env_id": "CartPole-v1", "steps": 400}, "algorithms": {"DQN": []}, "seeds": {"DQN": 1}}
    (tmp_path / "comparison.yaml").write_text(yaml.safe_dump(content))
    before = sorted(tmp_path.iterdir())
    with files_limited_to(100):
        failed = failing("compare", tmp_path)
    assert (failed.status, "comparison.md: File too large" in failed.line) == (1, True)
    assert "| DQN | 7.5 | 7.5 | 1 | 400 | 9 s |" in failed.output
    assert sorted(tmp_path.iterdir()) == before


@POSIX
@pytest.mark.parametrize(("command", "name"), [("report", "report.html"), ("plot", "curve.png")])
def test_page_or_picture_that_cannot_be_written_leaves_the_old_one(
    failing: Failing, tmp_path: Path, command: str, name: str
) -> None:
    (tmp_path / "config.yaml").write_text(
        "{algorithm: DQN, env_id: CartPole-v1, n_envs: 1, n_timesteps: 9, settings: {seed: 0}}"
    )
    (tmp_path / "monitor.csv").write_text('#{"t_start": 0.0, "env_id": "CartPole-v1"}\nr,l,t\n9.0,9,0.1\n')
    old = b'<meta name="generator" content="sb-dqn report">'
    (tmp_path / name).write_bytes(old)
    with files_limited_to(100):
        failed = failing(command, tmp_path)
    assert f"{name}: File too large" in failed.line
    assert (tmp_path / name).read_bytes() == old
    assert sorted(os.listdir(tmp_path)) == sorted(["config.yaml", "monitor.csv", name])


@SLOW
@POSIX
def test_study_whose_database_cannot_grow_continues_later(
    failing: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    disk = ExitStack()

    def fills_the_disk(setup: object, number: int, *_: object) -> Outcome:
        if number == 2:
            disk.enter_context(files_limited_to(0))
        return Outcome(float(number))

    monkeypatch.setattr(jobs, "run_trial", fills_the_disk)
    words = ["tune", "dqn", "CartPole-v1", "--out", tmp_path, "--trials", 4, "--finalists", 0, "--device", "cpu"]
    with disk:
        failed = failing(*words)
    assert failed.status == 1
    assert "study.db failed: (sqlite3.OperationalError)" in failed.line
    monkeypatch.setattr(jobs, "run_trial", lambda setup, number, *_: Outcome(float(number)))
    again = call(*words)
    assert "2 of 4 trials to do" in again.output
    assert again.exit_code == 0, again.output
