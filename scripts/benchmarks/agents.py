"""The best agent of each algorithm on each task of a benchmark, as a folder that `pull` and `from_pretrained` read.

Each agent gets a folder `<algorithm>-<task>` with a model card, as `sb-dqn push` writes it: of the seeds that are finished and
have the settings of today's presets, the one with the highest mean return after training.

Usage: python scripts/benchmarks/agents.py runs/benchmark_classic agents
       hf upload USER/agents agents                                      # then DQN.from_pretrained("USER/agents", "CartPole-v1")
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn.cli.benchmark.command import QUEUE
from sb_dqn.cli.benchmark.runs import OWN, Entry, make_entries, read_suite
from sb_dqn.files import read_yaml
from sb_dqn.hub import push_to_hub


def finished_entries(out: Path) -> list[Entry]:
    """Returns the finished runs of this library in the folder of a benchmark.

    Raises:
        SystemExit: it is no folder of a benchmark.
    """
    content = read_yaml(out / QUEUE)
    if content is None:
        raise SystemExit(f"the folder must be that of sb-dqn benchmark, with a {QUEUE}, got {out}")
    entries = make_entries(read_suite(content["suite"]), out, content["runs"])
    return [entry for entry in entries if entry.library == OWN and entry.finished]


def best_entries(out: Path) -> list[Entry]:
    """Returns the best finished run of each algorithm on each task, by the names of both; raises as `finished_entries`."""
    best: dict[tuple[str, str], Entry] = {}
    for entry in finished_entries(out):
        key = (entry.algorithm.lower(), entry.task.name)
        if key not in best or score(entry) > score(best[key]):
            best[key] = entry
    return [best[key] for key in sorted(best)]


def score(entry: Entry) -> float:
    """Returns the mean return after training; minus infinity if no episode finished."""
    mean = entry.result.mean
    return -math.inf if mean is None else mean


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", type=Path, help="folder of sb-dqn benchmark")
    parser.add_argument("agents", type=Path, help="folder for the agents; those of an earlier call are replaced")
    parser.add_argument("--video", action="store_true", help="record a film of each")
    chosen = parser.parse_args(arguments)
    for entry in best_entries(chosen.benchmark):
        task = entry.home.name.removeprefix(f"{entry.algorithm}_").removesuffix(f"_{entry.seed}")
        target = chosen.agents / f"{entry.algorithm.lower()}-{task}"
        pushed = push_to_hub(entry.folder, target, video=chosen.video, overwrite=True)
        print(f"{entry.label}: {score(entry):.2f}, {pushed.url}")


if __name__ == "__main__":
    main()
