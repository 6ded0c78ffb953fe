"""Entry point of `sb-dqn`: command group, and errors and warnings in one line."""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
import warnings
from typing import Any

import click

from sb_dqn.cli.benchmark.command import benchmark
from sb_dqn.cli.benchmark.peer import peer
from sb_dqn.cli.compare.command import compare
from sb_dqn.cli.hub import pull, push
from sb_dqn.cli.inspection import info, presets
from sb_dqn.cli.plots.command import plot
from sb_dqn.cli.report.command import report
from sb_dqn.cli.saved_model import doctor, enjoy, evaluate, export
from sb_dqn.cli.train import resume, train
from sb_dqn.cli.tune.command import tune
from sb_dqn.errors import (
    CheckpointError,
    ConfigurationError,
    EnvironmentFault,
    LearnerLost,
    MemoryBudgetError,
    printable,
)
from sb_dqn.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sb-dqn")
def commands() -> None:
    """Train, evaluate and watch deep Q-learning agents.

    \b
    sb-dqn train dqn CartPole-v1                  train; writes runs/dqn_CartPole-v1_1
    sb-dqn evaluate runs/dqn_CartPole-v1_1        play greedy episodes and print the mean return
    sb-dqn enjoy runs/dqn_CartPole-v1_1           watch the agent play
    sb-dqn compare DQN QRDQN --env CartPole-v1    train both with three seeds each; prints a table, draws the curves
    sb-dqn report runs/dqn_CartPole-v1_1          write an HTML page with curves, settings and results
    sb-dqn tune dqn LunarLander-v3                search good settings with Optuna; writes them as a preset
    """


for command in (
    train,
    resume,
    evaluate,
    enjoy,
    plot,
    compare,
    report,
    doctor,
    tune,
    benchmark,
    peer,
    export,
    push,
    pull,
    presets,
    info,
):
    commands.add_command(command)


def format_warning(message: Warning | str, category: type[Warning], *_: Any, **__: object) -> str:
    """Formats a warning as one line, without the source line that raised it."""
    return printable(f"{category.__name__}: {message}\n")


def main() -> None:
    """Runs `sb-dqn`. An error of the user ends in one line and exit status 2, one of an environment or of a file in status 1."""
    warnings.formatwarning = format_warning
    atexit.register(gc.freeze)  # saves a second at exit: no garbage collection over torch's objects
    sys.path.append("")  # lets module:id import environments from the current folder
    try:
        commands()
    except (ConfigurationError, CheckpointError, MemoryBudgetError) as error:
        click.echo(printable(f"Error: {error}"), err=True)
        sys.exit(2)
    except (EnvironmentFault, LearnerLost) as error:
        click.echo(printable(f"Error: {error}{_origin(error)}"), err=True)
        sys.exit(1)
    except OSError as error:  # a full disk, a folder without permission
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"Error: {place}{error.strerror or error}", err=True)
        sys.exit(1)


def _origin(error: BaseException) -> str:
    """Returns file and line of the environment's code that raised, or "" if the error has no cause."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = [] if cause is error else traceback.extract_tb(cause.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


if __name__ == "__main__":
    main()
