"""Segment files: rows round-trip, each block is written once, and foreign or damaged segments are refused."""

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

from sb_dqn.checkpoint import WrittenBlocks, remove_unused_segments, write_archive, write_checkpoint
from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.incremental import row_blocks
from sb_dqn.errors import CheckpointError, ConfigurationError
from scripts.benchmarks import fuzz_segments
from scripts.benchmarks.fuzz_reader import Watch
from tests.checkpoint.rows import NaiveRing, load, segments
from tests.marks import FULL, SLOW

ROOT = Path(__file__).parents[2]
LANES = np.arange(2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets blocks of 6 rows in two lanes: 6 * 2 * 2 * 8 + 2 * 2 * 2 = 200 bytes."""
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 250)


def grown(rows: int, ring: NaiveRing | None = None) -> NaiveRing:
    ring = ring or NaiveRing(20, 2)
    for _ in range(rows):
        ring.arrive(LANES)
    return ring


@SLOW
@given(st.data())
@settings(max_examples=30)
def test_loaded_rows_equal_saved_rows(data: st.DataObject) -> None:
    """Unequal lanes, rings that wrap many times, saves at any time; checkpoints are read after all have been written."""
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
    """Temporary folder for one example of hypothesis."""

    def __enter__(self) -> Path:
        import tempfile

        self.path = Path(tempfile.mkdtemp())
        return self.path

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.path)


def test_a_block_is_written_once_and_deleted_when_no_zip_lists_it(tmp_path: Path) -> None:
    ring = grown(16)  # blocks of rows 0..5, 6..11 and the open one
    ring.save(tmp_path / "a.zip")
    first = segments(tmp_path)
    assert [name[:10] for name in first] == ["0000000000", "0000000001", "0000000002"]
    times = {name: (tmp_path / "replay_rows" / name).stat().st_mtime_ns for name in first}

    grown(4, ring).save(tmp_path / "b.zip")  # row 17 has departed: block 2 is final, block 3 is open
    second = segments(tmp_path)
    assert len(second) == 5
    assert all((tmp_path / "replay_rows" / name).stat().st_mtime_ns == times[name] for name in first)

    grown(10, ring).save(tmp_path / "c.zip")  # 30 rows, of which the ring has 10..29: block 0 is gone
    listed = {segment["name"] for segment in manifest_of(tmp_path / "c.zip")["segments"]["files"]}
    assert [name[:10] for name in sorted(listed)] == ["0000000001", "0000000002", "0000000003", "0000000004"]
    assert set(second) < set(segments(tmp_path))  # a and b list them
    (tmp_path / "a.zip").unlink()
    (tmp_path / "b.zip").unlink()
    remove_unused_segments(tmp_path)
    assert set(segments(tmp_path)) == listed
    for cursor, columns in (load(tmp_path / "c.zip")[:2], load(tmp_path)[:2]):
        assert cursor.tolist() == [30, 30]
        assert columns["each"].equal(ring.state()["each"])


def test_a_missing_segment_is_written_again(tmp_path: Path) -> None:
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
    ring.each[:] += 0.5  # other rows with the same numbers, as after `load_replay_buffer`
    ring.written = WrittenBlocks()
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
    remove_unused_segments(tmp_path)
    assert len(segments(tmp_path)) == len(manifest_of(tmp_path / "b.zip")["segments"]["files"])


def test_a_full_disk_leaves_only_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = grown(16)
    ring.save(tmp_path / "a.zip")
    before, replace, successes_left = segments(tmp_path), os.replace, [1]

    def full(source: Path, target: Path) -> None:
        if not successes_left:
            raise OSError(28, "No space left on device")
        successes_left.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left on device. Existing files are unchanged"):
        grown(10, ring).save(tmp_path / "b.zip")
    assert segments(tmp_path) == before
    assert [path.name for path in tmp_path.glob("*.zip")] == ["a.zip"]
    monkeypatch.undo()
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 250)
    ring.save(tmp_path / "b.zip")
    assert load(tmp_path)[1]["each"].equal(ring.state()["each"])


@FULL
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork are POSIX")
def test_sigkill_at_any_moment_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    rounds = int(os.environ.get("SB_DQN_KILL_ROUNDS", "10"))
    script = Path(__file__).with_name("kill_row_saver.py")
    process = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(rounds), "3"],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    counts = json.loads(process.stdout)
    assert counts["whole"] == rounds
    assert counts["newer"] > 0, "no save was finished before a kill: the test saw only old checkpoints"
    assert counts["remaining"] == 0


# -- damaged and foreign files


def manifest_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
    return manifest


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Writes the same zip with another list of segments."""
    manifest = manifest_of(path)
    change(manifest["segments"])
    kept = {name: value for name, value in manifest.items() if name in ("kind", "full", "state", "segments")}
    write_archive(path, kept, {"experience": {"cursor": torch.tensor([16, 16])}})


def alter(rows: Path, name: str) -> None:
    data = bytearray((rows / name).read_bytes())
    data[-1] ^= 1
    (rows / name).write_bytes(data)


def replace_by_pipe(rows: Path, name: str) -> None:
    (rows / name).unlink()
    os.mkfifo(rows / name)


def replace_by_link(rows: Path, name: str) -> None:
    (rows / name).rename(rows / "elsewhere")
    (rows / name).symlink_to(rows / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (alter, "was altered: its SHA-256 digest differs from the manifest"),
        (
            lambda rows, name: (rows / name).unlink(),
            "cannot be read .* Keep the folder 'replay_rows' next to the zip, unchanged",
        ),
        (lambda rows, name: (rows / name).write_bytes(b"12345678"), "as in the manifest, got 8"),
        (replace_by_pipe, "as in the manifest, got 0"),
        (replace_by_link, "cannot be read"),
        (lambda rows, name: shutil.rmtree(rows), "needs the folder 'replay_rows' next to it, which has its rows"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links are POSIX")
def test_missing_and_altered_segments_are_refused(tmp_path: Path, damage: Callable[..., object], message: str) -> None:
    grown(16).save(tmp_path / "a.zip")
    damage(tmp_path / "replay_rows", segments(tmp_path)[1])
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


MALFORMED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda listed: listed["files"][0].update(name="../../etc/passwd"), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(name="/etc/passwd"), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(name=7), "has a malformed list of segments"),
    (lambda listed: listed["files"][0].update(length=-1), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(length="9"), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(block=True), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(sha256="0" * 63), "lists segments that no checkpoint writes"),
    (lambda listed: listed["files"][0].update(more=1), "has a malformed list of segments"),
    (lambda listed: listed["files"].insert(0, listed["files"][0]), "lists segments that no checkpoint writes"),
    (lambda listed: listed.update(files={"a": 1}), "has a malformed list of segments"),
    (lambda listed: listed.pop("files"), "has a malformed list of segments"),
    (lambda listed: listed["files"].pop(1), "cells of 'each' are in no segment that the manifest lists"),
    (lambda listed: listed.update(block_rows=7), "does not describe the segments of the rows"),
    (lambda listed: listed.update(block_rows=0), "does not describe the segments of the rows"),
    (lambda listed: listed.update(block_rows=1.5), "does not describe the segments of the rows"),
    (lambda listed: listed.update(block_rows=12), "cells of 'each' are in no segment that the manifest lists"),
    (lambda listed: listed["columns"]["each"].update(slots=-3), "does not describe the segments of the rows"),
    (lambda listed: listed["columns"].pop("third"), "must have the columns"),
]


@pytest.mark.parametrize(("change", "message"), MALFORMED)
def test_malformed_lists_of_segments_are_refused(tmp_path: Path, change: Callable[..., object], message: str) -> None:
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
        (other_lanes, r"'each' must have the shape \(n, 2, ...\), got \(6, 1, 2\)"),
        (another_dtype, "'third' must have the same shape and dtype in all segments"),
        (another_column, r"block 1 must have the columns .* got \['each', 'more', 'third'\]"),
        (fewer_rows, "2 cells of 'each' are in no segment that the manifest lists"),
    ],
)
def test_a_segment_of_another_ring_is_refused(tmp_path: Path, change: Callable[..., object], message: str) -> None:
    grown(16).save(tmp_path / "a.zip")
    rows, name = tmp_path / "replay_rows", segments(tmp_path)[1]
    data = (rows / name).read_bytes()
    tensors = safetensors_stream.read(name, len(data), BytesIO(data).read, {}, {}, hashlib.sha256(data).hexdigest())
    change(tensors)
    data = b"".join(safetensors_stream.chunks(safetensors_stream.plan(name, tensors)))
    (rows / name).write_bytes(data)
    entry = {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    rewritten(tmp_path / "a.zip", lambda listed: listed["files"][1].update(entry))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "a.zip")


