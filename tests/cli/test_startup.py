"""What a person waits for first: `sb-dqn --help` and `import sb_dqn` answer at once, and nothing heavy is loaded for them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 0.5
HEAVY = ("torch", "numpy", "gymnasium", "ale_py", "yaml", "rich", "matplotlib", "tensorboard")


def best_of_three(*arguments: str) -> tuple[float, str]:
    """Seconds of wall-clock, and what was printed."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds), done.stdout


@pytest.mark.parametrize("command", [[], ["train"], ["enjoy"], ["presets"]])
def test_help_answers_at_once(command: list[str]) -> None:
    seconds, printed = best_of_three("-m", "sb_dqn.cli.main", *command, "--help")
    assert "Usage:" in printed
    assert seconds < LIMIT


def test_importing_the_package_costs_nothing() -> None:
    seconds, _ = best_of_three("-c", "import sb_dqn")
    assert seconds < LIMIT


@pytest.mark.parametrize("module", ["sb_dqn", "sb_dqn.cli.main", "sb_dqn.presets"])
def test_nothing_heavy_is_loaded(module: str) -> None:
    script = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_does_not_search_what_torch_holds_before_it_ends() -> None:
    """Python's last search for cycles took a second of every command that had imported torch."""
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000)); "
        "from sb_dqn.cli.main import main; sys.argv = ['sb-dqn', 'presets']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "frozen True"
