"""The benchmark of gradient steps: fair sides."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import pytest

from scripts.benchmarks import updates
from scripts.benchmarks.table import Comparison, compare, report
from tests.marks import FULL, SLOW

PARAMETERS = {
    ("DQN", "64-64"): 4_610,  # 4 x 64 + 64, 64 x 64 + 64, 64 x 2 + 2
    ("QRDQN", "64-64"): 30_480,  # the last layer has 2 x 200
    ("C51", "64-64"): 11_110,  # 2 x 51
    ("IQN", "64-64"): 8_770,  # and 64 cosines x 64 + 64
    ("FQF", "64-64"): 10_850,  # and 64 x 32 + 32 for the fractions
    ("Rainbow", "64-64"): 37_170,  # twice (a mean and a spread) 320 + 2 x 4,160 + 65 x (51 + 102)
    ("C51", "Atari"): 1_841_106,
    ("IQN", "Atari"): 1_891_046,
    ("FQF", "Atari"): 1_991_430,
    ("Rainbow", "Atari"): 6_868_842,
}
TIANSHOU = [name for name, package in updates.PEERS.items() if package == "tianshou"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that is full at once."""
    small = {kind: {**chosen, "rows": 150, "burst": 3} for kind, chosen in updates.KINDS.items()}
    monkeypatch.setattr(updates, "KINDS", small)


@FULL
@pytest.mark.parametrize("variant", updates.PEERS)
def test_our_side_is_measured_on_the_network_that_is_said(variant: str, short: None) -> None:
    figures = updates.ours(variant=variant, kind="64-64", seconds=0.001)
    assert figures["parameters"] == PARAMETERS[variant, "64-64"]
    assert figures[""] > 0


@SLOW
@pytest.mark.skipif(find_spec("tianshou") is None, reason="needs the extra bench")
@pytest.mark.parametrize("variant", TIANSHOU)
def test_tianshou_trains_as_many_numbers(variant: str, short: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, on import
        from scripts.benchmarks.tianshou_agents import agent

        figures = updates.tianshou(variant=variant, kind="64-64", seconds=0.001)
    assert figures["parameters"] == PARAMETERS[variant, "64-64"]
    assert agent(variant, "Atari", updates.SETTINGS[variant])[1] == PARAMETERS[variant, "Atari"]


@FULL
@pytest.mark.skipif(find_spec("sb3_contrib") is None, reason="needs the extra bench")
@pytest.mark.parametrize("variant", ["DQN", "QRDQN"])
def test_stable_baselines3_trains_as_many_numbers(variant: str, short: None) -> None:
    figures = updates.sb3(variant=variant, kind="64-64", seconds=0.001, threads=1)
    assert figures["parameters"] == PARAMETERS[variant, "64-64"]


def test_every_variant_is_compared_on_both_networks() -> None:
    benchmark = updates.update_benchmark(1.0)
    names = {one.name for one in benchmark.measurements}
    for kind in updates.KINDS:
        for variant, package in updates.PEERS.items():
            assert {f"{variant} {kind} ours", f"{variant} {kind} {updates.SHORT[package]}"} <= names
    assert len([one for one in benchmark.comparisons if one.at_most is None]) == 12
    assert benchmark.less_is_better


def test_the_number_of_parameters_is_checked_and_not_shown() -> None:
    rounds = [{"a": 2.0, "b": 5.0, "a parameters": 100.0, "b parameters": 90.0}]
    check = Comparison("check", ("a parameters",), ("b parameters",), at_least=0.99, at_most=1.01)
    finding = compare(check, rounds, less_is_better=True)
    assert finding.met is False
    assert "a parameters" not in report("updates", "µs", rounds, [finding])
