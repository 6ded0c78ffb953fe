"""Rows in segments: they come back as they were, each is written once, and what is not a segment is refused in words."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.checkpoint import Written, sweep, write_archive, write_checkpoint
from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.incremental import row_blocks
from sb_dqn.errors import CheckpointError, ConfigurationError
from scripts.benchmarks import fuzz_segments
from scripts.benchmarks.fuzz_reader import Watch
from tests.checkpoint.rows import NaiveRing, load, segments

ROOT = Path(__file__).parents[2]
LANES = np.arange(2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 rows in two lanes: 6 * 2 * 2 * 8 + 2 * 2 * 2 = 200 bytes."""
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 250)


def grown(rows: int, ring: NaiveRing | None = None) -> NaiveRing:
    ring = ring or NaiveRing(20, 2)
    for _ in range(rows):
        ring.arrive(LANES)
    return ring


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_what_is_put_together_is_what_was_held(data: st.DataObject) -> None:
    """Unequal lanes, rings that wrap many times, saves at any moment; each checkpoint is read when all are written."""
    with pytest.MonkeyPatch.context() as patch, Folder() as folder:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(row_blocks, "BLOCK_BYTES", data.draw(st.integers(1, 900)))
        ring = NaiveRing(data.draw(st.integers(3, 30)), data.draw(st.integers(1, 3)))
        saved = {}
        for number in range(data.draw(st.integers(1, 5))):
            for _ in range(data.draw(st.integers(1, 40))):
                some = data.draw(st.lists(st.sampled_from(range(len(ring.cursor))), min_size=1, unique=True))
                ring.arrive(np.array(some))
            ring.save(folder / f"{number}.zip")
            saved[number] = ring.cursor.copy(), ring.state()
        for number, (cursor, state) in saved.items():
            read, columns, _ = load(folder / f"{number}.zip")
            assert read.tolist() == cursor.tolist()
            assert columns.keys() == state.keys()
            assert all(columns[name].equal(state[name]) for name in state)


class Folder:
    """A folder for one example of hypothesis."""

    def __enter__(self) -> Path:
        import tempfile

        self.path = Path(tempfile.mkdtemp())
        return self.path

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.path)


def test_a_block_is_written_once_and_deleted_when_no_zip_names_it(tmp_path: Path) -> None:
    ring = grown(16)  # blocks of rows 0..5, 6..11 and the open one
    ring.save(tmp_path / "a.zip")
    first = segments(tmp_path)
    assert [name[:10] for name in first] == ["0000000000", "0000000001", "0000000002"]
    times = {name: (tmp_path / "replay_rows" / name).stat().st_mtime_ns for name in first}

    grown(4, ring).save(tmp_path / "b.zip")  # row 17 has departed: block 2 is written for good, and the open block 3
    second = segments(tmp_path)
    assert len(second) == 5
    assert all((tmp_path / "replay_rows" / name).stat().st_mtime_ns == times[name] for name in first)

    grown(10, ring).save(tmp_path / "c.zip")  # 30 rows, of which the ring has 10..29: block 0 is gone
    named = {one["name"] for one in manifest_of(tmp_path / "c.zip")["segments"]["files"]}
    assert [name[:10] for name in sorted(named)] == ["0000000001", "0000000002", "0000000003", "0000000004"]
    assert set(second) < set(segments(tmp_path))  # a and b name them
    (tmp_path / "a.zip").unlink()
    (tmp_path / "b.zip").unlink()
    sweep(tmp_path)
    assert set(segments(tmp_path)) == named
    for cursor, columns in (load(tmp_path / "c.zip")[:2], load(tmp_path)[:2]):
        assert cursor.tolist() == [30, 30]
        assert columns["each"].equal(ring.state()["each"])


def test_a_segment_that_has_vanished_is_written_again(tmp_path: Path) -> None:
    ring = grown(16)
    ring.save(tmp_path / "a.zip")
    lost, short, *_ = segments(tmp_path)
    (tmp_path / "replay_rows" / lost).unlink()
    (tmp_path / "replay_rows" / short).write_bytes(b"half")
    ring.save(tmp_path / "a.zip")
    assert load(tmp_path / "a.zip")[1]["each"].equal(ring.state()["each"])


def test_a_ring_whose_rows_were_replaced_writes_all_of_them(tmp_path: Path) -> None:
    ring = grown(16)
    ring.save(tmp_path / "a.zip")
    ring.each[:] += 0.5  # other rows of the same numbers, as after `load_replay_buffer`
    ring.written = Written()
    ring.save(tmp_path / "b.zip")
    assert load(tmp_path / "b.zip")[1]["each"].equal(ring.state()["each"])
    assert not load(tmp_path / "a.zip")[1]["each"].equal(ring.state()["each"])


