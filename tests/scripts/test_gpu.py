"""Tests of `scripts/gpu` on a machine without CUDA: stages that need it are not run, and never passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sb_dqn
from sb_dqn.core.arguments import constructor_arguments
from scripts.benchmarks import gpu
from tests.full import FULL


def lines_of(out: Path) -> dict[str, dict[str, object]]:
    return {line["stage"]: line for line in map(json.loads, out.read_text().splitlines())}


@FULL
def test_stages_without_a_device_are_reported_as_not_run(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--device", "cpu", "--out", str(out)]) == 0
    lines = lines_of(out)
    assert list(lines) == list(gpu.STAGES)
    assert lines["facts"]["status"] == "passed"
    assert {line["status"] for name, line in lines.items() if name != "facts"} == {"not run"}


@FULL
def test_a_stage_that_fails_is_reported_and_the_next_one_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # without CUDA the stage for memory fails in its process, after a stage that passes
    monkeypatch.setitem(gpu.STAGES, "memory", (gpu.memory, False, 1e-3))
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--device", "cpu", "--out", str(out), "--stages", "memory", "facts"]) == 1
    first, second = map(json.loads, out.read_text().splitlines())
    assert (first["status"], second["status"]) == ("failed", "passed")
    assert "not finished" in first["why"]


@FULL
def test_a_rehearsal_is_never_passed(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--rehearse", "--out", str(out), "--stages", "facts"]) == 0
    assert lines_of(out)["facts"]["status"] == "rehearsed"


@FULL
def test_updates_and_training_run_in_small() -> None:
    """One row of each kind; `scripts/gpu --rehearse` runs all of them."""
    figures = gpu.updates("cpu", rehearse=True, names=("DQN 64-64", "SAC 256-256"))
    assert all(isinstance(value, float) for modes in figures.values() for value in modes.values()), figures
    assert set(figures["DQN 64-64"]) == {"eager", "traced"}
    trained = gpu.training("cpu", rehearse=True, names=("DQN CartPole on the CPU", "PPO Nature, 8 lanes"))
    assert all(isinstance(value, float) for value in trained.values()), trained


def test_a_figure_that_could_not_be_measured_fails_its_stage() -> None:
    assert gpu._failures({"DQN": {"eager": 1.0, "captured": "RuntimeError: no"}, "PPO": {}}) == ["RuntimeError: no"]
    assert gpu._failures({"DQN": {"eager": 1.0}}) == []


ROWS = [(name, algorithm, settings) for name, (algorithm, _, _, settings) in gpu.UPDATES.items()]
ROWS += [
    (name, algorithm, settings)
    for name, (library, algorithm, _, _, _, settings, _) in gpu.TRAINING.items()
    if library == "sb_dqn"
]


@pytest.mark.parametrize(("name", "algorithm", "settings"), ROWS, ids=[name for name, _, _ in ROWS])
def test_settings_are_keywords_of_their_algorithm(name: str, algorithm: str, settings: dict[str, object]) -> None:
    assert settings.keys() <= constructor_arguments(getattr(sb_dqn, algorithm)).keys()
    assert set(gpu.COMPILED) <= set(gpu.UPDATES)
