"""Networks: preprocessing, torsos, heads and the values that heads return."""

from sb_dqn.nn.torsos.features import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    HadamaxCNN,
    ImpalaCNN,
    MinAtarCNN,
    NatureCNN,
)

__all__ = [
    "BaseFeaturesExtractor",
    "CombinedExtractor",
    "FlattenExtractor",
    "HadamaxCNN",
    "ImpalaCNN",
    "MinAtarCNN",
    "NatureCNN",
]
