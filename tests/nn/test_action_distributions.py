"""Distributions over actions: what they give against counting, integrating and torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as torchs

from sb_dqn.nn.heads.distributions import Categorical, DiagonalGaussian, SquashedGaussian, masked
from sb_dqn.nn.heads.policy_heads import BernoulliHead, CategoricalHead, GaussianHead, SquashedHead
from sb_dqn.spaces import ActionShape, BoxActions

RNG = np.random.default_rng(0)
BOX = BoxActions.of(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([-1.0, 0.5], np.float32)))


def heads() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "discrete": CategoricalHead(3, ActionShape((4,), (0,))),
        "uneven": CategoricalHead(3, ActionShape((2, 4, 3), (0, 0, 0), branched=True)),
        "bits": BernoulliHead(3, ActionShape((2, 2), (0, 0), branched=True)),
        "gaussian": GaussianHead(3, BOX, -0.5),
        "squashed": SquashedHead(3, BOX, 0.3),
    }


def draw(head: Any, rows: int) -> Tensor:
    return torch.from_numpy(head.draw(RNG, rows))


def test_samples_come_as_often_as_they_should() -> None:
    head = heads()["uneven"]
    policy = head(torch.randn(1, 3).expand(40_000, 3))
    found = policy.sample(draw(head, 40_000))
    for branch, count in enumerate((2, 4, 3)):
        shares = torch.bincount(found[:, branch], minlength=4) / len(found)
        torch.testing.assert_close(shares, policy.logp[0, branch].exp(), atol=0.01, rtol=0)
        assert float(shares[count:].sum()) == 0.0


def test_categorical_is_torchs() -> None:
    logits = torch.randn(7, 5)
    ours, other = Categorical(logits.log_softmax(-1)), torchs.Categorical(logits=logits)
    action = torch.arange(7) % 5
    torch.testing.assert_close(ours.log_prob(action), other.log_prob(action))
    torch.testing.assert_close(ours.entropy(), other.entropy())
    assert torch.equal(ours.mode(), logits.argmax(-1))


def test_bits_are_torchs_bernoullis() -> None:
    head, x = heads()["bits"], torch.randn(40_000, 3)
    logits = head.outputs(x)
    assert logits.shape == (40_000, 2)
    ours, other = head(x), torchs.Bernoulli(logits=logits)
    sample = ours.sample(draw(head, 40_000))
    torch.testing.assert_close(ours.log_prob(sample), other.log_prob(sample.float()).sum(-1))
    torch.testing.assert_close(ours.entropy(), other.entropy().sum(-1))
    assert torch.equal(ours.mode(), (logits > 0).long())
    torch.testing.assert_close(sample.float().mean(0), other.probs.mean(0), atol=0.01, rtol=0)
    mask = torch.tensor([[True, False], [True, True]]).expand(40_000, 2, 2)
    legal = head(x, mask)
    assert bool((legal.sample(draw(head, 40_000))[:, 0] == 0).all())
    torch.testing.assert_close(legal.entropy(), other.entropy()[:, 1])


def test_branches_add_up() -> None:
    logits = torch.randn(6, 3, 4)
    whole = Categorical(logits.log_softmax(-1), branched=True)
    parts = [Categorical(logits[:, branch].log_softmax(-1)) for branch in range(3)]
    action = torch.randint(4, (6, 3))
    torch.testing.assert_close(whole.log_prob(action), sum(part.log_prob(action[:, i]) for i, part in enumerate(parts)))
    torch.testing.assert_close(whole.entropy(), sum(part.entropy() for part in parts))


@pytest.mark.parametrize("name", ["discrete", "uneven"])
def test_what_is_illegal_has_no_part(name: str) -> None:
    head = heads()[name]
    mask = torch.from_numpy(RNG.random((50, *head.shape)) < 0.5) & torch.as_tensor(
        ActionShape((2, 4, 3), (0, 0, 0), branched=True).legal if name == "uneven" else True
    )
    mask[..., 0] |= ~mask.any(-1)
    x = torch.randn(50, 3)
    policy = head(x, mask)
    for _ in range(40):
        assert bool(mask.gather(-1, policy.sample(draw(head, 50)).unsqueeze(-1)).all())
    assert bool(mask.gather(-1, policy.mode().unsqueeze(-1)).all())
    assert bool((policy.logp.exp()[~mask] == 0).all())
    torch.testing.assert_close(policy.logp.exp().sum(-1), torch.ones(mask.shape[:-1]))
    entropy = policy.entropy()
    legal = torch.where(mask, policy.logp.exp() * policy.logp, 0.0).sum(-1)
    torch.testing.assert_close(entropy, -(legal.sum(-1) if name == "uneven" else legal))
    gradients = torch.autograd.grad((entropy + policy.log_prob(policy.mode())).sum(), list(head.parameters()))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_one_legal_action_is_certain() -> None:
    logp = masked(torch.randn(1, 4), torch.tensor([[False, False, True, False]]), None)
    assert logp[0, 2] == 0.0
    assert Categorical(logp).entropy().item() == 0.0


def test_where_nothing_is_legal_what_exists_may_be_drawn() -> None:
    head = heads()["uneven"]
    policy = head(torch.randn(300, 3), torch.zeros(300, 3, 4, dtype=torch.bool))
    found = policy.sample(draw(head, 300))
    assert found.amax(0).tolist() == [1, 3, 2]
    assert bool(torch.isfinite(policy.entropy()).all())


def test_gaussian_is_torchs() -> None:
    mean, log_std = torch.randn(6, 2), torch.tensor([-0.5, 0.7])
    ours, other = DiagonalGaussian(mean, log_std), torchs.Normal(mean, log_std.exp())
    sample = torch.randn(6, 2)
    torch.testing.assert_close(ours.log_prob(sample), other.log_prob(sample).sum(-1))
    torch.testing.assert_close(ours.entropy(), other.entropy().sum(-1))
    assert torch.equal(ours.sample(torch.zeros(6, 2)), mean)


def test_the_entropy_of_a_squashed_gaussian_is_right_in_the_mean() -> None:
    mean, log_std = torch.tensor([[0.4, -0.2]], requires_grad=True), torch.tensor([0.3, -0.7], requires_grad=True)
    policy = SquashedGaussian(mean.expand(200_000, 2), log_std)
    sample = policy.sample(torch.randn(200_000, 2)).detach()
    found = policy.entropy(sample).mean()
    torch.testing.assert_close(found, -policy.log_prob(sample).mean(), rtol=0.01, atol=0.01)
    u = torch.linspace(-12, 12, 20_001)
    parts = [SquashedGaussian(mean[:, i : i + 1].expand(20_001, 1), log_std[i]) for i in range(2)]
    exact = torch.stack([-torch.trapezoid(p.log_prob(u[:, None]) * _density(p, u), u) for p in parts]).sum()
    gradients = [torch.autograd.grad(of, [mean, log_std], retain_graph=True) for of in (found, exact)]
    for mine, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0.05, atol=0.02)


def _density(policy: SquashedGaussian, u: Tensor) -> Tensor:
    return DiagonalGaussian(policy.mean, policy.log_std).log_prob(u[:, None]).exp()


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_actions_of_a_box_lie_within_its_bounds(name: str) -> None:
    head = heads()[name]
    policy = head(torch.randn(1_000, 3) * 20)
    for sample in (policy.sample(draw(head, 1_000)), policy.mode(), torch.full((2, 2), 1e9), torch.full((2, 2), -1e9)):
        action = head.to_action(sample).detach().numpy()
        assert bool(((action >= BOX.low) & (action <= BOX.high)).all())
        assert all(BOX.space.contains(one) for one in action[:20])


def test_the_middle_of_tanh_is_the_middle_of_the_bounds() -> None:
    head = heads()["squashed"]
    torch.testing.assert_close(head.to_action(torch.zeros(1, 2)), torch.tensor([[-1.5, 0.25]]))
    moved = head.to_action(torch.tensor([[0.5, -0.5]]))
    torch.testing.assert_close(
        moved, torch.tensor([[-1.5 + 0.5 * 0.46211716, 0.25 - 0.25 * 0.46211716]]), rtol=1e-6, atol=1e-6
    )
