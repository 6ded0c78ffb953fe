"""Kill test for incremental checkpoints: kills a child process that saves a growing ring, then loads the folder.

Usage: python kill_row_saver.py FOLDER ROUNDS SEED

Prints one JSON line: rounds in which the newest checkpoint loaded correctly, rounds in which it was newer than in the round
before, unused segments after the kills, and unused segments after the last save.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from sb_dqn.checkpoint import find_checkpoint, model_info, remove_unused_segments
from sb_dqn.checkpoint.incremental import row_blocks
from tests.checkpoint.rows import NaiveRing, load, segments

LANES = np.arange(2)


def grown(rows: int) -> NaiveRing:
    ring = NaiveRing(200, 2, 100)
    for _ in range(rows):
        ring.arrive(LANES)
    return ring


def save_and_delete_old(ring: NaiveRing, folder: Path) -> None:
    """Saves a checkpoint and keeps the newest two, as `sb-dqn train` does."""
    ring.save(folder / f"{int(ring.cursor[0])}.zip")
    for old in sorted(folder.glob("*.zip"), key=lambda path: int(path.stem))[:-2]:
        old.unlink()
    remove_unused_segments(folder)


def count_unused(folder: Path) -> int:
    manifests = [model_info(path) for path in folder.glob("*.zip")]
    used = {segment["name"] for manifest in manifests for segment in manifest["segments"]["files"]}
    return len(set(segments(folder)) - used)


def main(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    torch.set_num_threads(1)  # a forked child must not wait for threads that were not forked with it
    row_blocks.BLOCK_BYTES = 20_000
    rng, counts = np.random.default_rng(seed), {"whole": 0, "newer": 0, "unused": 0}
    start = time.perf_counter()
    save_and_delete_old(grown(50), folder)
    max_delay = 2 * (time.perf_counter() - start)  # a busy disk may take long for a save
    for _ in range(rounds):
        before = int(load(folder)[0][0])
        child = os.fork()
        if child == 0:
            ring = grown(before)
            while True:
                for _ in range(7):
                    ring.arrive(LANES)
                save_and_delete_old(ring, folder)
        time.sleep(rng.uniform(0.0, max_delay))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cursor, columns, _ = load(folder)
        now = int(cursor[0])
        right = grown(now).state()
        counts["whole"] += now >= before and all(columns[name].equal(right[name]) for name in right)
        counts["newer"] += now > before
        max_delay *= 0.8 if now > before else 1.5
        counts["unused"] += count_unused(folder)
    save_and_delete_old(grown(now + 7), folder)
    assert find_checkpoint(folder) == folder / f"{now + 7}.zip"
    return counts | {"remaining": count_unused(folder)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
