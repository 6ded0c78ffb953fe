"""Functions and files of the package whose code runs in one tick and one update of DQN on CartPole, in the order of the calls.

Usage: python scripts/benchmarks/followed_files.py [--eager]

Logging (with the statistics of episodes that it writes), checkpoints and callbacks are excluded. The update is a traced one,
as users run it; with --eager nothing is traced, so that the operations of the networks and the loss are listed too.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import sb_dqn
from sb_dqn import DQN
from sb_dqn.accelerate import forced_mode

PACKAGE = str(Path(sb_dqn.__file__).parent)
EXCLUDED = ("callbacks", "logger", "checkpoint", "envs/statistics")


def followed() -> list[tuple[str, int, str]]:
    """Returns file (relative to the package), line and name of each function, in the order in which they are entered."""
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, train_freq=1, seed=0, device="cpu")
    model.learn(40)
    seen: dict[tuple[str, int, str], None] = {}
    ticks = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            seen[
                code.co_filename[len(PACKAGE) + 1 :], code.co_firstlineno, getattr(code, "co_qualname", code.co_name)
            ] = None

    def watch(locals_: Any, globals_: Any) -> bool:
        """Watches from the end of the first tick to the end of the second."""
        nonlocal ticks
        ticks += 1
        sys.setprofile(note if ticks == 1 else None)
        return ticks < 2

    model.learn(10, callback=watch, reset_num_timesteps=False)
    return [call for call in seen if not call[0].startswith(EXCLUDED)]


if __name__ == "__main__":
    with forced_mode("eager") if "--eager" in sys.argv else nullcontext():
        calls = followed()
    for file, line, name in calls:
        print(f"{file}:{line} {name}")
    print(f"{len(calls)} functions in {len({file for file, _, _ in calls})} files")
