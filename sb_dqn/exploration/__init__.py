"""Exploration: who acts greedily and who at random, drawn for each lane by itself."""

from sb_dqn.exploration.base import Act, Exploration
from sb_dqn.exploration.boltzmann import Boltzmann
from sb_dqn.exploration.epsilon import EpsilonGreedy
from sb_dqn.exploration.ladders import ApexLadder, Ladder, LogLadder
from sb_dqn.exploration.settings import ExplorationConfig, as_exploration

__all__ = [
    "Act",
    "ApexLadder",
    "Boltzmann",
    "EpsilonGreedy",
    "Exploration",
    "ExplorationConfig",
    "Ladder",
    "LogLadder",
    "as_exploration",
]
