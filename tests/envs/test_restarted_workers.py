"""Worker processes that die, hang or raise, and are restarted."""

from __future__ import annotations

import csv
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AsyncVectorEnv

from sb_dqn.envs.make import make_vec_env
from sb_dqn.envs.vector.restarting_async_env import worker_lanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.logger import configure
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, quick

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ERROR"),  # gymnasium tells what its workers raised as a warning, too
    pytest.mark.usefixtures("eagerly"),
]


class Once(Tiny):
    """Fails at a step: once (a file records it), or every time."""

    def __init__(self, marker: Path | None, what: str, at: int, length: int = 1000) -> None:
        super().__init__(length=length)
        self.marker, self.what, self.at = marker, what, at

    def step(self, action: Any) -> Any:
        if self.t == self.at and not (self.marker is not None and self.marker.exists()):
            if self.marker is not None:
                self.marker.touch()
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "exit":
                os._exit(3)
            if self.what == "raise":
                raise ZeroDivisionError("the pole broke")
            time.sleep(1000)
        return super().step(action)


def workers(*lanes: Any, step_timeout: float | None = None, **kwargs: Any) -> Any:
    """Makes one process per lane, with the start method of this process."""
    return worker_lanes([*lanes], "restart", step_timeout, context="fork", **kwargs)


@SLOW
@pytest.mark.parametrize(
    ("what", "message"),
    a_few(
        [
            (
                "kill",
                r"the worker of lane 1 was killed by SIGKILL while taking action \d at step 7; all workers were restarted",
            ),
            ("exit", r"the worker of lane 1 ended with exit code 3 while taking action \d at step 7; all"),
            ("hang", r"the worker of lane 1 hangs while taking action \d at step 7; all"),
            ("raise", r"a worker raised ZeroDivisionError: the pole broke at step 7; all"),
        ],
        "kill",
        "hang",
    ),
)
def test_workers_are_restarted_and_their_episodes_truncated(tmp_path: Path, what: str, message: str) -> None:
    env = workers(
        partial(Tiny, length=1000),
        partial(Once, tmp_path / "done", what, 6),
        step_timeout=0.5 if what == "hang" else None,
    )
    first = env.env
    model = quick(env)
    logger = configure(str(tmp_path), ["csv"])
    model.set_logger(logger)
    with pytest.warns(UserWarning, match=message):
        model.learn(60, log_interval=1)
    logger.close()
    ring = model.replay.ring
    assert ring.last[:60].view(-1, 2).nonzero().tolist() == [[7, 0], [7, 1]]
    assert not ring.terminal.any()
    assert not ring.reward[:60].view(-1, 2)[7:9].any()  # the step that was lost, and the reset row after it
    assert env.restarts == 1
    assert env.single_action_space == first.single_action_space
    with (tmp_path / "progress.csv").open() as file:
        assert {row["rollout/env_restarts"] for row in csv.DictReader(file)} == {"1"}
    assert not any(process.is_alive() for process in first.processes)
    env.close()
    assert not any(process.is_alive() for process in env.unwrapped.processes)


def test_a_lane_that_just_ended_gets_no_empty_episode(tmp_path: Path) -> None:
    env = workers(partial(Tiny, length=6), partial(Once, tmp_path / "done", "kill", 6))
    model = quick(env)
    with pytest.warns(UserWarning, match="restarted"):
        model.learn(30)
    env.close()
    assert [info["l"] for info in model.ep_info_buffer][:3] == [6, 7, 6]  # of lane 0, what was cut short, of lane 0


def test_workers_that_keep_failing_raise() -> None:
    env = workers(partial(Once, None, "raise", 0))
    with pytest.warns(UserWarning, match="restarted"), pytest.raises(EnvironmentFault, match="the pole broke"):
        quick(env).learn(60)
    assert env.restarts == 3


def test_on_env_error_of_make_vec_env() -> None:
    env = make_vec_env(
        Tiny, 2, seed=0, vec_env_cls="async", vec_env_kwargs={"on_env_error": "restart", "context": "fork"}
    )
    assert env.restarts == 0
    quick(env).learn(20)
    env.close()
    plain = make_vec_env(Tiny, 1, vec_env_cls="async", vec_env_kwargs={"context": "fork"})
    assert isinstance(plain, AsyncVectorEnv)
    plain.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"on_env_error": "ignore"}, "on_env_error must be .* got 'ignore'"),
        ({"on_env_error": "restart", "autoreset_mode": "SameStep"}, "autoreset_mode must be NEXT_STEP"),
        ({"on_env_error": "restart", "copy": False}, "copy must be True"),
        ({"step_timeout": 3.0}, "on_env_error must be 'restart' with step_timeout=3.0"),
    ],
)
def test_bad_arguments_raise(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_vec_env(Tiny, 1, vec_env_cls="async", vec_env_kwargs=kwargs)
