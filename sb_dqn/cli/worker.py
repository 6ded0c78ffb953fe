"""A training process of `sb-dqn compare`: imports first, then waits for its turn."""

from __future__ import annotations

import sys
from contextlib import suppress


def preload() -> None:
    """Imports what a training run needs before its first step and after its last."""
    with suppress(ImportError):  # of the extra `plots`
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    import torch

    import sb_dqn.algorithms
    import sb_dqn.cli.plan
    import sb_dqn.cli.training
    import sb_dqn.evaluation  # noqa: F401

    torch.optim.SGD(
        [torch.zeros(1, requires_grad=True)]
    )  # the first optimiser imports torch's compiler, a third of it all


def main() -> None:
    """Runs `sb-dqn` with the arguments of this process once a line arrives; ends if the pipe is closed without one."""
    from sb_dqn.cli.main import main as run

    preload()
    if sys.stdin.readline():
        run()


if __name__ == "__main__":
    main()
