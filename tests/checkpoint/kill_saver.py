"""Kill test for atomic saving: kills a child process that overwrites one file again and again, then reads the file.

Usage: python kill_saver.py FOLDER ROUNDS SEED [atomic|plain]

Prints one JSON line: how many times the file had the complete old or new contents, how many times it was damaged, and how
many temporary files remained. `plain` writes to the path directly: this control must show damage. Children are forked
after the imports, so that a round takes milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from sb_dqn.checkpoint import read_archive, write_archive
from sb_dqn.errors import CheckpointError


def save_repeatedly(path: Path, mode: str, first: int) -> None:
    for number in range(first, first + 1_000_000):
        members = {"policy": {"w": torch.full((300_000,), float(number))}, "state": {"n": torch.tensor(number)}}
        if mode == "atomic":
            write_archive(path, {"kind": "model", "number": number}, members)
        else:
            with open(path, "wb") as file:
                write_archive(file, {"kind": "model", "number": number}, members)


def is_complete(path: Path) -> bool:
    try:
        manifest, members = read_archive(path)
    except CheckpointError:
        return False
    number = manifest["number"]
    return bool((members["policy"]["w"] == number).all()) and members["state"]["n"].item() == number


def main(folder: Path, rounds: int, seed: int, mode: str) -> dict[str, int]:
    torch.set_num_threads(1)  # a forked child must not wait for threads that were not forked with it
    path, rng = folder / "m.zip", np.random.default_rng(seed)
    write_archive(
        path, {"kind": "model", "number": -1}, {"policy": {"w": torch.tensor([-1.0])}, "state": {"n": torch.tensor(-1)}}
    )
    shutil.copy(path, folder / "first.zip")
    counts = {"whole": 0, "damaged": 0, "new": 0}
    for turn in range(rounds):
        shutil.copy(folder / "first.zip", path)
        child = os.fork()
        if child == 0:
            save_repeatedly(path, mode, turn * 1_000_000)
            os._exit(1)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        good = is_complete(path)
        counts["whole" if good else "damaged"] += 1
        counts["new"] += good and path.stat().st_size > 10_000
    return counts | {"temporary": len(list(folder.glob(".m.zip.*.tmp")))}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["atomic"])[0])))
