"""A run that is resumed from an incremental full checkpoint is the run that nobody interrupted; only new rows are written."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import DQN, PQN, R2D2, SAC
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.checkpoint import copy_members, model_info, remove_unused_segments, write_archive
from sb_dqn.checkpoint.incremental import row_blocks, writer
from sb_dqn.envs.make import make_vec_env
from sb_dqn.errors import CheckpointError, ConfigurationError
from tests.continuing import Kept, differences
from tests.marks import a_few
from tests.tiny import lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

SMALL: dict[str, Any] = {"features_dim": 12, "channels": (4,), "kernels": (4,), "strides": (2,)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that small rings have many; a full checkpoint that is exact warns of nothing."""
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rows_of(folder: Path) -> dict[str, int]:
    """When each segment was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "replay_rows").iterdir()}


CASES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "one lane": (DQN, 1, {}),
    "several lanes, a ring that wraps": (DQN, 3, {"buffer_size": 150, "n_steps": 3}),
    "priorities": (DQN, 4, {"prioritized_replay": {"uniform_mix": 0.2}, "n_steps": 3, "buffer_size": 120}),
    "stored states": (R2D2, 2, {"buffer_size": 160}),
    "numbers as actions": (SAC, 2, {"buffer_size": 150}),
    "a rollout, which has no segments": (PQN, 3, {"n_steps": 5}),
}


@pytest.mark.traced
@pytest.mark.parametrize("name", a_few(CASES, "several lanes, a ring that wraps", "priorities"))
def test_resuming(name: str, tmp_path: Path) -> None:
    algorithm, count, settings = CASES[name]
    env = partial(make_vec_env, "Pendulum-v1" if algorithm is SAC else "CartPole-v1", count)
    if algorithm is R2D2:
        settings = {**settings, "policy": "MlpLstmPolicy"}
    keep = partial(CheckpointCallback, 40, full=True)
    whole = quick(env(), algorithm=algorithm, **settings).learn(
        180, callback=[keep(tmp_path / "folder", incremental=True), keep(tmp_path / "zips")]
    )
    names = sorted((tmp_path / "folder").glob("*.zip"), key=lambda path: int(path.stem.split("_")[2]))
    assert (tmp_path / "folder" / "replay_rows").exists() == (algorithm is not PQN)
    path = names[2]
    one, other = (algorithm.load(tmp_path / kind / path.name, env=env(), device="cpu") for kind in ("folder", "zips"))
    assert differences(one, other) == []
    before = rows_of(tmp_path / "folder") if algorithm is not PQN else {}
    one.resume(callback=[keep(tmp_path / "folder", incremental=True), keep(tmp_path / "again")])
    assert differences(whole, one) == []
    if before:  # the same rows under the same names
        assert rows_of(tmp_path / "folder").keys() == before.keys()


@pytest.mark.parametrize("place", ["memory", "file"])
def test_frames_in_memory_and_in_a_file(place: str, tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": {"features_extractor_kwargs": SMALL}}
    where: dict[str, Any] = {} if place == "memory" else {"buffer_path": tmp_path / "ring"}
    env = partial(lanes, 2, partial(Kept, "frames", "discrete", True))
    make: Any = partial(quick, action_mask="info", buffer_size=80, **kwargs)
    folder = tmp_path / "kept"
    whole = make(env(), **where).learn(120, callback=CheckpointCallback(30, folder, full=True, incremental=True))
    loading: dict[str, Any] = {} if place == "memory" else {"buffer_path": tmp_path / "other"}
    resumed = DQN.load(folder / "rl_model_60_steps.zip", env=env(), device="cpu", **loading).resume()
    assert differences(whole, resumed) == []


def test_only_new_rows_are_written(tmp_path: Path) -> None:
    model = quick("CartPole-v1", buffer_size=2000)
    model.learn(600)
    model.save(tmp_path / "a", full=True, incremental=True)
    first = rows_of(tmp_path)
    model.learn(30, reset_num_timesteps=False)
    model.save(tmp_path / "b", full=True, incremental=True)
    second = rows_of(tmp_path)
    assert len(first) > 15
    assert {name: second[name] for name in first} == first
    new = sum((tmp_path / "replay_rows" / name).stat().st_size for name in second.keys() - first.keys())
    assert new < 5000  # 30 rows, the rest of the open block, a header for each file
    assert (tmp_path / "b.zip").stat().st_size < (tmp_path / "a.zip").stat().st_size + 2000

    loaded = DQN.load(tmp_path, env="CartPole-v1", device="cpu")  # of most steps: b
    assert loaded.num_timesteps == 630
    loaded.resume()
    loaded.learn(30, reset_num_timesteps=False)
    loaded.save(tmp_path / "c", full=True, incremental=True)
    assert {name: rows_of(tmp_path)[name] for name in first} == first  # it knows the segments that it came from

    for name in ("a.zip", "b.zip"):
        (tmp_path / name).unlink()
    remove_unused_segments(tmp_path)
    named = {one["name"] for one in model_info(tmp_path / "c.zip")["segments"]["files"]}
    assert rows_of(tmp_path).keys() == named
    assert differences(loaded, DQN.load(tmp_path, env="CartPole-v1", device="cpu")) == []


def test_rows_that_were_loaded_over_are_not_taken_for_those_written(tmp_path: Path) -> None:
    one, other = quick("CartPole-v1", seed=1).learn(200), quick("CartPole-v1", seed=2).learn(200)
    other.save_replay_buffer(tmp_path / "others_rows.zip")
    one.save(tmp_path / "kept" / "a", full=True, incremental=True)
    one.load_replay_buffer(tmp_path / "others_rows.zip")
    one.save(tmp_path / "kept" / "b", full=True, incremental=True)
    again = DQN.load(tmp_path / "kept" / "b.zip", env="CartPole-v1", device="cpu")
    assert differences(one, again) == []


@pytest.mark.parametrize("size", [60, 900])
def test_a_ring_of_another_size(size: int, tmp_path: Path) -> None:
    model = quick("CartPole-v1", buffer_size=300).learn(400)
    model.save(tmp_path / "whole", full=True)
    model.save(tmp_path / "kept" / "a", full=True, incremental=True)
    one, other = (
        DQN.load(path, env="CartPole-v1", device="cpu", buffer_size=size)
        for path in (tmp_path / "whole.zip", tmp_path / "kept")
    )
    assert differences(one, other) == []
    other.learn(20, reset_num_timesteps=False)
    other.save(tmp_path / "kept" / "b", full=True, incremental=True)
    assert differences(other, DQN.load(tmp_path / "kept", env="CartPole-v1", device="cpu", buffer_size=size)) == []


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    model = quick("CartPole-v1").learn(60)
    for refused in (partial(model.save, tmp_path / "m"), partial(CheckpointCallback, 10, tmp_path)):
        with pytest.raises(ConfigurationError, match="incremental=True"):
            refused(incremental=True)
    model.save(tmp_path / "a" / "m", full=True, incremental=True)
    os.rename(tmp_path / "a" / "m.zip", tmp_path / "m.zip")
    assert DQN.load(tmp_path / "m.zip").num_timesteps == 60  # to predict with: no rows are needed
    with pytest.raises(CheckpointError, match="needs the folder 'replay_rows' next to it"):
        DQN.load(tmp_path / "m.zip", env="CartPole-v1")
    with (
        open(tmp_path / "m.zip", "rb") as file,
        pytest.raises(CheckpointError, match="Pass its path, not an open file"),
    ):
        DQN.load(file, env="CartPole-v1")


@pytest.mark.parametrize("room", a_few([2**30, 1000, 0], 0))
def test_training_goes_on_while_a_thread_writes(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over and over the whole ring, all parameters and priorities: what is written is what was there when it began."""
    monkeypatch.setattr(writer, "MAX_COPIED_BYTES", room)
    held = threading.Event()

    def slow(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            held.wait()
        return write_archive(*arguments)

    model = quick("CartPole-v1", buffer_size=120, prioritized_replay=True).learn(200)
    model.save(tmp_path / "then.zip", full=True)
    segments = tmp_path / "kept" / "replay_rows"
    monkeypatch.setattr(writer, "write_archive", slow)
    writing = model.save(tmp_path / "kept" / "a", full=True, incremental=True, background=True)
    model.learn(300, reset_num_timesteps=False)
    assert not writing.finished
    remove_unused_segments(tmp_path / "kept")  # nothing is named yet, and nothing is deleted: somebody is writing
    assert list(segments.iterdir())
    held.set()
    assert writing.wait() == tmp_path / "kept" / "a.zip"
    then, kept = (
        DQN.load(path, env="CartPole-v1", device="cpu") for path in (tmp_path / "then.zip", tmp_path / "kept")
    )
    assert differences(then, kept) == []
    assert differences(then.resume(), kept.resume()) == []


def test_rows_that_are_replaced_while_a_thread_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = quick("CartPole-v1", seed=1).learn(200), quick("CartPole-v1", seed=2).learn(200)
    other.save_replay_buffer(tmp_path / "others_rows.zip")
    writing = one.save(tmp_path / "kept" / "a", full=True, incremental=True, background=True)
    one.load_replay_buffer(tmp_path / "others_rows.zip")
    writing.wait()
    assert one.replay.ring.written == {}
    one.save(tmp_path / "kept" / "b", full=True, incremental=True)
    assert differences(one, DQN.load(tmp_path / "kept" / "b.zip", env="CartPole-v1", device="cpu")) == []


def test_a_thread_that_cannot_write_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    model = quick("CartPole-v1")
    monkeypatch.setattr(writer, "write_archive", full)
    with pytest.warns(UserWarning, match="the checkpoint was not written, .*No space") as said:
        model.learn(100, callback=CheckpointCallback(20, tmp_path, full=True, incremental=True))
    monkeypatch.setattr(writer, "write_archive", write_archive)
    assert len(said) == 1
    assert list((tmp_path / "replay_rows").iterdir()) == []  # no zip names any
    model.save(tmp_path / "later", full=True, incremental=True)
    assert differences(model, DQN.load(tmp_path, env="CartPole-v1", device="cpu")) == []
    with pytest.raises(ConfigurationError, match="both must be True with background=True"):
        model.save(tmp_path / "m", full=True, background=True)


def test_what_is_tied_stays_tied_in_a_copy() -> None:
    shared, empty = torch.arange(4.0), torch.zeros(0)
    made = copy_members({"m": {"a": shared, "b": shared, "c": shared[:2], "d": empty, "e": torch.zeros(0)}})["m"]
    shared += 1
    assert made["a"] is made["b"]
    assert made["a"].tolist() == [0, 1, 2, 3]
    assert made["c"].tolist() == [0, 1]
    images = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert copy_members({"m": {"w": images}})["m"]["w"].is_contiguous(memory_format=torch.channels_last)
