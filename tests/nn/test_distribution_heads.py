"""Heads of distributions: worked numbers of the embedding, attitudes to risk, proposed fractions, shapes, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.nn.heads.fraction import FractionEmbedding, FractionProposal, FractionValue
from sb_dqn.nn.heads.quantile import (
    CosineEmbedding,
    Distortion,
    ImplicitEmbedding,
    ImplicitQuantile,
    Quantile,
    midpoints,
    parse_risk,
)
from sb_dqn.nn.heads.scalar import ILLEGAL, Distribution, Outputs
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise

WIDTH = 6
SMALL: dict[str, Distribution] = {
    "categorical": Categorical(7, -2, 3),
    "quantile": Quantile(7),
    "implicit": ImplicitQuantile(7, 5, 4, n_cosines=3),
    "fraction": FractionProposal(7, n_cosines=3),
}


def uniform(rows: int, numbers: int, seed: int = 0) -> Noise:
    return Noise(torch.zeros(1, 0), torch.rand(rows, numbers, generator=torch.Generator().manual_seed(seed)))


class Small(nn.Module):
    """Embedding and head of a distribution, as the net of a policy joins them."""

    def __init__(self, distribution: Distribution, branches: tuple[int, ...], dueling: bool) -> None:
        super().__init__()
        self.embedding, self.dueling = distribution.make_embedding(WIDTH), dueling
        legal = torch.arange(max(branches)) < torch.tensor(branches).unsqueeze(-1)
        self.head = distribution.make_head(
            lambda depth: Outputs(Linear, WIDTH, depth, branches, branched=len(branches) > 1, dueling=dueling),
            None if bool(legal.all()) else legal,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None) -> Any:
        fractions = None
        if self.embedding is not None:
            x, fractions = self.embedding(x, noise)
        return self.head(torch.cat([x, x], -1) if self.dueling else x, mask, noise, fractions)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("branches", [(3,), (3, 2)])
@pytest.mark.parametrize("name", SMALL)
def test_shapes_and_masks(name: str, branches: tuple[int, ...], dueling: bool) -> None:
    net, x = Small(SMALL[name], branches, dueling), torch.randn(5, WIDTH)
    leading = (5,) if len(branches) == 1 else (5, 2)
    mask = torch.rand(*leading, 3) < 0.5
    mask[..., 0] = True
    for value in (net(x, None, uniform(5, 7)), net(x)):
        assert value.q.shape == (*leading, 3)
        assert value.q.dtype == torch.float32
        assert value.of(torch.zeros(leading, dtype=torch.long)).shape[:-1] == leading
        if len(branches) == 2:
            assert bool((value.q[:, 1, 2] == ILLEGAL).all())  # the second branch has two actions
    plain, masked = net(x), net(x, mask)
    exists = plain.q != ILLEGAL
    assert torch.equal(masked.q == ILLEGAL, ~(mask & exists))
    torch.testing.assert_close(masked.q[mask & exists], plain.q[mask & exists])


@pytest.mark.parametrize("branches", [(3,), (3, 2)])
@pytest.mark.parametrize("name", ["implicit", "fraction"])
def test_each_row_is_answered_at_its_own_fractions(name: str, branches: tuple[int, ...]) -> None:
    net, x, noise = Small(SMALL[name], branches, False), torch.randn(5, WIDTH), uniform(5, 7)
    with torch.no_grad():
        together = net(x, None, noise)
        for i in range(5):
            alone = net(x[i : i + 1], None, noise._replace(uniform=noise.uniform[i : i + 1]))
            torch.testing.assert_close(alone.quantiles[0], together.quantiles[i])
            torch.testing.assert_close(alone.taus[0], together.taus[i])


def test_the_number_of_fractions_is_that_of_the_numbers_drawn() -> None:
    net, x = Small(SMALL["implicit"], (3,), False), torch.randn(5, WIDTH)
    assert net(x, None, uniform(5, 9)).quantiles.shape == (5, 3, 9)
    assert torch.equal(net(x, None, uniform(5, 9)).taus, uniform(5, 9).uniform)
    even = net(x)
    assert even.quantiles.shape == (5, 3, 4)
    assert even.taus[0].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert torch.equal(net(x, None, uniform(5, 0)).taus, even.taus)  # noise of the layers alone


def test_fixed_fractions() -> None:
    assert midpoints(5).tolist() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])  # decoy: i / M begins at 0
    assert Small(Quantile(5), (3,), False)(torch.randn(2, WIDTH)).taus.tolist() == pytest.approx(midpoints(5).tolist())
    support = Small(Categorical(5, -1, 1), (3,), False)(torch.randn(2, WIDTH)).support
    assert support.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_the_embedding_by_worked_numbers() -> None:
    embedding = CosineEmbedding(2, 2)
    with torch.no_grad():
        embedding.linear.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        embedding.linear.bias.copy_(torch.tensor([0.0, 0.5]))
    found = embedding(torch.tensor([[2.0, -4.0]]), torch.tensor([[0.25, 1.0]]))
    # cos(pi / 4), cos(pi / 2) + .5; cos(pi) cut off, cos(2 pi) + .5. Decoy: counted from 0 the first is 1
    expected = torch.tensor([[[2 * math.sqrt(0.5), -2.0], [0.0, -6.0]]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("width", "low", "high"), [(6, 0.9, 1.0), (256, 0.95, 1.0), (512, 0.4, 0.6)])
def test_nearly_all_units_of_few_features_are_active_at_first(width: int, low: float, high: float) -> None:
    """Wide features can afford inactive units."""
    torch.manual_seed(0)
    proposed, _ = FractionProposal().make_embedding(width)(torch.ones(1, width), acting=True)
    sampled, _ = ImplicitQuantile().make_embedding(width)(torch.ones(1, width))
    assert all(low <= (phi > 0).float().mean().item() <= high for phi in (proposed, sampled))


def test_a_low_precision_copy_keeps_its_cosines() -> None:
    embedding = CosineEmbedding(8, 64)
    x, taus = torch.rand(1, 8), torch.rand(1, 200, generator=torch.Generator().manual_seed(0))
    exact = embedding(x, taus)
    rounded = embedding.to(torch.bfloat16)(x.to(torch.bfloat16), taus)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().max() < 0.03  # multiples of pi up to 201, rounded to 1, would be far off


@pytest.mark.parametrize(
    ("risk", "taus", "expected"),
    [
        ("cvar 0.25", [0.0, 0.4, 1.0], [0.0, 0.1, 0.25]),
        ("cvar 1", [0.0, 0.4, 1.0], [0.0, 0.4, 1.0]),
        ("power -2", [0.0, 0.488, 1.0], [0.0, 0.2, 1.0]),  # 1 - .512 ** (1 / 3); decoy: .488 ** (1 / 3) = .787
        ("power 2", [0.0, 0.512, 1.0], [0.0, 0.8, 1.0]),
        ("power 0", [0.0, 0.3, 1.0], [0.0, 0.3, 1.0]),
        (" power  -1.0 ", [0.75], [0.5]),
    ],
)
def test_attitudes_to_risk(risk: str, taus: list[float], expected: list[float]) -> None:
    distortion = parse_risk(risk)
    assert distortion is not None
    assert distortion(torch.tensor(taus)).tolist() == pytest.approx(expected, abs=1e-6)


def test_risk_bends_acting_alone() -> None:
    embedding = ImplicitEmbedding(WIDTH, 3, 4, Distortion("cvar", 0.5))
    x, noise = torch.randn(5, WIDTH), uniform(5, 7)
    assert torch.equal(embedding(x, noise)[1], noise.uniform)
    assert torch.equal(embedding(x, noise, acting=True)[1], 0.5 * noise.uniform)
    assert embedding(x, None, acting=True)[1][0].tolist() == [0.0625, 0.1875, 0.3125, 0.4375]
    torch.testing.assert_close(embedding(x, noise, acting=True)[0], embedding.cosines(x, 0.5 * noise.uniform))
    assert ImplicitQuantile().make_embedding(WIDTH).distort is None
    assert ImplicitQuantile(risk="power -2").make_embedding(WIDTH).distort == Distortion("power", -2.0)


@pytest.mark.parametrize(
    ("risk", "message"),
    [
        ("cvar", "risk must be 'cvar' and a number, got"),
        ("cvar a", "risk must be 'cvar' and a number, got"),
        ("cvar 0", "> 0 and <= 1"),
        ("cvar 1.5", "> 0 and <= 1"),
        ("power nan", "must be a finite number"),
        ("power inf", "must be a finite number"),
        ("cvrr 0.25", "Did you mean 'cvar'"),
        ("wang 0.75", "risk must be None, .cvar ETA. .*got"),
        ("", "risk must be None, .cvar ETA. .*got"),
        (0.25, "risk must be None, .cvar ETA. .*got"),
        (("cvar", 0.25), "risk must be None, .cvar ETA. .*got"),
    ],
)
def test_risks_that_are_refused(risk: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ImplicitQuantile(risk=risk)


def proposed(logits: list[float]) -> FractionEmbedding:
    embedding = FractionEmbedding(2, len(logits), 3)
    with torch.no_grad():
        embedding.proposal.weight.zero_()
        embedding.proposal.bias.copy_(torch.tensor(logits))
    return embedding


def test_proposed_fractions_by_worked_numbers() -> None:
    embedding = proposed([math.log(0.2), math.log(0.4), math.log(0.4)])
    x, fractions = embedding(torch.ones(1, 2))
    assert fractions.widths[0].tolist() == pytest.approx([0.2, 0.4, 0.4])
    assert fractions.middles[0].tolist() == pytest.approx([0.1, 0.4, 0.8])
    assert fractions.inner[0].tolist() == pytest.approx([0.2, 0.6])
    assert fractions.entropy.item() == pytest.approx(-0.2 * math.log(0.2) - 0.8 * math.log(0.4))
    asked = torch.tensor([[0.1, 0.4, 0.8, 0.2, 0.6]])
    torch.testing.assert_close(x, embedding.cosines(torch.ones(1, 2), asked), rtol=0, atol=1e-6)


def test_fractions_begin_near_equal_parts() -> None:
    _, fractions = FractionProposal().make_embedding(64)(torch.rand(5, 64))
    torch.testing.assert_close(fractions.widths, torch.full((5, 32), 1 / 32), rtol=0.2, atol=0)
    torch.testing.assert_close(fractions.widths.sum(-1), torch.ones(5))


def test_the_inner_fractions_are_asked_for_when_learning_alone() -> None:
    embedding, x = proposed([0.0, 0.0, 1.0]), torch.rand(4, 2)
    assert embedding(x)[0].shape == (4, 5, 2)
    acting, fractions = embedding(x, None, acting=True)
    assert acting.shape == (4, 3, 2)
    assert fractions.inner is None
    with torch.no_grad():
        assert embedding(x)[0].shape == (4, 3, 2)


def test_the_proposal_and_the_quantiles_share_no_gradient() -> None:
    net, x = Small(SMALL["fraction"], (3,), False), torch.randn(5, WIDTH, requires_grad=True)
    value = net(x)
    assert isinstance(value, FractionValue)
    assert not value.at_fractions.requires_grad
    parameters = dict(net.named_parameters())
    for loss, of_proposal in ((value.fractions.square().sum() + value.entropy.sum(), True), (value.q.sum(), False)):
        inputs = [x, *parameters.values()]
        found: tuple[Any, ...] = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        moved = {name for name, gradient in zip(["x", *parameters], found, strict=True) if gradient is not None}
        proposal = {"embedding.proposal.weight", "embedding.proposal.bias"}
        assert moved == (proposal if of_proposal else {"x", *parameters} - proposal)


@pytest.mark.parametrize(
    ("distribution", "arguments", "message"),
    [
        (Categorical, {"n_atoms": 1}, "n_atoms must be .* got 1"),
        (Categorical, {"n_atoms": 2.5}, "n_atoms must be .* got 2.5"),
        (Categorical, {"v_min": 1.0, "v_max": 1.0}, "v_min must be below v_max, got v_min=1.0"),
        (Categorical, {"v_min": 3, "v_max": -3}, "v_min must be below v_max, got v_min=3.0"),
        (Categorical, {"v_min": -math.inf}, "v_min must be .* got -inf"),
        (Categorical, {"v_max": math.nan}, "v_max must be .* got nan"),
        (Categorical, {"v_max": "10"}, "v_max must be .* got '10'"),
        (Quantile, {"n_quantiles": 0}, "n_quantiles must be .* got 0"),
        (ImplicitQuantile, {"n_taus": 0}, "n_taus must be .* got 0"),
        (ImplicitQuantile, {"n_target_taus": -1}, "n_target_taus must be .* got -1"),
        (ImplicitQuantile, {"n_policy_taus": None}, "n_policy_taus must be .* got None"),
        (ImplicitQuantile, {"n_cosines": 0}, "n_cosines must be .* got 0"),
        (FractionProposal, {"n_fractions": 1}, "n_fractions must be .* got 1"),
        (FractionProposal, {"n_cosines": 0}, "n_cosines must be .* got 0"),
        (FractionProposal, {"fraction_learning_rate": -1e-9}, "fraction_learning_rate must be .* got -1e-09"),
        (FractionProposal, {"entropy_coef": -1}, "entropy_coef must be .* got -1"),
    ],
)
def test_scalars_that_are_refused(distribution: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        distribution(**arguments)


def test_scalars_are_plain_numbers() -> None:
    assert Categorical(51.0, -10, 10) == Categorical(51, -10.0, 10.0)  # type: ignore[arg-type]  # a whole number to all
    assert type(Categorical(51.0).n_atoms) is int  # type: ignore[arg-type]  # as above
