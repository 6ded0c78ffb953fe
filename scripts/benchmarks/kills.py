"""Runs of `sb-dqn train` killed with SIGKILL at random moments and resumed, compared with the uninterrupted run.

Usage: python scripts/benchmarks/kills.py [--runs 100] [--steps 3000] [--seed 0] [--actors process:2]

Compares the model (parameters, targets, optimizer, generators, counters), every episode in `monitor.csv` and every
evaluation in `evaluations.npz`. Children are forked after the imports, so that a run costs only its training.
Nine of ten runs are killed after their first checkpoint, the others at any moment from the start of the process on. Prints one
JSON line: runs, kills of a living run, resumed from a full checkpoint or started again, and differences.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np

import sb_dqn.algorithms
import sb_dqn.callbacks.evaluation
import sb_dqn.plotting  # noqa: F401
from sb_dqn.checkpoint import model_info
from sb_dqn.cli.main import commands
from sb_dqn.runs.checkpoint_timer import checkpoints
from sb_dqn.runs.folder import read_result

TRAIN = (
    "train", "PERDQN", "CartPole-v1", "--seed", "3", "--no-progress", "--device", "cpu", "--set", "learning_starts=100",
    "--set", "policy_kwargs={net_arch: [16]}", "--set", "buffer_size=1000", "--checkpoint-minutes",
)  # fmt: skip


def child(arguments: list[str], log: Path) -> int:
    """Forks a process in which `sb-dqn` does what the arguments say."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            commands(arguments, standalone_mode=False)
            sys.stdout.flush()
            code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException as error:
        os.write(2, repr(error).encode())
    os._exit(code)


def result(folder: Path) -> dict[str, Any]:
    """What a run came to, times on the clock left out."""
    manifest = model_info(folder / "model.zip")
    model = {name: entry["sha256"] for name, entry in manifest["members"].items()}
    with (folder / "monitor.csv").open(newline="") as file:
        file.readline()
        episodes = [(row["r"], row["l"]) for row in csv.DictReader(file)]
    with np.load(folder / "evaluations.npz", allow_pickle=False) as saved:
        evaluations = {name: saved[name].tolist() for name in saved.files}
    found = {"model": model, "state": manifest["state"], "episodes": episodes, "evaluations": evaluations}
    return {name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for name, part in found.items()}


def train(
    folder: Path,
    steps: int,
    kill_when: float | Callable[[], bool] | None,
    command: Sequence[str] = TRAIN,
    minutes: str = "0.0005",
) -> tuple[bool, str]:
    """One run in `folder`, begun or gone on with; whether it was killed alive, and from what it had begun.

    Args:
        steps: of the whole run.
        kill_when: after so many seconds, or once this is true; None: not killed.
        command: what begins it, up to the minutes between two checkpoints.
        minutes: between two checkpoints.
    """
    run = next(iter(folder.glob("*/config.yaml")), None)
    if run is not None and not checkpoints(run.parent) and not (run.parent / "model.zip").is_file():
        shutil.rmtree(run.parent)  # killed before its first checkpoint: it begins anew, as a user would let it
        run = None
    if run is None:
        pid, begun = child([*command, minutes, "-n", str(steps), "--folder", str(folder)], folder / "log.txt"), "anew"
    else:
        arguments = ["train", "--resume", str(run.parent), "--no-progress", "--device", "cpu"]
        pid, begun = child([*arguments, "--checkpoint-minutes", minutes], folder / "log.txt"), "resumed"
    if kill_when is not None:
        if callable(kill_when):
            while not kill_when():
                time.sleep(0.01)
        else:
            time.sleep(kill_when)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status)
    if not killed and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"a run failed; see {folder / 'log.txt'}:\n{(folder / 'log.txt').read_text()[-2000:]}")
    return killed, begun


def after_first_checkpoint(folder: Path, delay: float) -> Callable[[], bool]:
    """Returns a condition that is true from `delay` seconds after the first checkpoint of a run on, or once it has its model."""
    seen: list[float] = []

    def due() -> bool:
        run = next((config.parent for config in folder.glob("*/config.yaml")), None)
        if run is not None and not seen and checkpoints(run):
            seen.append(time.monotonic())
        return bool(seen and time.monotonic() >= seen[0] + delay) or bool(run and (run / "model.zip").is_file())

    return due


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--actors", help="overlapped, or process:N: see `sb-dqn train --help`")
    options = parser.parse_args()
    command = [*TRAIN[:-1], "--actors", options.actors, TRAIN[-1]] if options.actors else TRAIN
    rng, counts = np.random.default_rng(options.seed), {"kills": 0, "anew": 0, "resumed": 0}
    different: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole"
        whole.mkdir()
        began = time.time()
        train(whole, options.steps, None, command)
        run = next(whole.glob("*/config.yaml")).parent
        seconds, learning = time.time() - began, time.time() - (run / "config.yaml").stat().st_mtime
        wanted = result(run)
        for number in range(options.runs):
            folder = Path(scratch) / f"run_{number}"
            folder.mkdir()
            late = rng.random() < 0.9
            kill: float | Callable[[], bool] | None = (
                after_first_checkpoint(folder, rng.uniform(0.0, learning)) if late else rng.uniform(0.0, seconds)
            )
            while True:
                killed, begun = train(folder, options.steps, kill, command)
                counts["kills"] += killed
                counts[begun] += 1
                config = next(iter(folder.glob("*/config.yaml")), None)
                if config is not None and read_result(config.parent).finished:
                    break
                kill = rng.uniform(0.0, seconds) if rng.random() < 0.3 else None  # some are killed more than once
            found = result(config.parent)
            different += [f"run {number}: {name}" for name in wanted if found[name] != wanted[name]]
            shutil.rmtree(folder)
            if (number + 1) % 10 == 0 and number + 1 < options.runs:
                print(json.dumps({"runs": number + 1, **counts, "different": different}), file=sys.stderr, flush=True)
    print(json.dumps({"runs": options.runs, "seconds": round(seconds, 2), **counts, "different": different}))


if __name__ == "__main__":
    main()
