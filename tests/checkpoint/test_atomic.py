"""Atomic writing: the old or the new file after a kill, a full disk or an error; cleanup of temporary files."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sb_dqn.checkpoint import atomic_write, model_info, write_archive
from sb_dqn.files import STALE_SECONDS
from tests.marks import FULL, SLOW

SCRIPT = Path(__file__).with_name("kill_saver.py")
ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("SB_DQN_KILL_ROUNDS", "12"))
"""More rounds for a longer test: `SB_DQN_KILL_ROUNDS=50`."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL, flock and file permissions are POSIX")


def killed_savers(folder: Path, mode: str) -> dict[str, int]:
    command = [sys.executable, str(SCRIPT), str(folder), str(ROUNDS), "7", mode]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@SLOW
def test_sigkill_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    for _ in range(4):  # on a busy machine all kills may come before the first save is finished
        counts = killed_savers(tmp_path, "atomic")
        assert (counts["whole"], counts["damaged"]) == (ROUNDS, 0)
        if counts["new"]:
            return
    pytest.fail("no save was finished before a kill: the test saw only old files")


@FULL
def test_without_the_rename_files_are_damaged(tmp_path: Path) -> None:
    assert killed_savers(tmp_path, "plain")["damaged"] > 0


def half_write(path: Path, error: BaseException) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise error


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "m.zip").write_bytes(b"old")
    for error in (ValueError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            half_write(tmp_path / "m.zip", error)
        assert (tmp_path / "m.zip").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["m.zip"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    write_archive(tmp_path / "m", {"kind": "old"}, {})

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(
        OSError, match=r"cannot write .*m\.zip: No space left on device. Existing files are unchanged"
    ) as caught:
        write_archive(tmp_path / "m", {"kind": "new"}, {"p": {"w": torch.ones(9)}})
    assert caught.value.errno == errno.ENOSPC
    assert model_info(tmp_path / "m")["kind"] == "old"
    assert os.listdir(tmp_path) == ["m.zip"]


def test_a_file_in_place_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"cannot write .*m\.zip: .*Choose a writable folder"):
        write_archive(tmp_path / "file" / "m", {"kind": "x"}, {})


@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_keeps_the_old_file(tmp_path: Path) -> None:
    write_archive(tmp_path / "m", {"kind": "old"}, {})
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="Choose a writable folder"):
            write_archive(tmp_path / "m", {"kind": "new"}, {})
    finally:
        tmp_path.chmod(0o700)
    assert model_info(tmp_path / "m")["kind"] == "old"


def test_the_file_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape: list[str] = []
    fsync, replace = os.fsync, os.replace

    def tracked_fsync(handle: int) -> None:
        tape.append("fsync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "fsync file")
        fsync(handle)

    def tracked_replace(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        tape.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", tracked_fsync)
    monkeypatch.setattr(os, "replace", tracked_replace)
    write_archive(tmp_path / "m", {"kind": "x"}, {})
    assert tape == ["fsync file", "replace", "fsync folder"]


def test_the_file_has_the_default_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    path = write_archive(tmp_path / "m", {"kind": "x"}, {})
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_only_old_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".m.zip.aa.tmp", ".m.zip.bb.tmp", ".n.zip.aa.tmp"))
    for path in (old, young, other):
        path.write_bytes(b"half a model")
    for path in (old, other):
        os.utime(path, (0, 0))
    with atomic_write(tmp_path / "m.zip") as living:
        mine = next(path for path in tmp_path.glob(".m.zip.*.tmp") if path not in (old, young))
        living.flush()
        os.utime(mine, (0, 0))
        write_archive(tmp_path / "m.zip", {"kind": "x"}, {})
        assert mine.exists(), "a running writer holds its lock, even if its file looks old"
        living.write(b"end")
    assert not old.exists()
    assert young.exists()
    assert other.exists()
    assert (tmp_path / "m.zip").read_bytes() == b"end"
    assert STALE_SECONDS >= 60
