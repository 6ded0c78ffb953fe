"""Critics that learn values by classification: worked losses with decoys, the output layer, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import A2C, PPO, REINFORCE, SAC, VPG
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.binned import BinnedLinear, Bins, Classes, Readout
from sb_dqn.nn.heads.distributions import Categorical
from sb_dqn.objectives.policy_gradient import ActorCritic, ClippedSurrogate, PolicyGradient
from sb_dqn.objectives.soft_actor_critic import SoftActorCritic
from sb_dqn.policies.actor_critic_network import ActorCriticOutput
from sb_dqn.policies.sac_network import SoftOutput
from sb_dqn.types import Batch
from tests.continuous import Reach, quick_sac
from tests.marks import SLOW
from tests.tiny import Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")

THREE = Bins("two_hot", 3, -1.0, 1.0)


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def sample(return_: float) -> Batch:
    """One sample of the first of two equally probable actions; the value at collection time was 1/2."""
    none = {"obs": torch.zeros(1, 1)}
    extra = {"value": torch.tensor([0.5]), "log_prob": torch.tensor([math.log(0.5)])}
    place = torch.zeros(2, 1, dtype=torch.long)
    ones = torch.ones(1)
    return Batch(none, torch.tensor([0]), torch.tensor([return_]), ones, none, ones, place, extra=extra)


def net(obs: Any, mask: Any) -> ActorCriticOutput:
    """Probabilities 1/2, 1/8, 3/8 of returns -1, 0, 1: a value of -1/8."""
    classes = Classes(logs(0.5, 0.125, 0.375), Readout(THREE))
    return ActorCriticOutput(Categorical(logs(0.5, 0.5)), classes.mean, classes)


@pytest.mark.parametrize(
    ("objective", "policy_loss"),
    [
        (ActorCritic(ent_coef=0.1), -(0.25 - 0.5) * math.log(0.5)),
        (ClippedSurrogate(ent_coef=0.1, normalize_advantage=False), 0.25),
    ],
)
def test_worked_loss_of_a_state_value_with_decoys(objective: ActorCritic, policy_loss: float) -> None:
    """The return 1/4 is a quarter of the way from 0 to 1; the advantage is 1/4 - 1/2."""
    if isinstance(objective, ClippedSurrogate):
        objective.clip.fill_(0.2)
    loss, facts = objective(net, None, sample(0.25))
    entropy = -0.75 * math.log(0.125) - 0.25 * math.log(0.375)
    assert float(facts["value_loss"]) == pytest.approx(entropy)
    assert float(loss) == pytest.approx(policy_loss + 0.5 * entropy - 0.1 * math.log(2.0))
    assert entropy != pytest.approx(-0.25 * math.log(0.125) - 0.75 * math.log(0.375))  # weights exchanged
    assert entropy != pytest.approx((0.25 + 0.125) ** 2)  # regression


def test_without_a_critic_the_value_has_no_loss() -> None:
    loss, facts = PolicyGradient()(net, None, sample(0.25))
    assert float(loss) == pytest.approx(-(0.25 - 0.5) * math.log(0.5))
    assert "value_loss" not in facts


def test_worked_loss_of_two_critics_with_decoys() -> None:
    """Values -1/8 and 1/4; the target is 1 + 1/2 * (-3/2) = 1/4, a quarter of the way from 0 to 1."""
    logits = torch.stack([logs(0.5, 0.125, 0.375), logs(0.25, 0.25, 0.5)])
    classes = Classes(logits, Readout(THREE))
    zero = torch.zeros(1)
    outputs = SoftOutput(classes.mean, torch.tensor([-1.5]), zero, zero, zero, classes)
    batch = sample(1.0)._replace(discount=torch.tensor([0.5]))
    loss, facts = SoftActorCritic(None, 2, learns_alpha=False)(lambda batch, target: outputs, None, batch)
    one, two = (-0.75 * math.log(p) - 0.25 * math.log(q) for p, q in ((0.125, 0.375), (0.25, 0.5)))
    assert float(loss) == pytest.approx(one + two)
    assert float(loss) != pytest.approx((one + two) / 2)  # the mean of the critics
    assert float(facts["critic_loss"]) == pytest.approx(one + two)
    assert float(facts["td_error"]) == pytest.approx(0.1875)  # of the values: |-1/8 - 1/4| and |1/4 - 1/4|
    assert float(facts["q_mean"]) == pytest.approx(0.0625)


@pytest.mark.parametrize("env", [Reach, Tiny])
def test_one_gradient_of_critics_is_that_of_a_naive_loss(env: Any) -> None:
    model: Any = quick_sac(
        env(), learning_starts=30, value_loss={"kind": "two_hot", "v_min": -6, "v_max": 2, "bins": 5}
    )
    model.learn(45)
    model.replay.refresh()
    batch = model.replay.sample_from(torch.rand(model.replay.sampler.noise_shape, dtype=torch.float64))
    model.learner.prepare_update(model.rng.noise)
    gradient, *_ = model.learner.gradient(batch)
    nets, target = model.policy.nets, model.policy.critics_target
    alpha, centers = nets.log_alpha.value.exp(), torch.tensor([-6.0, -4.0, -2.0, 0.0, 2.0])

    def logits(critics: Any, x: torch.Tensor) -> list[torch.Tensor]:
        heads = zip(critics.stacks.towers, critics.stacks.heads, strict=True)
        return [
            torch.nn.functional.linear(tower(x), head.weight, head.bias).unflatten(-1, (-1, 5)) for tower, head in heads
        ]

    policy, x = nets.policy(batch.next_obs), target.features(batch.next_obs)
    if env is Reach:
        u = policy.sample(model.learner.noises[0].normal.view(2, -1, 2)[1])
        x = torch.cat([x, u.tanh()], 1)
        one, two = ((each.softmax(-1) * centers).sum(-1)[:, 0] for each in logits(target, x))
        later = torch.minimum(one, two) - alpha * policy.log_prob(u)
        taken = torch.cat([nets.critics.features(batch.obs), nets.actor.head.to_unit(batch.action)], 1)
        of_taken = [each[:, 0] for each in logits(nets.critics, taken)]
    else:
        one, two = ((each.softmax(-1) * centers).sum(-1) for each in logits(target, x))
        later = (policy.logp.exp() * (torch.minimum(one, two) - alpha * policy.logp)).sum(-1)
        every = logits(nets.critics, nets.critics.features(batch.obs))
        of_taken = [each[torch.arange(len(each)), batch.action] for each in every]
    y = (batch.return_ + batch.discount * later).clamp(-6.0, 2.0).detach()
    near = (1.0 - (y.unsqueeze(-1) - centers).abs() / 2.0).clamp_min(0.0)
    loss = sum(-(near * each.log_softmax(-1)).sum(-1).mean() for each in of_taken)
    expected = torch.autograd.grad(loss, list(nets.critics.parameters()))
    flat = torch.cat([each.flatten() for each in expected])
    torch.testing.assert_close(gradient[: len(flat)], flat, atol=1e-5, rtol=1e-4)


def test_worked_values_of_an_output_layer() -> None:
    layer = BinnedLinear(2, 2, THREE)
    x = torch.tensor([[5.0, -7.0]])
    assert layer(x).tolist() == [[0.0, 0.0]]  # the middle of the range, whatever the features
    with torch.no_grad():
        layer.bias.copy_(torch.cat([logs(0.5, 0.125, 0.375), logs(0.25, 0.25, 0.5)], -1)[0])
    torch.testing.assert_close(layer(x), torch.tensor([[-0.125, 0.25]]))
    assert not torch.allclose(layer(x)[:, 0], layer(x)[:, 1])
    logits, _ = layer.classes(x)
    assert logits.shape == (1, 2, 3)
    assert set(layer.state_dict()) == {"weight", "bias"}


@SLOW
@pytest.mark.parametrize("value_loss", ["hl_gauss", {"kind": "two_hot", "transform": "symlog"}])
@pytest.mark.parametrize("name", ["MlpPolicy", "MlpLstmPolicy"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_policies_learn_by_classification(name: str, value_loss: Any, precision: str, tmp_path: Any) -> None:
    model: Any = quick([Tiny] * 2, name, PPO, n_steps=8, value_loss=value_loss, precision=precision)
    head = model.policy.net.value_head
    assert isinstance(head, BinnedLinear)
    model.learn(40)
    assert bool((head.weight != 0.0).any())
    assert bool(torch.isfinite(model.learner.flat).all())
    model.save(tmp_path / "model")
    loaded: Any = PPO.load(tmp_path / "model", device="cpu")
    assert loaded.arguments["value_loss"] == value_loss
    assert torch.equal(loaded.learner.flat, model.learner.flat)


@pytest.mark.parametrize(
    ("value_loss", "scales"),
    [
        ("two_hot", True),
        ({"kind": "two_hot", "transform": "symlog"}, True),
        ({"v_min": 0, "v_max": 1}, False),
        (False, False),
    ],
)
@pytest.mark.parametrize("algorithm", [A2C, PPO, SAC, VPG])
def test_an_automatic_range_bounds_returns(algorithm: Any, value_loss: Any, scales: bool) -> None:
    model: Any = quick(algorithm=algorithm, value_loss=value_loss)
    rewards = model.normalizer._rewards
    assert (rewards is not None) is scales
    assert rewards is None or rewards.settings.peak == 5.0


@pytest.mark.parametrize(
    ("value_loss", "ent_coef", "first"),
    [(True, "auto", 0.01), (True, "auto_0.3", 0.3), (True, 0.2, 0.2), ({"v_min": 0, "v_max": 9}, "auto", 1.0)],
)
def test_the_first_temperature_fits_an_automatic_range(value_loss: Any, ent_coef: Any, first: float) -> None:
    model: Any = quick_sac(value_loss=value_loss, ent_coef=ent_coef)
    assert model.policy.nets.log_alpha.value.exp().item() == pytest.approx(first)


@SLOW
@pytest.mark.parametrize("env", [Reach, Tiny])
def test_critics_learn_by_classification(env: Any, tmp_path: Any) -> None:
    model: Any = quick_sac(env(), value_loss="hl_gauss", n_steps=2, prioritized_replay=True)
    assert not torch.stack([head.weight for head in model.policy.nets.critics.stacks.heads]).any()
    model.learn(40)
    assert all(bool(head.weight.any()) for head in model.policy.critics_target.stacks.heads)
    assert bool(torch.isfinite(model.learner.flat).all())
    model.save(tmp_path / "model")
    loaded: Any = SAC.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.learner.flat, model.learner.flat)
    assert torch.equal(loaded.learner.flat_target, model.learner.flat_target)


@pytest.mark.parametrize(
    ("algorithm", "kwargs", "message"),
    [
        (PPO, {"value_loss": "gauss"}, r"value_loss\['kind'\] must be one of"),
        (A2C, {"value_loss": {"v_min": 0.0}}, "v_min and v_max of value_loss must both be set or both be None"),
        (VPG, {"value_loss": {"range": 3}}, "keys of value_loss must be among .*, got 'range'"),
        (A2C, {"value_loss": None}, "value_loss must be True, False or a dict"),
        (PPO, {"v_min": 0.0, "v_max": 1.0}, "must be among .*, got 'v_min'"),
        (PPO, {"value_loss": True, "clip_range_vf": 0.2}, "clip_range_vf must be None with value_loss, got 0.2"),
        (VPG, {"value_loss": True, "baseline": "mean_return"}, "value_loss must be False with baseline='mean_return'.*got True"),
        (SAC, {"value_loss": {"bins": 2}}, r"value_loss\['bins'\] must be"),
        (SAC, {"v_min": 0.0}, "must be among .*, got 'v_min'"),
        (SAC, {"policy_kwargs": {"value_bins": Bins()}}, "keys of policy_kwargs must be among .*, got 'value_bins'"),
        (REINFORCE, {"value_loss": True}, "must be among .*, got 'value_loss'"),
        (PPO, {"policy_kwargs": {"value_bins": Bins()}}, "keys of policy_kwargs must be among .*, got 'value_bins'"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(algorithm: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(algorithm=algorithm, **kwargs)
