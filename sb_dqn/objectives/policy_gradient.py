"""Actor-critic objectives: an actor that gains by its advantages, a critic that learns returns, a reward for entropy."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.losses import policy_gradient as pg
from sb_dqn.losses.td import weighted_mean
from sb_dqn.types import Batch


class Terms(NamedTuple):
    """What both objectives begin with, each `[N]`."""

    logp: Tensor
    """Log-probability of what was drawn, by the present policy."""
    entropy: Tensor
    value: Tensor
    advantage: Tensor
    """The lambda-return less the value that was believed on acting: generalised advantages, arXiv 1506.02438."""


class ActorCritic:
    r"""A2C's loss (Mnih et al. 2016, arXiv 1602.01783).

    .. math:: l = -A \log \pi(a | o) + c_v (G - v(o))^2 - c_h H(\pi(\cdot | o))

    Args:
        ent_coef: c_h.
        vf_coef: c_v.
        normalize_advantage: to mean 0 and deviation 1 over the batch.
    """

    reports: tuple[str, ...] = ("policy_loss", "value_loss", "entropy_loss")

    def __init__(self, ent_coef: float = 0.0, vf_coef: float = 0.5, normalize_advantage: bool = False) -> None:
        self.ent_coef, self.vf_coef, self.normalize_advantage = ent_coef, vf_coef, normalize_advantage

    def terms(self, online: Any, batch: Batch) -> Terms:
        """Asks the nets; the advantages are normalised if so configured."""
        assert batch.extra is not None  # it comes from a rollout
        policy, value = online(batch.obs, batch.mask)
        advantage = batch.return_ - batch.extra["value"]
        if self.normalize_advantage:
            advantage = pg.normalised(advantage, batch.weight)
        sample = batch.extra.get("u", batch.action)  # what was drawn, before it was clipped to the bounds of a Box
        return Terms(policy.log_prob(sample), policy.entropy(sample), value, advantage)

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self.terms(online, batch)
        return self.sum(pg.policy_gradient(terms.logp, terms.advantage), terms.value, terms.entropy, batch)

    def sum(self, gain: Tensor, value: Tensor, entropy: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss `[N]` of the actor's part, the critic's value and the entropy; what is reported of each."""
        error = (batch.return_ - value).square()
        means = [weighted_mean(part.detach(), batch.weight) for part in (gain, error, -entropy)]
        facts = dict(zip(self.reports, means, strict=False))
        return gain + self.vf_coef * error - self.ent_coef * entropy, facts


class PolicyGradient(ActorCritic):
    r"""REINFORCE's loss (Williams 1992, doi 10.1007/BF00992696): no value is learned.

    .. math:: l = -(G - b) \log \pi(a | o) - c_h H(\pi(\cdot | o))

    The baseline b stands where a value would: 0, or what the samples of an update say themselves.

    Args:
        ent_coef: c_h.
        normalize_advantage: G - b to mean 0 and deviation 1 over the batch.
    """

    reports: tuple[str, ...] = ("policy_loss", "entropy_loss")

    def __init__(self, ent_coef: float = 0.0, normalize_advantage: bool = False) -> None:
        super().__init__(ent_coef, 0.0, normalize_advantage)

    def sum(self, gain: Tensor, value: Tensor, entropy: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        means = [weighted_mean(part.detach(), batch.weight) for part in (gain, -entropy)]
        return gain - self.ent_coef * entropy, dict(zip(self.reports, means, strict=True))


class ClippedSurrogate(ActorCritic):
    r"""PPO's loss (Schulman et al. 2017, arXiv 1707.06347): as A2C's, but the policy gains nothing by moving further than
    the clip range from the one that acted, and so, if asked for, the value.

    Args:
        ent_coef, vf_coef, normalize_advantage: see `ActorCritic`.
        clips_value: hold the value back too.
        device: where the clip ranges lie.
    """

    reports: tuple[str, ...] = (
        "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction",
    )  # fmt: skip

    def __init__(
        self,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        normalize_advantage: bool = True,
        clips_value: bool = False,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(ent_coef, vf_coef, normalize_advantage)
        self.clips_value = clips_value
        self.clip, self.clip_value = (torch.zeros((), device=device) for _ in range(2))
        """Written in place, since recordings hold them."""

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.extra is not None  # it comes from a rollout
        terms, old_logp = self.terms(online, batch), batch.extra["log_prob"]
        gain = pg.clipped_surrogate(terms.logp, old_logp, terms.advantage, self.clip)
        value = terms.value
        if self.clips_value:
            value = pg.clipped_value(value, batch.extra["value"], self.clip_value)
        loss, facts = self.sum(gain, value, terms.entropy, batch)
        known = terms.logp.detach(), old_logp, batch.weight
        facts["approx_kl"] = pg.approximate_kl(*known)
        facts["clip_fraction"] = pg.clip_fraction(*known, self.clip)
        return loss, facts
