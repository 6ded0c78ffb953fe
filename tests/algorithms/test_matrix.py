"""Every combination of head, switches, observation, lanes and actions learns, changes, and comes back from its file.

By default rows in which every triple of choices meets are run eagerly, and some of the rows in which every pair meets are traced
too, as they are for a user; `scripts/test --full` records all of these and compiles one. SB_DQN_MATRIX=full runs the full product in
place of the triples, and compiles every head (ten minutes of two cores).
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.accelerate import forced_mode
from sb_dqn.algorithms import DQN, PQN
from sb_dqn.buffers.prioritized_sampler import PrioritizedSampler
from sb_dqn.nn.layers.linear import NoisyLinear
from sb_dqn.nn.torsos.mlp import DuelingStreams
from sb_dqn.policies import QPolicy
from sb_dqn.spaces import flatten_observation
from tests.combinations import FACTORS, SWITCHES, Combination, covering, everything, label, make, make_pqn, switched_on
from tests.invariants import check_valid
from tests.marks import FULL, SLOW, a_few, first_few

PAIRS = covering(2)
WHOLE_PRODUCT = os.environ.get("SB_DQN_MATRIX") == "full"
ROWS = list(everything()) if WHOLE_PRODUCT else covering(3)
STEPS = 24


def observations(model: DQN | PQN, count: int = 9) -> dict[str, torch.Tensor]:
    space = model.observation_space
    space.seed(1)
    sampled = [flatten_observation(space.sample(), ()) for _ in range(count)]
    return {key: torch.from_numpy(np.stack([one[key] for one in sampled])) for key in sampled[0]}


def values(model: DQN | PQN) -> torch.Tensor:
    """Of fixed observations, as acting sees them."""
    with torch.no_grad():
        return q_policy(model).values(observations(model))


def q_policy(model: DQN | PQN) -> QPolicy:
    assert isinstance(model.policy, QPolicy)
    return model.policy


def check_learned(model: DQN, combination: Mapping[str, Any]) -> None:
    """Two updates were made, with everything that was asked for, and they changed the online net."""
    net, replay = q_policy(model).q_net, model.replay
    assert model._n_updates == 2
    assert torch.isfinite(model.learner.flat).all()
    assert not torch.equal(model.learner.flat, model.learner.flat_target)
    kinds = [part.factorised for part in net.modules() if isinstance(part, NoisyLinear)]
    assert set(kinds) == ({combination["noisy"] == "factorised"} if combination["noisy"] else set())
    assert any(isinstance(part, DuelingStreams) for part in net.modules()) is combination["dueling"]
    assert replay.view.n_steps == combination["n_steps"]
    assert (replay.ring.mask is not None) is combination["masks"]
    assert replay.ring.num_lanes == combination["lanes"]
    assert replay.ring.frame_stack == (3 if combination["observation"] == "frames" else 1)
    if combination["prioritized_replay"]:
        assert isinstance(replay.sampler, PrioritizedSampler)
        assert check_valid(replay.sampler) == (True, "valid")
        assert replay.sampler.largest > 0


def check_comes_back(model: DQN | PQN) -> None:
    """A file gives the same parameters, values and actions, bit for bit."""
    file = io.BytesIO()
    model.save(file)
    loaded = type(model).load(file)
    assert torch.equal(loaded.learner.flat, model.learner.flat)
    assert torch.equal(loaded.learner.flat_target, model.learner.flat_target)
    assert torch.equal(values(loaded), values(model))
    obs = {key: tensor.numpy() for key, tensor in observations(model).items()}
    given: Any = obs.get("obs", obs)
    expected, _ = model.predict(given, deterministic=True)
    assert loaded.predict(given, deterministic=True)[0].tolist() == expected.tolist()


def check(combination: Combination, **changes: Any) -> DQN:
    model = make(combination, **changes).learn(STEPS + 4)
    check_learned(model, combination)
    check_comes_back(model)
    return model


# -- the matrix


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("combination", ROWS, ids=label)
def test_learns_and_comes_back(combination: Combination) -> None:
    check(combination)


@SLOW
@pytest.mark.parametrize(
    "combination", first_few([row for row in PAIRS if row["observation"] != "frames"], 4), ids=label
)
def test_every_pair_as_it_is_traced(combination: Combination) -> None:
    traced = check(combination)
    assert traced.mode == "traced"
    with forced_mode("eager"):
        eager = make(combination).learn(STEPS + 4)
    moved = (eager.learner.flat - eager.learner.flat_target).norm()
    assert (traced.learner.flat - eager.learner.flat).norm() < 1e-3 * moved


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("combination", first_few([row for row in PAIRS if not row["noisy"]], 4), ids=label)
def test_ensembles(combination: Combination) -> None:
    check(combination, ensemble=3)


FURTHER: dict[str, dict[str, Any]] = {
    "resets": {"resets": 2},
    "redo": {"redo": 1},
    "act_with": {"act_with": "target"},
    "self_prediction": {"self_prediction": {"steps": 2}},
    "augmentation": {"augmentation": {"shift": 1}},
    "annealed": {"gamma": {"start": 0.9, "end": 0.99, "updates": 1}},
    "shared": {"target": "shared", "iterations": 2},
    "conservative": {"cql_alpha": 0.5},
}
"""Switches besides those of `FACTORS`."""


def with_further(combination: Combination, number: int) -> dict[str, dict[str, Any]]:
    """Further switches for a row, each in about half of the rows; only those that its observations and each other allow."""
    rng = np.random.default_rng(number)
    chosen = {name: settings for name, settings in FURTHER.items() if rng.random() < 0.5}
    if combination["observation"] != "frames":
        chosen.pop("augmentation", None)
    if "shared" in chosen:
        chosen.pop("act_with", None)
    return chosen


NUMBERED = [(row, number) for number, row in enumerate(PAIRS * 4)]


def test_the_rows_of_further_switches_meet_every_choice_and_each_other() -> None:
    met: set[Any] = set()
    for row, number in NUMBERED:
        chosen = with_further(row, number)
        met |= {(name, factor, value) for name in chosen for factor, value in row.items()}
        met |= {(name, other) for name in chosen for other in chosen if name < other}
    missing = {(name, factor, value) for name in FURTHER for factor in FACTORS for value in FACTORS[factor]} - met
    assert missing == {("augmentation", "observation", "vector"), ("augmentation", "observation", "dict")}
    pairs = {(name, other) for name in FURTHER for other in FURTHER if name < other}
    assert pairs - met == {("act_with", "shared")}


@SLOW
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("combination", "number"), NUMBERED)
def test_further_switches(combination: Combination, number: int) -> None:
    further = with_further(combination, number)
    changes = {name: value for settings in further.values() for name, value in settings.items()}
    if "self_prediction" in further and combination["observation"] == "dict":
        changes["policy_kwargs"] = {"net_arch": [8, 8]}
    model = make(combination, **changes)
    before = model.learner.flat.clone()
    model.learn(STEPS + 4)
    assert model._n_updates == 2
    assert torch.isfinite(model.learner.flat).all()
    assert not torch.equal(model.learner.flat, before)
    check_comes_back(model)


OF_ROLLOUTS = ("dueling", "masks", "observation", "lanes", "actions")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("values_of", list(product(*(FACTORS[name] for name in OF_ROLLOUTS))), ids=str)
def test_rollouts(values_of: tuple[Any, ...]) -> None:
    combination = dict(zip(OF_ROLLOUTS, values_of, strict=True))
    model = make_pqn(combination)
    before = model.learner.flat.clone()
    model.learn(3 * combination["lanes"])
    assert model._n_updates == 2
    assert torch.isfinite(model.learner.flat).all()
    assert not torch.equal(model.learner.flat, before)
    assert (model.rollout.ring.mask is not None) is combination["masks"]
    check_comes_back(model)


@pytest.mark.parametrize("strength", [2, 3])
def test_the_rows_cover_what_they_say(strength: int) -> None:
    rows = {2: PAIRS, 3: ROWS}[strength]
    for names in combinations(FACTORS, strength):
        met = {tuple(row[name] for name in names) for row in rows}
        assert met == set(product(*(FACTORS[name] for name in names))), names


# -- what each switch does


@SLOW
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("head", a_few(FACTORS["head"], "scalar", "QR"))
def test_each_switch_changes_what_is_learned(head: str) -> None:
    plain: Combination = {name: choices[0] for name, choices in FACTORS.items()} | {"head": head}
    found = {
        name: values(make({**plain, name: FACTORS[name][1]}, learning_rate=0.05).learn(60))
        for name in ("head", *SWITCHES)
        if name != "head" or FACTORS["head"][1] != head
    }
    found["nothing"] = values(make(plain, learning_rate=0.05).learn(60))
    for (one, first), (other, second) in combinations(found.items(), 2):
        assert not torch.equal(first, second), f"{one} and {other} give the same"


# -- other precisions and the compiler

PLENTY = [row for row in PAIRS if len(switched_on(row)) >= 4]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("combination", PLENTY[:5], ids=label)
def test_half_precision(combination: Combination) -> None:
    model = check(combination, precision="bf16")
    assert model.learner.low is not None
    assert next(q_policy(model).q_net.parameters()).dtype == torch.float32


@FULL
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("head", FACTORS["head"] if WHOLE_PRODUCT else ["scalar"])
def test_compiled(head: str, capsys: pytest.CaptureFixture[str]) -> None:
    combination = {name: choices[1] for name, choices in FACTORS.items()} | {"head": head}
    compiled = make(combination, torch_compile=True).learn(STEPS + 4)
    check_learned(compiled, combination)
    assert compiled.mode == "compiled"
    assert "failed" not in capsys.readouterr().err
    with forced_mode("eager"):
        eager = make(combination).learn(STEPS + 4)
    moved = (eager.learner.flat - eager.learner.flat_target).norm()
    assert (compiled.learner.flat - eager.learner.flat).norm() < 1e-3 * moved
