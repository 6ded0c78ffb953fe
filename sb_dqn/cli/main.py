"""`sb-dqn`: the commands by name, and errors as one line instead of a traceback."""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
import warnings
from typing import Any

import click

from sb_dqn.cli.compare import compare
from sb_dqn.cli.enjoy import enjoy
from sb_dqn.cli.evaluate import evaluate
from sb_dqn.cli.inspection import info, plot, presets
from sb_dqn.cli.train import resume, train
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault, MemoryBudgetError
from sb_dqn.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sb-dqn")
def commands() -> None:
    """Train, evaluate and watch deep Q-learning agents.

    \b
    sb-dqn train dqn CartPole-v1                  learns, and leaves everything in runs/dqn_CartPole-v1_1
    sb-dqn evaluate runs/dqn_CartPole-v1_1        plays greedy episodes and prints their mean
    sb-dqn enjoy runs/dqn_CartPole-v1_1           shows it play
    sb-dqn compare DQN QRDQN --env CartPole-v1       trains both with three seeds each, and draws and tabulates them
    """


for command in (train, resume, evaluate, enjoy, plot, compare, presets, info):
    commands.add_command(command)


def as_one_line(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    """A warning without the line of this package that gave it, which says nothing to those who typed a command."""
    return f"{category.__name__}: {message}\n"


def main() -> None:
    """The console script. Faults of the user's making end in one line and status 2, those of a run in one line and status 1.

    Warnings are one line, too.
    """
    warnings.formatwarning = as_one_line
    atexit.register(gc.freeze)  # else Python looks for cycles among all that torch holds before it ends: a second
    sys.path.append("")  # an environment named as module:id may lie in the folder where the command is typed
    try:
        commands()
    except (ConfigurationError, CheckpointError, MemoryBudgetError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except EnvironmentFault as error:
        click.echo(f"Error: {error}{_origin(error)}", err=True)
        sys.exit(1)


def _origin(error: BaseException) -> str:
    """Where in the environment's own code a fault began, if an error of that is behind it."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = [] if cause is error else traceback.extract_tb(cause.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


if __name__ == "__main__":
    main()
