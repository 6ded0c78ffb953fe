"""Networks: preprocessing, torsos, heads and the values that heads return."""

from sb_dqn.nn.extractors import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN

__all__ = ["BaseFeaturesExtractor", "CombinedExtractor", "FlattenExtractor", "NatureCNN"]
