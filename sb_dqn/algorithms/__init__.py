"""Algorithms: each final class is a composition root in which its parts stand by name."""

from sb_dqn.algorithms.a2c import A2C
from sb_dqn.algorithms.distributional import C51, FQF, IQN, QRDQN, CategoricalDQN
from sb_dqn.algorithms.dqn import DQN
from sb_dqn.algorithms.dqn_variants import PERDQN, DoubleDQN, DuelingDQN, MunchausenDQN, NoisyDQN, NStepDQN
from sb_dqn.algorithms.ppo import PPO
from sb_dqn.algorithms.pqn import PQN
from sb_dqn.algorithms.r2d2 import R2D1, R2D2
from sb_dqn.algorithms.rainbow import BTR, DataEfficientRainbow, Rainbow
from sb_dqn.algorithms.reinforce import REINFORCE
from sb_dqn.algorithms.sac import SAC
from sb_dqn.algorithms.vpg import VPG

ALGORITHMS = {
    algorithm.__name__: algorithm
    for algorithm in (
        DQN, DoubleDQN, DuelingDQN, NoisyDQN, NStepDQN, PERDQN, MunchausenDQN, CategoricalDQN, QRDQN, IQN, FQF, Rainbow,
        DataEfficientRainbow, BTR, PQN, A2C, PPO, SAC, R2D2, REINFORCE, VPG,
    )
}  # fmt: skip

__all__ = [
    "A2C",
    "ALGORITHMS",
    "BTR",
    "C51",
    "DQN",
    "FQF",
    "IQN",
    "PERDQN",
    "PPO",
    "PQN",
    "QRDQN",
    "R2D1",
    "R2D2",
    "REINFORCE",
    "SAC",
    "VPG",
    "CategoricalDQN",
    "DataEfficientRainbow",
    "DoubleDQN",
    "DuelingDQN",
    "MunchausenDQN",
    "NStepDQN",
    "NoisyDQN",
    "Rainbow",
]  # fmt: skip
