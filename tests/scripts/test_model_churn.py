"""Memory that deleted models leave behind, and that further steps of one model take."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import model_churn
from tests.marks import FULL


def growth(*arguments: str) -> list[float]:
    """The figures in MiB that the script prints in a process of its own."""
    command = [sys.executable, "-m", "scripts.benchmarks.model_churn", *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return [float(figure) for figure in re.findall(r"([+-][\d.]+) MiB", printed)]


@FULL
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only the largest size so far is known")
def test_models_and_steps_leave_little_behind() -> None:
    by_models, by_steps = growth("--models", "8", "--steps", "100", "--further", "2000")
    assert by_models < 5.0  # 0.3 MiB a model, and noise
    assert by_steps < 5.0


def test_it_runs_as_a_file_from_anywhere(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(Path(model_churn.__file__).resolve()), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert "--models" in done.stdout, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only the largest size so far is known")
def test_what_is_kept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoy: 1 MiB that each model leaves behind."""
    kept: list[Any] = []

    def leak(steps: int, device: str) -> None:
        kept.append(mmap.mmap(-1, 2**20))  # new pages, also where the C library has freed ones
        kept[-1].write(b"1" * 2**20)

    monkeypatch.setattr(model_churn, "train", leak)
    assert 7.0 < model_churn.growth_by_models(8, 150) < 12.0
