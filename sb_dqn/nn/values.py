"""What a head returns: `.q` for whoever selects an action, `.of(action)` for the loss."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class ScalarValue(NamedTuple):
    """One number per action."""

    q: Tensor
    """`[..., A]` float32."""

    def of(self, action: Tensor) -> Tensor:
        """Value `[...]` of `action` `[...]`."""
        return self.q.gather(-1, action.unsqueeze(-1)).squeeze(-1)
