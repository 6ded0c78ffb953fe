"""Plain stacks of linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def mlp(in_features: int, widths: Sequence[int], activation_fn: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """`len(widths)` linear layers, each followed by its activation; an empty stack passes its input through."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(in_features, width), activation_fn()]
        in_features = width
    return nn.Sequential(*layers)
