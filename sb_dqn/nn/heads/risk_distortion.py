"""Risk-sensitive action selection: distortions of the quantile fractions used for acting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.errors import ConfigurationError, nearest


@dataclass(frozen=True)
class Distortion:
    r"""Distortion of the fractions at which a quantile function is averaged (Dabney et al. 2018, arXiv 1806.06923, section 3.2).

    .. math:: \mathrm{cvar:}\ \eta \tau, \qquad \mathrm{power:}\ \tau^{1/(1+|\eta|)} \text{ if } \eta \ge 0,
        \ 1 - (1 - \tau)^{1/(1+|\eta|)} \text{ else}

    `cvar` is the mean over the worst share eta of the returns; `power` is risk-seeking for eta above 0, risk-averse below.

    Args:
        kind: "cvar" or "power".
        eta: in (0, 1] for cvar; any number for power.
    """

    kind: str
    eta: float

    def __call__(self, taus: Tensor) -> Tensor:
        if self.kind == "cvar":
            return taus * self.eta
        exponent = 1.0 / (1.0 + abs(self.eta))
        return taus**exponent if self.eta >= 0.0 else 1.0 - (1.0 - taus) ** exponent


def parse_risk(risk: Any) -> Distortion | None:
    """Parses `risk="cvar 0.25"` or `risk="power -2"`; None stays None.

    Raises:
        ConfigurationError: unknown name, or no number in range.
    """
    if risk is None:
        return None
    kind, _, eta = risk.strip().partition(" ") if isinstance(risk, str) else ("", "", "")
    if kind not in ("cvar", "power"):
        raise ConfigurationError(
            f"risk must be None, 'cvar ETA' with ETA in (0, 1], or 'power ETA', got {risk!r}. Give one of them."
            f"{nearest(kind, ('cvar', 'power'))}"
        )
    try:
        number = float(eta)
    except ValueError:
        raise ConfigurationError(
            f"risk must be {kind!r} and a number, got {risk!r}. Give for example '{kind} 0.25'."
        ) from None
    if kind == "cvar":
        return Distortion(kind, check_float(f"risk={risk!r}, whose number", number, 0.0, 1.0, above=True))
    return Distortion(kind, check_float(f"risk={risk!r}, whose number", number, -math.inf))