def test_nothing_is_deleted_while_a_zip_cannot_be_read(tmp_path: Path) -> None:
    ring = grown(16)
    ring.save(tmp_path / "a.zip")
    (tmp_path / "moved.away").write_bytes((tmp_path / "a.zip").read_bytes()[:-9])
    (tmp_path / "a.zip").unlink()
    (tmp_path / "notes.txt").write_bytes(b"no zip")
    before = segments(tmp_path)
    grown(10, ring).save(tmp_path / "b.zip")
    assert set(before) < set(segments(tmp_path))
    (tmp_path / "moved.away").unlink()
    sweep(tmp_path)
    assert len(segments(tmp_path)) == len(manifest_of(tmp_path / "b.zip")["segments"]["files"])


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = grown(16)
    ring.save(tmp_path / "a.zip")
    before, replace, left = segments(tmp_path), os.replace, [1]

    def full(source: Path, target: Path) -> None:
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left on device; what was there before is as it was"):
        grown(10, ring).save(tmp_path / "b.zip")
    assert segments(tmp_path) == before
    assert [path.name for path in tmp_path.glob("*.zip")] == ["a.zip"]
    monkeypatch.undo()
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 250)
    ring.save(tmp_path / "b.zip")
    assert load(tmp_path)[1]["each"].equal(ring.state()["each"])


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork are POSIX")
def test_sigkill_at_any_moment_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    rounds = int(os.environ.get("SB_DQN_KILL_ROUNDS", "10"))
    script = Path(__file__).with_name("kill_row_saver.py")
    answer = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(rounds), "3"],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    counts = json.loads(answer.stdout)
    assert counts["whole"] == rounds
    assert counts["newer"] > 0, "no save was finished before a kill: the test saw old checkpoints alone"
    assert counts["remaining"] == 0


# -- files that were not written by a checkpoint, or not as they are


