"""Command-line syntax of algorithm names and settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import sb_dqn
from sb_dqn import algorithms
from sb_dqn.algorithms import DoubleDQN, registry
from sb_dqn.runs.settings_syntax import (
    algorithm_class,
    canonical,
    constructor_defaults,
    parse_assignments,
)
from tests.marks import SLOW


@pytest.mark.parametrize("name", ["DoubleDQN", "doubledqn", "DOUBLEDQN", "double-dqn", "Double_DQN"])
def test_case_and_hyphens_do_not_matter(name: str) -> None:
    assert canonical(name) == "DoubleDQN"


def test_c51_is_an_alias() -> None:
    assert canonical("c51") == canonical("CategoricalDQN") == "CategoricalDQN"


def test_unknown_algorithm_suggests_the_nearest() -> None:
    with pytest.raises(
        click.BadParameter, match=r"must be one of .*, got 'dubledqn'. Use one of them. Did you mean 'doubledqn'"
    ):
        canonical("dubledqn")


def test_every_algorithm_can_be_imported_by_name() -> None:
    for name in registry.NAMES:
        assert algorithm_class(name) is algorithms.ALGORITHMS[name] is getattr(sb_dqn, name)
        assert algorithm_class(name).__name__ == name


@SLOW
def test_an_import_and_an_entry_in_the_registry_add_an_algorithm(tmp_path: Path) -> None:
    """The package root, the command line and presets find an algorithm after one new file and one new entry."""
    shutil.copytree(Path(sb_dqn.__file__).parent, tmp_path / "sb_dqn", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "sb_dqn" / "algorithms"
    (folder / "slow_dqn.py").write_text("from sb_dqn.algorithms.dqn import DQN\n\n\nclass SlowDQN(DQN):\n    pass\n")
    listed = (folder / "registry.py").read_text()
    marker = "    from sb_dqn.algorithms.vpg import VPG as VPG\n"
    line = "    from sb_dqn.algorithms.slow_dqn import SlowDQN as SlowDQN\n"
    entry = '    "VPG": "sb_dqn.algorithms.vpg",\n'
    for before, after in [(marker, line), (entry, '    "SlowDQN": "sb_dqn.algorithms.slow_dqn",\n')]:
        assert before in listed
        listed = listed.replace(before, before + after)
    (folder / "registry.py").write_text(listed)
    (tmp_path / "sb_dqn" / "presets" / "slowdqn.yaml").write_text("parent: DQN\n")
    script = (
        "import sys, sb_dqn; from sb_dqn.cli.main import main; assert sb_dqn.SlowDQN.__name__ == 'SlowDQN'; "
        "assert 'SlowDQN' in sb_dqn.__all__; sys.argv = ['sb-dqn', 'presets', 'slow-dqn']; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "CartPole-v1" in done.stdout, done.stdout + done.stderr  # from the presets of its parent


def test_assignments() -> None:
    assignments = [
        "gamma=0.98",
        "policy_kwargs={net_arch: [64]}",
        "learning_rate=linear 1e-3",
        " loss = mse ",
        "seed=None",
    ]
    assert parse_assignments(assignments) == {
        "gamma": 0.98,
        "policy_kwargs": {"net_arch": [64]},
        "learning_rate": "linear 1e-3",
        "loss": "mse",
        "seed": None,
    }


def test_two_dicts_of_policy_kwargs_are_merged() -> None:
    assignments = ["policy_kwargs={net_arch: [64], optimizer_kwargs: {eps: 1e-5}}", "gamma=0.9"]
    assignments += [
        "policy_kwargs={layer_norm: true, optimizer_kwargs: {weight_decay: 0.1}}",
        "policy_kwargs={dueling: true}",
    ]
    assert parse_assignments(assignments) == {
        "policy_kwargs": {
            "net_arch": [64],
            "optimizer_kwargs": {"eps": 1e-5, "weight_decay": 0.1},
            "layer_norm": True,
            "dueling": True,
        },
        "gamma": 0.9,
    }


@pytest.mark.parametrize(
    ("assignments", "option", "message"),
    [
        (["gamma=0.9", "lr=1", " gamma = 0.8"], "--set", "gamma must be set once, got 0.9 and 0.8. Remove one of them"),
        (["noisy={a: 1}", "noisy={b: 2}"], "--set", "noisy must be set once"),
        (["policy_kwargs={a: 1}", "policy_kwargs=null"], "--set", "policy_kwargs must be set once"),
        (
            ["policy_kwargs={a: 1}", "policy_kwargs={a: 2}"],
            "--set",
            "a in policy_kwargs must be set once, got 1 and 2",
        ),
        (
            ["policy_kwargs={optimizer_kwargs: {eps: 1}}", "policy_kwargs={optimizer_kwargs: {eps: 2}}"],
            "--set",
            "eps in optimizer_kwargs in policy_kwargs must be set once",
        ),
        (["wind=1", "wind=2"], "--env-set", "wind must be set once"),
        (["policy_kwargs={a: 1}", "policy_kwargs={b: 2}"], "--env-set", "policy_kwargs must be set once"),
    ],
)
def test_duplicate_names_are_rejected(assignments: list[str], option: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as rejected:
        parse_assignments(assignments, option)
    assert rejected.value.message.startswith(message)
    assert rejected.value.param_hint == option


@pytest.mark.parametrize("wrong", ["gamma", "=3", "a b=3", "gamma:3", "policy_kwargs={net_arch: [64}"])
def test_malformed_assignments_are_rejected(wrong: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_assignments([wrong])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("policy_kwargs.net_arch=[32,32]", "policy_kwargs={net_arch: [32,32]}"),
        ("policy_kwargs.optimizer_kwargs.eps = 1e-5", "policy_kwargs={optimizer_kwargs: {eps: 1e-5}}"),
    ],
)
def test_a_dotted_name_is_answered_with_the_dict(wrong: str, right: str) -> None:
    with pytest.raises(click.BadParameter) as rejected:
        parse_assignments([wrong], "--env-set")
    assert rejected.value.param_hint == "--env-set"
    assert rejected.value.message.endswith(f'in its dict: --env-set "{right}".')
    parse_assignments([right])


def test_defaults_include_those_of_parent_classes() -> None:
    defaults = constructor_defaults(DoubleDQN)
    assert defaults["double_q"] is True
    assert defaults["gamma"] == 0.99
    assert not {"self", "policy", "env", "unknown", "kwargs"} & defaults.keys()
