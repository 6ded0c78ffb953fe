"""FQF's fractions: RMSprop with its own rate moves exactly those, and their gradient is not clipped."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.learning.optimizer_step import OptimizerStep
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.parameters.flat import flat_copy, flat_views, flatten_parameters
from tests.tiny import Tiny

RATE = 0.01


def make(**kwargs: Any) -> tuple[nn.Sequential, OptimizerStep]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        proposal = FractionProposal(4, n_cosines=3, fraction_learning_rate=RATE)
        net = nn.Sequential(nn.Linear(5, 6), proposal.make_embedding(6), nn.Linear(6, 1))
    step = OptimizerStep(flatten_parameters(list(net.parameters())), net, torch.optim.AdamW, kwargs)
    step.set_learning_rate(0.1)
    return net, step


def gradient_like(flat: Tensor) -> Tensor:
    with torch.inference_mode():  # as that of a traced update
        return torch.randn(flat.shape, generator=torch.Generator().manual_seed(0))


def test_fractions_move_by_rmsprop_and_the_others_by_the_main_optimizer() -> None:
    net, step = make(weight_decay=0.1)
    plain: Any = copy.deepcopy(net)
    own = list(plain[1].proposal.parameters())
    others = [parameter for parameter in plain.parameters() if all(parameter is not each for each in own)]
    optimizers = [
        torch.optim.RMSprop(own, lr=RATE, alpha=0.95, eps=1e-5),
        torch.optim.AdamW(others, lr=0.1, weight_decay=0.1),
    ]
    for _ in range(5):
        gradient = gradient_like(step.flat)
        step(gradient)
        for parameter, part in zip(plain.parameters(), flat_views(gradient, list(plain.parameters())), strict=True):
            parameter.grad = part
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(step.flat, flat_copy(plain.parameters()))


def test_a_frozen_part_of_the_proposal_stays() -> None:
    net, step = make()
    proposal: Any = net[1].proposal
    proposal.bias.requires_grad_(False)
    before = copy.deepcopy(proposal)
    step(gradient_like(step.flat))
    assert torch.equal(proposal.bias, before.bias)
    assert not torch.equal(proposal.weight, before.weight)


def test_a_gradient_of_fractions_is_neither_clipped_nor_counted() -> None:
    from sb_dqn import FQF

    learner = FQF("MlpPolicy", Tiny(), n_fractions=3, seed=0, max_grad_norm=1.0).learner
    fractions = learner.optimizer_step.fractions
    assert fractions is not None
    gradient = torch.where(fractions, 100.0, 2.0)
    norm = learner._clip(gradient, torch.zeros(()))
    torch.testing.assert_close(norm, 2.0 * (~fractions).sum().float().sqrt())
    assert (gradient[fractions] == 100.0).all()
    torch.testing.assert_close(gradient[~fractions].norm(), torch.tensor(1.0))


def test_running_squares_of_one_flat_block_load_as_in_files_before_0_2() -> None:
    _, step = make()
    step(gradient_like(step.flat))
    states = step.state_dict()["apart"]["state"]
    block = flat_copy([states[0]["square_avg"], states[1]["square_avg"]])
    older = {
        "state": {0: {"step": states[0]["step"], "square_avg": block}},
        "param_groups": [{"lr": 1.0, "params": [0]}],
    }
    _, other = make()
    other.take_fraction_moments(copy.deepcopy(older))
    loaded = other.state_dict()["apart"]
    assert all(torch.equal(loaded["state"][i]["square_avg"], states[i]["square_avg"]) for i in (0, 1))
    assert loaded["param_groups"][0]["lr"] == RATE
