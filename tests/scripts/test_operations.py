"""The count of operations: what launches a kernel, and how many an update and an act of two models may have."""

from __future__ import annotations

import pytest
import torch

from sb_dqn.accelerate import backends
from scripts.benchmarks import operations
from scripts.benchmarks.operations import KINDS, count
from tests.full import FULL


def test_views_launch_nothing() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value, place = (x.T @ y.detach()).max(0)  # two kernels; a transposed view, and two items of a tuple
        y.exp()  # not used, so not recorded
        return (value.view(2, 2)[0] + place[:2].unsqueeze(0).expand(1, 2)).add_(1.0)  # two

    graph = backends._trace(function, (torch.ones(3, 4), torch.ones(3, 4))).graph
    assert count(graph) == 4
    assert len(graph.nodes) > 10  # decoy: with views, inputs and output


@FULL
@pytest.mark.parametrize(("name", "update", "act"), [("DQN 64-64", 80, 8), ("BTR", 700, 80)])
def test_how_many_at_most(name: str, update: int, act: int) -> None:
    found = operations.operations(KINDS[name])
    assert 0.5 * update < found["update"] <= update
    assert 0.5 * act < found["act"] <= act


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(operations, "operations", lambda kind: {"update": 1234, "act": 5})
    monkeypatch.setattr("sys.argv", ["operations.py", "BTR", "SAC 256-256"])
    operations.main()
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]] == [["1,234", "5"]] * 2
    monkeypatch.setattr("sys.argv", ["operations.py", "TD3"])
    with pytest.raises(SystemExit):
        operations.main()
    assert "got TD3" in capsys.readouterr().err
