"""Networks: preprocessing, torsos, heads and the values that heads return."""

from sb_dqn.nn.torsos.convolutions import MinAtarCNN, NatureCNN
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.nn.torsos.features import CombinedExtractor
from sb_dqn.nn.torsos.hadamax import HadamaxCNN
from sb_dqn.nn.torsos.impala import ImpalaCNN
from sb_dqn.nn.torsos.residual_mlp import MultiSkipMLP, SimBa

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
