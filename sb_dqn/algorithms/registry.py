"""The list of algorithms, which the package root, the command line, the tests and the docs read.

To add an algorithm to the package, write its file, and add its import and its entry in `MODULES` below. The imports are for
type checkers and editors only; `MODULES` has names alone, so that `import sb_dqn` and `sb-dqn --help` do not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sb_dqn.algorithms.a2c import A2C as A2C
    from sb_dqn.algorithms.btr import BTR as BTR
    from sb_dqn.algorithms.c51 import C51 as C51
    from sb_dqn.algorithms.c51 import CategoricalDQN as CategoricalDQN
    from sb_dqn.algorithms.dqn import DQN as DQN
    from sb_dqn.algorithms.dqn_variants import PERDQN as PERDQN
    from sb_dqn.algorithms.dqn_variants import DoubleDQN as DoubleDQN
    from sb_dqn.algorithms.dqn_variants import DuelingDQN as DuelingDQN
    from sb_dqn.algorithms.dqn_variants import MunchausenDQN as MunchausenDQN
    from sb_dqn.algorithms.dqn_variants import NoisyDQN as NoisyDQN
    from sb_dqn.algorithms.dqn_variants import NStepDQN as NStepDQN
    from sb_dqn.algorithms.fqf import FQF as FQF
    from sb_dqn.algorithms.iqn import IQN as IQN
    from sb_dqn.algorithms.ppo import PPO as PPO
    from sb_dqn.algorithms.pqn import PQN as PQN
    from sb_dqn.algorithms.qrdqn import QRDQN as QRDQN
    from sb_dqn.algorithms.r2d2 import R2D1 as R2D1
    from sb_dqn.algorithms.r2d2 import R2D2 as R2D2
    from sb_dqn.algorithms.rainbow import DataEfficientRainbow as DataEfficientRainbow
    from sb_dqn.algorithms.rainbow import Rainbow as Rainbow
    from sb_dqn.algorithms.reinforce import REINFORCE as REINFORCE
    from sb_dqn.algorithms.sac import SAC as SAC
    from sb_dqn.algorithms.vpg import VPG as VPG

ALIASES = {"C51": "CategoricalDQN", "R2D1": "R2D2"}
"""Second names of a class."""


MODULES = {
    "A2C": "sb_dqn.algorithms.a2c",
    "BTR": "sb_dqn.algorithms.btr",
    "C51": "sb_dqn.algorithms.c51",
    "CategoricalDQN": "sb_dqn.algorithms.c51",
    "DQN": "sb_dqn.algorithms.dqn",
    "PERDQN": "sb_dqn.algorithms.dqn_variants",
    "DoubleDQN": "sb_dqn.algorithms.dqn_variants",
    "DuelingDQN": "sb_dqn.algorithms.dqn_variants",
    "MunchausenDQN": "sb_dqn.algorithms.dqn_variants",
    "NoisyDQN": "sb_dqn.algorithms.dqn_variants",
    "NStepDQN": "sb_dqn.algorithms.dqn_variants",
    "FQF": "sb_dqn.algorithms.fqf",
    "IQN": "sb_dqn.algorithms.iqn",
    "PPO": "sb_dqn.algorithms.ppo",
    "PQN": "sb_dqn.algorithms.pqn",
    "QRDQN": "sb_dqn.algorithms.qrdqn",
    "R2D1": "sb_dqn.algorithms.r2d2",
    "R2D2": "sb_dqn.algorithms.r2d2",
    "DataEfficientRainbow": "sb_dqn.algorithms.rainbow",
    "Rainbow": "sb_dqn.algorithms.rainbow",
    "REINFORCE": "sb_dqn.algorithms.reinforce",
    "SAC": "sb_dqn.algorithms.sac",
    "VPG": "sb_dqn.algorithms.vpg",
}
"""Name of a class, second names included, to the module that defines it."""

NAMES = [name for name in MODULES if name not in ALIASES]
"""Names of the classes."""


def algorithm_class(name: str) -> Any:
    """Returns the class of a name in `MODULES`; imports torch."""
    return getattr(import_module(MODULES[name]), name)
