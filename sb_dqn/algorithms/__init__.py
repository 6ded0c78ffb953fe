"""Algorithms: each final class is a composition root in which its parts stand by name."""

from sb_dqn.algorithms.dqn import DQN, DoubleDQN, NStepDQN

ALGORITHMS = {algorithm.__name__: algorithm for algorithm in (DQN, DoubleDQN, NStepDQN)}

__all__ = ["ALGORITHMS", "DQN", "DoubleDQN", "NStepDQN"]
