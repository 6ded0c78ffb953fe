"""The command `sb-dqn` in the process of a test."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner, Result

from sb_dqn.cli.main import commands, main


def call(*words: object, catch_exceptions: bool = False) -> Result:
    """Calls the command by click."""
    return CliRunner().invoke(commands, [str(word) for word in words], catch_exceptions=catch_exceptions)


def run_main(*words: object) -> int:
    """Calls the entry point, as a shell does, and returns the exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sb-dqn", *(str(word) for word in words)])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0
