"""Values by classification: the mean return as the mean of a softmax over bins (HL-Gauss, two-hot), for Q-networks and critics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_choice, check_float, check_int, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.distributional import cross_entropy, hl_gauss, two_hot
from sb_dqn.losses.transforms import IDENTITY, SYMLOG
from sb_dqn.nn.heads.categorical import FARTHEST
from sb_dqn.nn.heads.scalar import Distribution, Head, gather_action, mask_illegal
from sb_dqn.nn.layers.noise import Noise

KINDS = ("hl_gauss", "two_hot")
TRANSFORMS = {"none": IDENTITY, "symlog": SYMLOG}
BINS = {"hl_gauss": 101, "two_hot": 21}
"""Number of bins by kind. Two-hot has fewer: a value that moves by a bin must unlearn the last one,
where HL-Gauss spreads a value over about six."""
AUTOMATIC = 6.0
"""End of an automatic range, for rewards that are scaled by `bounded_returns`: a value is the return from a step on, which may be
above the bound there, and HL-Gauss reads low in the outermost bins."""
SMOOTHING = 0.75
"""Sigma of HL-Gauss in bins (Farebrother et al. 2024, arXiv 2403.03950)."""


@dataclass(frozen=True)
class Bins(Distribution):
    """Settings of values by classification.

    Args:
        kind: "hl_gauss" spreads the target over about six bins, "two_hot" over the two nearest.
        bins: number of classes, from 3. If None, it is 101 for HL-Gauss and 21 for two-hot.
        v_min, v_max: smallest and largest value. If None, they are +-6 with rewards that are divided by a running scale.
        transform: "none", or "symlog": bins are evenly spaced in sgn(x) ln(1 + |x|) of the value.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    kind: str = "hl_gauss"
    bins: int | None = None
    v_min: float | None = None
    v_max: float | None = None
    transform: str = "none"

    def __post_init__(self) -> None:
        check_choice("value_loss['kind']", self.kind, KINDS)
        check_choice("value_loss['transform']", self.transform, TRANSFORMS)
        if self.bins is not None:
            set_fields(self, bins=check_int("value_loss['bins']", self.bins, 3))
        if (self.v_min is None) is not (self.v_max is None):
            raise ConfigurationError(
                f"v_min and v_max of value_loss must both be set or both be None, got {self.v_min} and {self.v_max}. Set both, or "
                f"leave both out for an automatic range."
            )
        if self.v_min is None or self.v_max is None:
            return
        low = check_float("value_loss['v_min']", self.v_min, -FARTHEST, FARTHEST)
        high = check_float("value_loss['v_max']", self.v_max, -FARTHEST, FARTHEST)
        set_fields(self, v_min=low, v_max=high)
        if low >= high:
            raise ConfigurationError(
                f"v_min of value_loss must be below v_max, got {low} and {high}. Give the smallest and the largest value to expect."
            )

    @property
    def size(self) -> int:
        """Number of classes."""
        return BINS[self.kind] if self.bins is None else self.bins

    @property
    def scales_rewards(self) -> bool:
        """True if the range is that of rewards with bounded returns."""
        return self.v_min is None

    @property
    def ends(self) -> tuple[float, float]:
        """First and last edge of the bins, after the transform."""
        values = (-AUTOMATIC, AUTOMATIC) if self.v_min is None or self.v_max is None else (self.v_min, self.v_max)
        low, high = TRANSFORMS[self.transform].apply(torch.tensor(values, dtype=torch.float64)).tolist()
        return low, high

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> BinnedHead:
        return BinnedHead(outputs(self.size), self, legal)


