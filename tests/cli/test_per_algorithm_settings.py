"""Settings of a comparison: for all algorithms, and for one."""

from __future__ import annotations

import click
import pytest

from sb_dqn.cli.compare.per_algorithm_settings import settings_per_algorithm
from sb_dqn.runs.settings_syntax import parse_assignments


def test_settings_of_one_algorithm_override_those_of_all_in_any_order() -> None:
    typed = ["QRDQN.gamma=0.5", "gamma=0.9", "batch_size=8"]
    assert settings_per_algorithm(["DQN", "QRDQN"], typed) == {
        "DQN": ["gamma=0.9", "batch_size=8"],
        "QRDQN": ["batch_size=8", "gamma=0.5"],
    }


def test_policy_kwargs_of_one_algorithm_are_merged_key_by_key() -> None:
    typed = ["policy_kwargs={net_arch: [64], optimizer_kwargs: {eps: 1e-5}}"]
    typed += ["DQN.policy_kwargs={net_arch: [8]}", "DQN.policy_kwargs={optimizer_kwargs: {weight_decay: 0.1}}"]
    settings = settings_per_algorithm(["DQN", "QRDQN"], typed)
    assert settings["QRDQN"] == typed[:1]
    assert len(settings["DQN"]) == 1
    assert parse_assignments(settings["DQN"]) == {
        "policy_kwargs": {"net_arch": [8], "optimizer_kwargs": {"eps": 1e-5, "weight_decay": 0.1}}
    }


@pytest.mark.parametrize(
    "typed",
    [["gamma=0.9", "gamma=0.8"], ["DQN.gamma=0.9", "dqn.gamma=0.8"], ["policy_kwargs={a: 1}", "policy_kwargs={a: 2}"]],
)
def test_duplicate_names_are_rejected(typed: list[str]) -> None:
    with pytest.raises(click.BadParameter, match="must be set once"):
        settings_per_algorithm(["DQN", "QRDQN"], typed)
