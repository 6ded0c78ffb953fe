"""Periodic resets of the networks, while the replay stays (Nikishin et al. 2022, arXiv 2205.07802)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from sb_dqn.checks import check_float, check_int, check_switch, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.learner import Learner
from sb_dqn.policies import QPolicy, SACPolicy
from sb_dqn.rng import torch_seeded

KEPT = {"features", "transition", "prior"}
"""Names of the modules that keep a share: the features extractor, and the transitions of latent states."""


@dataclass(frozen=True)
class Resets:
    r"""Settings of resets: after every k updates all layers behind the features extractor are drawn from their initial
    distribution, and those of the extractor move towards new ones (shrink and perturb, Ash and Adams 2020, arXiv 1910.08475):

    .. math:: \theta \leftarrow \kappa\, \theta + (1 - \kappa)\, \phi

    :math:`\phi` is a new draw, one for the online and another for the target network. The optimizer starts without moments;
    the rows and priorities of the replay, normalization and schedules stay. Parameters with `requires_grad=False` stay too.

    Args:
        every: updates between resets, from 1.
        keep: :math:`\kappa`, share of the features extractor that stays, [0, 1]; 1 keeps it, 0 draws it again.
        until: the last update that a reset may follow, so that the agent can recover before its training ends; None: no last
            one.

    Raises:
        ConfigurationError: a value is out of range.
    """

    every: int
    keep: float = 0.8
    until: int | None = None

    def __post_init__(self) -> None:
        every = check_int("resets['every']", self.every, 1)
        until = None if self.until is None else check_int("resets['until']", self.until, every)
        set_fields(self, every=every, keep=check_float("resets['keep']", self.keep, 0.0, 1.0), until=until)

    def is_due(self, n_updates: int) -> bool:
        """Returns True if a reset follows the update of this number, the first of which is 1."""
        return n_updates % self.every == 0 and (self.until is None or n_updates <= self.until)

    def latest_reset(self, n_updates: int) -> int:
        """Returns the number of the last update that a reset followed, of those made so far; 0 before the first reset."""
        return min(n_updates, n_updates if self.until is None else self.until) // self.every * self.every


def check_resets(value: object) -> Resets | None:
    """Returns the settings for the argument `resets`; None for False.

    Raises:
        ConfigurationError: there is no period, or a field is unknown or out of range.
    """
    if value is True or (isinstance(value, Mapping) and "every" not in value):
        raise ConfigurationError(
            f"resets must be a number of updates, or a dict with 'every', got {value!r}. Give for example resets=40_000."
        )
    return check_switch("resets", value, Resets, number="every")


@torch.no_grad()
def reset_networks(policy: QPolicy | SACPolicy, learner: Learner, keep: float, seed: int) -> None:
    """Draws the networks of a policy again, but for a share of their features extractors; the optimizer forgets its moments.

    With several learners all take the first one's weights.

    Args:
        policy: its parameters change in place.
        learner: of this policy.
        keep: share of the features extractors that stays.
        seed: of the new weights.
    """
    with torch_seeded(seed):
        drawn = policy.new_networks()
    learns = [parameter.requires_grad for parameter in policy.networks[0].parameters()]
    for network, new in zip(policy.networks, drawn, strict=True):
        if network is not None:  # a target network is a copy of the first part of the online one
            _reset(network, new, keep, learns)
    if learner.group is not None:
        learner.group.broadcast([learner.flat, learner.flat_target])
    learner.optimizer_step.clear()
    learner.refresh()


def _reset(network: nn.Module, new: nn.Module, keep: float, learns: list[bool]) -> None:
    pairs = zip(network.named_parameters(), new.parameters(), strict=True)
    for ((name, old), fresh), moves in zip(pairs, learns, strict=False):
        if moves:
            old.lerp_(fresh.to(old.device), 1.0 - keep if _extracts(name) else 1.0)
    for (name, kept), first in zip(network.named_buffers(), new.buffers(), strict=True):
        if not _extracts(name):
            kept.copy_(first)


def _extracts(name: str) -> bool:
    return not KEPT.isdisjoint(name.split("."))
