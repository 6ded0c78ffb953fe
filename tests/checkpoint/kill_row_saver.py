"""Saves a growing ring into a folder for ever in a child, kills the child at random moments, and reads what lies there.

Usage: python kill_row_saver.py FOLDER ROUNDS SEED

Prints one JSON line: rounds in which the newest checkpoint was read whole, how often it was a newer one than in the round
before, files that nothing named after the kills, and such files after the last save.
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

from sb_dqn.checkpoint import checkpoint_at, model_info, sweep
from sb_dqn.checkpoint.incremental import row_blocks
from tests.checkpoint.rows import NaiveRing, load, segments

LANES = np.arange(2)


def grown(rows: int) -> NaiveRing:
    ring = NaiveRing(200, 2, 100)
    for _ in range(rows):
        ring.arrive(LANES)
    return ring


def save_and_forget(ring: NaiveRing, folder: Path) -> None:
    """As `sb-dqn train` does: the last two are kept."""
    ring.save(folder / f"{int(ring.cursor[0])}.zip")
    for old in sorted(folder.glob("*.zip"), key=lambda path: int(path.stem))[:-2]:
        old.unlink()
    sweep(folder)


def unnamed(folder: Path) -> int:
    named = {one["name"] for path in folder.glob("*.zip") for one in model_info(path)["segments"]["files"]}
    return len(set(segments(folder)) - named)


def main(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    torch.set_num_threads(1)  # a forked child must not wait for threads that were not forked with it
    row_blocks.BLOCK_BYTES = 20_000
    rng, counts = np.random.default_rng(seed), {"whole": 0, "newer": 0, "left": 0}
    start = time.perf_counter()
    save_and_forget(grown(50), folder)
    patience = 2 * (time.perf_counter() - start)  # a busy disk may take long for a save
    for _ in range(rounds):
        before = int(load(folder)[0][0])
        child = os.fork()
        if child == 0:
            ring = grown(before)
            while True:
                for _ in range(7):
                    ring.arrive(LANES)
                save_and_forget(ring, folder)
        time.sleep(rng.uniform(0.0, patience))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cursor, columns, _ = load(folder)
        now = int(cursor[0])
        right = grown(now).state()
        counts["whole"] += now >= before and all(columns[name].equal(right[name]) for name in right)
        counts["newer"] += now > before
        patience *= 0.8 if now > before else 1.5
        counts["left"] += unnamed(folder)
    save_and_forget(grown(now + 7), folder)
    assert checkpoint_at(folder) == folder / f"{now + 7}.zip"
    return counts | {"remaining": unnamed(folder)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
