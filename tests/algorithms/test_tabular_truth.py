"""Every named variant learns the exact values of a small process with chance in it, and its exact distribution of returns.

All actions are uniform, so that what n-step returns and Q(lambda) converge to is known exactly; features are one-hot, so
that the nets are tables (beside implicit quantiles, which need hidden layers to be more than that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.wrappers import TransformReward

from sb_dqn.algorithms import ALGORITHMS
from tests.algorithms.tabular import (
    ACTIONS,
    ALL,
    ARROWS,
    GAMMA,
    PAIRS,
    SOME,
    STATES,
    Array,
    Lottery,
    ahead,
    categorical,
    greedy_values,
    lambda_values,
    quantile,
    soft_values,
)
from tests.marks import FULL, SLOW, a_few

TABLE: dict[str, Any] = {"policy_kwargs": {"net_arch": []}, "learning_rate": "linear 0.15 0"}
HIDDEN: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [32, 32]}, "learning_rate": "linear 0.015 0", "batch_size": 64, "n_cosines": 8, "kappa": 0.0,
}  # fmt: skip
ALWAYS: dict[str, Any] = {
    "batch_size": 128, "gamma": GAMMA, "exploration": "epsilon", "exploration_initial_eps": 1.0,
    "exploration_final_eps": 1.0, "max_grad_norm": None, "seed": 0, "device": "cpu",
}  # fmt: skip
REPLAY: dict[str, Any] = {
    "buffer_size": 32_000, "learning_starts": 400, "train_freq": 16, "target_update_interval": 160,
}  # fmt: skip
MSE: dict[str, Any] = {**TABLE, "loss": "mse"}
ATOMS: dict[str, Any] = {**TABLE, "n_atoms": 25, "v_min": 0.0, "v_max": 6.0, "batch_size": 256}
PRIORITIES: dict[str, Any] = {"prioritized_replay": {"alpha": 0.2, "beta": 1.0}}
"""With beta below 1 the rewards are not weighed fairly; a large alpha makes the weights of a batch unequal, hence noise."""
TAUS: dict[str, Any] = {**HIDDEN, "n_taus": 16, "n_target_taus": 16, "n_policy_taus": 32}
FRACTIONS: dict[str, Any] = {**HIDDEN, "n_fractions": 16, "fraction_learning_rate": 1e-5}
ROLLOUTS: dict[str, Any] = {**MSE, "total": 36_000, "n_steps": 128, "batch_size": 256, "q_lambda": 0.65}
MORE: dict[str, Any] = {"total": 40_000, "train_freq": 32, "buffer_size": 64_000}
"""Data for n-step returns, in which chance and other actions add up."""
BINS: dict[str, Any] = {"v_min": -1.0, "v_max": 7.0, "bins": 33}
CLASSES: dict[str, Any] = {**TABLE, "batch_size": 256, "value_loss": {**BINS, "kind": "hl_gauss"}}
WIDE: dict[str, Any] = {"kind": "two_hot", "transform": "symlog", "v_min": -22_025, "v_max": 22_025, "bins": 101}
TWO_HOT: dict[str, Any] = {**CLASSES, "value_loss": {**BINS, "kind": "two_hot"}}
SYMLOG: dict[str, Any] = {
    **CLASSES, "value_loss": WIDE, "learning_rate": "linear 0.3 0", "total": 40_000,
}  # fmt: skip
"""Bins far out have values of thousands, so that their probabilities must become very small before the mean is right."""
CLASSES_OF_ROLLOUTS: dict[str, Any] = {
    **ROLLOUTS,
    **CLASSES,
    "loss": "mse",
    "learning_rate": "linear 0.05 0",
    "total": 160_000,
}
SHARED: dict[str, Any] = {"target": "shared", "iterations": 3}
LONG: dict[str, Any] = {"total": 32_000}
"""For soft values, which are longer under way."""
SOFT: dict[str, Any] = {"alpha": 0.4, "tau": 0.5, "clip": -2.0}


def learned(name: str, total: int = 20_000, legal: npt.NDArray[np.bool_] | None = None, **kwargs: Any) -> Any:
    """What the online net of a variant says of all states, by its mean weights."""
    mask = {} if legal is None else {"action_mask": "info"}
    settings = {**ALWAYS, **({} if name == "PQN" else REPLAY), **mask, **kwargs}
    model: Any = ALGORITHMS[name]("MlpPolicy", [partial(Lottery, legal)] * 8, **settings).learn(total)
    with torch.no_grad():
        return model.policy.q_net({"obs": torch.arange(STATES)})


def check_values(q: torch.Tensor, exact: Array, legal: npt.NDArray[np.bool_] = ALL) -> None:
    """Within 5 % (of 1, where a value is smaller)."""
    error = np.abs(q.numpy() - exact) / np.maximum(np.abs(exact), 1.0)
    assert error[legal].max() < 0.05, error


SCALAR: dict[str, tuple[str, Mapping[str, Any], Callable[[], Array]]] = {
    "DQN": ("DQN", {}, greedy_values),
    "DoubleDQN": ("DoubleDQN", {}, greedy_values),
    "DuelingDQN": ("DuelingDQN", {}, greedy_values),
    "NoisyDQN": ("NoisyDQN", {}, greedy_values),
    "independent noise": ("NoisyDQN", {"noisy": "independent"}, greedy_values),
    "NStepDQN": ("NStepDQN", MORE, partial(greedy_values, 3)),
    "PERDQN": ("PERDQN", PRIORITIES, greedy_values),
    "MunchausenDQN": ("MunchausenDQN", {}, soft_values),
    "a soft policy": ("MunchausenDQN", {"munchausen": SOFT, **LONG}, partial(soft_values, **SOFT)),
    "a soft policy of the online net": (
        "MunchausenDQN",
        {"munchausen": SOFT, "double_q": True, **LONG},
        partial(soft_values, **SOFT),
    ),
    "a soft policy, three steps": (
        "MunchausenDQN",
        {"munchausen": SOFT, "n_steps": 3, **MORE, "total": 64_000},
        partial(soft_values, 3, **SOFT),
    ),
}

SCALAR |= {
    "an ensemble": ("DQN", {**MORE, "total": 64_000, "ensemble": 3}, greedy_values),
    "an ensemble without shares, three steps, double, dueling, priorities": (
        "NStepDQN",
        {**MORE, **PRIORITIES, "ensemble": {"members": 2, "share": 1.0}, "double_q": True, "dueling": True},
        partial(greedy_values, 3),
    ),
    "an ensemble with a soft policy": ("MunchausenDQN", {**MORE, "ensemble": 3}, soft_values),
    "a shared head": ("DQN", {"target": "shared"}, greedy_values),
    "shared heads": ("DQN", SHARED, greedy_values),
    "shared heads, double, dueling, noisy, priorities": (
        "DQN",
        {**SHARED, **PRIORITIES, "double_q": True, "dueling": True, "noisy": True},
        greedy_values,
    ),
    "shared heads, three steps": ("NStepDQN", {**SHARED, **MORE}, partial(greedy_values, 3)),
    "shared heads, a soft policy": (
        "MunchausenDQN",
        {**SHARED, "munchausen": SOFT, **LONG},
        partial(soft_values, **SOFT),
    ),
    "shared heads, a soft policy of the head that learns": (
        "MunchausenDQN",
        {**SHARED, "munchausen": SOFT, "double_q": True, **LONG},
        partial(soft_values, **SOFT),
    ),
}


@pytest.mark.parametrize("case", a_few(SCALAR, "DQN", "MunchausenDQN", "shared heads"))
def test_values(case: str) -> None:
    name, kwargs, exact = SCALAR[case]
    for member in learned(name, **{**MSE, **kwargs}).q.split(STATES):  # of an ensemble, each of them
        check_values(member, exact())


CLASSIFIED: dict[str, tuple[str, Mapping[str, Any], Callable[[], Array]]] = {
    "HL-Gauss": ("DQN", CLASSES, greedy_values),
    "two-hot": ("DQN", TWO_HOT, greedy_values),
    "two-hot of symlog": ("DQN", SYMLOG, greedy_values),
    "HL-Gauss, double": ("DoubleDQN", CLASSES, greedy_values),
    "HL-Gauss, three steps": ("NStepDQN", {**CLASSES, **MORE}, partial(greedy_values, 3)),
    "HL-Gauss, priorities": ("PERDQN", {**CLASSES, **PRIORITIES}, greedy_values),
    "HL-Gauss, soft": ("MunchausenDQN", CLASSES, soft_values),
    "two-hot, soft": ("MunchausenDQN", {**TWO_HOT, "munchausen": SOFT, **LONG}, partial(soft_values, **SOFT)),
    "HL-Gauss, shared heads": ("DQN", {**CLASSES, **SHARED}, greedy_values),
    "HL-Gauss of rollouts": ("PQN", CLASSES_OF_ROLLOUTS, partial(lambda_values, 0.65)),
}


@SLOW
@pytest.mark.parametrize("case", a_few(CLASSIFIED, "HL-Gauss", "two-hot of symlog"))
def test_values_by_classification(case: str) -> None:
    name, kwargs, exact = CLASSIFIED[case]
    check_values(learned(name, **kwargs).q, exact())


@SLOW
@pytest.mark.parametrize("kind", a_few(["hl_gauss", "two_hot"], "hl_gauss"))
@pytest.mark.parametrize("factor", a_few([1.0, 0.01, 1_000.0], 1_000.0))
def test_an_automatic_range_fits_rewards_of_any_scale(kind: str, factor: float) -> None:
    settings = {**ALWAYS, **REPLAY, **TABLE, "batch_size": 256, "value_loss": {"kind": kind}}
    games = [lambda: TransformReward(Lottery(), lambda reward: factor * float(reward))] * 8
    model: Any = ALGORITHMS["DQN"]("MlpPolicy", games, **settings).learn(20_000)
    with torch.no_grad():
        found = model.policy.q_net({"obs": torch.arange(STATES)}).q / float(model.normalizer._rewards.scale)
    check_values(found / factor, greedy_values())


ACTOR_CRITICS: dict[str, dict[str, Any]] = {
    "A2C": {"n_steps": 8, "use_rms_prop": False},
    "PPO": {"n_steps": 64, "batch_size": 256, "n_epochs": 8},
    "VPG": {"episodes_per_update": 16},
}
CRITICS: dict[str, Any] = {
    "regression": False,
    "HL-Gauss": BINS,
    "two-hot": {**BINS, "kind": "two_hot"},
    "two-hot of symlog": WIDE,
    "automatic range": True,
    "automatic range, two-hot of symlog": {"kind": "two_hot", "transform": "symlog"},
}


@SLOW
@pytest.mark.parametrize("critic", a_few(list(CRITICS), "HL-Gauss", "two-hot of symlog"))
@pytest.mark.parametrize("name", ACTOR_CRITICS)
def test_values_of_an_actor_critic(name: str, critic: str) -> None:
    """The policy becomes the best one, whose values are the largest of each state."""
    settings = {
        "learning_rate": "linear 0.1 0", "policy_kwargs": {"net_arch": []}, "max_grad_norm": None, "gamma": GAMMA, "seed": 0,
        "device": "cpu", "value_loss": CRITICS[critic],
    }  # fmt: skip
    model: Any = ALGORITHMS[name]("MlpPolicy", [Lottery] * 16, **ACTOR_CRITICS[name], **settings).learn(30_000)
    with torch.no_grad():
        found = model.policy.net({"obs": torch.arange(STATES)})
    scale = float(model.normalizer._rewards.scale) if critic.startswith("automatic range") else 1.0
    best = greedy_values()
    assert found.policy.mode().flatten().tolist() == best.argmax(1).tolist()
    check_values(found.value / scale, best.max(1), ALL[:, 0])


@SLOW
@pytest.mark.parametrize("critic", a_few(["regression", "HL-Gauss", "two-hot", "two-hot of symlog"], "HL-Gauss"))
def test_soft_values_of_critics(critic: str) -> None:
    """The soft-optimal values at a fixed temperature, and their softmax as the policy."""
    alpha, settings = 0.5, {name: value for name, value in REPLAY.items() if name != "target_update_interval"}
    model: Any = ALGORITHMS["SAC"](
        "MlpPolicy", [Lottery] * 8, **settings, **TABLE | {"learning_rate": "linear 0.1 0"}, batch_size=256, tau=0.1,
        gamma=GAMMA, ent_coef=alpha, seed=0, device="cpu", value_loss=CRITICS[critic],
    ).learn(20_000)  # fmt: skip
    obs, nets = {"obs": torch.arange(STATES)}, model.policy.nets
    with torch.no_grad():
        found, policy = nets.critics.stacks(nets.critics.features(obs)), nets.policy(obs).logp.exp()
    exact = ahead(np.zeros(STATES), 1)
    for _ in range(100):
        exact = ahead(alpha * np.log(np.exp(exact / alpha).sum(1)), 1)
    best = np.exp(exact / alpha) / np.exp(exact / alpha).sum(1, keepdims=True)
    for q in found:
        check_values(q, exact)
    assert np.abs(policy.numpy() - best).max() < 0.05


@pytest.mark.parametrize("q_lambda", a_few([0.0, 0.65], 0.65))
def test_values_of_rollouts(q_lambda: float) -> None:
    found = learned("PQN", **{**ROLLOUTS, "q_lambda": q_lambda})
    check_values(found.q, lambda_values(q_lambda))


@SLOW
@pytest.mark.parametrize(
    ("name", "target"),
    a_few(
        [
            ("CategoricalDQN", {}),
            ("Rainbow", {}),
            ("DataEfficientRainbow", {}),
            ("CategoricalDQN", SHARED),
            ("Rainbow", SHARED),
        ],
        "CategoricalDQN",
    ),
)
def test_probabilities(name: str, target: Mapping[str, Any]) -> None:
    n_steps = {"CategoricalDQN": 1, "Rainbow": 3, "DataEfficientRainbow": 10}[name]
    more = {} if name == "CategoricalDQN" else {**PRIORITIES, **MORE, "train_freq": 20}
    found = learned(name, **{**ATOMS, **more, **target})
    exact = categorical(np.linspace(0.0, 6.0, 25), n_steps)
    check_values(found.q, greedy_values(n_steps))
    difference = found.logits.softmax(-1).numpy() - exact
    assert np.abs(difference).max() < 0.05
    assert np.abs(difference.cumsum(-1)).max() < 0.05


@SLOW
@pytest.mark.parametrize(
    ("name", "kwargs"),
    a_few(
        [
            ("QRDQN", {**TABLE, "n_quantiles": 20, "kappa": 0.0}),
            ("IQN", TAUS),
            ("FQF", FRACTIONS),
            ("QRDQN", {**TABLE, **SHARED, "n_quantiles": 20, "kappa": 0.0}),
            ("IQN", {**TAUS, **SHARED}),
            ("FQF", {**FRACTIONS, **SHARED}),
        ],
        "QRDQN",
    ),
)
def test_quantiles(name: str, kwargs: dict[str, Any]) -> None:
    found = learned(name, 20_000 if name == "QRDQN" else 30_000, **kwargs)
    check_values(found.q, greedy_values())
    taus = found.taus.expand(STATES, -1).numpy()
    weights = np.full_like(taus, 1.0 / taus.shape[-1]) if found.weights is None else found.weights.numpy()
    for pair in PAIRS:
        exact = quantile(*pair, taus[pair[0]])
        error = np.abs(found.quantiles[pair].numpy() - exact)
        scale = max(1.0, float(exact.mean()))
        assert (error * weights[pair[0]]).sum() < 0.05 * scale, pair  # 1-Wasserstein distance
        assert np.quantile(error, 0.8) < 0.05 * scale, (
            pair
        )  # the ends are seldom seen, and where it jumps nobody is sure


@FULL
def test_beyond_the_rainbow() -> None:
    found = learned("BTR", 30_000, **{**TAUS, **PRIORITIES, "n_taus": 8, "n_target_taus": 8})
    check_values(found.q, soft_values(3))


MASKED: dict[str, tuple[str, Mapping[str, Any], Callable[[], Array]]] = {
    "DoubleDQN": ("DoubleDQN", MSE, partial(greedy_values, 1, SOME)),
    "NStepDQN": ("NStepDQN", {**MSE, **MORE}, partial(greedy_values, 3, SOME)),
    "MunchausenDQN": ("MunchausenDQN", {**MSE, "munchausen": SOFT}, partial(soft_values, **SOFT, legal=SOME)),
    "QRDQN": ("QRDQN", {**TABLE, "n_quantiles": 20, "kappa": 0.0}, partial(greedy_values, 1, SOME)),
    "shared heads": ("DoubleDQN", {**MSE, **SHARED}, partial(greedy_values, 1, SOME)),
    "PQN": ("PQN", ROLLOUTS, partial(lambda_values, 0.65, SOME)),
}


@SLOW
@pytest.mark.parametrize("case", a_few(MASKED, "DoubleDQN"))
def test_values_of_what_is_legal(case: str) -> None:
    name, kwargs, exact = MASKED[case]
    check_values(learned(name, legal=SOME, **kwargs).q, exact(), SOME)


# -- the truth itself


def test_the_truth_agrees_with_itself() -> None:
    q, fractions = greedy_values(), (np.arange(2000) + 0.5) / 2000
    atoms = np.linspace(0.0, 6.0, 25)
    for pair in PAIRS:
        assert quantile(*pair, fractions).mean() == pytest.approx(q[pair], abs=2e-3)
    for n_steps in (1, 3):
        assert categorical(atoms, n_steps) @ atoms == pytest.approx(greedy_values(n_steps), abs=1e-6)
    assert soft_values(alpha=0.0, tau=1e-3) == pytest.approx(q, abs=1e-3)
    assert lambda_values(0.0) == pytest.approx(q)
    assert lambda_values(1.0) == pytest.approx(greedy_values(10))  # no episode is that long: nothing is bootstrapped


def test_the_game_follows_its_arrows() -> None:
    game, seen = Lottery(), {pair: [] for pair in PAIRS}  # type: ignore[var-annotated]  # of (next state, reward)
    rng = np.random.default_rng(0)
    state, _ = game.reset(seed=0)
    for _ in range(20_000):
        pair = (state, int(rng.integers(ACTIONS)))
        state, reward, terminated, *_ = game.step(pair[1])
        seen[pair].append((None if terminated else state, reward))
        if terminated:
            state, _ = game.reset()
    for pair, arrows in ARROWS.items():
        for arrow in arrows:
            rewards = [reward for to, reward in seen[pair] if to == arrow.to]
            assert len(rewards) / len(seen[pair]) == pytest.approx(arrow.chance, abs=0.01)
            assert np.quantile(rewards, [0, 0.5, 1]) == pytest.approx(
                [arrow.low, (arrow.low + arrow.high) / 2, arrow.high], abs=0.03
            )