def manifest_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read("manifest.json"))
    return found


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The same zip with another list of segments."""
    manifest = manifest_of(path)
    change(manifest["segments"])
    kept = {name: value for name, value in manifest.items() if name in ("kind", "full", "state", "segments")}
    write_archive(path, kept, {"experience": {"cursor": torch.tensor([16, 16])}})


def an_altered_one(rows: Path, name: str) -> None:
    data = bytearray((rows / name).read_bytes())
    data[-1] ^= 1
    (rows / name).write_bytes(data)


def a_pipe(rows: Path, name: str) -> None:
    (rows / name).unlink()
    os.mkfifo(rows / name)


def a_link(rows: Path, name: str) -> None:
    (rows / name).rename(rows / "elsewhere")
    (rows / name).symlink_to(rows / "elsewhere")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (an_altered_one, "was altered: its SHA-256 digest is not the manifest's"),
        (lambda rows, name: (rows / name).unlink(), "cannot be read .* needs the folder 'replay_rows' beside it"),
        (lambda rows, name: (rows / name).write_bytes(b"12345678"), "has 8 bytes, the manifest says"),
        (a_pipe, "has 0 bytes, the manifest says"),
        (a_link, "cannot be read"),
        (lambda rows, name: shutil.rmtree(rows), "needs the folder 'replay_rows' beside it, which holds its rows"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links are POSIX")
def test_a_segment_that_is_not_the_one_named(tmp_path: Path, harm: Callable[..., object], message: str) -> None:
    grown(16).save(tmp_path / "a.zip")
    harm(tmp_path / "replay_rows", segments(tmp_path)[1])
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


FOREIGN: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda told: told["files"][0].update(name="../../etc/passwd"), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(name="/etc/passwd"), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(name=7), "does not name its segments"),
    (lambda told: told["files"][0].update(length=-1), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(length="9"), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(block=True), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(sha256="0" * 63), "names segments that no checkpoint writes"),
    (lambda told: told["files"][0].update(more=1), "does not name its segments"),
    (lambda told: told["files"].insert(0, told["files"][0]), "names segments that no checkpoint writes"),
    (lambda told: told.update(files={"a": 1}), "does not name its segments"),
    (lambda told: told.pop("files"), "does not name its segments"),
    (lambda told: told["files"].pop(1), "cells of 'each' lie in no segment that is named"),
    (lambda told: told.update(block_rows=7), "does not say how the rows are cut"),
    (lambda told: told.update(block_rows=0), "does not say how the rows are cut"),
    (lambda told: told.update(block_rows=1.5), "does not say how the rows are cut"),
    (lambda told: told.update(block_rows=12), "cells of 'each' lie in no segment that is named"),
    (lambda told: told["columns"]["each"].update(slots=-3), "does not say how the rows are cut"),
    (lambda told: told["columns"].pop("third"), "has the columns"),
]


@pytest.mark.parametrize(("change", "message"), FOREIGN)
def test_a_foreign_manifest(tmp_path: Path, change: Callable[..., object], message: str) -> None:
    grown(16).save(tmp_path / "a.zip")
    rewritten(tmp_path / "a.zip", change)
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "a.zip")


def other_lanes(tensors: dict[str, torch.Tensor]) -> None:
    tensors["each"] = tensors["each"][:, :1].clone()


def another_dtype(tensors: dict[str, torch.Tensor]) -> None:
    tensors["third"] = tensors["third"].float()


def another_column(tensors: dict[str, torch.Tensor]) -> None:
    tensors["more"] = torch.zeros(6, 2)


def fewer_rows(tensors: dict[str, torch.Tensor]) -> None:
    tensors["each"] = tensors["each"][:-1].clone()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_lanes, r"'each' has the shape \(6, 1, 2\) for 2 lanes"),
        (another_dtype, "'third' is of one kind in one segment and of another in the next"),
        (another_column, r"block 1 has the columns \['each', 'more', 'third'\], not"),
        (fewer_rows, "2 cells of 'each' lie in no segment that is named"),
    ],
)
def test_a_segment_of_another_ring_with_the_digest_that_is_named(
    tmp_path: Path, change: Callable[..., object], message: str
) -> None:
    grown(16).save(tmp_path / "a.zip")
    rows, name = tmp_path / "replay_rows", segments(tmp_path)[1]
    data = (rows / name).read_bytes()
    tensors = safetensors_stream.read(name, len(data), BytesIO(data).read, {}, {})
    change(tensors)
    made = b"".join(safetensors_stream.chunks(safetensors_stream.plan(name, tensors)))
    (rows / name).write_bytes(made)
    said = {"length": len(made), "sha256": hashlib.sha256(made).hexdigest()}
    rewritten(tmp_path / "a.zip", lambda told: told["files"][1].update(said))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "a.zip")


def test_cursors_that_ask_for_memory_that_no_segment_has(tmp_path: Path) -> None:
    grown(16).save(tmp_path / "a.zip")
    manifest = manifest_of(tmp_path / "a.zip")
    manifest["segments"]["columns"]["each"]["slots"] = 2**60
    kept = {name: manifest[name] for name in ("kind", "full", "state", "segments")}
    for cursor in ([2**50, 2**50], [-1, 16], [16, 16, 16]):
        write_archive(tmp_path / "a.zip", kept, {"experience": {"cursor": torch.tensor(cursor)}})
        with pytest.raises(CheckpointError, match=r"more memory than the segments|how the rows are cut|for 3 lanes"):
            load(tmp_path / "a.zip")


def test_a_folder_without_a_full_checkpoint_and_an_open_file(tmp_path: Path) -> None:
    write_archive(tmp_path / "plain.zip", {"kind": "model"}, {})
    with pytest.raises(CheckpointError, match=r"is a folder without a full checkpoint; give the \.zip file"):
        load(tmp_path)
    with pytest.raises(ConfigurationError, match="give a path, not an open file"):
        write_checkpoint(BytesIO(), {"kind": "model"}, {}, grown(3).strips())


def test_sixty_hostile_folders(tmp_path: Path) -> None:
    """Mutations of scripts/benchmarks/fuzz_segments.py, which does this for minutes."""
    rng, watch, seen = np.random.default_rng(1), Watch(), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_blocks, "BLOCK_BYTES", 500)
        patch.setattr(os, "fsync", lambda handle: None)
        good = fuzz_segments.good_folder(tmp_path / "good")
        for number in range(60):
            how = fuzz_segments.mutate(good, tmp_path / str(number), rng)
            outcome, fault = fuzz_segments.attempt(tmp_path / str(number), watch)
            assert fault is None, (how, fault)
            seen.add((how, outcome))
    assert watch.seen == []
    assert {how for how, _ in seen} == set(fuzz_segments.WAYS)
    assert {how for how, outcome in seen if outcome == "loaded"} <= {"manifest", "header", "bytes"}