def test_cursors_that_need_more_memory_than_the_segments_are_refused(tmp_path: Path) -> None:
    grown(16).save(tmp_path / "a.zip")
    manifest = manifest_of(tmp_path / "a.zip")
    manifest["segments"]["columns"]["each"]["slots"] = 2**60
    kept = {name: manifest[name] for name in ("kind", "full", "state", "segments")}
    for cursor in ([2**50, 2**50], [-1, 16], [16, 16, 16]):
        write_archive(tmp_path / "a.zip", kept, {"experience": {"cursor": torch.tensor(cursor)}})
        with pytest.raises(
            CheckpointError, match=r"more memory than the segments|does not describe the segments|\(n, 3, ...\)"
        ):
            load(tmp_path / "a.zip")


def test_a_folder_without_a_full_checkpoint_and_an_open_file(tmp_path: Path) -> None:
    write_archive(tmp_path / "plain.zip", {"kind": "model"}, {})
    with pytest.raises(
        CheckpointError, match=r"must be a full checkpoint, got the folder .* without one. Pass the \.zip file"
    ):
        load(tmp_path)
    with pytest.raises(ConfigurationError, match="path must be a path with incremental=True, .* got an open file"):
        write_checkpoint(BytesIO(), {"kind": "model"}, {}, grown(3).segmented_rows())


@SLOW
def test_sixty_mutated_folders(tmp_path: Path) -> None:
    """Runs mutations of scripts/benchmarks/fuzz_segments.py, which runs for minutes."""
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


def test_a_zip_of_another_kind_stops_no_deletion(tmp_path: Path) -> None:
    rows = tmp_path / "replay_rows"
    rows.mkdir()
    np.savez(tmp_path / "evaluations.npz", timesteps=[1])
    unused = rows / f"{10**12}-{'0' * 32}.safetensors"
    unused.write_bytes(b"")
    remove_unused_segments(tmp_path)
    assert not unused.exists()
