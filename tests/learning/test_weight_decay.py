"""Weight decay of matrices only: biases and norms have none, however the state of the optimizer is stored."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sb_dqn.algorithms import A2C, DQN, FQF, PPO, R2D2, SAC, Rainbow
from sb_dqn.diagnosis.model import make_step
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.learner import Learner
from sb_dqn.nn.parameters.flat import flat_copy, flat_views
from sb_dqn.nn.parameters.optimizers import are_matrices
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import QPolicy
from tests.marks import SLOW
from tests.nets import make_batch, make_policy
from tests.tiny import Tiny, quick

ADAMW: dict[str, Any] = {"optimizer_class": "AdamW", "optimizer_kwargs": {"weight_decay": 0.5}}
PLAIN: dict[str, Any] = {"optimizer_class": "AdamW", "optimizer_kwargs": {"weight_decay": 0.0}}
MATRICES: dict[str, Any] = {**ADAMW, "decay_matrices_only": True}
IMAGE_NORMS: dict[str, Any] = {
    "features_extractor_class": "ImpalaCNN",
    "features_extractor_kwargs": {"features_dim": 8, "widths": (2, 3)},
    "layer_norm": True,
}
pytestmark = pytest.mark.usefixtures("eagerly")


def learner_of(policy: QPolicy, **kwargs: Any) -> Learner:
    return Learner(policy.q_net, policy.q_net_target, QLearning(Bootstrap()), **kwargs)


def factors(model: Any) -> dict[str, float]:
    """By what each parameter of the network that learns is multiplied in a step of rate 0.1 along a gradient of 0."""
    network = model.policy.networks[0]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(1.0)
    model.learner.set_learning_rate(0.1)
    model.learner.apply(torch.zeros_like(model.learner.flat))
    return {name: round(parameter.mean().item(), 6) for name, parameter in network.named_parameters()}


def test_weights_shrink_by_rate_times_decay_and_biases_and_norms_stay() -> None:
    """1 - 0.1 * 0.5 = 0.95; the norms of whole images have weights of three dimensions."""
    model = quick(Tiny("image"), "CnnPolicy", policy_kwargs={**IMAGE_NORMS, **MATRICES}, dueling=True)
    found = factors(model)
    net = model.policy.q_net
    norms = {
        f"{name}.{own}"
        for name, part in net.named_modules()
        if isinstance(part, nn.LayerNorm)
        for own in ("weight", "bias")
    }
    assert max(net.get_parameter(name).dim() for name in norms) == 3
    assert len(norms) == 2 * (2 + 2)
    expected = {name: 1.0 if name in norms or name.endswith(".bias") else 0.95 for name in found}
    assert found == expected
    assert list(expected.values()).count(0.95) == 2 * 5 + 2 + 2  # convolutions, streams, heads
    assert set(factors(quick(Tiny("image"), "CnnPolicy", policy_kwargs={**IMAGE_NORMS, **ADAMW})).values()) == {0.95}


@pytest.mark.parametrize(
    ("name", "kwargs", "factor"),
    [
        ("SGD", {"weight_decay": 0.5}, 0.95),
        ("Adam", {"weight_decay": 0.5, "eps": 1e-12}, 0.9),  # the decay is the gradient, whose size Adam divides out
        ("RAdam", {"weight_decay": 0.5, "decoupled_weight_decay": True}, 0.95),
        ("AdamW", {}, 0.999),  # its own decay, 0.01
    ],
)
def test_the_decay_is_that_of_the_optimizer(name: str, kwargs: dict[str, Any], factor: float) -> None:
    chosen = {"optimizer_class": name, "optimizer_kwargs": kwargs, "decay_matrices_only": True}
    found = factors(quick(policy_kwargs={"net_arch": [8], "layer_norm": True, **chosen}))
    for parameter, value in found.items():
        matrix = parameter.endswith("weight") and "after" not in parameter
        assert value == pytest.approx(factor if matrix else 1.0), parameter


@pytest.mark.parametrize(
    ("kwargs", "decays"),
    [
        ({"policy_kwargs": {"net_arch": [8], **ADAMW}, "ent_coef": "auto_0.1"}, [0.5, 0.0]),
        ({"policy_kwargs": {"net_arch": [8], "optimizer_class": "AdamW"}, "ent_coef": "auto_0.1"}, [0.01, 0.0]),
        ({"policy_kwargs": {"net_arch": [8], **ADAMW}, "ent_coef": 0.1}, [0.5]),
        ({"policy_kwargs": {"net_arch": [8]}, "ent_coef": "auto_0.1"}, [0.0]),
    ],
)
def test_a_learned_temperature_has_no_decay(kwargs: dict[str, Any], decays: list[float]) -> None:
    model = quick(algorithm=SAC, **kwargs)
    assert [group["weight_decay"] for group in model.learner.optimizer.param_groups] == decays
    found = factors(model)
    temperature = found.pop("log_alpha.value", None)
    assert temperature == (pytest.approx(1.0) if isinstance(kwargs["ent_coef"], str) else None)
    assert found == dict.fromkeys(found, pytest.approx(1.0 - 0.1 * decays[0]))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer_class", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_steps_equal_those_of_torch_with_two_groups(name: str, optimizer_class: Any) -> None:
    policy = make_policy(name)
    parameters = list(copy.deepcopy(policy.q_net).parameters())
    matrices = are_matrices(policy.q_net)
    groups = [
        {
            "params": [p for p, matrix in zip(parameters, matrices, strict=True) if matrix is wanted],
            "weight_decay": decay,
        }
        for wanted, decay in ((True, 0.3), (False, 0.0))
    ]
    plain = optimizer_class(groups, lr=0.01)
    learner = learner_of(
        policy, optimizer_class=optimizer_class, optimizer_kwargs={"weight_decay": 0.3}, decay_matrices_only=True
    )
    learner.set_learning_rate(0.01)
    for number in range(5):
        gradient, _, _ = learner.gradient(make_batch(name, number, scale=3.0))
        for parameter, part in zip(parameters, flat_views(gradient.clone(), parameters), strict=True):
            parameter.grad = part
        learner.apply(gradient)
        plain.step()
    torch.testing.assert_close(learner.flat, flat_copy(parameters), rtol=1e-5, atol=1e-6)


@SLOW
@pytest.mark.parametrize(
    ("algorithm", "kwargs"),
    [
        (Rainbow, {"policy_kwargs": {"net_arch": [8], **MATRICES}}),
        (FQF, {"policy_kwargs": {"net_arch": [8], **MATRICES}, "fraction_learning_rate": 1e-3}),
        (R2D2, {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6, **MATRICES}}),
        (PPO, {"policy_kwargs": {"net_arch": [8], **MATRICES}, "n_steps": 20}),
        (A2C, {"policy_kwargs": {"optimizer_kwargs": {"weight_decay": 0.5}, "decay_matrices_only": True}}),
        (SAC, {"policy_kwargs": {"net_arch": [8], **MATRICES}}),
        (DQN, {"policy_kwargs": {"net_arch": [8], **MATRICES}, "precision": "bf16"}),
        (DQN, {"policy_kwargs": {"features_extractor_class": "SimBa", **MATRICES}}),
        (DQN, {"policy_kwargs": {"features_extractor_class": "MultiSkipMLP", **MATRICES}, "resets": 4}),
    ],
)
def test_every_kind_of_algorithm_learns_and_loads_with_it(algorithm: Any, kwargs: Any, tmp_path: Path) -> None:
    model = quick(algorithm=algorithm, **kwargs).learn(60)
    decays = [group["weight_decay"] for group in model.learner.optimizer.param_groups]
    assert decays == [0.5, 0.0]
    assert model._n_updates > 0
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=Tiny())
    assert [group["weight_decay"] for group in loaded.learner.optimizer.param_groups] == decays
    assert str(loaded.get_parameters()) == str(model.get_parameters())
    loaded.learn(60)


def test_fractions_and_frozen_parameters_have_no_decay() -> None:
    model = quick(algorithm=FQF, policy_kwargs={"net_arch": [8], **MATRICES})
    fractions = model.learner.optimizer_step.fractions
    assert fractions is not None
    before = model.learner.flat[fractions].clone()
    model.policy.q_net.head.requires_grad_(False)
    kept = flat_copy(model.policy.q_net.head.parameters())
    model.learner.set_learning_rate(0.1)
    model.learner.apply(torch.zeros_like(model.learner.flat))
    assert torch.equal(model.learner.flat[fractions], before)
    assert torch.equal(flat_copy(model.policy.q_net.head.parameters()), kept)


def moments(model: Any) -> list[torch.Tensor]:
    """The first moment of each parameter, in the order of the network."""
    step = model.learner.optimizer_step
    if not step.whole:
        return [step.optimizer.state[master]["exp_avg"] for master in step.parameters]
    return flat_views(step.optimizer.state[step.masters[0]]["exp_avg"], step.parameters)


@SLOW
@pytest.mark.parametrize("algorithm", [DQN, SAC], ids=["DQN", "SAC, with a scalar"])
@pytest.mark.parametrize("given", [ADAMW, MATRICES, PLAIN], ids=["from all", "from matrices", "from none"])
@pytest.mark.parametrize("wanted", [ADAMW, MATRICES, PLAIN], ids=["to all", "to matrices", "to none"])
def test_moments_of_a_file_are_those_of_the_same_parameters(
    algorithm: Any, given: Any, wanted: Any, tmp_path: Path
) -> None:
    """Torch numbers parameters group by group; those of one group are matrices and biases in turn."""
    model = quick(algorithm=algorithm, policy_kwargs={"net_arch": [8, 8], "layer_norm": True, **given}).learn(60)
    model.save(tmp_path / "model")
    kwargs = {"net_arch": [8, 8], "layer_norm": True, **wanted}
    loaded = algorithm.load(tmp_path / "model", env=Tiny(), policy_kwargs=kwargs)
    for found, expected in zip(moments(loaded), moments(model), strict=True):
        assert torch.equal(found, expected)
    assert any(moment.abs().max() > 0 for moment in moments(loaded))
    loaded.learn(60)


@pytest.mark.parametrize("given", [ADAMW, MATRICES], ids=["one group", "two groups"])
def test_the_step_of_a_diagnosis_is_that_of_the_learner(given: Any) -> None:
    learner = quick(policy_kwargs={"net_arch": [8], **given}).learn(60).learner
    learner.set_learning_rate(0.01)
    gradient = 0.01 * torch.randn(len(learner.flat), generator=torch.Generator().manual_seed(0))
    names, parameters = zip(*learner.online.named_parameters(), strict=True)
    online, before = copy.deepcopy(learner.online), learner.flat.clone()
    make_step(learner, online, dict(zip(names, flat_views(gradient, parameters), strict=True)))
    assert torch.equal(learner.flat, before)
    learner.apply(gradient)
    torch.testing.assert_close(flat_copy(online.parameters()), learner.flat)
    assert (learner.flat - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decay_matrices_only": 1}, "policy_kwargs\\['decay_matrices_only'\\] must be True or False.*, got 1"),
        (
            {"decay_matrices_only": True},
            "must be False without a weight decay, got True with Adam and {}. Give optimizer_kwargs",
        ),
        (
            {**MATRICES, "optimizer_kwargs": {"weight_decay": 0.0}},
            "must be False without a weight decay, got True with AdamW",
        ),
        (
            {"optimizer_class": "Rprop", "decay_matrices_only": True},
            "must be False without a weight decay, got True with Rprop",
        ),
        ({"decay_matrix_only": True}, "Did you mean 'decay_matrices_only'"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(policy_kwargs=given)
