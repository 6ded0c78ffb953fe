"""The chain of six states with a known optimum, and FQF on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scripts.benchmarks import tiny_chain
from scripts.benchmarks.tiny_chain import DRAWN, GAMMA, OPTIMUM, STATES, Chain, error, train
from tests.marks import FULL


def test_the_optimum_solves_the_chain() -> None:
    """Q of every state and action equals the reward plus the discounted best Q of the state that `step` leads to."""
    env = Chain()
    for state in range(STATES):
        for action in range(2):
            env.state = state
            after, reward, ended, truncated, _ = env.step(action)
            expected = reward + (0.0 if ended else GAMMA * OPTIMUM[after].max())
            assert OPTIMUM[state, action] == pytest.approx(expected)
            assert (ended, truncated) == ((state, action) == (STATES - 1, 1), False)


def tied(model: Any) -> float:
    """Returns the share of an action's quantiles that equal another one of the same state, over all states."""
    with torch.no_grad():
        quantiles = model.policy.q_net({"obs": torch.arange(STATES)}).quantiles[:, 0]
    return 1.0 - float(np.mean([len(np.unique(row)) / len(row) for row in quantiles.numpy()]))


@FULL
def test_fqf_fits_the_chain_with_one_small_layer() -> None:
    """With one hidden layer the embedding multiplies the one-hot observation, so each state has a single unit of it."""
    model = train("FQF", 2e-3, [32], seed=0, steps=3_000)
    assert error(model) < 0.1
    assert tied(model) < 0.2


@FULL
def test_with_the_random_bias_of_a_linear_layer_half_of_the_quantiles_are_one_number() -> None:
    model = train(f"FQF{DRAWN}", 2e-3, [32], seed=0, steps=3_000)
    assert error(model) > 0.2
    assert tied(model) > 0.4


@FULL
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_chain.main(
        ["--algorithms", "FQF", "C51", "--seeds", "2", "--steps", "120", "--widths", "4", "--learning-rates", "0.01"]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Largest error of Q, mean (worst) of 2 seeds after 120 steps."
    assert lines[2] == "| | [4], 0.01 |"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| FQF", "| C51"]
