"""The learner against the plain way: autograd, torch's clipping, torch's optimizers, one parameter at a time."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn import A2C
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning import optimizer_step
from sb_dqn.learning.learner import Learner
from sb_dqn.learning.optimizer_step import FLUSH_EVERY
from sb_dqn.nn.parameters.flat import flat_copy, flatten_parameters
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import MlpPolicy, QPolicy
from sb_dqn.rng import torch_seeded
from sb_dqn.types import Batch
from tests.marks import SLOW, a_few
from tests.nets import VECTOR, OwnExtractor, make_batch, make_policy
from tests.tiny import Tiny

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {}),
    "Adam, weight decay": (torch.optim.Adam, {"weight_decay": 0.1, "eps": 1e-5, "betas": (0.8, 0.99)}),
    "Adam, amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "Adam, foreach": (torch.optim.Adam, {"foreach": True}),
    "Adam, decoupled": (torch.optim.Adam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "RMSprop": (torch.optim.RMSprop, {"alpha": 0.95, "centered": True, "eps": 0.01}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Rprop": (torch.optim.Rprop, {}),  # not known to treat each number alone: stepped parameter by parameter
    "RAdam": (torch.optim.RAdam, {}),
}


def learner_of(policy: QPolicy, **kwargs: Any) -> Learner:
    return Learner(policy.q_net, policy.q_net_target, QLearning(Bootstrap()), **kwargs)


def step(learner: Learner, batch: Batch) -> Any:
    gradient, _, update = learner.gradient(batch)
    learner.apply(gradient)
    return update


class Plain:
    """The same in twenty lines, as everybody writes it."""

    def __init__(self, policy: QPolicy, optimizer: torch.optim.Optimizer, max_grad_norm: float | None) -> None:
        self.policy, self.optimizer, self.max_grad_norm = policy, optimizer, max_grad_norm

    def step(self, batch: Batch) -> tuple[float, float]:
        online, target, count = self.policy.q_net, self.policy.q_net_target, int((batch.weight > 0).sum())
        with torch.no_grad():
            y = batch.return_ + batch.discount * target(batch.next_obs).q.max(1).values
        q = online(batch.obs).q.gather(1, batch.action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q[:count], y[:count])
        self.optimizer.zero_grad()
        loss.backward()
        bound = torch.inf if self.max_grad_norm is None else self.max_grad_norm
        norm = nn.utils.clip_grad_norm_(online.parameters(), bound)
        self.optimizer.step()
        return loss.item(), norm.item()


@pytest.mark.parametrize("name", ["mlp", "dict", "cnn"])
@pytest.mark.parametrize("max_grad_norm", [0.05, 10.0, None])
def test_gradients_equal_the_plain_way(name: str, max_grad_norm: float | None) -> None:
    policy = make_policy(name)
    plain = Plain(copy.deepcopy(policy), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0), max_grad_norm)
    learner, batch = learner_of(policy, max_grad_norm=max_grad_norm), make_batch(name, 1)
    gradient, priority, update = learner.gradient(batch)
    loss, norm = plain.step(batch)
    expected = flat_copy(parameter.grad for parameter in plain.policy.q_net.parameters())  # type: ignore[misc]  # set
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7)
    assert update.loss.item() == pytest.approx(loss, rel=1e-5)
    assert update.grad_norm.item() == pytest.approx(norm, rel=1e-4)  # before clipping, as torch reports it
    assert priority.shape == (16,)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_twenty_steps_equal_the_plain_way(name: str, optimizer: str) -> None:
    policy, (optimizer_class, kwargs) = make_policy(name), OPTIMIZERS[optimizer]
    other = copy.deepcopy(policy)
    plain = Plain(other, optimizer_class(other.q_net.parameters(), lr=0.01, **kwargs), 0.5)
    learner = learner_of(policy, optimizer_class=optimizer_class, optimizer_kwargs=kwargs, max_grad_norm=0.5)
    before = learner.flat.clone()
    for number in range(20):
        rate = 0.01 * (1 - number / 40)
        learner.set_learning_rate(rate)
        plain.optimizer.param_groups[0]["lr"] = rate
        batch = make_batch(name, number, scale=3.0)
        step(learner, batch)
        plain.step(batch)
    moved = (learner.flat - before).norm()
    error = (learner.flat - flat_copy(other.q_net.parameters())).norm()
    assert moved > 0.01
    assert error < 1e-3 * moved  # rounding differs by the order of sums; Adam magnifies it where gradients are near 0


def test_parameters_live_in_one_tensor_and_stay_there() -> None:
    policy = make_policy("cnn")
    learner = learner_of(policy)
    start = learner.flat.data_ptr()
    for number in range(3):
        learner.set_learning_rate(0.01)
        step(learner, make_batch("cnn", number))
        learner.store.sync_target(0.5)
    torch.testing.assert_close(learner.flat, flat_copy(policy.q_net.parameters()), rtol=0, atol=0)
    torch.testing.assert_close(learner.flat_target, flat_copy(policy.q_net_target.parameters()), rtol=0, atol=0)
    assert learner.flat.data_ptr() == start
    first = next(parameter for parameter in policy.q_net.parameters() if parameter.dim() == 4)
    assert first.data_ptr() == start
    assert first.is_contiguous(memory_format=torch.channels_last)


def test_hard_and_soft_sync() -> None:
    policy = make_policy("mlp")
    learner = learner_of(policy)
    learner.flat.fill_(3.0)
    learner.flat_target.fill_(1.0)
    learner.store.sync_target(0.005)
    assert learner.flat_target.unique().tolist() == pytest.approx([1.01])
    learner.store.sync_target(0.005)
    assert learner.flat_target.unique().tolist() == pytest.approx([1.01995])
    learner.store.sync_target()
    assert learner.flat_target.unique().tolist() == [3.0]
    learner.flat.fill_(4.0)
    assert learner.flat_target.unique().tolist() == [3.0]  # a copy, not an alias


def test_buffers_follow_to_the_target() -> None:
    policy = make_policy("mlp")
    for net in (policy.q_net, policy.q_net_target):
        net.register_buffer("seen", torch.zeros(2))
    learner = learner_of(policy)
    policy.q_net.get_buffer("seen").fill_(5.0)
    learner.store.sync_target(0.1)
    assert policy.q_net_target.get_buffer("seen").tolist() == [5.0, 5.0]


def test_half_precision_twins_follow_their_masters() -> None:
    policy = make_policy("cnn")
    learner = learner_of(policy, precision="bf16")
    assert learner.online is not policy.q_net
    for number in range(5):
        learner.set_learning_rate(0.003)
        gradient, _, _ = learner.gradient(make_batch("cnn", number))
        assert gradient.dtype == torch.float32
        learner.apply(gradient)
        learner.store.sync_target(0.25)
    assert {p.dtype for p in policy.q_net.parameters()} == {torch.float32}
    for master, twin in ((policy.q_net, learner.online), (policy.q_net_target, learner.target)):
        low = [p for p in twin.parameters() if p.dtype == torch.bfloat16]
        assert [p.data_ptr() for p in twin.head.parameters()] == [p.data_ptr() for p in master.head.parameters()]
        assert len(low) + len(list(twin.head.parameters())) == len(list(twin.parameters()))
        expected = flat_copy(list(master.parameters())[: len(low)])
        assert not torch.equal(expected, expected.bfloat16().float())  # the masters keep what bfloat16 cannot
        torch.testing.assert_close(flat_copy(low), expected.bfloat16(), rtol=0, atol=0)


def test_small_steps_add_up_in_half_precision() -> None:
    policy = make_policy("mlp")
    learner = learner_of(policy, precision="bf16", optimizer_class=torch.optim.SGD)
    learner.flat.fill_(1.0)
    learner.refresh()
    learner.set_learning_rate(1e-4)
    for _ in range(100):
        learner.apply(torch.ones_like(learner.flat))  # each step is far below what bfloat16 can tell from 1
    torch.testing.assert_close(learner.flat, torch.full_like(learner.flat, 0.99))
    low = [p for p in learner.online.parameters() if p.dtype == torch.bfloat16]
    assert flat_copy(low).unique().tolist() == [0.98828125]  # the bfloat16 nearest to 0.99


def test_half_precision_gradients_point_the_same_way() -> None:
    batch = make_batch("cnn", 3)
    high, low = (learner_of(make_policy("cnn"), precision=kind).gradient(batch)[0] for kind in ("fp32", "bf16"))
    assert nn.functional.cosine_similarity(high, low, dim=0) > 0.99


def test_refresh_after_the_masters_were_written() -> None:
    policy = make_policy("mlp")
    learner = learner_of(policy, precision="bf16")
    policy.load_state_dict(make_policy("mlp", seed=9).state_dict())
    learner.refresh()
    for twin, flat in ((learner.online, learner.flat), (learner.target, learner.flat_target)):
        low = flat_copy([p for p in twin.parameters() if p.dtype == torch.bfloat16])
        torch.testing.assert_close(low, flat[: low.numel()].bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RMSprop", "Rprop"])
def test_a_learner_goes_on_from_its_state(optimizer: str) -> None:
    optimizer_class, kwargs = OPTIMIZERS[optimizer]

    def fresh() -> tuple[QPolicy, Learner]:
        policy = make_policy("mlp")
        learner = learner_of(policy, optimizer_class=optimizer_class, optimizer_kwargs=kwargs)
        learner.set_learning_rate(0.01)
        return policy, learner

    policy, learner = fresh()
    for number in range(4):
        step(learner, make_batch("mlp", number))
    other, restored = fresh()
    flat = restored.flat
    other.load_state_dict(copy.deepcopy(policy.state_dict()))
    restored.load_state_dict(copy.deepcopy(learner.state_dict()))
    for number in range(4, 8):
        step(learner, make_batch("mlp", number))
        step(restored, make_batch("mlp", number))
    assert restored.flat is flat
    torch.testing.assert_close(restored.flat, learner.flat, rtol=0, atol=0)


@SLOW
@pytest.mark.parametrize(
    ("threads", "optimizer"), a_few(product([1, 2], ["Adam", "Adam, amsgrad", "RMSprop", "SGD"]), 1, (2, "RMSprop"))
)
def test_a_moment_without_gradient_ends_at_0(optimizer: str, threads: int) -> None:
    """And does not stay at the smallest of all numbers, with which a CPU calculates slowly, whichever thread does."""
    optimizer_class, kwargs = OPTIMIZERS[optimizer]

    def shrunk(every: int) -> Tensor:
        learner = learner_of(
            make_policy("cnn"), optimizer_class=optimizer_class, optimizer_kwargs={**kwargs, "weight_decay": 0.0}
        )
        once, never = torch.full_like(learner.flat, 1e-30), torch.zeros_like(learner.flat)
        with patch.object(optimizer_step, "FLUSH_EVERY", every):
            for number in range(2 * FLUSH_EVERY):
                learner.apply(once if number == 0 else never)
        moments = learner.optimizer.state[learner.optimizer_step.masters[0]]
        return torch.stack([moment for moment in moments.values() if torch.is_tensor(moment) and moment.ndim])

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert (shrunk(every=10**9) != 0.0).any()  # the decoy
        assert (shrunk(every=FLUSH_EVERY) == 0.0).all()
    finally:
        torch.set_num_threads(before)


def test_tiny_moments_are_forgotten_at_the_same_steps_after_a_restart() -> None:
    learner = learner_of(make_policy("mlp"))
    for number in range(FLUSH_EVERY - 1):
        step(learner, make_batch("mlp", number))
    restored = learner_of(make_policy("mlp"))
    restored.load_state_dict(copy.deepcopy(learner.state_dict()))
    restored.optimizer.state[restored.optimizer_step.masters[0]]["exp_avg"].fill_(1e-36)
    restored.apply(torch.zeros_like(restored.flat))
    assert (restored.optimizer.state[restored.optimizer_step.masters[0]]["exp_avg"] == 0.0).all()


def test_moments_that_count_stay() -> None:
    learner = learner_of(make_policy("mlp"))
    for _ in range(FLUSH_EVERY):
        learner.apply(torch.full_like(learner.flat, 1e-12))
    moment = learner.optimizer.state[learner.optimizer_step.masters[0]]["exp_avg"]
    torch.testing.assert_close(moment, torch.full_like(moment, 1e-12))


def test_a_gradient_that_is_not_finite_is_remembered() -> None:
    learner, batch = learner_of(make_policy("mlp")), make_batch("mlp", 0)
    step(learner, batch)
    assert bool(learner.finite)
    learner.gradient(batch._replace(return_=torch.full_like(batch.return_, torch.nan)))
    assert not bool(learner.finite)
    learner.gradient(batch)
    assert not bool(learner.finite)


def test_padding_changes_nothing() -> None:
    learner, batch = learner_of(make_policy("mlp")), make_batch("mlp", 0)
    gradient = learner.gradient(batch)[0]
    return_ = batch.return_.clone()
    return_[-1] = 1e6
    torch.testing.assert_close(learner.gradient(batch._replace(return_=return_))[0], gradient, rtol=0, atol=0)


def test_weights_are_multiplied_in() -> None:
    learner, batch = learner_of(make_policy("mlp"), max_grad_norm=None), make_batch("mlp", 0)
    gradient = learner.gradient(batch)[0]
    halved = learner.gradient(batch._replace(weight=batch.weight * 0.5))[0]
    torch.testing.assert_close(halved, gradient * 0.5)


def own_policy(**kwargs: Any) -> MlpPolicy:
    with torch_seeded(0):
        return MlpPolicy(VECTOR, spaces.Discrete(3), features_extractor_class=OwnExtractor, net_arch=[], **kwargs)


def test_a_parameter_that_no_output_depends_on_stays() -> None:
    policy = own_policy()
    learner = learner_of(policy)
    unused, head = (
        policy.q_net.get_parameter(name)
        for name in ("features.extractor.unused.weight", "head.outputs.of_actions.weight")
    )
    before, used = unused.clone(), head.clone()
    learner.set_learning_rate(0.1)
    step(learner, make_batch("mlp", 0))
    assert torch.equal(unused, before)
    assert not torch.equal(head, used)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_frozen_parameter_stays(optimizer_class: type[torch.optim.Optimizer], precision: str) -> None:
    policy = own_policy()
    frozen, head = (
        policy.q_net.get_parameter(name)
        for name in ("features.extractor.linear.weight", "head.outputs.of_actions.weight")
    )
    frozen.requires_grad_(False)
    learner = learner_of(
        policy, optimizer_class=optimizer_class, optimizer_kwargs={"weight_decay": 0.5}, precision=precision
    )
    before, used = frozen.clone(), head.clone()
    learner.set_learning_rate(0.1)
    for number in range(3):
        step(learner, make_batch("mlp", number))
    assert torch.equal(frozen, before)
    assert not torch.equal(head, used)


@pytest.mark.parametrize(
    ("optimizer_class", "kwargs", "message"),
    [
        (
            torch.optim.Adam,
            {"momentum": 0.9},
            "optimizer_kwargs must be arguments of Adam, among .*'weight_decay'.*, got .*momentum",
        ),
        (torch.optim.Adam, {"beta": (0.9, 0.99)}, "Did you mean 'betas'"),
        (torch.optim.Adam, {"lr": 0.5}, "optimizer_kwargs must not have 'lr'.*Give learning_rate=0.5 to the algorithm"),
        (torch.optim.Adam, {"eps": -1.0}, "optimizer_kwargs must be arguments of Adam.* got .*-1.0"),
        (torch.optim.Adam, 3, "optimizer_kwargs must be a dict.* got 3"),
        (torch.optim.LBFGS, {}, "got LBFGS, which evaluates the loss many times a step"),
        ("Adam", {}, "optimizer_class must be a class of torch.optim.* got 'Adam'"),
        (nn.Linear, {}, "optimizer_class must be a class of torch.optim.* got .*Linear"),
        (None, {}, "optimizer_class must be a class of torch.optim.* got None"),
    ],
)
def test_optimizers_that_are_refused(optimizer_class: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        learner_of(make_policy("mlp"), optimizer_class=optimizer_class, optimizer_kwargs=kwargs)


@pytest.mark.parametrize(
    ("name", "kwargs"), [("Adam", {"weight_decay": 0.1}), ("RMSprop", {}), ("SGD", {"momentum": 0.9})]
)
def test_an_optimizer_of_one_flat_parameter_steps_along_backward_as_one_of_its_parts(name: str, kwargs: Any) -> None:
    """Also where a part has no gradient, after `zero_grad`, and with a closure."""
    optimizer_class = getattr(torch.optim, name)
    plain = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 1))
    ours = copy.deepcopy(plain)
    parameters = list(ours.parameters())
    step = optimizer_step.OptimizerStep(flatten_parameters(parameters), ours, optimizer_class, kwargs)
    step.set_learning_rate(0.01)
    optimizers = [optimizer_class(plain.parameters(), lr=0.01, **kwargs), step.optimizer]
    x = torch.randn(5, 2, 3, 3)

    def loss(net: Any, of_all: bool) -> Tensor:
        y: Tensor = net(x) if of_all else net[2](net[1](net[0](x)).detach())
        return (y - 1.0).square().mean()

    for turn in range(8):
        for net, optimizer in zip((plain, ours), optimizers, strict=True):
            loss(net, of_all=True).backward()  # forgotten, or added to what follows
            if turn != 5:
                optimizer.zero_grad()

            def closure(net: Any = net, of_all: bool = turn % 3 != 2) -> Tensor:
                value = loss(net, of_all)
                value.backward()
                return value

            if turn == 4:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
    torch.testing.assert_close(parameters, list(plain.parameters()), rtol=1e-5, atol=1e-6)
    before = step.flat.clone()
    step.optimizer.zero_grad()
    step.optimizer.step()  # without a gradient nothing moves
    assert step.flat.equal(before)
    for parameter in plain.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers[0].step()
    step(torch.ones_like(step.flat))  # as in an update of `learn`
    torch.testing.assert_close(parameters, list(plain.parameters()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_grad_norm", [0.05, None])
def test_a_critic_by_classification_is_clipped_by_its_own_norm(max_grad_norm: float | None) -> None:
    """Worked by hand: the policy's part of the gradient has norm 5, the critic's 13."""
    model = A2C("MlpPolicy", Tiny(), value_loss="hl_gauss", max_grad_norm=max_grad_norm, seed=0)
    learner, network = model.learner, model.learner.online
    of_critic = [*network.value_tower.parameters(), *network.value_head.parameters()]
    mask = flat_copy(torch.full_like(p, any(p is own for own in of_critic)) for p in network.parameters()).bool()
    flat = torch.zeros(len(mask))
    flat[mask.nonzero()[:2, 0]] = torch.tensor([5.0, 12.0])
    flat[(~mask).nonzero()[:2, 0]] = torch.tensor([3.0, 4.0])
    before = flat.clone()
    norm, own = learner.clip(flat)
    assert own is not None
    assert (float(norm), float(own)) == (5.0, 13.0)
    bounds = [max_grad_norm or 5.0, max_grad_norm or 13.0]
    torch.testing.assert_close(flat[~mask], before[~mask] * bounds[0] / 5)
    torch.testing.assert_close(flat[mask], before[mask] * bounds[1] / 13)


def test_a_critic_by_regression_is_clipped_with_the_policy() -> None:
    assert A2C("MlpPolicy", Tiny(), seed=0).learner.clipped_separately is None
