"""Distributional networks in the learner: comparison with a naive agent, traced gradients, gradient flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.accelerate import accelerate
from sb_dqn.learning.learner import Learner
from sb_dqn.nn.heads.categorical import Categorical, CategoricalValue
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.heads.quantile import ImplicitQuantile, Quantile
from sb_dqn.nn.heads.scalar import Distribution
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.categorical import CategoricalObjective
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import MlpPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.rng import torch_seeded
from sb_dqn.types import Batch
from tests.marks import SLOW, a_few

SMALL: dict[str, tuple[Distribution, Callable[[Bootstrap], Any]]] = {
    "categorical": (Categorical(9, -3, 3), CategoricalObjective),
    "quantile": (Quantile(6), QuantileObjective),
    "implicit": (ImplicitQuantile(6, 5, 4, n_cosines=8), QuantileObjective),
    "fraction": (FractionProposal(6, n_cosines=8), lambda bootstrap: FractionObjective(bootstrap, entropy_coef=0.1)),
}
BOOTSTRAPS = {
    "plain": Bootstrap(),
    "double": Bootstrap(True),
    "munchausen": Bootstrap(False, Munchausen(tau=0.1)),
    "double munchausen": Bootstrap(True, Munchausen(tau=0.1)),
}
SPACE = spaces.Box(-np.inf, np.inf, (4,), np.float32)
DISCRETE, BRANCHED = spaces.Discrete(3), spaces.MultiDiscrete([3, 2])


def make_learner(name: str, bootstrap: str, actions: spaces.Space[Any] = DISCRETE, **design: Any) -> Learner:
    distribution, objective = SMALL[name]
    with torch_seeded(0):
        policy = MlpPolicy(SPACE, actions, net_arch=[16], config=QNetworkConfig(distribution, **design))
        with torch.no_grad():
            for parameter in policy.q_net_target.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return Learner(policy.q_net, policy.q_net_target, objective(BOOTSTRAPS[bootstrap]), 8)


def make_batch(seed: int, actions: spaces.Space[Any] = DISCRETE, masked: bool = True) -> Batch:
    rng, leading = torch.Generator().manual_seed(seed), (8,) if actions is DISCRETE else (8, 2)
    masks = [torch.rand(*leading, 3, generator=rng) < 0.6 for _ in range(2)]
    action = torch.randint(2, leading, generator=rng)
    masks[0].scatter_(-1, action.unsqueeze(-1), True)
    masks[1][..., 0] = True
    return Batch(
        obs={"obs": torch.randn(8, 4, generator=rng)},
        action=action,
        return_=torch.randn(8, generator=rng),
        discount=0.9 * (torch.rand(8, generator=rng) < 0.7),
        next_obs={"obs": torch.randn(8, 4, generator=rng)},
        weight=torch.tensor([1.0] * 7 + [0.0]),
        place=torch.zeros(2, 8, dtype=torch.long),
        mask=masks[0] if masked else None,
        next_mask=masks[1] if masked else None,
    )


def naive_target(value: Any, q_next: Tensor, q_tm1: Tensor, batch: Batch, bootstrap: Bootstrap, i: int) -> Any:
    """Returns the atoms of row i's target and their masses, one action after another; `q_next` selects."""
    if isinstance(value, CategoricalValue):
        atoms, masses = value.support.expand_as(value.logits[i]), value.logits[i].softmax(-1)
    else:
        uniform = torch.full_like(value.quantiles[i], 1 / value.quantiles.shape[-1])
        atoms, masses = value.quantiles[i], uniform if value.weights is None else value.weights[i].expand_as(uniform)
    r, discount, soft = batch.return_[i], batch.discount[i], bootstrap.munchausen
    if soft is None:
        best = int(q_next[i].argmax())
        return r + discount * atoms[best], masses[best]
    pi = (q_next[i] / soft.tau).softmax(-1)
    r = r + soft.alpha * (soft.tau * (q_tm1[i] / soft.tau).log_softmax(-1)[batch.action[i]]).clamp(soft.clip, 0.0)
    legal = [a for a in range(3) if pi[a] > 0]
    shifted = {a: atoms[a] - soft.tau * pi[a].log() for a in legal}
    if isinstance(value, CategoricalValue):
        return r + discount * torch.cat([shifted[a] for a in legal]), torch.cat([pi[a] * masses[a] for a in legal])
    return r + discount * sum(pi[a] * shifted[a] for a in legal), masses[0]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bootstrap", BOOTSTRAPS)
