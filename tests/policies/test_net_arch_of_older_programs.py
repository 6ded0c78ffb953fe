"""A list around a dict, as Stable-Baselines3 had `net_arch` before version 1.8, is answered with the form that works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sb_dqn import A2C, DQN, PPO, SAC
from sb_dqn.errors import ConfigurationError


def build(algorithm: Any, net_arch: Any, policy: str = "MlpPolicy") -> Any:
    env = "Pendulum-v1" if algorithm is SAC else "CartPole-v1"
    return algorithm(policy, env, policy_kwargs={"net_arch": net_arch}, device="cpu")


@pytest.mark.parametrize(
    ("algorithm", "policy", "given", "works"),
    [
        (PPO, "MlpPolicy", [{"pi": [8], "vf": [9]}], {"pi": [8], "vf": [9]}),
        (A2C, "MlpPolicy", [{"pi": [8], "vf": [9]}], {"pi": [8], "vf": [9]}),
        (A2C, "MlpPolicy", ({"vf": [9]},), {"pi": [], "vf": [9]}),
        (PPO, "MlpPolicy", [16, {"pi": (8,), "vf": [9, 7]}], {"pi": [16, 8], "vf": [16, 9, 7]}),
        (PPO, "MlpLstmPolicy", [{"pi": [8], "vf": [9]}], {"pi": [8], "vf": [9]}),
        (SAC, "MlpPolicy", [{"pi": [8], "qf": [9]}], {"pi": [8], "qf": [9]}),
    ],
)
def test_the_form_that_works_is_named(algorithm: Any, policy: str, given: Any, works: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"must be a list of widths or a dict, got .*share no layer"
    ) as refusal:
        build(algorithm, given, policy)
    named = re.search(r"Give dict\((.*?)\), whose", str(refusal.value))
    assert named is not None
    assert named.group(1) == ", ".join(f"{name}={widths}" for name, widths in works.items())
    build(algorithm, works, policy)


def test_an_entry_that_is_no_list_is_named_as_it_is() -> None:
    with pytest.raises(ConfigurationError, match=r"Give dict\(pi=8, vf=\[\]\)"):
        build(PPO, [{"pi": 8}])


def test_where_there_is_one_tower_a_list_is_asked_for() -> None:
    with pytest.raises(
        ConfigurationError, match=r"net_arch.*must be a list of widths, got .*pi.*Give for example \[64, 64\]"
    ):
        build(DQN, [{"pi": [8], "vf": [8]}])
