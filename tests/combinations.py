"""Every way to put a Q-agent together, few rows in which every pair or triple of choices meets, and small models of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from sb_dqn.algorithms import DQN, FQF, IQN, PQN, QRDQN, CategoricalDQN
from tests.choices import Choices

Combination = dict[str, Any]

FACTORS: dict[str, tuple[Any, ...]] = {
    "head": ("scalar", "C51", "QR", "IQN", "FQF", "HL-Gauss"),
    "double_q": (False, True),
    "dueling": (False, True),
    "noisy": (False, "factorised", "independent"),
    "n_steps": (1, 3),
    "prioritized_replay": (False, True),
    "munchausen": (False, True),
    "masks": (False, True),
    "observation": ("vector", "dict", "frames"),
    "lanes": (1, 4),
    "actions": ("discrete", "multi discrete"),
}
SWITCHES = ("double_q", "dueling", "noisy", "n_steps", "prioritized_replay", "munchausen")
HEADS: dict[str, tuple[type[DQN], dict[str, Any]]] = {
    "scalar": (DQN, {}),
    "C51": (CategoricalDQN, {"n_atoms": 5}),
    "QR": (QRDQN, {"n_quantiles": 4}),
    "IQN": (IQN, {"n_taus": 3, "n_target_taus": 4, "n_policy_taus": 5, "n_cosines": 6}),
    "FQF": (FQF, {"n_fractions": 3, "n_cosines": 6, "fraction_learning_rate": 1e-3}),
    "HL-Gauss": (DQN, {"value_loss": {"bins": 7}}),
}
POLICIES = {"vector": "MlpPolicy", "dict": "MultiInputPolicy", "frames": "CnnPolicy"}
TORSOS: dict[str, dict[str, Any]] = {
    "vector": {"net_arch": [8, 8]},
    "dict": {"net_arch": [8]},
    "frames": {"features_extractor_kwargs": {"features_dim": 12, "channels": (4,), "kernels": (4,), "strides": (2,)}},
}


def everything() -> Iterator[Combination]:
    """The full product."""
    for values in product(*FACTORS.values()):
        yield dict(zip(FACTORS, values, strict=True))


def covering(strength: int, seed: int = 0) -> list[Combination]:
    """Rows in which any `strength` factors take all their values together, by a greedy search.

    Each row begins with values that have not met; every further factor takes the value by which most others meet.
    """
    rng, names = np.random.default_rng(seed), list(FACTORS)
    missing = {
        tuple(zip(chosen, values, strict=True)): None
        for chosen in combinations(range(len(names)), strength)
        for values in product(*(range(len(FACTORS[names[factor]])) for factor in chosen))
    }
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for factor in rng.permutation([factor for factor in range(len(names)) if factor not in row]).tolist():
            others = list(combinations(sorted(row.items()), strength - 1))
            gains = [
                sum(tuple(sorted((*rest, (factor, value)))) in missing for rest in others)
                for value in range(len(FACTORS[names[factor]]))
            ]
            best = np.flatnonzero(np.array(gains) == max(gains))
            row[factor] = int(rng.choice(best))
        for met in combinations(sorted(row.items()), strength):
            missing.pop(met, None)
        rows.append({names[factor]: FACTORS[names[factor]][value] for factor, value in sorted(row.items())})
    return rows


def label(combination: Mapping[str, Any]) -> str:
    """`IQN-noisy=factorised-n_steps=3-vector-4 lanes-discrete`: what is switched on."""
    c = combination
    on = [name if c[name] is True else f"{name}={c[name]}" for name in switched_on(c)]
    return "-".join([c["head"], *on, c["observation"], f"{c['lanes']} lanes", c["actions"]])


def switched_on(combination: Mapping[str, Any]) -> list[str]:
    """Names of the switches that are not as in plain DQN."""
    return [name for name in (*SWITCHES, "masks") if combination[name] != FACTORS[name][0]]


def make_pqn(combination: Mapping[str, Any], **changes: Any) -> PQN:
    """The same of what learns from rollouts: two updates after the third tick, if all lanes stepped."""
    c = combination
    game = partial(Choices, c["observation"], c["actions"], c["masks"])
    where = ("legal" if c["observation"] == "dict" else "info") if c["masks"] else None
    settings: dict[str, Any] = {
        "dueling": c["dueling"], "policy_kwargs": TORSOS[c["observation"]], "action_mask": where, "n_steps": 3,
        "batch_size": 12, "learning_rate": 1e-2, "seed": 0, "device": "cpu",
    }  # fmt: skip
    return PQN(POLICIES[c["observation"]], [game] * c["lanes"], **{**settings, **changes})


def make(combination: Mapping[str, Any], **changes: Any) -> DQN:
    """A small model that acts at random for 20 steps and then learns after every fourth."""
    c = combination
    algorithm, of_head = HEADS[c["head"]]
    game = partial(Choices, c["observation"], c["actions"], c["masks"])
    where = ("legal" if c["observation"] == "dict" else "info") if c["masks"] else None
    settings: dict[str, Any] = {
        **of_head,
        **{name: c[name] for name in SWITCHES},
        "policy_kwargs": TORSOS[c["observation"]], "action_mask": where, "buffer_size": 200, "learning_starts": 20,
        "batch_size": 6, "train_freq": 4, "learning_rate": 1e-2, "seed": 0, "device": "cpu",
    }  # fmt: skip
    return algorithm(POLICIES[c["observation"]], [game] * c["lanes"], **{**settings, **changes})
