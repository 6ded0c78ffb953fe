"""Heads as targets of one another: worked numbers with decoys, the same as copies of the network, gradients, shifts, random heads."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.learning.learner import Learner
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.heads.quantile import ImplicitQuantile, Quantile
from sb_dqn.nn.heads.scalar import Distribution, Scalar
from sb_dqn.nn.heads.shared import SharedOutputs, first_heads, shared_outputs
from sb_dqn.nn.layers.linear import Linear, Noisy
from sb_dqn.nn.layers.noise import NO_NOISE, Noise
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.categorical import CategoricalObjective
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.objectives.shared_heads import SharedHeads
from sb_dqn.policies import MlpPolicy
from sb_dqn.policies.q_network import QNetwork, QNetworkConfig
from sb_dqn.rng import torch_seeded
from sb_dqn.types import Batch
from tests.marks import SLOW
from tests.modes import MODES
from tests.nets import NUM_ACTIONS, VECTOR, make_batch

TABLES = torch.tensor([
    [[50.0, 60.0], [5.0, 1.0]],  # head 0, the target: values of two states and two actions
    [[7.0, -9.0], [2.0, 30.0]],
    [[4.0, -8.0], [8.0, -1.0]],
])  # fmt: skip
BATCH = Batch(
    obs={"obs": torch.tensor([0, 0])},
    action=torch.tensor([0, 0]),
    return_=torch.tensor([1.0, 1.0]),
    discount=torch.tensor([0.5, 0.0]),
    next_obs={"obs": torch.tensor([1, 1])},
    weight=torch.ones(2),
    place=torch.zeros(2, 2, dtype=torch.long),
)


def of_tables() -> QNetwork:
    """A network whose three heads have these values."""
    config = QNetworkConfig(iterations=2)
    net: QNetwork = MlpPolicy(spaces.Discrete(2), spaces.Discrete(2), net_arch=[], config=config).q_net
    outputs: Any = shared_outputs(net)[0]
    with torch.no_grad():
        outputs.of_actions.bias.zero_()
        outputs.heads_of(outputs.of_actions.weight).copy_(TABLES.permute(2, 0, 1).unsqueeze(2))
    return net


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("double_q", "errors"),
    [
        # 7 - (1 + 5 / 2) and 4 - (1 + 30 / 2); decoys of the second head: 0.5 with head 0 as its target, -1 with its own values
        (False, [(3.5, -12.0), (6.0, 3.0)]),
        # head k chooses: 7 - (1 + 1 / 2) and 4 - (1 + 2 / 2); decoy of the first head: 3.5 where the last head chooses for all
        (True, [(5.5, 2.0), (6.0, 3.0)]),
    ],
)
def test_each_head_learns_from_the_one_before(double_q: bool, errors: list[tuple[float, float]], mode: Mode) -> None:
    net, objective = of_tables(), SharedHeads(QLearning(Bootstrap(double_q), "mse"), 2)

    def function(return_: Tensor) -> tuple[Tensor, ...]:
        loss, extras = objective(net, net, BATCH._replace(return_=return_))
        return loss, extras["priority"], extras["q_mean"]

    loss, priority, q_mean = accelerate(function, (torch.zeros(2),), mode)(torch.ones(2))
    assert loss.tolist() == [0.5 * (first**2 + second**2) for first, second in errors]  # a sum, not a mean
    assert priority.tolist() == [0.5 * (abs(first) + abs(second)) for first, second in errors]
    assert q_mean.item() == 5.5


DISTRIBUTIONS: dict[str, tuple[Distribution, Any]] = {
    "scalar": (Scalar(), QLearning),
    "categorical": (Categorical(7, -2, 3), CategoricalObjective),
    "quantile": (Quantile(7), QuantileObjective),
    "implicit": (ImplicitQuantile(7, 5, 4, n_cosines=3), QuantileObjective),
    "fraction": (FractionProposal(7, n_cosines=3), FractionObjective),
    "bins": (Bins(bins=9), QLearning),
}
BRANCHES = spaces.MultiDiscrete([NUM_ACTIONS, 2])


def network(config: QNetworkConfig, actions: spaces.Space[Any]) -> QNetwork:
    with torch_seeded(0):
        return MlpPolicy(VECTOR, actions, net_arch=[8], config=config).q_net


def with_head(shared: QNetwork, head: int, actions: spaces.Space[Any]) -> QNetwork:
    """A network with one head, that of the other network with this number."""
    config = shared.config
    net = network(QNetworkConfig(config.distribution, config.dueling), actions)
    outputs: Any = shared_outputs(shared)[0]
    state = {name: p.detach() for name, p in shared.named_parameters()}
    of_head = {
        f"head.outputs.{name}": outputs.heads_of(p)[:, head].flatten(0, 1) for name, p in outputs.named_parameters()
    }
    net.load_state_dict({name: value.detach() for name, value in {**state, **of_head}.items()})
    return net


@SLOW
@pytest.mark.parametrize("actions", [spaces.Discrete(NUM_ACTIONS), BRANCHES], ids=["one branch", "branches"])
@pytest.mark.parametrize(("dueling", "double_q", "soft"), list(product((False, True), repeat=3)))
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_losses_and_gradients_are_those_of_copied_networks(
    name: str, dueling: bool, double_q: bool, soft: bool, actions: spaces.Space[Any]
) -> None:
    distribution, kind = DISTRIBUTIONS[name]
    inner = kind(Bootstrap(double_q, Munchausen() if soft else None))
    batch = make_batch("mlp", seed=1)
    rng = torch.Generator().manual_seed(2)
    shape = (len(batch.weight), 2, NUM_ACTIONS) if actions is BRANCHES else (len(batch.weight), NUM_ACTIONS)
    masks = [torch.rand(shape, generator=rng) < 0.6 for _ in range(2)]
    for mask in masks:
        mask[..., 0] = True
    action = torch.zeros(shape[:-1], dtype=torch.long)
    batch = batch._replace(action=action, mask=masks[0], next_mask=masks[1])
    net = network(QNetworkConfig(distribution, dueling, iterations=3), actions)
    copies = [with_head(net, head, actions) for head in range(4)]

    loss, extras = SharedHeads(inner, 3)(net, net, batch)
    found = dict(
        zip(dict(net.named_parameters()), torch.autograd.grad(loss.mean(), list(net.parameters())), strict=True)
    )
    results = [inner(copies[head], copies[head - 1], batch) for head in (1, 2, 3)]
    torch.testing.assert_close(loss, torch.stack([each for each, _ in results]).sum(0))
    torch.testing.assert_close(extras["priority"], torch.stack([each["priority"] for _, each in results]).mean(0))
    torch.testing.assert_close(extras["td_error"], torch.stack([each["td_error"] for _, each in results]).mean())
    gradients = [
        torch.autograd.grad(each.mean(), list(copy.parameters()))
        for (each, _), copy in zip(results, copies[1:], strict=True)
    ]
    outputs: Any = shared_outputs(net)[0]
    for place, (key, gradient) in enumerate(found.items()):
        each = [of_copy[place] for of_copy in gradients]
        if key.startswith("head.outputs"):
            by_head = outputs.heads_of(gradient)
            assert not by_head[:, 0].any()
            for head, expected in enumerate(each, 1):
                torch.testing.assert_close(by_head[:, head].flatten(0, 1), expected)
        else:
            torch.testing.assert_close(gradient, torch.stack(each).sum(0))


OPTIMIZERS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.ASGD, {"lambd": 0.1}),
]


@pytest.mark.parametrize(("optimizer_class", "kwargs"), OPTIMIZERS)
@pytest.mark.parametrize("name", ["scalar", "fraction"])  # of fractions each parameter is stepped on its own
def test_only_a_shift_moves_head_0(name: str, optimizer_class: Any, kwargs: dict[str, Any]) -> None:
    distribution, kind = DISTRIBUTIONS[name]
    net = network(QNetworkConfig(distribution, dueling=True, iterations=2), spaces.Discrete(NUM_ACTIONS))
    learner = Learner(net, None, SharedHeads(kind(), 2), 16, optimizer_class, kwargs)
    learner.set_learning_rate(0.05)
    outputs: Any = shared_outputs(net)[0]
    places = first_heads(net, net.parameters())
    assert places is not None
    assert len(places) == sum(outputs.heads_of(p)[:, 0].numel() for p in outputs.parameters()) > 0

    def heads() -> list[Tensor]:
        return [outputs.heads_of(p).detach().clone() for p in outputs.parameters()]

    for seed in range(6):
        before = heads()
        gradient, *_ = learner.gradient(make_batch("mlp", seed))
        assert not gradient[places].any()
        learner.apply(gradient)
        for old, new in zip(before, heads(), strict=True):
            assert torch.equal(old[:, 0], new[:, 0])
            assert all(not torch.equal(old[:, head], new[:, head]) for head in (1, 2))
        if seed % 2:
            before = heads()
            learner.store.sync_target()
            for old, new in zip(before, heads(), strict=True):
                assert torch.equal(new, old[:, [1, 2, 2]])


def outputs_of(depth: int = 1, branches: tuple[int, ...] = (2,), **kwargs: Any) -> SharedOutputs:
    return SharedOutputs(Linear, 1, depth=depth, iterations=2, branches=branches, **kwargs)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            1,
            [1, 2, 2, 4, 5, 5],
        ),  # of two actions, each with three heads; decoys: [2, 3, 4, 5, 4, 5], the first two thirds moved
        (2, [2, 2, 2, 5, 5, 5]),
        (9, [2, 2, 2, 5, 5, 5]),
    ],
)
def test_a_shift_by_worked_numbers(times: int, expected: list[float]) -> None:
    outputs = outputs_of()
    with torch.no_grad():
        for parameter in outputs.parameters():
            parameter.copy_(torch.arange(6.0).view(parameter.shape))
    outputs.shift(times)
    assert [parameter.flatten().tolist() for parameter in outputs.parameters()] == [expected, expected]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("branches", [(2,), (3, 2)])
def test_after_a_shift_each_head_has_the_outputs_of_the_next(branches: tuple[int, ...], dueling: bool) -> None:
    outputs = outputs_of(5, branches, branched=len(branches) > 1, dueling=dueling)
    x = torch.randn(7, 2 if dueling else 1)
    leading = (7, 2, 3) if len(branches) > 1 else (7, 2)

    def of(heads: Any) -> Tensor:
        return outputs(x, NO_NOISE._replace(heads=heads)).detach()

    every = of(slice(None)).view(3, *leading, 5)
    assert torch.equal(outputs(x), every[2])
    assert torch.equal(of(slice(-1)), every[:2].flatten(0, 1))
    chosen = torch.tensor([2, 0, 1, 1, 2, 0, 1])
    assert torch.equal(of(chosen), every[chosen, torch.arange(7)])
    assert not torch.equal(every[0], every[1])
    outputs.shift()
    assert torch.equal(of(slice(None)).view(3, *leading, 5), every[[1, 2, 2]])


@pytest.mark.parametrize("noisy", [None, Noisy(), Noisy("independent")])
@pytest.mark.parametrize("name", ["scalar", "implicit"])
def test_each_row_acts_by_a_random_head_that_learns(name: str, noisy: Noisy | None) -> None:
    config = QNetworkConfig(DISTRIBUTIONS[name][0], noisy=noisy, iterations=3)
    with torch_seeded(0):
        policy = MlpPolicy(VECTOR, spaces.Discrete(NUM_ACTIONS), net_arch=[8], config=config)
    obs = {"obs": torch.randn(1, 4).expand(6, 4)}
    noise = policy.make_noise(6)
    assert noise is not None
    assert noise.uniform.shape == (6, 1 if name == "scalar" else 5)
    noise.uniform[:, -1] = torch.tensor([0.0, 0.33, 0.34, 0.66, 0.67, 1.0])  # rounding may give the 1
    noise.uniform[:, :-1] = torch.rand(noise.uniform.shape[1] - 1)
    with torch.no_grad():
        x, fractions = policy.q_net.embed(obs, noise._replace(uniform=noise.uniform[:, :-1]), acting=True)
        every = policy.q_net.head(
            x, None, noise._replace(heads=slice(None)), None if fractions is None else fractions.repeat(4, 1)
        )
        expected = every.q.view(4, 6, NUM_ACTIONS)[[1, 1, 2, 2, 3, 3], torch.arange(6)]
        torch.testing.assert_close(policy.values(obs, noise=noise), expected)
        torch.testing.assert_close(policy.values(obs), policy.q_net(obs).q)  # the last one


def test_all_heads_act_equally_often_and_a_single_one_needs_no_number() -> None:
    config = QNetworkConfig(iterations=3)
    policy = MlpPolicy(VECTOR, spaces.Discrete(NUM_ACTIONS), net_arch=[], config=config)
    outputs: Any = shared_outputs(policy.q_net)[0]
    with torch.no_grad():
        for parameter in outputs.parameters():
            parameter.zero_()
        outputs.heads_of(outputs.of_actions.bias).copy_(torch.arange(4.0).view(1, 4, 1))
    noise: Any = policy.make_noise(3_000)
    noise.renew(torch.Generator().manual_seed(0))
    with torch.no_grad():
        counts = policy.values({"obs": torch.zeros(3_000, 4)}, noise=noise)[:, 0].long().bincount()
    assert counts.tolist() == pytest.approx([0, 1_000, 1_000, 1_000], abs=100)
    assert MlpPolicy(VECTOR, spaces.Discrete(2), config=QNetworkConfig(iterations=1)).make_noise(3) is None
    assert isinstance(noise, Noise)
