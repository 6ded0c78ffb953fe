"""Environments that die, hang or raise: error messages and restarted lanes."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

from sb_dqn.algorithms import DQN
from sb_dqn.envs.make import make_vec_env
from sb_dqn.envs.streams.open import StreamOptions, open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.envs.vector.worker_processes import end_workers, worker_failures
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from tests.marks import SLOW
from tests.tiny import Faulty, Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")


class Deadly(Tiny):
    """Kills its own process, exits, or sleeps forever at a step."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(length=1000)
        self.what, self.at = what, at

    def step(self, action: Any) -> Any:
        if self.t == self.at:
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "exit":
                os._exit(3)
            time.sleep(1000)
        return super().step(action)


def workers(what: str) -> AsyncVectorEnv:
    made: list[Any] = [partial(Tiny, length=1000), partial(Deadly, what, 6)]
    return AsyncVectorEnv(made, context="fork")


@SLOW
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("kill", r"the worker of lane 1 was killed by SIGKILL while taking action \d at step 7"),
        ("exit", r"the worker of lane 1 ended with exit code 3 while taking action \d at step 7"),
        ("hang", r"the worker of lane 1 hangs while taking action \d at step 7"),
    ],
)
def test_a_dead_worker_is_named_and_no_process_remains(what: str, message: str) -> None:
    env = workers(what)
    stream = open_stream(env, options=StreamOptions(step_timeout=0.5 if what == "hang" else None))
    model, began = quick(stream), time.monotonic()
    with pytest.raises(EnvironmentFault, match=message):
        model.learn(100)
    env.close()
    assert time.monotonic() - began < 10
    assert not any(process.is_alive() for process in env.processes)
    assert model.num_timesteps == 12
    model.set_env(Lanes([Tiny, Tiny]))
    model.learn(20, reset_num_timesteps=False)


@pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium tells it as a warning, too
def test_an_error_of_the_environment_itself_is_shown() -> None:
    """Expects the environment's error instead of gymnasium's end of the worker."""
    env = AsyncVectorEnv([partial(Faulty, "raise", at=3)], context="fork")
    with pytest.raises(EnvironmentFault, match="the pole broke"):
        quick(open_stream(env)).learn(100)
    env.close()


def test_live_workers_are_not_reported() -> None:
    env = workers("kill")
    env.reset()
    assert worker_failures(env, None, EOFError()) is None
    end_workers(env)
    lost = worker_failures(env, None, EOFError())
    assert lost is not None
    assert re.search("lane 0 was killed by SIG(TERM|KILL) while resetting", lost.text)  # the latter if pygame has drawn
    assert worker_failures(Tiny(), np.zeros(1), EOFError()) is None


def test_workers_that_ignore_sigterm_end_with_their_deleted_environment() -> None:
    """SDL, with which pygame draws, handles SIGTERM from then on, and forked workers inherit that."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        env = make_vec_env(Tiny, 2, vec_env_cls="async", vec_env_kwargs={"context": "fork"})
    finally:
        signal.signal(signal.SIGTERM, before)
    env.reset()
    processes = env.processes
    other = make_vec_env(Tiny, 1, vec_env_cls="async", vec_env_kwargs={"context": "fork"})  # inherits the pipes of env
    assert all(process.is_alive() for process in processes)
    del env
    gc.collect()
    assert not any(process.is_alive() for process in processes)
    other.close()


def lane_of(game: list[Tiny]) -> Tiny:
    return game.pop(0) if game else Tiny(length=1000)


def test_a_lane_that_raises_is_restarted_and_its_episode_truncated() -> None:
    env = Lanes([partial(Tiny, length=1000), partial(lane_of, [Faulty("raise", at=9)])], on_env_error="restart")
    model = quick(env)
    with pytest.warns(
        UserWarning, match=r"lane 1 raised at step 9 and was restarted.*ZeroDivisionError: the pole broke"
    ):
        model.learn(60)
    ring = model.replay.ring
    assert ring.last[: 2 * 30].view(-1, 2).nonzero().tolist() == [[9, 1]]
    assert not ring.terminal.any()
    assert env.restarts == 1
    assert model.num_timesteps == 61  # both lanes step together, but for the reset


def test_a_lane_that_keeps_failing_raises() -> None:
    env = Lanes([partial(Faulty, "raise", at=1)], on_env_error="restart")
    model: DQN = quick(env)
    with pytest.warns(UserWarning, match="restarted"), pytest.raises(EnvironmentFault, match="lane 0 raised at step"):
        model.learn(60)
    assert env.restarts == 3


def test_unknown_on_env_error_raises() -> None:
    with pytest.raises(ConfigurationError, match="on_env_error must be one of .* got 'ignore'"):
        Lanes([Tiny], on_env_error="ignore")
