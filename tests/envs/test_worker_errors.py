"""Exceptions of environments in worker processes: lane, type, text and place, however the workers were made."""

from __future__ import annotations

import glob
import os
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv

import sb_dqn
from sb_dqn.actors.settings import ProcessActors
from sb_dqn.envs.vector.worker_processes import WorkerReports
from sb_dqn.errors import EnvironmentFault
from tests.marks import SLOW
from tests.tiny import Tiny, quick

vec_env: Any = pytest.importorskip("stable_baselines3.common.vec_env", reason="the peer, installed by the test extra")
their_env_util: Any = pytest.importorskip("stable_baselines3.common.env_util", reason="comes with the peer")
pytestmark = pytest.mark.usefixtures("eagerly")
warns_too = pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium tells what its workers raised as a warning, too
FORK = {"start_method": "fork"}
HERE = r"\(test_worker_errors.py, line \d+\)"


class Broken(Tiny):
    """Raises in its constructor, in `reset`, at the third step, or in a method."""

    def __init__(self, when: str, message: str = "the pole broke") -> None:
        if when == "init":
            raise ValueError(message)
        super().__init__(length=1000)
        self.when, self.message = when, message

    def reset(self, **kwargs: Any) -> Any:
        if self.when == "reset":
            raise LookupError(self.message)
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self.when == "step" and self.t == 2:
            raise ZeroDivisionError(self.message)
        return super().step(action)

    def hurt(self) -> None:
        raise OSError(self.message)


def lanes(when: str) -> list[Any]:
    """Factories of two lanes, of which the second raises."""
    return [Tiny, partial(Broken, when)]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts temporary files in a folder of this test, since other tests have workers at the same time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left_files() -> list[str]:
    return glob.glob(os.path.join(tempfile.gettempdir(), "sb_dqn-worker-*"))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (
            "init",
            rf"the worker of lane 0 raised ValueError: the pole broke {HERE} while it started\. Fix the environment",
        ),
        ("reset", rf"the worker of lane \d raised LookupError: the pole broke {HERE} while resetting"),
        (
            "step",
            rf"the worker of lane \d raised ZeroDivisionError: the pole broke {HERE} while taking action \d.* at step 3",
        ),
    ],
)
def test_subproc_vec_env_in_make_vec_env(when: str, message: str) -> None:
    before = left_files()
    with pytest.raises(EnvironmentFault, match=message) as caught:
        env = sb_dqn.make_vec_env(partial(Broken, when), 2, vec_env_cls=vec_env.SubprocVecEnv, vec_env_kwargs=FORK)
        quick(env).learn(20)
    pipe = caught.value.__cause__
    assert isinstance(pipe, (EOFError, OSError))
    assert "Traceback (most recent call last)" in str(pipe.__cause__)
    assert "the pole broke" in str(pipe.__cause__)
    del caught, pipe
    assert left_files() == before


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (
            "init",
            rf"the worker of lane 1 raised ValueError: the pole broke {HERE} while it started; all workers were ended",
        ),
        (
            "reset",
            rf"the worker of lane 1 raised LookupError: the pole broke {HERE} in reset\(\); all workers were ended",
        ),
        ("step", rf"the worker of lane 1 raised ZeroDivisionError: the pole broke {HERE} in step_wait\(\); all"),
    ],
)
def test_subproc_vec_env_of_the_room(when: str, message: str) -> None:
    room: Any = import_module("sb_dqn.sb3.common.vec_env")
    with pytest.raises(EnvironmentFault, match=message) as caught:
        quick(room.SubprocVecEnv(lanes(when), "fork")).learn(20)
    assert "Fix the environment." in str(caught.value)


def test_other_calls_of_the_room_and_classes() -> None:
    room: Any = import_module("sb_dqn.sb3.common.vec_env")
    env = their_env_util.make_vec_env(partial(Broken, "never"), 2, vec_env_cls=room.SubprocVecEnv, vec_env_kwargs=FORK)
    assert env.get_attr("message", 1) == ["the pole broke"]
    with pytest.raises(EnvironmentFault, match=rf"lane 1 raised OSError: the pole broke {HERE} in env_method\(\)"):
        env.env_method("hurt", indices=[1])
    assert not any(process.is_alive() for process in env.processes)
    env.close()
    theirs = vec_env.SubprocVecEnv([Tiny], "fork")
    assert isinstance(env, vec_env.SubprocVecEnv)
    assert isinstance(theirs, room.SubprocVecEnv)
    assert not isinstance(vec_env.DummyVecEnv([Tiny]), room.SubprocVecEnv)
    theirs.close()


def test_workers_that_others_made() -> None:
    env = vec_env.SubprocVecEnv(lanes("step"), "fork")
    message = (
        r"the worker of lane 1 ended with exit code 1 while taking action \d at step 3; all workers were ended\. The traceback of the "
        r"worker is above, on stderr\. Fix the environment; DummyVecEnv raises its error here\."
    )
    with pytest.raises(EnvironmentFault, match=message):
        quick(env).learn(20)
    with pytest.raises(EnvironmentFault, match="the environment raised at step 3: ZeroDivisionError: the pole broke"):
        quick(vec_env.DummyVecEnv(lanes("step"))).learn(20)


@warns_too
def test_workers_of_gymnasium() -> None:
    env = AsyncVectorEnv(lanes("step"), context="fork")
    with pytest.raises(
        EnvironmentFault, match=r"the environment in lane 1 raised at step 3: ZeroDivisionError: the pole broke\. Fix"
    ):
        quick(env).learn(20)
    env.close()
    env = AsyncVectorEnv([partial(Broken, "reset")] * 2, context="fork")
    with pytest.raises(
        EnvironmentFault, match=r"in lanes \[0, 1\] raised while resetting, the last of them LookupError: "
    ):
        quick(env).learn(20)
    env.close()


def in_worker_only(parent: int) -> gymnasium.Env[Any, Any]:
    """Raises in workers; gymnasium makes one environment in this process, too."""
    return Tiny() if os.getpid() == parent else Broken("init")


@warns_too
def test_factories_that_raise_in_workers_of_gymnasium() -> None:
    with pytest.raises(
        EnvironmentFault, match=rf"the worker of lane 0 raised ValueError: the pole broke {HERE} while it started"
    ):
        sb_dqn.make_vec_env(
            partial(in_worker_only, os.getpid()), 2, vec_env_cls="async", vec_env_kwargs={"context": "fork"}
        )


@SLOW
def test_process_actors_number_the_lanes_of_the_model() -> None:
    model = quick([Tiny, Tiny, Tiny, partial(Broken, "step")], actors=ProcessActors(2, lanes=2))
    message = (
        r"the actor of lanes 2 to 3 raised EnvironmentFault: the environment in lane 3 raised at step 3: ZeroDivisionError: the pole "
        rf"broke {HERE}"
    )
    with pytest.raises(UserWarning, match=message):  # warnings are errors here
        model.learn(200)
    model.close()


def test_a_report_is_of_the_process_that_ended() -> None:
    """In the process that made them, factories raise as they are and write nothing."""
    reports = WorkerReports()
    factory, _ = reports.around([partial(Broken, "init"), Tiny])
    with pytest.raises(ValueError, match="the pole broke"):
        factory()
    assert reports.take(0) is None
    assert not os.path.exists(factory.path)
