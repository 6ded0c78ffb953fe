"""The ways to run a function, for tests of the same numbers in each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from sb_dqn.accelerate import Function

COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
OF_TORCH = pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
"""What torch says of itself at the first compiling."""
MODES: list[Any] = ["eager", "traced", pytest.param("compiled", marks=[COMPILER, OF_TORCH])]

Variant = Callable[[Function, tuple[Tensor, ...]], Function]
"""Of the fixture `variant`: from a function and its arguments to the same function, run in one of the ways."""
