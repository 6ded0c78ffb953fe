"""Counts the files of the package whose code runs in one tick and one update of DQN on CartPole.

Usage: python scripts/benchmarks/followed_files.py

Logging, checkpoints and callbacks are off, and the update runs eagerly, as a reader would follow it.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import sb_dqn
from sb_dqn import DQN

PACKAGE = str(Path(sb_dqn.__file__).parent)


def followed() -> list[str]:
    """Returns the files, relative to the package, in the order in which they are entered."""
    warnings.simplefilter("ignore")
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, train_freq=1, seed=0, device="cpu")
    model.mode = "eager"
    model.learn(40)
    seen: dict[str, None] = {}
    model.learn(1, reset_num_timesteps=False)  # warm: what is made once per number of lanes is made

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            seen[name[len(PACKAGE) + 1 :]] = None

    class Started:
        """Begins to watch when the first tick has arrived, and stops after the next."""

        ticks = 0

    def watch(locals_: Any, globals_: Any) -> bool:
        Started.ticks += 1
        sys.setprofile(note if Started.ticks == 1 else None)
        return Started.ticks < 2

    model.learn(10, callback=watch, reset_num_timesteps=False)
    sys.setprofile(None)
    return list(seen)


if __name__ == "__main__":
    files = followed()
    print("\n".join(files))
    print(f"{len(files)} files")
