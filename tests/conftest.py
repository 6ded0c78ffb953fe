"""What all tests share: one thread, the profile of Hypothesis, and the ways to run a function."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from sb_dqn.accelerate import Function, accelerate, forced_mode
from tests.marks import FULL, SLOW
from tests.modes import MODES, Variant

settings.register_profile("sb_dqn", deadline=None)  # a busy machine takes longer for one example than any bound
settings.load_profile("sb_dqn")

COMPILED_WITH_NEWEST_PACKAGES = Path(__file__).parent / "losses" / "test_td.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks compiled cases `full`, or `slow` in one file, and keeps one of each test: a compiler takes a second and more.

    Its first call takes 10 to 20 seconds, so that the default suite compiles nothing. The other cases run eagerly and traced;
    SB_DQN_MATRIX=full compiles them too. It is called before pytest reads the marks.
    """
    compiled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "compiled" in re.split(r"[\[\]-]", item.nodeid.partition("[")[2]):
            compiled.setdefault(item.nodeid.partition("[")[0], []).append(item)
            item.add_marker(SLOW if item.path == COMPILED_WITH_NEWEST_PACKAGES else FULL)
    if os.environ.get("SB_DQN_MATRIX") == "full":
        return
    left_out = [item for cases in compiled.values() for item in cases[1:]]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True, scope="session")
def single_thread() -> Iterator[None]:
    """For tiny tensors: a second thread only waits for the first, for seconds on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Updates are not traced, which takes far longer than the few that a test makes; those marked `traced` still are.

    For files whose subject is the same either way. That traced updates equal eager ones is shown for each algorithm by itself.
    """
    with forced_mode("eager") if request.node.get_closest_marker("traced") is None else nullcontext():
        yield


@pytest.fixture(params=MODES)
def variant(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[Variant]:
    """A function as it is, traced or compiled: with other numbers than those it is then asked for."""

    def run(function: Function, arguments: tuple[Tensor, ...]) -> Function:
        return accelerate(function, tuple(torch.zeros_like(argument) for argument in arguments), request.param)

    yield run
    assert "running without it" not in capsys.readouterr().err  # a function that fell back would prove nothing
