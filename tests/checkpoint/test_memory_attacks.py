"""Files that ask for far more memory than they have bytes are refused, or load without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.marks import FULL, SLOW

pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")

REFUSED = {"CheckpointError", "ConfigurationError", "MemoryBudgetError", "SpaceError"}
LOADED = ("batch_size", "buffer_size", "n_steps", "actors", "policy.optimizer.pth")
"""Parts of the names of attacks whose files may load: without an environment settings allocate nothing, actors are left out, and
an optimizer starts without moments."""
MIB, SECONDS = 300, 60.0
A_FEW = (
    "ours: observations of a Discrete",
    "ours: actions of a MultiBinary",
    "ours: observations of a MultiDiscrete",
    "ours: observations of fifty Boxes",
    "ours: policy_kwargs of DQN",
    "ours: actors process:20000",
    "ours: actors overlapped:2x150000",
    "ours: lanes",
    "theirs: settings with a Box",
    "theirs: settings with a Discrete",
    "theirs: settings with a dtype of text",
    "theirs: deflated data, whose directory claims little",
    "theirs: deflated policy.pth",
    "theirs: deflated data/0 in policy.pth",
    "theirs: a bytearray in policy.pth",
    "theirs: stride 0 that pays for a network",
)


@SLOW
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("names", "count"),
    [(A_FEW, 20), pytest.param(("ours: ",), 45, marks=FULL), pytest.param(("theirs: ",), 55, marks=FULL)],
    ids=["a few", "ours", "theirs"],
)
def test_no_file_takes_much_memory(names: tuple[str, ...], count: int) -> None:
    command = [sys.executable, "-m", "tests.checkpoint.memory_attacks", *names]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) >= count
    for attack in found:
        may_load = any(part in attack["name"] for part in LOADED)
        assert attack["ended"] in (REFUSED | {""} if may_load else REFUSED), attack
        assert attack["MiB"] < MIB, attack
        assert attack["seconds"] < SECONDS, attack
        assert attack["length"] < 2000, attack


def test_more_workers_than_a_file_may_start_need_an_argument() -> None:
    from tests.checkpoint.memory_attacks import load_ours

    with pytest.warns(UserWarning, match=r"asks for ProcessActors\(processes=20000.*pass load\(path, env, actors=Pro"):
        model = load_ours({"arguments/actors": "process:20000"})
    assert model.actors is None
    model = load_ours({"arguments/actors": "process:256"})
    assert model.actors.processes == 256
    model = load_ours({"arguments/actors": "process:20000"}, actors="process:300")
    assert model.actors == "process:300"
