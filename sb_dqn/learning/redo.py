"""Recycling of dormant units, ReDo (Sokar et al. 2023, arXiv 2302.12902)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sb_dqn.checks import check_bool, check_float, check_int, set_fields
from sb_dqn.learning.learner import Learner
from sb_dqn.nn.parameters.flat import flat_views
from sb_dqn.nn.units import DORMANT, NORMS, Units, find_units, unit_scores, watched
from sb_dqn.policies import QPolicy, SACPolicy
from sb_dqn.rng import torch_seeded
from sb_dqn.types import Batch

OBSERVATIONS = 64
"""Fewest observations of the batch by which units are dormant."""


@dataclass(frozen=True)
class Redo:
    r"""Settings of ReDo: after every k updates the dormant units of the online network are recycled. A unit is dormant if

    .. math:: s_i = \frac{E |h_i|}{\mathrm{mean}_j E |h_j| + 10^{-9}} \le \tau

    over a batch of the replay. Its incoming weights, with bias and norm, are drawn from their initial distribution; then its
    outgoing weights become 0, and the moments of the optimizer for all of them. The target network follows by its copies.

    Args:
        every: updates between two, from 1.
        threshold: :math:`\tau`, [0, 1).
        reset_counts: set the step counts of the optimizer to 0, too. Adam has one count per tensor, here one for all
            parameters, so that those of healthy units start again. Dopamine's code keeps them.

    Raises:
        ConfigurationError: a value is out of range.
    """

    every: int = 1_000
    threshold: float = DORMANT
    reset_counts: bool = False

    def __post_init__(self) -> None:
        set_fields(
            self,
            every=check_int("redo['every']", self.every, 1),
            threshold=check_float("redo['threshold']", self.threshold, 0.0, 1.0, below=True),
            reset_counts=check_bool("redo['reset_counts']", self.reset_counts),
        )


Dormant = Sequence[tuple[Units, Tensor]]
"""Units of each hidden layer, with `[H]` bool, True for the dormant ones."""


class Recycler:
    """Recycles the dormant units of a policy's online network.

    Args:
        settings: when, and which units.

    Attributes:
        share: share of dormant units at the latest time; None before.
    """

    def __init__(self, settings: Redo) -> None:
        self.settings = settings
        self.share: float | None = None
        self._found: list[Units] | None = None

    def is_due(self, n_updates: int) -> bool:
        """Returns True if units are recycled after the update of this number, the first of which is 1."""
        return n_updates % self.settings.every == 0

    def __call__(
        self, policy: QPolicy | SACPolicy, learner: Learner, sample: Callable[[int], Batch], seed: int
    ) -> None:
        """Recycles units. Several learners recycle the same ones, by the mean of their scores.

        Args:
            policy: its parameters change in place.
            learner: of this policy.
            sample: returns a batch for the loss with this number of observations or more.
            seed: of the new weights.
        """
        dormant = self._dormant(policy, learner, sample)
        count = sum(int(mask.sum()) for _, mask in dormant)
        self.share = count / max(sum(len(mask) for _, mask in dormant), 1)
        if count:
            recycle(policy, learner, dormant, self.settings.reset_counts, seed)

    def _dormant(self, policy: QPolicy | SACPolicy, learner: Learner, sample: Callable[[int], Batch]) -> Dormant:
        online, target = policy.networks
        copied = copy.deepcopy(online)  # actors may use the network at the same time
        target = copied if target is None else target
        if self._found is None:
            few = sample(1)
            self._found = find_units(copied, lambda: learner.evaluate(copied, target, few))
        with watched(copied) as outputs:
            learner.evaluate(copied, target, sample(max(learner.batch_size, OBSERVATIONS)))
        parts, dormant = dict(online.named_modules()), []
        for units in self._found:
            names = (units.layer, *units.readers)
            if all(parameter.requires_grad for name in names for parameter in parts[name].parameters()):
                scores = unit_scores(outputs[units.activation])
                if learner.group is not None:
                    learner.group.average(scores)
                dormant.append((units, scores <= self.settings.threshold))
        return dormant


@torch.no_grad()
def recycle(policy: QPolicy | SACPolicy, learner: Learner, dormant: Dormant, reset_counts: bool, seed: int) -> None:
    """Draws the incoming weights of units again, and sets their outgoing weights and the moments of both to 0.

    Args:
        policy: its parameters change in place.
        learner: of this policy.
        dormant: the units.
        reset_counts: set the step counts of the optimizer to 0, too.
        seed: of the new weights.
    """
    with torch_seeded(seed):
        fresh = dict(policy.new_networks()[0].named_modules())
    online = policy.networks[0]
    parts = dict(online.named_modules())
    changed = torch.zeros_like(learner.flat, dtype=torch.bool)
    names, parameters = zip(*online.named_parameters(), strict=True)
    places = dict(zip(names, flat_views(changed, parameters), strict=True))
    for units, mask in dormant:
        rows = mask.nonzero()[:, 0]
        for name in (units.layer, *([units.norm] if units.norm else [])):
            axis = -1 if isinstance(parts[name], NORMS) else 0
            new = dict(fresh[name].named_parameters(recurse=False))
            for key, old in parts[name].named_parameters(recurse=False):
                old.index_copy_(axis, rows, new[key].to(old.device).index_select(axis, rows))
                places[f"{name}.{key}"].index_fill_(axis, rows, True)
    for units, mask in dormant:  # after all draws: a new unit must not read the one before it that is new, too
        for name, owners in units.readers.items():
            columns = (mask[owners] & (owners >= 0)).nonzero()[:, 0]
            for key, old in parts[name].named_parameters(recurse=False):
                if old.dim() > 1:
                    old.index_fill_(1, columns, 0.0)
                    places[f"{name}.{key}"].index_fill_(1, columns, True)
    if learner.group is not None:
        learner.group.broadcast([learner.flat])
    learner.optimizer_step.reset_moments(changed, reset_counts)
    learner.refresh()
