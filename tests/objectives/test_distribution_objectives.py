"""Distributional objectives: worked numbers with decoys, branches, invalid arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.categorical import CategoricalValue
from sb_dqn.nn.heads.fraction import FractionValue
from sb_dqn.nn.heads.quantile import QuantileValue
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.categorical import CategoricalObjective
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.types import Batch

MODES: list[Mode] = ["eager", "traced"]


class Table(nn.Module):
    """Tabular network: wraps row i of a table, for observation i, in a value object."""

    def __init__(self, numbers: Tensor, value: Callable[[Tensor, Tensor | None], Any]) -> None:
        super().__init__()
        self.numbers = nn.Parameter(numbers)
        self.value = value

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        return self.value(self.numbers[obs["obs"]], mask)


def one_row(return_: float, discount: float) -> Batch:
    """Builds a transition from observation 0 by action 1 to observation 1."""
    return Batch(
        obs={"obs": torch.tensor([0])},
        action=torch.tensor([1]),
        return_=torch.tensor([return_]),
        discount=torch.tensor([discount]),
        next_obs={"obs": torch.tensor([1])},
        weight=torch.ones(1),
        place=torch.zeros(2, 1, dtype=torch.long),
    )


FIVE = torch.linspace(-1, 1, 5)
HUMP = [0.1, 0.2, 0.4, 0.2, 0.1]
LOW, HIGH = [0.96, 0.01, 0.01, 0.01, 0.01], [0.01, 0.01, 0.01, 0.01, 0.96]


def five(probabilities: list[list[list[float]]]) -> Table:
    return Table(torch.tensor(probabilities).log(), lambda logits, mask: CategoricalValue(logits, FIVE, mask))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("priority", "expected"), [("kl", 0.2060669438), ("cross_entropy", 1.6094379124)])
def test_c51_by_worked_numbers(priority: str, expected: float, mode: Mode) -> None:
    online = five([[HIGH, [0.2] * 5], [HIGH, LOW]])
    target = five([[LOW, LOW], [LOW, HUMP]])
    objective = CategoricalObjective(Bootstrap(), priority)

    def function(return_: Tensor) -> tuple[Tensor, ...]:
        loss, facts = objective(online, target, one_row(0.0, 0.9)._replace(return_=return_))
        return loss, facts["priority"], facts["q_mean"]

    loss, result, q_mean = accelerate(function, (torch.zeros(1),), mode)(torch.tensor([0.3]))
    assert loss.item() == pytest.approx(1.6094379124, abs=1e-6)  # the target network selects HUMP; decoy: LOW
    assert result.item() == pytest.approx(expected, abs=1e-6)
    assert q_mean.item() == pytest.approx(0.0, abs=1e-6)
    _, facts = objective(online, target, one_row(0.3, 0.9))
    # a mean of 0; the target is 0.3 plus 0.9 times HUMP, whose last atom at 1.2 is clipped to 1
    assert facts["td_error"].item() == pytest.approx(0.3 - 0.1 * 0.2, abs=1e-6)


def test_double_c51_evaluates_the_action_of_the_online_net() -> None:
    online, target = five([[HIGH, [0.2] * 5], [HIGH, LOW]]), five([[LOW, LOW], [HUMP, HIGH]])
    priority, plain = (
        CategoricalObjective(Bootstrap(double_q))(online, target, one_row(0.3, 0.9))[1]["priority"].item()
        for double_q in (True, False)
    )
    assert priority == pytest.approx(0.2060669438, abs=1e-6)
    assert plain > 0.5


def test_c51_keeps_mass_that_falls_on_an_atom() -> None:
    online, target = five([[HUMP, HUMP], [HUMP, HUMP]]), five([[HUMP, HUMP], [HUMP, HUMP]])
    loss, _ = CategoricalObjective(Bootstrap())(online, target, one_row(0.5, 0.0))
    assert loss.item() == pytest.approx(-math.log(0.2))  # decoy: all mass lost, 0


def test_c51_with_a_soft_policy_mixes_shifted_distributions() -> None:
    """Uses two actions with certain returns -1 and 0: the policy is 1/4, 3/4 and its bonus shifts both distributions."""
    tau, certain = 1.0 / math.log(3.0), 60.0
    logits = torch.full((2, 2, 5), -certain)
    logits[:, 0, 0] = logits[:, 1, 2] = certain  # values -1 and 0: the policy is 1 : 3
    net = Table(logits, lambda x, mask: CategoricalValue(x, FIVE, mask))
    flat = five([[[0.2] * 5, HUMP], [HUMP, HUMP]])
    batch = one_row(0.25, 0.5)
    loss, _ = CategoricalObjective(Bootstrap(False, Munchausen(0.0, tau, -1.0)))(flat, net, batch)
    expected = [0.0] * 5
    for q, p in ((-1.0, 0.25), (0.0, 0.75)):
        place = (min(max(0.25 + 0.5 * (q - tau * math.log(p)), -1.0), 1.0) + 1.0) / 0.5
        low = min(int(place), 3)
        expected[low] += p * (1 - (place - low))
        expected[low + 1] += p * (place - low)
    cross_entropy = -sum(mass * math.log(hump) for mass, hump in zip(expected, HUMP, strict=True))
    assert loss.item() == pytest.approx(cross_entropy, abs=1e-5)


TAUS = torch.tensor([0.25, 0.75])


def points(numbers: list[list[list[float]]]) -> Table:
    return Table(torch.tensor(numbers, dtype=torch.float32), lambda x, mask: QuantileValue(x, TAUS, None, mask))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kappa", "expected"), [(1.0, 1.375), (0.0, 1.75), (2.0, 1.03125)])
def test_quantiles_by_worked_numbers(kappa: float, expected: float, mode: Mode) -> None:
    """Uses targets 1 and -2 for predictions 0 and 3, the numbers of the test of the loss."""
    online, target = points([[[9, 9], [0, 3]], [[0, 0], [0, 0]]]), points([[[9, 9], [9, 9]], [[0, -6], [-9, 2]]])
    objective = QuantileObjective(Bootstrap(), kappa)

    def function(return_: Tensor) -> tuple[Tensor, ...]:
        loss, facts = objective(online, target, one_row(0.0, 0.5)._replace(return_=return_))
        return loss, facts["priority"], facts["q_mean"]

    loss, priority, q_mean = accelerate(function, (torch.zeros(1),), mode)(torch.ones(1))
    assert loss.tolist() == pytest.approx([expected])
    assert priority.tolist() == [2.5]
    assert q_mean.item() == 1.5
    _, facts = objective(online, target, one_row(1.0, 0.5))
    assert facts["td_error"].item() == 2.0  # means 1.5 and -0.5; decoy: 2.5, the mean over pairs


def fractions(numbers: list[list[list[float]]], widths: list[float]) -> Table:
    """Builds a network from quantiles at the midpoints, followed by quantiles at the inner fractions."""
    weights = torch.tensor(widths)
    inner = weights.cumsum(0)[:-1].requires_grad_()
    entropy = (-(weights * weights.log()).sum()).requires_grad_()
    m = len(widths)

    def value(x: Tensor, mask: Tensor | None) -> FractionValue | QuantileValue:
        ends = nn.functional.pad(weights.cumsum(0), (1, 0))
        taus = (ends[1:] + ends[:-1]) / 2
        quantiles = QuantileValue(x[..., :m], taus.expand(1, m), weights.expand(1, m), mask)
        if not torch.is_grad_enabled():
            return quantiles
        return FractionValue(quantiles, inner.expand(1, m - 1), x[..., m:].detach(), entropy.expand(1))

    table = Table(torch.tensor(numbers), value)
    table.inner, table.entropy = inner, entropy
    return table


@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
def test_fractions_by_worked_numbers(entropy_coef: float) -> None:
    online = fractions([[[0.0, 0, 0], [0, 3, 2]], [[0, 0, 0], [0, 0, 0]]], [0.5, 0.5])
    # widths .25 and .75: values -4.5 and -.75, so the second action is greedy; decoy: equal weights -3 and -3.5, the first
    target = fractions([[[0.0, 0, 0], [0, 0, 0]], [[0, -6, 0], [-9, 2, 0]]], [0.25, 0.75])
    loss, facts = FractionObjective(Bootstrap(), entropy_coef=entropy_coef)(online, target, one_row(1.0, 0.5))
    # targets -3.5 and 2, the second with three times the weight. Errors -3.5, 2; -6.5, -1; Huber 3, 1.5; 6, .5
    # .25 * (.75 * 3) + .75 * (.25 * 1.5) + .25 * (.25 * 6) + .75 * (.25 * .5); decoy: equal weights 2.125
    assert loss.item() == pytest.approx(1.3125)
    assert facts["priority"].item() == pytest.approx(13 / 4)
    assert facts["q_mean"].item() == 1.5
    assert facts["td_error"].item() == pytest.approx(
        0.875
    )  # 1.5 against -3.5 / 4 + 2 * 3 / 4; decoy: equal weights 2.25
    parameters: Any = [online.inner, online.entropy]
    inner_gradient, entropy_gradient = torch.autograd.grad(loss.sum(), parameters, materialize_grads=True)
    assert inner_gradient.tolist() == [1.0]  # 2 * 2 - 3 - 0; neither gradient changes the value of the loss
    assert entropy_gradient.item() == pytest.approx(-entropy_coef)


@pytest.mark.parametrize("bootstrap", [Bootstrap(), Bootstrap(True, Munchausen(tau=0.1))])
@pytest.mark.parametrize("name", ["categorical", "quantile"])
def test_branches_are_averaged_as_separate_transitions(name: str, bootstrap: Bootstrap) -> None:
    rng = torch.Generator().manual_seed(0)
    numbers = [torch.randn(6, 2, 3, 5, generator=rng) for _ in range(2)]

    def net(table: Tensor) -> Table:
        if name == "categorical":
            return Table(table, lambda x, mask: CategoricalValue(x, FIVE, mask))
        return Table(table, lambda x, mask: QuantileValue(x, torch.linspace(0.1, 0.9, 5), None, mask))

    batch = Batch(
        obs={"obs": torch.arange(8) % 3},
        action=torch.randint(3, (8, 2), generator=rng),
        return_=torch.randn(8, generator=rng),
        discount=0.9 * (torch.rand(8, generator=rng) < 0.7),
        next_obs={"obs": 3 + torch.arange(8) % 3},
        weight=torch.ones(8),
        place=torch.zeros(2, 8, dtype=torch.long),
        next_mask=torch.rand(8, 2, 3, generator=rng) < 0.7,
    )
    objective = CategoricalObjective(bootstrap) if name == "categorical" else QuantileObjective(bootstrap)
    loss, facts = objective(net(numbers[0]), net(numbers[1]), batch)
    parts = []
    for d in range(2):
        legal = None if batch.next_mask is None else batch.next_mask[:, d]
        branch = batch._replace(action=batch.action[:, d], next_mask=legal)
        online, target = (net(table[:, d].clone()) for table in numbers)
        parts.append(objective(online, target, branch))
    torch.testing.assert_close(loss, (parts[0][0] + parts[1][0]) / 2)
    torch.testing.assert_close(facts["priority"], (parts[0][1]["priority"] + parts[1][1]["priority"]) / 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CategoricalObjective(Bootstrap(), "kk"), "priority.*'kk'.*Did you mean 'kl'"),
        (lambda: QuantileObjective(Bootstrap(), -1.0), "kappa.*-1.0"),
        (lambda: FractionObjective(Bootstrap(), -1.0), "kappa.*-1.0"),
        (lambda: FractionObjective(Bootstrap(), 1.0, -0.1), "entropy_coef.*-0.1"),
    ],
)
def test_invalid_arguments_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()
