"""Observation and reward normalization by running statistics, which are part of the model and saved with it."""

from sb_dqn.normalize.moments import Moments
from sb_dqn.normalize.normalizer import NormalizationConfig, Normalizer
from sb_dqn.normalize.observations import NormalizeObservations, ObservationNormalizer
from sb_dqn.normalize.rewards import NormalizeRewards, RewardNormalizer

__all__ = [
    "Moments",
    "NormalizationConfig",
    "NormalizeObservations",
    "NormalizeRewards",
    "Normalizer",
    "ObservationNormalizer",
    "RewardNormalizer",
]
