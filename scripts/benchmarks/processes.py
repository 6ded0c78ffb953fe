"""Wall-clock time of whole processes, from the start of the interpreter to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, *, untimed: int = 0, compile_cache: str | None = None) -> dict[str, float]:
    """Seconds that `python -c code` takes.

    Args:
        code: to run.
        untimed: runs before the one that is timed, so that files are in memory.
        compile_cache: None leaves torch.compile's cache alone; "empty" gives a fresh one, "filled" one that the untimed
            runs have filled.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if compile_cache is not None:
            environment["TORCHINDUCTOR_CACHE_DIR"] = folder
        return _timed([sys.executable, "-c", code], environment, untimed)


def help_text(*, untimed: int = 0) -> dict[str, float]:
    """Seconds that `sb-dqn --help` takes; without the installed command its function is called."""
    script = Path(sysconfig.get_path("scripts")) / "sb-dqn"
    call = "from sb_dqn.cli.main import main; main()"
    command = [str(script)] if script.is_file() else [sys.executable, "-c", call]
    return _timed([*command, "--help"], dict(os.environ), untimed)


def _timed(command: list[str], environment: dict[str, str], untimed: int) -> dict[str, float]:
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start would compile what the one before has compiled
    seconds = 0.0
    for _ in range(untimed + 1):
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
    return {"": seconds}
