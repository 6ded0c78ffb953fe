"""Objective of an ensemble: each member learns from its own targets and its own share of the transitions (bootstrapped DQN)."""

from __future__ import annotations

import torch
from torch import Tensor

from sb_dqn.nn.ensemble import Ensemble
from sb_dqn.objectives.shared_heads import for_each
from sb_dqn.types import Batch, Network, Objective

PER_ROW = ("action", "return_", "discount", "weight")
"""Fields of a batch that are repeated for each member; networks of an ensemble repeat observations and masks themselves."""


class EnsembleObjective:
    r"""Applies another objective to each of K members, with the same member of the target network (Osband et al. 2016, arXiv
    1602.04621).

    .. math:: l_i = \frac{1}{K} \sum_{k=1}^{K} m_{ik} \, l_{\mathrm{inner}}(q_k, q^-_k)_i

    where m_ik is 1 with the probability `share` and otherwise 0, a function of the transition's place in the replay, so that a
    member learns from the same transitions again and again. The priority is the mean over members; reports are over all of them.

    Args:
        inner: objective on transitions.
        ensemble: number of members and their share of the transitions.
    """

    def __init__(self, inner: Objective, ensemble: Ensemble) -> None:
        self.inner = inner
        self.ensemble = ensemble
        self.reports = inner.reports
        self.bootstrap = getattr(inner, "bootstrap", None)

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        members = self.ensemble.members
        repeated = {name: for_each(getattr(batch, name), members) for name in PER_ROW}
        loss, extras = self.inner(online, target, batch._replace(**repeated))
        loss = loss.view(members, -1)
        if self.ensemble.share < 1.0:
            loss = torch.where(learns(batch.place, members, self.ensemble.share), loss, 0.0)
        priority = {"priority": extras["priority"].view(members, -1).mean(0)} if "priority" in extras else {}
        return loss.mean(0), {**extras, **priority}


def learns(place: Tensor, members: int, share: float) -> Tensor:
    """Returns which members learn from which transitions, `[K, N]` bool, each with the probability `share`.

    Args:
        place: lanes and row numbers `[2, N]` int64; the same place has the same result.
        members: K.
        share: in (0, 1].
    """
    member = torch.arange(members, device=place.device).unsqueeze(1)
    key = (place[0] * 1_000_003 + place[1]) * members + member
    for factor in (0x45D9F3B, 0x119DE1F3):  # multiply and shift, within 32 bits: a hash with balanced bits
        key = (((key >> 16) ^ key) * factor) & 0xFFFFFFFF
    return ((key >> 16) ^ key) < share * 2**32
