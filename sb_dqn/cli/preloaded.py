"""Worker process of `sb-dqn compare`: imports first, then waits for the start signal."""

from __future__ import annotations

import sys
from contextlib import suppress


def preload() -> None:
    """Imports the modules that a training run needs."""
    with suppress(ImportError):  # part of the extra `plots`
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    import torch

    # The first optimizer imports torch's compiler, a third of the import time.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def main() -> None:
    """Runs `sb-dqn` with the arguments of this process once stdin delivers a line; exits if stdin closes without one."""
    from sb_dqn.cli.main import main as run

    preload()
    if sys.stdin.readline():
        run()


if __name__ == "__main__":
    main()
