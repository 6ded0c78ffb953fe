"""Exploration strategies: epsilon-greedy and Boltzmann, sampled independently per lane."""

from sb_dqn.exploration.base import Act, Exploration
from sb_dqn.exploration.boltzmann import Boltzmann
from sb_dqn.exploration.config import ExplorationConfig, as_exploration
from sb_dqn.exploration.epsilon import EpsilonGreedy
from sb_dqn.exploration.ladders import ApexLadder, Ladder, LadderPart, LogLadder

__all__ = [
    "Act",
    "ApexLadder",
    "Boltzmann",
    "EpsilonGreedy",
    "Exploration",
    "ExplorationConfig",
    "Ladder",
    "LadderPart",
    "LogLadder",
    "as_exploration",
]
