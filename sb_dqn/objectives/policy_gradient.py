"""Policy-gradient objectives: A2C, REINFORCE and PPO."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sb_dqn.checks import check_bool, check_float
from sb_dqn.losses import policy_gradient as pg
from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.heads.binned import Classes
from sb_dqn.types import Batch, Network


class Terms(NamedTuple):
    """Quantities that all policy-gradient losses use, of N samples."""

    logp: Tensor
    """Log-probabilities `[N]` of the sampled actions under the current policy."""
    entropy: Tensor
    """Entropies `[N]` of the current policy, in nats."""
    value: Tensor
    """Current value predictions `[N]`."""
    advantage: Tensor
    """Advantages `[N]`, the lambda-return minus the value at collection time: generalized advantage estimation, arXiv
    1506.02438."""
    classes: Classes | None = None
    """Value predictions by classification. If None, the value is learned by regression."""

    def value_loss(self, return_: Tensor) -> Tensor:
        """Returns the squared error of the value `[N]`, or the cross-entropy of its classes, for returns `[N]`."""
        return (return_ - self.value).square() if self.classes is None else self.classes.cross_entropy(return_)


class ActorCritic:
    r"""A2C loss (Mnih et al. 2016, arXiv 1602.01783).

    .. math:: l = -A \log \pi(a | o) + c_v (G - v(o))^2 - c_h H(\pi(\cdot | o))

    Values by classification have the cross-entropy to the classes of G in place of the squared error.

    Args:
        ent_coef: coefficient c_h of the entropy, >= 0.
        vf_coef: coefficient c_v of the value loss, >= 0.
        normalize_advantage: True normalizes advantages to mean 0 and standard deviation 1 over the batch.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type.
    """

    reports: tuple[str, ...] = ("policy_loss", "value_loss", "entropy_loss")

    def __init__(self, ent_coef: float = 0.0, vf_coef: float = 0.5, normalize_advantage: bool = False) -> None:
        self.ent_coef = check_float("ent_coef", ent_coef, 0.0)
        self.vf_coef = check_float("vf_coef", vf_coef, 0.0)
        self.normalize_advantage = check_bool("normalize_advantage", normalize_advantage)

    def terms(self, online: Network, batch: Batch) -> Terms:
        """Evaluates the policy and the value, and normalizes the advantages if configured."""
        assert batch.extra is not None  # rollout batches always have extras
        policy, value, *classes = online(batch.obs, batch.mask)
        advantage = batch.return_ - batch.extra["value"]
        if self.normalize_advantage:
            advantage = pg.normalized(advantage, batch.weight)
        sample = batch.extra.get("u", batch.action)  # the sampled action before clipping to the bounds of a Box
        return Terms(policy.log_prob(sample), policy.entropy(sample), value, advantage, *classes)

    def __call__(self, online: Network, target: object, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self.terms(online, batch)
        return self.combine(pg.policy_gradient(terms.logp, terms.advantage), terms, batch)

    def combine(self, policy_loss: Tensor, terms: Terms, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the total loss `[N]` and the mean of each part for the log."""
        error = terms.value_loss(batch.return_)
        means = [weighted_mean(part.detach(), batch.weight) for part in (policy_loss, error, -terms.entropy)]
        extras = dict(zip(self.reports, means, strict=False))
        return policy_loss + self.vf_coef * error - self.ent_coef * terms.entropy, extras


class PolicyGradient(ActorCritic):
    r"""REINFORCE loss, without a critic (Williams 1992, doi 10.1007/BF00992696).

    .. math:: l = -(G - b) \log \pi(a | o) - c_h H(\pi(\cdot | o))

    The baseline b is read in place of the value: 0, or a mean of the returns of an update.

    Args:
        ent_coef: coefficient c_h of the entropy, >= 0.
        normalize_advantage: True normalizes G - b to mean 0 and standard deviation 1 over the batch.
    """

    reports: tuple[str, ...] = ("policy_loss", "entropy_loss")

    def __init__(self, ent_coef: float = 0.0, normalize_advantage: bool = False) -> None:
        super().__init__(ent_coef, 0.0, normalize_advantage)

    def combine(self, policy_loss: Tensor, terms: Terms, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        means = [weighted_mean(part.detach(), batch.weight) for part in (policy_loss, -terms.entropy)]
        return policy_loss - self.ent_coef * terms.entropy, dict(zip(self.reports, means, strict=True))


class ClippedSurrogate(ActorCritic):
    r"""PPO loss (Schulman et al. 2017, arXiv 1707.06347).

    Differs from the A2C loss in the policy part: no gradient moves the probability ratio to the policy that acted further
    out of the clip range. Optionally clips the change of the value too.

    Args:
        ent_coef, vf_coef, normalize_advantage: see `ActorCritic`.
        clips_value: True clips the value predictions too.
    """

    reports: tuple[str, ...] = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")

    def __init__(
        self, ent_coef: float = 0.0, vf_coef: float = 0.5, normalize_advantage: bool = True, clips_value: bool = False
    ) -> None:
        super().__init__(ent_coef, vf_coef, normalize_advantage)
        self.clips_value = clips_value
        # updated in place, since traced graphs hold references to them
        self.clip = torch.zeros(())
        self.clip_value = torch.zeros(())

    def move_to(self, device: torch.device) -> None:
        """Moves the clip ranges to a device; only before the first update."""
        self.clip = self.clip.to(device)
        self.clip_value = self.clip_value.to(device)

    def __call__(self, online: Network, target: object, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.extra is not None  # rollout batches always have extras
        terms = self.terms(online, batch)
        old_logp = batch.extra["log_prob"]
        policy_loss = pg.clipped_surrogate(terms.logp, old_logp, terms.advantage, self.clip)
        if self.clips_value:
            terms = terms._replace(value=pg.clipped_value(terms.value, batch.extra["value"], self.clip_value))
        loss, extras = self.combine(policy_loss, terms, batch)
        logp = terms.logp.detach()
        extras["approx_kl"] = pg.approximate_kl(logp, old_logp, batch.weight)
        extras["clip_fraction"] = pg.clip_fraction(logp, old_logp, batch.weight, self.clip)
        return loss, extras
