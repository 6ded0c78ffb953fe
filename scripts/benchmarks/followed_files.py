"""Number of package files whose code runs in one tick and one update of DQN on CartPole.

Usage: python scripts/benchmarks/followed_files.py

Logging (with the statistics of episodes that it writes), checkpoints and callbacks are excluded, and the update runs
eagerly, as a reader would follow it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import sb_dqn
from sb_dqn import DQN
from sb_dqn.accelerate import forced_mode

PACKAGE = str(Path(sb_dqn.__file__).parent)
EXCLUDED = ("callbacks", "logger", "checkpoint", "envs/statistics")


def followed() -> list[str]:
    """Returns the files, relative to the package, in the order in which they are entered."""
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, train_freq=1, seed=0, device="cpu")
    model.learn(40)
    seen: dict[str, None] = {}
    ticks = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            seen[name[len(PACKAGE) + 1 :]] = None

    def watch(locals_: Any, globals_: Any) -> bool:
        """Watches from the end of the first tick to the end of the second."""
        nonlocal ticks
        ticks += 1
        sys.setprofile(note if ticks == 1 else None)
        return ticks < 2

    model.learn(10, callback=watch, reset_num_timesteps=False)
    return [name for name in seen if not name.startswith(EXCLUDED)]


if __name__ == "__main__":
    with forced_mode("eager"):
        files = followed()
    print("\n".join(files))
    print(f"{len(files)} files")
