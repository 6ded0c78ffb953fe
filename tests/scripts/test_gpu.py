"""Tests of `scripts/gpu` on a machine without CUDA: stages that need it are not run, and never passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmarks import gpu


def test_stages_without_a_device_are_reported_as_not_run(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--device", "cpu", "--out", str(out)]) == 0
    lines = {line["stage"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert list(lines) == list(gpu.STAGES)
    assert lines["facts"]["status"] == "passed"
    assert {line["status"] for name, line in lines.items() if name != "facts"} == {"not run"}


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
