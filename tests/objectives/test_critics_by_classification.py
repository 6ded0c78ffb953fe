"""Critics that learn values by classification: worked losses with decoys, the output layer, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import A2C, PPO, REINFORCE, VPG
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.binned import BinnedLinear, Bins, Classes, Readout
from sb_dqn.nn.heads.distributions import Categorical
from sb_dqn.objectives.policy_gradient import ActorCritic, ClippedSurrogate, PolicyGradient
from sb_dqn.policies.actor_critic_network import ActorCriticOutput
from sb_dqn.types import Batch
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
    ("value_loss", "scales"), [("two_hot", True), ({"v_min": 0, "v_max": 1}, False), (False, False)]
)
@pytest.mark.parametrize("algorithm", [A2C, PPO, VPG])
def test_an_automatic_range_bounds_returns(algorithm: Any, value_loss: Any, scales: bool) -> None:
    model: Any = quick(algorithm=algorithm, value_loss=value_loss)
    rewards = model.normalizer._rewards
    assert (rewards is not None) is scales
    assert rewards is None or rewards.settings.peak == 5.0


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
        (REINFORCE, {"value_loss": True}, "must be among .*, got 'value_loss'"),
        (PPO, {"policy_kwargs": {"value_bins": Bins()}}, "keys of policy_kwargs must be among .*, got 'value_bins'"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(algorithm: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(algorithm=algorithm, **kwargs)
