"""One process at a time trains in the folder of a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import click
import pytest
from click.testing import CliRunner, Result

from sb_dqn.cli.main import commands
from sb_dqn.cli.train.episode_log import EpisodeLog
from sb_dqn.cli.train.folder_lock import alone_in
from sb_dqn.cli.train.result_file import read_result

fcntl = pytest.importorskip("fcntl", reason="without POSIX locks the user takes care")

TRAIN = (
    "train", "dqn", "CartPole-v1", "--seed", "1", "--device", "cpu", "--no-progress", "--eval-freq", "0",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def call_beside(other: tuple[object, ...], folder: Path, *arguments: object) -> tuple[Result, Result]:
    """What a command says, and what another one that is typed some steps after it, when there is a model in `folder`."""
    written, answers = EpisodeLog._on_step, list[Result]()

    def meet(log: EpisodeLog) -> bool:
        if not answers and log.num_timesteps % 100 == 60:
            (folder / "model.zip").touch()
            before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            answers.append(call(*other))
            assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
        return written(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", meet)
        return call(*arguments), answers[0]


@pytest.mark.parametrize("second", [("resume",), ("train", "--resume")])
def test_a_second_process_is_refused(tmp_path: Path, second: tuple[str, ...]) -> None:
    folder = tmp_path / "dqn_CartPole-v1_1"
    other = (*second, folder, "--timesteps", 50, "--no-progress")
    for first in ((*TRAIN, "--folder", tmp_path, "-n", 100), ("resume", folder, "-n", 100, "--no-progress")):
        done, refused = call_beside(other, folder, *first)
        assert refused.exit_code == 2, refused.output
        assert f"another sb-dqn trains in {folder}; wait until it has ended" in " ".join(refused.output.split())
        assert done.exit_code == 0, done.output
    assert call(*other).exit_code == 0
    assert read_result(folder).steps == 250


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from sb_dqn.cli.train.folder_lock import alone_in\n"
        "with alone_in(pathlib.Path(sys.argv[1]), ''): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(click.UsageError, match="wait"), alone_in(tmp_path, "wait"):
            pass
        holder.kill()
    with alone_in(tmp_path, "wait"):
        pass


def test_what_a_forked_process_has_open_does_not_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, copies = fcntl.flock, list[int]()

    def copy(file: IO[str], how: int) -> None:
        lock(file, how)
        copies.append(os.dup(file.fileno()))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", copy)
        with alone_in(tmp_path, "wait"):
            pass
    with alone_in(tmp_path, "wait"):
        pass
    for handle in copies:
        os.close(handle)


def test_a_file_system_without_locks_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", without)
    with alone_in(tmp_path, "wait"), alone_in(tmp_path, "wait"):
        pass


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(click.ClickException, match=r"cannot write to .*gone: No such file"),
        alone_in(tmp_path / "gone", ""),
    ):
        pass
