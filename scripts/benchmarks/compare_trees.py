"""Training speed of two checkouts of this library, measured in turn on one machine.

Usage: python scripts/benchmarks/compare_trees.py BEFORE AFTER [NAME ...] [--blocks 30]

    git worktree add /tmp/before v0.1.0
    python scripts/benchmarks/compare_trees.py /tmp/before . cartpole-default pong-1

NAME is a training benchmark of `scripts/bench`, or a row of its benchmark `updates` such as "updates/QRDQN 64-64", or `updates`
for all of these; without one, all of `DEFAULT` are run. Both checkouts train at the same
time in two processes, of which one always waits: they take turns of about half a second, so that a slower minute of the machine
slows both. The ratio (after / before) is computed for each pair of turns; of `updates`, both train with one thread. Run it on an
otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if "--worker" not in sys.argv:  # a worker imports the scripts of its own checkout
    sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

DEFAULT = ("cartpole-default", "cartpole-zoo", "pong-1", "cartpole-ppo", "pendulum-sac")
TURN = 0.4
"""Seconds of a turn, about."""
LEAST = 256
"""Env steps of a turn, and what they are a multiple of: benchmark settings update in blocks of that size."""
UPDATES = "updates"


def work(task: str) -> None:
    """Trains a model, then trains on for as many env steps as each line of stdin says and prints the seconds taken."""
    from scripts.benchmarks import throughput

    arguments: dict[str, Any] = json.loads(task)
    build: Any = throughput._ours
    settings = {"seed": 0, "device": "cpu", **arguments["settings"]}
    names = (arguments.get("algorithm", "DQN"), arguments["policy"], arguments["env"], arguments.get("lanes", 1))
    model = build(*names, settings)
    model.learn(arguments["warm_up"])
    print("READY", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        model.learn(int(line), reset_num_timesteps=False)
        print(f"TOOK {time.perf_counter() - start}", flush=True)


class Worker:
    """A process that trains with the code of one checkout."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._read("READY")

    def train(self, steps: int) -> float:
        """Returns the env steps per second of one turn."""
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)
        return steps / float(self._read("TOOK"))

    def _read(self, word: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line[len(word) :]
        raise RuntimeError(f"{' '.join(self.process.args[:2])} ended early; see its output above")  # type: ignore[arg-type, index]


@contextmanager
def worker(tree: Path, arguments: Mapping[str, Any]) -> Iterator[Worker]:
    """Yields a worker of `tree` that has finished its warm-up."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(dict(arguments))]
    threads = {"OMP_NUM_THREADS": str(arguments["threads"])} if "threads" in arguments else {}
    environment = {**os.environ, **threads, "PYTHONPATH": str(tree)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def compare_trees(trees: Sequence[Path], arguments: Mapping[str, Any], blocks: int) -> list[dict[str, float]]:
    """Returns the env steps per second of both checkouts for each pair of turns."""
    with worker(trees[0], arguments) as before, worker(trees[1], arguments) as after:
        sides = {"before": before, "after": after}
        least = arguments.get("least", LEAST)
        speed = min(one.train(least) for one in sides.values())
        steps = max(1, round(TURN * speed / least)) * least
        rounds = []
        for index in range(blocks):
            order = list(sides)[:: 1 if index % 2 == 0 else -1]
            rounds.append({name: sides[name].train(steps) for name in order})
        return rounds


def rows_of_updates() -> dict[str, dict[str, Any]]:
    """Returns the arguments of a worker for each row of the benchmark `updates`: its env steps are bursts of updates."""
    from scripts.benchmarks.updates import KINDS, SETTINGS, cadence

    rows = {}
    for kind, chosen in KINDS.items():
        for variant, settings in SETTINGS.items():
            rows[f"{UPDATES}/{variant} {kind}"] = {
                "algorithm": "CategoricalDQN" if variant == "C51" else variant,
                "policy": chosen["policy"],
                "env": chosen["env"],
                "settings": {**cadence(kind, "cpu"), **settings},
                "warm_up": chosen["rows"] + 1,
                "least": 1,
                "threads": 1,
            }
    return rows


def main(options: argparse.Namespace) -> None:
    """Prints a table per benchmark."""
    from scripts.benchmarks.machine import describe
    from scripts.benchmarks.suite import Scale, suite
    from scripts.benchmarks.table import Comparison, compare, report

    print(describe(), flush=True)
    # measured steps are counted by turns, so the scale has none
    scale = Scale(cartpole=(12_800, 0), pendulum=(500, 0), pong=(1_000, 3_000, 0), compiled=False)
    trees = [options.before.resolve(), options.after.resolve()]
    pair = Comparison("after / before", ("after",), ("before",))
    for benchmark in (one for one in suite(scale) if one.name in options.names and one.name != UPDATES):
        for measurement in benchmark.measurements:
            if measurement.peer is None:
                rounds = compare_trees(trees, measurement.arguments, options.blocks)
                title = f"{benchmark.name} {measurement.name}"
                print("\n" + report(title, benchmark.unit, rounds, [compare(pair, rounds)]), flush=True)
    for title, arguments in rows_of_updates().items():
        if title in options.names or UPDATES in options.names:
            rounds = compare_trees(trees, arguments, options.blocks)
            print("\n" + report(title, "bursts of updates per second", rounds, [compare(pair, rounds)]), flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--blocks", type=int, default=30, help="pairs of turns of each measurement")
    options = parser.parse_args()
    options.names = options.names or list(DEFAULT)
    for tree in (options.before, options.after):
        if not (tree / "scripts" / "benchmarks" / "throughput.py").is_file():
            parser.error(f"{tree} must be a checkout of this library, but has no scripts/benchmarks/throughput.py.")
    return options


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        main(_parse())
