"""Folder lock: one process at a time trains in the folder of a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import filelock
import pytest
from click.testing import Result
from filelock import lock_descriptor

from sb_dqn.runs.episode_log import EpisodeLog
from sb_dqn.runs.folder import read_result
from sb_dqn.runs.folder_lock import is_locked, lock_folder
from tests.command import call
from tests.marks import FULL, SLOW

pytestmark = pytest.mark.usefixtures("eagerly")

TRAIN = (
    "train", "dqn", "CartPole-v1", "--seed", "1", "--device", "cpu", "--no-progress", "--eval-freq", "0",
    "--set", "policy_kwargs={net_arch: [8]}", "--set", "buffer_size=300", "--set", "learning_starts=50",
)  # fmt: skip


def call_during(second: tuple[object, ...], folder: Path, *arguments: object) -> tuple[Result, Result]:
    """Returns the results of a training command, and of a second command that starts 60 steps later in the same folder."""
    original_on_step, results = EpisodeLog._on_step, list[Result]()

    def run_second(log: EpisodeLog) -> bool:
        if not results and log.num_timesteps % 100 == 60:
            (folder / "model.zip").touch()
            before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            results.append(call(*second))
            assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
        return original_on_step(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", run_second)
        return call(*arguments), results[0]


@SLOW
@pytest.mark.parametrize("second", [("resume",), pytest.param(("train", "--resume"), marks=FULL)])
def test_second_process_is_rejected(tmp_path: Path, second: tuple[str, ...]) -> None:
    folder = tmp_path / "dqn_CartPole-v1_1"
    other = (*second, folder, "--timesteps", 50, "--no-progress")
    for first in ((*TRAIN, "--folder", tmp_path, "-n", 100), ("resume", folder, "-n", 100, "--no-progress")):
        done, rejected = call_during(other, folder, *first)
        assert rejected.exit_code == 2, rejected.output
        assert f"Another sb-dqn process trains in {folder}. Wait until it ends" in " ".join(rejected.output.split())
        assert done.exit_code == 0, done.output
    assert call(*other).exit_code == 0
    assert read_result(folder).steps == 250


def test_killed_process_releases_the_lock(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from sb_dqn.runs.folder_lock import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1]), ''): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(click.UsageError, match="wait"), lock_folder(tmp_path, "wait"):
            pass
        holder.kill()
    with lock_folder(tmp_path, "wait"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="there, a child does not hold the lock of its parent")
def test_children_hold_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    """A run of a comparison trains on when `sb-dqn compare` is killed."""
    code = (
        "import pathlib, subprocess, sys, time; from sb_dqn.runs.folder_lock import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1]), '', with_children=True):\n"
        "    subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()'], close_fds=False)\n"
        "    time.sleep(60)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], text=True, **pipes) as parent:  # type: ignore[call-overload]
        assert parent.stdout is not None
        assert parent.stdout.readline() == "1\n"
        parent.kill()
        parent.wait()
        with pytest.raises(click.UsageError, match="wait"), lock_folder(tmp_path, "wait"):
            pass
        parent.stdin.close()
        assert parent.stdout.read() == ""  # the child has ended
    with lock_folder(tmp_path, "wait"):
        pass


def test_file_handle_in_a_forked_process_does_not_hold_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = list[int]()

    def lock_and_copy(descriptor: int, *, blocking: bool) -> bool:
        copies.append(os.dup(descriptor))
        return lock_descriptor(descriptor, blocking=blocking)

    with monkeypatch.context() as patch:
        patch.setattr(filelock, "lock_descriptor", lock_and_copy)
        with lock_folder(tmp_path, "wait"):
            pass
    with lock_folder(tmp_path, "wait"):
        pass
    for handle in copies:
        os.close(handle)


def test_file_system_without_locks_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_not_implemented(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(filelock, "lock_descriptor", raise_not_implemented)
    with lock_folder(tmp_path, "wait"), lock_folder(tmp_path, "wait"):
        pass


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(click.ClickException, match=r"out must be writable, got: Not a directory"),
        lock_folder(tmp_path / "file" / "out", ""),
    ):
        pass


def test_is_locked(tmp_path: Path) -> None:
    assert is_locked(tmp_path) is False
    with lock_folder(tmp_path, "in use"):
        assert is_locked(tmp_path) is True
    assert is_locked(tmp_path) is False


def test_a_look_at_the_lock_does_not_refuse_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plot --watch` holds the lock for a moment when it looks whether the run goes on."""
    (tmp_path / ".lock").touch()
    look = (tmp_path / ".lock").open()
    assert lock_descriptor(look.fileno(), blocking=False)
    monkeypatch.setattr("sb_dqn.runs.folder_lock.time.sleep", lambda seconds: look.close())
    with lock_folder(tmp_path, "in use"):
        assert look.closed