class Readout(nn.Module):
    r"""Converts logits over bins to values, and target values to classes.

    .. math:: q = \sum_i \mathrm{softmax}(l)_i \, c_i

    with the centers c of the bins. With "symlog", two-hot has the returns at the centers, so that the mean over a random target
    is exact; HL-Gauss has the return at the mean, which is exact where the target is not random.

    Args:
        bins: the settings.
    """

    centers: Tensor
    edges: Tensor

    def __init__(self, bins: Bins) -> None:
        super().__init__()
        low, high = bins.ends
        transform = TRANSFORMS[bins.transform]
        self.kind = bins.kind
        if bins.kind == "hl_gauss":
            self.of_mean = transform
            edges = torch.linspace(low, high, bins.size + 1)
            centers = 0.5 * (edges[1:] + edges[:-1])
        else:
            self.of_mean = IDENTITY
            edges = torch.linspace(low, high, bins.size)
            centers = transform.invert(edges)
        self.sigma = SMOOTHING * (high - low) / bins.size
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("centers", centers, persistent=False)

    def mean(self, logits: Tensor) -> Tensor:
        """Returns values `[...]` from logits `[..., Z]`."""
        return self.of_mean.invert(logits.softmax(-1) @ self.centers)

    def classes(self, target: Tensor) -> Tensor:
        """Returns the probabilities `[..., Z]` of target values `[...]`, without a gradient."""
        target = target.detach()
        if self.kind == "two_hot":
            return two_hot(target, self.centers)
        return hl_gauss(self.of_mean.apply(target), self.edges, self.sigma)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the loss `[...]` of logits `[..., Z]` for target values `[...]`."""
        return cross_entropy(self.classes(target), logits.log_softmax(-1))


class BinnedValue(NamedTuple):
    """One value per action, as the mean over bins; `q`, `of` and `soft` are those of a scalar value."""

    logits: Tensor
    """Logits `[..., A, Z]` float32."""
    readout: Readout
    legal: Tensor | None = None
    """Legal actions `[..., A]` bool. If None, all actions are legal."""

    @property
    def q(self) -> Tensor:
        """Values `[..., A]` float32, with `ILLEGAL` where an action is masked."""
        return mask_illegal(self.readout.mean(self.logits), self.legal)

    def of(self, action: Tensor) -> Tensor:
        """Returns the value `[...]` of `action` `[...]`."""
        return self.readout.mean(gather_action(self.logits, action))

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Returns the expectation `[...]` of value plus `bonus` `[..., A]` under `policy` `[..., A]`."""
        return (policy * (self.q + bonus)).sum(-1)

    def cross_entropy(self, action: Tensor, target: Tensor) -> Tensor:
        """Returns the loss `[...]` of `action` `[...]` for target values `[...]`."""
        return self.readout.cross_entropy(gather_action(self.logits, action), target)


class BinnedHead(Head):
    """Head of a Q-network that predicts logits of bins.

    Args:
        outputs: output layer with Z = the number of bins.
        bins: the settings.
        legal: see `Head`.
    """

    def __init__(self, outputs: nn.Module, bins: Bins, legal: Tensor | None = None) -> None:
        super().__init__(outputs, legal)
        self.bins = bins
        self.readout = Readout(bins)
        if bins.kind == "two_hot":
            self.make_uniform()

    @torch.no_grad()
    def make_uniform(self) -> None:
        """Makes all bins equally probable, but for noise: the values are 0, and stay near it until the outermost bins are improbable.

        With "symlog" and a wide range these weigh thousands. Both ends then get less probable at the same pace and cancel; with
        random weights a difference of 0.001 would be a value of 20 (Hafner et al. 2023, arXiv 2301.04104).
        """
        for name, parameter in self.outputs.named_parameters():
            if "sigma" not in name:
                parameter.zero_()

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: object = None
    ) -> BinnedValue:
        return BinnedValue(self.outputs(x, noise), self.readout, self.allowed(mask))


class Classes(NamedTuple):
    """State values of N observations, as logits of bins."""

    logits: Tensor
    """Logits `[..., Z]` float32."""
    readout: Readout

    @property
    def mean(self) -> Tensor:
        """Values `[...]`, the means over the bins."""
        return self.readout.mean(self.logits)

    def cross_entropy(self, target: Tensor) -> Tensor:
        """Returns the loss `[...]` for target values `[...]`."""
        return self.readout.cross_entropy(self.logits, target)


class BinnedLinear(nn.Linear):
    """Output layer that predicts values by classification: `classes` returns logits of bins, and a call of the layer returns
    the values, as a linear layer would.

    Weights and biases are 0 at first, so that all bins are equally probable (Hafner et al. 2023, arXiv 2301.04104).

    Args:
        in_features: width of the input.
        outputs: number of values, A.
        bins: the settings.
    """

    def __init__(self, in_features: int, outputs: int, bins: Bins) -> None:
        super().__init__(in_features, outputs * bins.size)
        self.shape = (outputs, bins.size)
        self.readout = Readout(bins)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def classes(self, x: Tensor) -> Classes:
        """Returns the classes of values `[..., A]` for features `[..., H]`."""
        logits: Any = super().forward(x)
        return Classes(logits.unflatten(-1, self.shape), self.readout)

    def forward(self, x: Tensor) -> Tensor:
        """Returns values `[..., A]` for features `[..., H]`."""
        return self.classes(x).mean
