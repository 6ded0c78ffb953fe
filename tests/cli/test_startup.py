"""Startup time: `sb-dqn --help` and `import sb_dqn` are fast and load no heavy package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import SLOW, first_few

ROOT = Path(__file__).parents[2]
LIMIT = 0.5
"""CPU seconds, which other programs on the machine hardly change."""
HEAVY = ("torch", "numpy", "gymnasium", "ale_py", "yaml", "rich", "matplotlib", "tensorboard")


def best_of_three(*arguments: str) -> tuple[float, str]:
    """Returns the lowest CPU time in seconds of three runs, and the output."""
    seconds = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(seconds), done.stdout


@SLOW
@pytest.mark.parametrize("command", first_few([[], ["train"], ["enjoy"], ["presets"]], 1))
def test_help_is_fast(command: list[str]) -> None:
    seconds, output = best_of_three("-m", "sb_dqn.cli.main", *command, "--help")
    assert "Usage:" in output
    assert seconds < LIMIT


def test_import_is_fast() -> None:
    seconds, _ = best_of_three("-c", "import sb_dqn")
    assert seconds < LIMIT


@pytest.mark.parametrize("module", ["sb_dqn", "sb_dqn.cli.main", "sb_dqn.presets"])
def test_no_heavy_package_is_loaded(module: str) -> None:
    script = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@SLOW
def test_modules_of_the_package_need_no_import_of_their_own() -> None:
    script = (
        "import sb_dqn; assert sb_dqn.presets.list(env='LunarLander-v3'); assert sb_dqn.callbacks.EvalCallback; "
        "print([name for name in sb_dqn._MODULES if getattr(sb_dqn, name).__name__ != f'sb_dqn.{name}'])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_garbage_collection_over_torch_at_exit() -> None:
    """The final garbage collection took a second of every command that had imported torch."""
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000)); "
        "from sb_dqn.cli.main import main; sys.argv = ['sb-dqn', 'presets']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "frozen True"
