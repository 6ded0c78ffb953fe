"""Cost of full checkpoints of a large replay buffer, whole and incremental: seconds, seconds without training, bytes.

    python scripts/benchmarks/checkpoints.py --rows 100000 --new 1000 10000 --folder out

The model is a DQN with prioritized replay and the Atari CNN; its ring is filled with random frames of 84 x 84 pixels, each
stored once (7,056 bytes a row). Memory: the ring, and twice as much again to load it; disk: the ring, deleted at the end.
Prints one line per checkpoint.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import gymnasium
import numpy as np

from sb_dqn.algorithms import DQN
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.types import Rows, Slot

POOL = np.random.default_rng(0).integers(256, size=(257, 84, 84), dtype=np.uint8)
"""Frames to draw from; a prime number of them, so that lanes and blocks do not repeat in step."""


class Frames(gymnasium.Env[Any, Any]):
    """Frames of the pool, without end."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)
    stream_options = StreamOptions(frame_stack=4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return POOL[:1], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return POOL[1:2], 0.0, False, False, {}


def made(rows: int, lanes: int) -> DQN:
    """A model that is about to learn, with an empty ring of so many rows."""
    model = DQN(
        "CnnPolicy",
        [Frames] * lanes,
        buffer_size=rows,
        prioritized_replay=True,
        learning_starts=rows,
        seed=0,
        device="cpu",
    )
    return model.learn(lanes)


def fill(model: DQN, rows: int) -> None:
    """Adds about so many rows over all lanes, as steps of the environment would."""
    lanes, replay = model.n_envs, model.replay
    none, all_ = np.zeros(lanes, np.bool_), np.ones(lanes, np.bool_)
    (key,) = replay.ring.obs
    action, reward = np.zeros(lanes, np.int64), np.zeros(lanes, np.float32)
    for _ in range(-(-rows // lanes)):
        frames = POOL[(int(replay.ring.cursor[0]) * lanes + np.arange(lanes)) % len(POOL)][:, None]
        replay.extend(Rows(action, (Slot({key: frames}, reward, reward, none, none, all_),), all_, lanes))


def used(folder: Path) -> dict[str, int]:
    """Bytes of each file, by name and time of writing."""
    found = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return {f"{path}@{about.st_mtime_ns}": about.st_size for path, about in found}


class Cost(NamedTuple):
    """Of one checkpoint."""

    stopped: float
    """Seconds until `save` returned."""
    seconds: float
    """Seconds until the last file was there; of that, what is beyond `stopped` is a thread's."""
    written: int
    """Bytes."""


def measured(model: DQN, folder: Path, name: str, incremental: bool) -> Cost:
    """Takes one; an incremental one in the background."""
    before, start = used(folder), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frames cannot say their state
        writing = model.save(folder / name, full=True, incremental=incremental, background=incremental)
    stopped = time.perf_counter() - start
    if incremental:
        writing.wait()
    seconds = time.perf_counter() - start
    return Cost(stopped, seconds, sum(size for name, size in used(folder).items() if name not in before))


def loading(model: DQN, path: Path) -> float:
    """Seconds until a checkpoint that was just taken is loaded."""
    start = time.perf_counter()
    loaded = DQN.load(path, env=[Frames] * model.n_envs, device="cpu")
    seconds = time.perf_counter() - start
    ours, theirs = model.replay.state_dict(), loaded.replay.state_dict()
    assert all(theirs[name].equal(ours[name]) for name in ours), "the rows that were loaded are not those saved"
    return seconds


def compare(rows: int, lanes: int, new: list[int], folder: Path, load: bool = True) -> dict[str, Cost]:
    """What each kind of checkpoint costs, by name."""
    model = made(rows, lanes)
    fill(model, rows + rows // 8)  # the ring has wrapped
    found = {"a whole zip": measured(model, folder, "whole.zip", False)}
    if load:
        print(f"to load the whole zip: {loading(model, folder / 'whole.zip'):.2f} s")
    (folder / "whole.zip").unlink()
    found["the first incremental one"] = measured(model, folder, "0.zip", True)
    for number, count in enumerate(new, 1):
        fill(model, count)
        found[f"incremental, {count:,} rows later"] = measured(model, folder, f"{number}.zip", True)
    if load:
        print(f"to load the last incremental one: {loading(model, folder / f'{len(new)}.zip'):.2f} s")
    return found


def main() -> None:
    """Measures, prints, and deletes what it wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument(
        "--new", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="rows between two checkpoints"
    )
    parser.add_argument("--no-load", action="store_true", help="leave out loading, and the memory that it takes")
    parser.add_argument("--folder", type=Path, help="where to write; default: the folder for temporary files")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=chosen.folder))
    try:
        for name, cost in compare(chosen.rows, chosen.lanes, chosen.new, folder, not chosen.no_load).items():
            print(
                f"{chosen.rows:,} rows, {chosen.lanes} lanes; {name}: training stops for {cost.stopped:.2f} s, done after "
                f"{cost.seconds:.2f} s, {cost.written / 1e6:,.1f} MB written"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
