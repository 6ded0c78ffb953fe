"""The path from `learn` to a loss stays short enough to follow."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sb_dqn.algorithms.dqn import DQN, ReturnModel
from sb_dqn.nn.heads.scalar import Scalar
from sb_dqn.objectives.q_learning import QLearning
from scripts.benchmarks.followed_files import followed
from tests.tiny import run_eagerly

STACKS: list[list[str]] = []


def toy_loss(error: Any) -> Any:
    """A squared loss that notes the functions on the stack, innermost first, up to `learn`."""
    names = [frame.function for frame in inspect.stack()]
    STACKS.append(names[: names.index("learn") + 1])
    return 0.5 * error**2


class ToyLearning(QLearning):
    """Q-learning with the toy loss."""

    def __init__(self, bootstrap: Any) -> None:
        super().__init__(bootstrap)
        self.loss = toy_loss


def test_four_calls_from_learn_to_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    run_eagerly(monkeypatch)
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, return_model=ReturnModel(Scalar(), ToyLearning))
    model.learn(40)
    assert STACKS
    assert all(stack == ["toy_loss", "__call__", "update", "gradient_step", "learn"] for stack in STACKS)


def test_few_files_are_entered_in_one_tick_and_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    run_eagerly(monkeypatch)
    files = followed()
    assert "core/base_algorithm.py" in files
    assert "losses/td.py" in files
    assert len(files) <= 32, files
