"""Networks: preprocessing, torsos, heads and the values that heads return."""

from sb_dqn.nn.torsos.features import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    HadamaxCNN,
    ImpalaCNN,
    MinAtarCNN,
    MultiSkipMLP,
    NatureCNN,
    SimBa,
)

__all__ = [
    "BaseFeaturesExtractor",
    "CombinedExtractor",
    "FlattenExtractor",
    "HadamaxCNN",
    "ImpalaCNN",
    "MinAtarCNN",
    "MultiSkipMLP",
    "NatureCNN",
    "SimBa",
]
