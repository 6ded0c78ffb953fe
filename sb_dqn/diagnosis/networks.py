"""Measures of networks, on a copy of the policy: units, features, values, and what one update changes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.parameters.flat import flat_copy, flat_views
from sb_dqn.types import Batch

DORMANT = 0.025
"""Score at which a unit counts as dormant (Sokar et al. 2023)."""
RANK = 0.99
"""Share of the sum of the singular values that the effective rank holds (Kumar et al. 2021)."""
MOVED = 0.01
"""Share of the bounds by which an action of a Box moves to count as another one."""
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh
)  # fmt: skip


def dormant_share(activations: Tensor, threshold: float = DORMANT) -> float:
    r"""Returns the share of dormant units: those with :math:`E|h_i| / \mathrm{mean}_j E|h_j|` at or below the threshold.

    Args:
        activations: `[N, ..., H]`, or of a convolution `[N, C, H, W]`, whose units are the channels.
        threshold: largest score of a dormant unit.
    """
    over = (0, 2, 3) if activations.dim() == 4 else tuple(range(activations.dim() - 1))
    size = activations.abs().mean(over)
    score = size / (size.mean() + 1e-9)  # a layer that is dead as a whole has scores of 0
    return float((score <= threshold).float().mean())


def effective_rank(features: Tensor, share: float = RANK) -> int:
    """Returns the number of singular values of `[N, H]` that make up `share` of their sum; 0 if all are 0."""
    values = torch.linalg.svdvals(features.double())
    if not values[0] > 0:
        return 0
    return int((values.cumsum(0) < share * values.sum()).sum()) + 1


@contextmanager
def watched(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Context that holds the latest output of each activation by name, in the order of their first calls."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: Any, output: Tensor) -> None:
        outputs[name] = output.detach()

    hooks = [
        part.register_forward_hook(partial(keep, name))
        for name, part in network.named_modules()
        if isinstance(part, ACTIVATIONS)
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def evaluate(learner: Any, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Returns the mean loss and the further outputs of the objective, with random numbers that are the same in each call."""
    networks = []
    for network, as_target in ((online, False), (target, True)):
        noise = network.learning_noise(len(batch.weight), as_target=as_target)
        if noise is not None:
            noise.renew(torch.Generator(batch.weight.device).manual_seed(0))
        networks.append(network if noise is None else partial(network, noise=noise))
    loss, extras = learner.objective(*networks, batch)
    return weighted_mean(loss, batch.weight), extras


@torch.no_grad()
def make_step(learner: Any, online: nn.Module, gradients: Mapping[str, Tensor]) -> None:
    """Makes an optimizer step on a copy of the online network, by a copy of the optimizer.

    Args:
        learner: the learner; not changed.
        online: the copy.
        gradients: by name, of the parameters that learn.
    """
    names, parameters = zip(*online.named_parameters(), strict=True)
    flat = flat_copy(gradients.get(name, torch.zeros_like(p)) for name, p in zip(names, parameters, strict=True))
    if learner.max_grad_norm is not None:
        flat.mul_((learner.max_grad_norm / flat.norm()).clamp_max(1.0))
    copies: dict[int, Any] = {}
    optimizer = copy.deepcopy(learner.optimizer, copies)
    masters = [copies[id(master)] for master in learner.step.masters]
    if learner.step.whole:
        masters[0].grad = flat
    else:
        for name, master, grad in zip(names, masters, flat_views(flat, masters), strict=True):
            master.grad = grad if name in gradients else None
    optimizer.step()
    values = flat_views(masters[0], parameters) if learner.step.whole else masters
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def explained_variance(batch: Batch) -> float:
    """Returns 1 - Var(return - value) / Var(return) of the samples of a rollout; the variance counts as 0.1 % of the mean square
    at least, since returns that are all the same need no explanation."""
    assert batch.extra is not None
    valid = batch.weight > 0
    returns, values = batch.return_[valid], batch.extra["value"][valid]
    variance = returns.var(correction=0).clamp_min(1e-3 * returns.square().mean()).clamp_min(1e-12)
    return float(1.0 - (returns - values).var(correction=0) / variance)


def changed_actions(before: Tensor, after: Tensor, width: Tensor | None) -> float:
    """Returns the share of states whose action changed.

    Args:
        before, after: `[N, D]` choices or numbers.
        width: `[D]`, width of the bounds of a Box; None for choices.
    """
    changed = before != after if width is None else (before - after).abs() > MOVED * width
    return float(changed.any(1).float().mean())
