"""Measures of networks, on a copy of the policy: units, features, values, and what one update changes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.nn.parameters.flat import flat_copy, flat_views
from sb_dqn.types import Batch

RANK = 0.99
"""Share of the sum of the singular values that the effective rank holds (Kumar et al. 2021)."""
MOVED = 0.01
"""Share of the bounds by which an action of a Box moves to count as another one."""


def effective_rank(features: Tensor) -> int:
    """Returns the number of singular values of `[N, H]` that make up `RANK` of their sum; 0 if all are 0."""
    values = torch.linalg.svdvals(features.double())
    if not values[0] > 0:
        return 0
    return int((values.cumsum(0) < RANK * values.sum()).sum()) + 1


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
    learner.clip(flat)
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
