"""The one list of algorithms: the package root, the command line, the tests and the docs read it.

To add an algorithm to the package, write its file and add its import below. The imports run for type checkers and editors
only. At run time the list is read from the text of this file, so that `import sb_dqn` and `sb-dqn --help` do not load torch.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
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


def _read_modules() -> dict[str, str]:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


MODULES = _read_modules()
"""Name of a class, second names included, to the module that defines it."""

NAMES = [name for name in MODULES if name not in ALIASES]
"""Names of the classes."""


def algorithm_class(name: str) -> Any:
    """Returns the class of a name in `MODULES`; imports torch."""
    return getattr(import_module(MODULES[name]), name)
