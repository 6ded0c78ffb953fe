"""Worker process of `sb-dqn compare` and `benchmark`: imports first, then waits for the start signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress


def preload() -> None:
    """Imports the modules that a training run needs."""
    import torch

    from sb_dqn.errors import ConfigurationError
    from sb_dqn.plotting import new_figure

    with suppress(ConfigurationError):  # matplotlib is part of the extra `plots`
        new_figure(1, 1)

    # The first optimizer imports torch's compiler, a third of the import time.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def main() -> None:
    """Runs `sb-dqn` with the arguments of this process once stdin delivers a line; exits if stdin closes without one.

    If the process that started this one is killed, the run is saved and stops, so that another one can go on.
    """
    from sb_dqn.cli.main import main as run

    threading.Thread(target=_stop_with_parent, daemon=True).start()
    preload()
    if sys.stdin.readline():
        run()


def _stop_with_parent() -> None:
    """Sends SIGTERM to this process once its parent has ended."""
    if sys.platform == "win32":  # a process there keeps the id of a parent that ended
        return
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
