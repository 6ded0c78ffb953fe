"""Parameters with an optimizer of their own: exactly those move by it, and nothing else moves them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.parameters.flat import flatten_parameters
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer


def make(seed: int = 0) -> tuple[nn.Sequential, Tensor, FractionOptimizer]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    flat = flatten_parameters(list(net.parameters()))
    return net, flat, FractionOptimizer(list(net.parameters()), list(net[1].parameters()), flat, 0.01)


def test_its_steps_are_those_of_rmsprop() -> None:
    net, flat, optimizer = make()
    plain = copy.deepcopy(net)
    own = torch.optim.RMSprop(plain[1].parameters(), lr=0.01, alpha=0.95, eps=1e-5)
    main = torch.optim.AdamW([nn.Parameter(flat)], lr=0.1, weight_decay=0.1)
    others = torch.optim.AdamW([*plain[0].parameters(), *plain[2].parameters()], lr=0.1, weight_decay=0.1)
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        gradient = torch.randn(flat.shape, generator=rng)
        main.param_groups[0]["params"][0].grad = gradient
        optimizer.step(gradient, main.step)
        start = 0
        for parameter in plain.parameters():
            parameter.grad = gradient[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        own.step()
        others.step()
    torch.testing.assert_close(flat, torch.cat([parameter.detach().flatten() for parameter in plain.parameters()]))
    middle: Any = net[1]
    assert middle.weight.data_ptr() == flat[optimizer.block].data_ptr()


def test_its_gradient_is_left_out_of_the_norm() -> None:
    _, flat, optimizer = make()
    gradient = torch.ones(flat.shape)
    taken = optimizer.take(gradient)
    assert taken.tolist() == [1.0] * 10
    assert gradient.tolist() == [1.0] * 16 + [0.0] * 10 + [1.0] * 3
    gradient.mul_(0.5)
    optimizer.give(gradient, taken)
    assert gradient.tolist() == [0.5] * 16 + [1.0] * 10 + [0.5] * 3


def test_a_gradient_of_a_recording_is_good_enough() -> None:
    _, flat, optimizer = make()
    with torch.inference_mode():
        gradient = torch.ones(flat.shape)
    before = flat.clone()
    optimizer.step(gradient, lambda: None)
    assert bool((flat[optimizer.block] != before[optimizer.block]).all())


def test_its_state_goes_on() -> None:
    gradient = torch.linspace(-1, 1, 29)
    _, flat, optimizer = make()
    optimizer.step(gradient, lambda: None)
    _, other, resumed = make()
    other.copy_(flat)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one in (optimizer, resumed):
        one.step(gradient, lambda: None)
    assert torch.equal(flat, other)


def test_what_are_no_neighbors() -> None:
    net, flat, _ = make()
    parameters = list(net.parameters())
    for own in ([parameters[0], parameters[2]], [], [nn.Parameter(torch.zeros(2))]):
        with pytest.raises(ValueError, match="own must be . contiguous parameters"):
            FractionOptimizer(parameters, own, flat, 0.01)


def test_the_proposal_of_a_net_is_found() -> None:
    proposal = FractionProposal(4, n_cosines=3, fraction_learning_rate=0.5)
    net = nn.Sequential(nn.Linear(5, 6), proposal.make_embedding(6), nn.Linear(6, 1))
    optimizer = proposal.make_fraction_optimizer(net, flatten_parameters(list(net.parameters())))
    assert optimizer.block == slice(36 + 24, 36 + 24 + 28)
    assert optimizer.optimizer.param_groups[0]["lr"] == 0.5
