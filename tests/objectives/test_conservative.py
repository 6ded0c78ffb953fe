"""Conservative Q-learning: worked numbers with decoys, its gradient, every head against a second pass, recorded data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn import DQN, R2D2, evaluate_policy
from sb_dqn.envs import RecordedEpisodes
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.td import conservative_penalty
from sb_dqn.nn.ensemble import Ensemble
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.heads.quantile import ImplicitQuantile, Quantile
from sb_dqn.nn.heads.scalar import ILLEGAL, Distribution, Scalar, ScalarValue
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.categorical import CategoricalObjective
from sb_dqn.objectives.conservative import ConservativeObjective
from sb_dqn.objectives.ensemble import EnsembleObjective
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import MlpPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.rng import torch_seeded
from sb_dqn.types import Batch
from tests.marks import SLOW
from tests.nets import NUM_ACTIONS, VECTOR, make_batch


def test_the_penalty_of_two_values() -> None:
    q = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    # log(e + e^2) = 2.3133; decoys: the largest value 2 gives 1 and 0, the mean of exp 1.6201 gives 0.6201 and -0.3799
    torch.testing.assert_close(
        conservative_penalty(q, torch.tensor([0, 1])), torch.tensor([1.3133, 0.3133]), atol=1e-4, rtol=0
    )


def test_the_gradient_is_the_softmax_without_the_action_taken() -> None:
    q = torch.tensor([[0.0, math.log(2.0), math.log(5.0)]], requires_grad=True)
    conservative_penalty(q, torch.tensor([2])).sum().backward()
    torch.testing.assert_close(q.grad, torch.tensor([[1 / 8, 2 / 8, 5 / 8 - 1]]))


def test_illegal_actions_have_no_share() -> None:
    q = torch.tensor([[1.0, ILLEGAL, 1.0]], requires_grad=True)
    penalty = conservative_penalty(q, torch.tensor([0]))
    penalty.sum().backward()
    torch.testing.assert_close(penalty.detach(), torch.tensor([math.log(2.0)]))
    torch.testing.assert_close(q.grad, torch.tensor([[-0.5, 0.0, 0.5]]))


def test_the_loss_of_two_branches_is_the_mean_of_theirs() -> None:
    values = {"here": torch.tensor([[[1.0, 2.0], [3.0, 3.0]]]), "there": torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])}

    def network(obs: Any, mask: Tensor | None = None) -> ScalarValue:
        return ScalarValue(values[obs])

    batch = Batch(
        obs="here",  # type: ignore[arg-type]
        action=torch.tensor([[0, 1]]),
        return_=torch.tensor([0.0]),
        discount=torch.tensor([0.9]),
        next_obs="there",  # type: ignore[arg-type]
        weight=torch.ones(1),
        place=torch.zeros(2, 1, dtype=torch.long),
    )
    loss, extras = ConservativeObjective(QLearning(), 2.0)(network, network, batch)
    # Huber of 1 and 3: 0.5 and 2.5, mean 1.5; penalties 1.3133 and log 2 = 0.6931, mean 1.0032
    torch.testing.assert_close(loss, torch.tensor([1.5 + 2 * 1.0032]), atol=1e-3, rtol=0)
    assert extras["conservative_penalty"].item() == pytest.approx(1.0032, abs=1e-4)
    assert extras["priority"].item() == 2.0  # of the TD errors alone


HEADS: dict[str, tuple[Distribution, Any]] = {
    "scalar": (Scalar(), QLearning),
    "bins": (Bins(), QLearning),
    "categorical": (Categorical(5, -2.0, 2.0), CategoricalObjective),
    "quantile": (Quantile(4), QuantileObjective),
    "fractions": (FractionProposal(4), FractionObjective),
}
BOOTSTRAPS = {
    "greedy": Bootstrap(),
    "double": Bootstrap(double_q=True),
    "soft": Bootstrap(double_q=True, munchausen=Munchausen()),
}


@pytest.mark.parametrize("bootstrap", BOOTSTRAPS.values(), ids=BOOTSTRAPS)
@pytest.mark.parametrize(("distribution", "objective"), HEADS.values(), ids=HEADS)
def test_it_equals_the_inner_loss_and_a_second_pass(
    distribution: Distribution, objective: Any, bootstrap: Bootstrap
) -> None:
    with torch_seeded(0):
        policy = MlpPolicy(
            VECTOR, spaces.Discrete(NUM_ACTIONS), net_arch=[8, 8], config=QNetworkConfig(distribution, dueling=True)
        )
    batch, inner = make_batch("mlp", 1), objective(bootstrap)
    online, target = policy.q_net, policy.q_net_target
    loss, extras = ConservativeObjective(inner, 0.7)(online, target, batch)
    plain, plain_extras = inner(online, target, batch)
    value = online(batch.obs, None).q
    naive = plain + 0.7 * (value.exp().sum(-1).log() - value[torch.arange(16), batch.action])
    torch.testing.assert_close(loss, naive)
    torch.testing.assert_close(extras["priority"], plain_extras["priority"])
    found, expected = (torch.autograd.grad(each.sum(), list(online.parameters())) for each in (loss, naive))
    torch.testing.assert_close(found, expected)


def test_each_draw_of_fractions_is_used_for_both_losses() -> None:
    calls = []
    with torch_seeded(0):
        policy = MlpPolicy(
            VECTOR, spaces.Discrete(NUM_ACTIONS), net_arch=[8], config=QNetworkConfig(ImplicitQuantile(4, 4, 4))
        )

    def online(obs: Any, mask: Tensor | None = None) -> Any:
        calls.append(policy.q_net(obs, mask))
        return calls[-1]

    batch, inner = make_batch("mlp", 1), QuantileObjective()
    _, extras = ConservativeObjective(inner, 1.0)(online, policy.q_net_target, batch)
    (value,) = calls  # one pass
    assert extras["conservative_penalty"].item() == pytest.approx(
        conservative_penalty(value.q, batch.action).mean().item()
    )


def test_each_member_of_an_ensemble_has_its_penalty() -> None:
    q = torch.tensor([[[1.0, 2.0]], [[5.0, 5.0]]])  # two members, one row

    def network(obs: Any, mask: Tensor | None = None) -> ScalarValue:
        return ScalarValue(q.flatten(0, 1))

    batch = make_batch("mlp", 1, size=1)._replace(
        action=torch.tensor([0]), weight=torch.ones(1), return_=torch.tensor([1.0]), discount=torch.tensor([0.0])
    )
    objective = EnsembleObjective(ConservativeObjective(QLearning(), 1.0), Ensemble(2, share=1.0))
    loss, _ = objective(network, network, batch)
    # members: TD 0 and Huber of 4 = 3.5; penalties 1.3133 and log 2
    assert loss.item() == pytest.approx((1.3133 + 3.5 + math.log(2.0)) / 2, abs=1e-3)


@pytest.mark.usefixtures("eagerly")
def test_sequences_have_the_penalty_and_a_loaded_model_may_learn_without_it(tmp_path: Path) -> None:
    model: Any = R2D2(
        "MlpLstmPolicy", "CartPole-v1", cql_alpha=1.0, learning_starts=60, buffer_size=1_000, batch_B=4, batch_T=8, warmup_T=4,
        store_rnn_state_interval=4, seed=0,
    )  # fmt: skip
    model.learn(100)
    assert model.counters.n_updates > 0
    assert "conservative_penalty" in model.training_run.reports
    assert torch.isfinite(model.learner.flat).all()
    model.save(tmp_path / "model")
    loaded: Any = R2D2.load(tmp_path / "model", env="CartPole-v1", cql_alpha=0.0)
    assert "conservative_penalty" not in loaded.learner.objective.reports


@SLOW
def test_it_learns_from_recorded_actions_what_plain_q_learning_does_not() -> None:
    rng = np.random.default_rng(1)
    scores: list[Any] = []

    def balance(observation: Any) -> int:
        angle, speed = observation[2:]
        return int(rng.integers(2)) if rng.random() < 0.3 else int(3 * angle + speed > 0)

    recorded = RecordedEpisodes.record(gymnasium.make("CartPole-v1"), balance, 5_000, seed=1)
    for alpha in (0.0, 1.0):
        model = DQN(
            "MlpPolicy",
            recorded,
            learning_rate=1e-3,
            buffer_size=20_000,
            learning_starts=recorded.num_steps,
            batch_size=64,
            train_freq=1,
            target_update_interval=200,
            cql_alpha=alpha,
            seed=1,
        )
        model.learn(recorded.num_steps + 5_000)
        scores.append(evaluate_policy(model, "CartPole-v1", n_eval_episodes=5)[0])
    assert scores[0] < 100.0 < 400.0 < scores[1]


class Twice(QLearning):
    """Calls the online network a second time, with a gradient."""

    def __call__(self, online: Any, target: Any, batch: Batch) -> Any:
        online(batch.obs, batch.mask)
        return super().__call__(online, target, batch)


def test_an_objective_that_calls_the_online_network_twice_is_refused() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=100, learning_starts=10, seed=0).learn(12)
    with pytest.raises(ConfigurationError, match=r"must call the online network once .* got 2 calls"):
        ConservativeObjective(Twice(), 1.0)(model.policy.q_net, model.policy.q_net_target, model.replay.sample(4))
