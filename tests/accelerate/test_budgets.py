"""Budgets of kernels: what one update and one choice of actions launch on CUDA, counted as `tests.kernels` says."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

import sb_dqn
from sb_dqn import devices
from sb_dqn.accelerate.backends import _trace
from sb_dqn.accelerate.simplification import simplify
from sb_dqn.learning.learner import Learner
from sb_dqn.policies.q_network import QNetwork
from scripts.benchmarks import gpu_models
from tests.kernels import kernels
from tests.marks import FULL, SLOW, a_few

UPDATES = {
    "DQN 64-64": 74,
    "PER n-step 64-64": 138,
    "DQN Nature": 106,
    "PER Nature": 181,
    "C51 Nature": 130,
    "Rainbow Nature": 303,
    "IQN Nature": 150,
    "BTR": 563,
    "R2D2": 458,
    "SAC 256-256": 251,
    "PPO Nature": 158,
}
"""Kernels of an update. On a stand-in for the CUDA runtime, which adds fills of reductions of large tensors: 74, 159, 109, 185, 133,
300, 155, 586, 477, 258 and 163."""
LIMITS = {"DQN Nature": 110, "PER Nature": 200, "Rainbow Nature": 300, "BTR": 600, "R2D2": 500}
"""Kernels that an update may have at most on CUDA."""
MORE_ON_CUDA = {"DQN Nature": 3, "PER Nature": 4, "Rainbow Nature": -3, "BTR": 23, "R2D2": 19}
"""What the stand-in counted above `UPDATES`."""
ACTING = {"DQN Nature": 24, "PPO Nature": 29, "BTR": 103}
"""Kernels of one choice of actions, from the rows in the ring on."""
TOLERANCE = 0.05
SMALL: dict[str, Any] = {
    "learning_starts": 60, "buffer_size": 400, "batch_size": 4, "train_freq": 4, "batch_B": 2, "batch_T": 4, "warmup_T": 4,
    "store_rnn_state_interval": 4,
}  # fmt: skip
"""Settings that do not change the number of kernels."""


@pytest.fixture(autouse=True)
def as_on_a_gpu(eagerly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "HOST_DEVICES", ())


def trained(name: str) -> Any:
    run = gpu_models.UPDATES[name]
    cls = getattr(sb_dqn, run.algorithm)
    smaller = {key: SMALL[key] for key in inspect.signature(cls).parameters.keys() & SMALL.keys()}
    if run.algorithm == "PPO":
        smaller |= {"n_steps": 8}
    elif run.algorithm == "R2D2":
        smaller = {key: value for key, value in smaller.items() if key not in cls.replaced_arguments}
    return gpu_models.make_model(run, "cpu", **smaller).learn(84)


def update_of(model: Any) -> GraphModule:
    """Returns the graph that is captured; that of a recurrent network is captured without simplification."""
    updates = model.update_runner
    updates.experience.refresh()
    ((example, _),) = updates.functions.values()
    whole = partial(updates.sample_and_differentiate, updates.experience.sample_from)
    with updates.experience.preserve_state():
        graph = _trace(whole, (example,))
    if not model.policy.recurrent:
        simplify(graph)
    return graph


def count(graph: GraphModule) -> int:
    return sum(kernels(graph).values())


def is_within(graph: GraphModule, budget: int) -> bool:
    return abs(count(graph) - budget) <= TOLERANCE * budget


@SLOW
@pytest.mark.parametrize("name", a_few(UPDATES, "DQN Nature"))
def test_an_update_launches_as_many_kernels_as_planned(name: str) -> None:
    assert is_within(update_of(trained(name)), UPDATES[name])


@SLOW
@pytest.mark.parametrize("name", a_few(LIMITS, "DQN Nature"))
def test_an_update_stays_below_its_limit(name: str) -> None:
    assert count(update_of(trained(name))) + MORE_ON_CUDA[name] <= LIMITS[name]


@SLOW
@pytest.mark.parametrize("name", a_few(ACTING, "DQN Nature"))
def test_acting_launches_as_many_kernels_as_planned(name: str) -> None:
    model = trained(name)
    selector, obs = model.collector.actor.selector, model._experience.open_observation()
    runner = selector._act if name == "PPO Nature" else selector.runner
    drawn = (torch.from_numpy(model.policy.draw(model.rng.explore, 1)),) if name == "PPO Nature" else ()
    runner._run(obs, None, *drawn)  # nothing is traced before the first choice, and BTR begins with random actions
    graph = _trace(runner._evaluate, tuple(runner._sent([obs.lanes, obs.rows, *drawn])))
    simplify(graph)
    assert is_within(graph, ACTING[name])


def test_views_launch_nothing() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value, place = (x.T @ y.detach()).max(0)  # two kernels; a transposed view, and two items of a tuple
        y.exp()  # not used, so not recorded
        return (value.view(2, 2)[0] + place[:2].unsqueeze(0).expand(1, 2)).add_(1.0)  # two

    graph = _trace(function, (torch.ones(3, 4), torch.ones(3, 4)))
    assert count(graph) == 4
    assert len(graph.graph.nodes) > 10  # decoy: with views, inputs and output


def test_an_update_that_clips_twice_as_often_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = Learner._clip

    def often(learner: Learner, flat: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            clip(learner, flat, total)
        return clip(learner, flat, total)

    monkeypatch.setattr(Learner, "_clip", often)
    assert not is_within(update_of(trained("DQN 64-64")), UPDATES["DQN 64-64"])


@SLOW
def test_an_update_above_its_limit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = Learner._clip

    def twice(learner: Learner, flat: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        clip(learner, flat, total)
        return clip(learner, flat, total)

    monkeypatch.setattr(Learner, "_clip", twice)
    assert count(update_of(trained("DQN Nature"))) + MORE_ON_CUDA["DQN Nature"] > LIMITS["DQN Nature"]


@FULL
def test_a_burn_in_step_by_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    unroll = QNetwork.unroll

    def by_steps(net: QNetwork, *arguments: Any, **kwargs: Any) -> Any:
        layer: Any = net.recurrent_layer
        layer.burn_in = lambda x, state, begins: layer.unroll(x, state, begins[:-1])[1]
        return unroll(net, *arguments, **kwargs)

    monkeypatch.setattr(QNetwork, "unroll", by_steps)
    assert not is_within(update_of(trained("R2D2")), UPDATES["R2D2"])
