"""Scripts whose figures stand in the documentation measure what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from sb_dqn import DQN
from sb_dqn.errors import EnvironmentFault
from scripts.benchmarks import fault_checks, identity, processes, resumed_curve
from scripts.benchmarks.dormant import share_of_model
from tests.marks import FULL


class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sees NaN from the third step on."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.count = getattr(self, "count", 0) + 1
        return (obs * np.float32("nan") if self.count >= 3 else obs), reward, terminated, truncated, info


def test_the_arm_without_checks_has_none() -> None:
    def model() -> DQN:
        return DQN("MlpPolicy", Broken(gymnasium.make("CartPole-v1")), seed=0, learning_starts=100)

    assert fault_checks.seconds(model(), 5, checks=False) > 0
    with pytest.raises(EnvironmentFault, match="NaN"):
        fault_checks.seconds(model(), 5, checks=True)


def test_a_run_has_got_as_far_as_its_finished_episodes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert not resumed_curve.has_reached(tmp_path, 1)
    # the last line is being written
    (run / "monitor.csv").write_text('#{"t_start": 0}\nr,l,t\n10.0,10,0.1\n15.0,15,0.2\n9.0,', encoding="utf-8")
    assert resumed_curve.has_reached(tmp_path, 25)
    assert not resumed_curve.has_reached(tmp_path, 26)


@FULL
def test_the_identity_tasks_are_a_table_with_a_column_for_each_side(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3", reason="its environments are learned from")
    identity.main(["--tasks", "MultiBinary(2)", "--seeds", "2", "--timesteps", "10", "--episodes", "1"])
    head, line, row = capsys.readouterr().out.splitlines()
    assert head == "| Task | sb_dqn before | sb_dqn, binary_logits=2 | sb_dqn | Stable-Baselines3 |"
    assert line.count("|") == head.count("|") == row.count("|")
    task, *cells = row.strip("| ").split(" | ")
    assert task == "MultiBinary(2)"
    assert all(0 <= float(cell.split(" ± ")[0]) <= 100 for cell in cells)


def test_a_process_finds_the_bytecode_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert processes.python("import sys; assert not sys.dont_write_bytecode")[""] > 0


def test_share_of_dormant_units_over_all_layers() -> None:
    """Four of sixteen units give 0 for every observation."""
    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8, 8]}, seed=0)
    first, second = [layer for layer in model.policy.q_net.modules() if isinstance(layer, torch.nn.Linear)][:2]
    with torch.no_grad():
        for layer in (first, second):
            layer.weight.zero_()
            layer.bias.fill_(1.0)
        first.bias[:4] = -1.0
    assert share_of_model(model, gymnasium.make("CartPole-v1"), 50) == 4 / 16