@pytest.mark.parametrize("name", SMALL)
def test_losses_match_a_naive_agent(name: str, bootstrap: str, masked: bool) -> None:
    learner, batch = make_learner(name, bootstrap), make_batch(3, masked=masked)
    noises = [torch.Generator().manual_seed(seed) for seed in range(2)]
    for noise, rng in zip(learner.noises, noises, strict=True):
        if noise is not None:
            noise.renew(rng)

    def online(obs: Any, mask: Any) -> Any:
        return learner.online(obs, mask, learner.noises[0])

    def target(obs: Any, mask: Any) -> Any:
        return learner.target(obs, mask, learner.noises[1])

    rule = BOOTSTRAPS[bootstrap]
    loss, facts = learner.objective(online, target, batch)
    with torch.no_grad():
        value = target(batch.next_obs, batch.next_mask)
        selector = online if rule.double_q else target
        q_next = selector(batch.next_obs, batch.next_mask).q
        q_tm1 = selector(batch.obs, batch.mask).q
        predicted = online(batch.obs, batch.mask)
    for i in range(8):
        atoms, masses = naive_target(value, q_next, q_tm1, batch, rule, i)
        a = int(batch.action[i])
        if name == "categorical":
            projected = torch.zeros(9)
            for x, mass in zip(atoms.tolist(), masses.tolist(), strict=True):
                for k, z in enumerate(predicted.support.tolist()):
                    projected[k] += mass * max(0.0, 1 - abs(min(max(x, -3.0), 3.0) - z) / 0.75)
            log_q = predicted.logits[i, a].log_softmax(-1)
            expected = -(projected * log_q).sum().item()
            pairs = zip(projected.tolist(), log_q.tolist(), strict=True)
            priority = sum(p * (math.log(p) - q) for p, q in pairs if p > 0)
        else:
            taus = predicted.taus if predicted.taus.dim() == 1 else predicted.taus[i]
            expected, errors = 0.0, []
            for tau, theta in zip(taus.tolist(), predicted.quantiles[i, a].tolist(), strict=True):
                for y, mass in zip(atoms.tolist(), masses.tolist(), strict=True):
                    u = y - theta
                    errors.append(abs(u))
                    expected += mass * abs(tau - (u < 0)) * (0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5)
            priority = sum(errors) / len(errors)
        assert loss[i].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert facts["priority"][i].item() == pytest.approx(priority, rel=1e-3, abs=1e-5)


@SLOW
@pytest.mark.parametrize(
    ("bootstrap", "actions", "design"),
    [("plain", DISCRETE, {}), ("double munchausen", BRANCHED, {"dueling": True, "noisy": Noisy()})],
)
@pytest.mark.parametrize("name", a_few(SMALL, "categorical", "quantile"))
def test_traced_gradients_are_the_same(
    name: str, bootstrap: str, actions: spaces.Space[Any], design: dict[str, Any]
) -> None:
    learner, rng = make_learner(name, bootstrap, actions, **design), torch.Generator().manual_seed(0)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        obs, next_obs, action, return_, discount, weight, place, mask, next_mask = tensors
        batch = Batch({"obs": obs}, action, return_, discount, {"obs": next_obs}, weight, place, mask, next_mask)
        gradient, priority, update = learner.gradient(batch)
        return gradient, priority, update.values

    def flat(batch: Batch) -> tuple[Any, ...]:
        rest = (batch.action, batch.return_, batch.discount, batch.weight, batch.place, batch.mask, batch.next_mask)
        return batch.obs["obs"], batch.next_obs["obs"], *rest

    learner.prepare_update(rng)
    traced = accelerate(function, flat(make_batch(0, actions)), "traced")
    learner.set_learning_rate(0.01)
    for seed in range(1, 4):
        learner.prepare_update(rng)
        arguments = flat(make_batch(seed, actions))
        result, expected = traced(*arguments), function(*arguments)
        for actual, eager in zip(result, expected, strict=True):
            torch.testing.assert_close(actual, eager, rtol=1e-4, atol=1e-6)
        assert bool(torch.isfinite(result[0]).all())
        assert result[1].shape == (8,)
        assert float(result[1].min()) >= 0.0
        before = learner.flat.clone()
        learner.apply(result[0])
        assert bool((learner.flat != before).any())


@pytest.mark.parametrize("name", SMALL)
def test_padding_and_the_target_net_do_not_affect_the_gradient(name: str) -> None:
    learner, batch = make_learner(name, "double munchausen"), make_batch(0)
    changed = batch._replace(return_=torch.where(batch.weight > 0, batch.return_, 1e6))
    torch.testing.assert_close(learner.gradient(batch)[0], learner.gradient(changed)[0])
    assert all(not parameter.requires_grad for parameter in learner.target.parameters())
