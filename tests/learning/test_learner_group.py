"""Several learners: equal to one learner with all samples, in step until the end, and ended by name if one of them fails."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed

from sb_dqn import DQN, PPO, REINFORCE
from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.callbacks import BaseCallback, CheckpointCallback
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.learning import learner_watch
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.types import Batch
from tests.marks import FULL, SLOW, a_few
from tests.several_learners import run_learners
from tests.sockets import LOOPBACK, listening
from tests.tiny import Faulty, Tiny, lanes, quick


def batches(count: int, rows: slice) -> list[Batch]:
    """Transitions for an observation of two numbers and three actions; the same for each caller, of which it takes some rows."""
    rng = torch.Generator().manual_seed(5)
    found = []
    for _ in range(count):
        obs, next_obs = torch.randn(2, 32, 2, generator=rng)
        found.append(
            Batch(
                obs={"obs": obs[rows]},
                action=torch.randint(3, (32,), generator=rng)[rows],
                return_=5 * torch.randn(32, generator=rng)[rows],
                discount=torch.full((32,), 0.9)[rows],
                next_obs={"obs": next_obs[rows]},
                weight=torch.rand(32, generator=rng)[rows],
                place=torch.zeros((2, 32), dtype=torch.int64)[:, rows],
            )
        )
    return found


def parameters_after(mode: Mode, updates: int, batch_size: int) -> Any:
    """The parameters of a model after updates on this learner's rows of 32, clipped hard; eager, or traced."""
    model = quick(batch_size=batch_size, max_grad_norm=0.5, policy_kwargs={"net_arch": [16, 16]})
    model.learner.set_learning_rate(1e-3)
    first = model.rank * batch_size
    given = batches(updates, slice(first, first + batch_size))
    with model.learners.connected({}, False):
        traced = None
        for batch in given:
            tensors = batch.tensors()
            if traced is None:
                traced = accelerate(lambda *x, b=batch: model.learner.gradient(b.with_tensors(x))[0], tensors, mode)
            gradient, _ = model.learner.average(traced(*tensors), model.learner.gradient(batch)[2])
            model.learner.apply(gradient)
    return model.learner.flat.numpy()


@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_two_learners_of_16_equal_one_of_32(mode: Mode) -> None:
    first, second = run_learners(2, parameters_after, mode, 30, 16)
    whole = parameters_after(mode, 30, 32)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, whole, rtol=0, atol=1e-6)
    assert np.abs(whole - quick(policy_kwargs={"net_arch": [16, 16]}).learner.flat.numpy()).max() > 1e-3


class StopAt(BaseCallback):
    """Ends the training of one learner at an env step."""

    def __init__(self, rank: int, step: int) -> None:
        super().__init__()
        self.only, self.step = rank, step

    def _on_step(self) -> bool:
        return not (self.model.rank == self.only and self.num_timesteps >= self.step)


def facts(algorithm: type[Any], steps: int, stop_at: int | None = None, **settings: Any) -> dict[str, Any]:
    """Learns and returns what the learners have in common, and what they do not."""
    model = algorithm("MlpPolicy", lanes(2), seed=3, device="cpu", **settings)
    callback = None if stop_at is None else StopAt(1, stop_at)
    model.learn(steps, callback)
    moments = model.normalizer._observations
    return {
        "equal": (model.learner.flat.numpy().tobytes(), model.num_timesteps, model._n_updates, model.world_size),
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "mean": None if moments is None else moments.moments["obs"].mean.tolist(),
        "rank": model.rank,
        "seed": model.rng.env_seed,
        "epsilons": [] if model.exploration is None else model.exploration.lane_epsilons.tolist(),
    }


LADDER = {"kind": "epsilon", "ladder": "apex", "schedule": 0.4}
OFF_POLICY: dict[str, Any] = {"learning_starts": 20, "train_freq": 4, "buffer_size": 400, "batch_size": 8}
ON_POLICY: dict[str, Any] = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "target_kl": 0.01}


@FULL
def test_learners_of_a_replay_stay_in_step() -> None:
    settings: dict[str, Any] = {
        **OFF_POLICY,
        "exploration": LADDER,
        "prioritized_replay": True,
        "normalize_observations": True,
    }
    first, second = run_learners(2, lambda: facts(DQN, 200, **settings))
    assert first["equal"] == second["equal"]
    assert first["mean"] == second["mean"] != [0.0, 0.0]
    assert (first["steps"], first["updates"]) == (200, 45)  # counts over all lanes of all learners
    assert first["seed"] != second["seed"]
    ladder = 0.4 ** (1 + 7 * np.arange(4) / 3)
    np.testing.assert_allclose(first["epsilons"], ladder[0::2])
    np.testing.assert_allclose(second["epsilons"], ladder[1::2])


@SLOW
def test_learners_of_rollouts_stay_in_step() -> None:
    first, second = run_learners(2, lambda: facts(PPO, 160, normalize_rewards=True, **ON_POLICY))
    assert first["equal"] == second["equal"]
    assert first["updates"] > 0


@SLOW
def test_a_callback_of_one_learner_stops_all() -> None:
    first, second = run_learners(2, lambda: facts(DQN, 200, stop_at=61, **OFF_POLICY))
    assert first["equal"] == second["equal"]
    assert first["steps"] == 64


def resumed(folder: Path) -> tuple[bool, list[str]]:
    """Learns with full checkpoints; resumes from the one in the middle; returns if both end alike, and the files."""
    settings: dict[str, Any] = {
        **OFF_POLICY,
        "seed": 3,
        "device": "cpu",
        "normalize_rewards": True,
        "prioritized_replay": True,
    }
    model = DQN("MlpPolicy", lanes(2, lambda: Tiny(length=7)), **settings)
    saving = CheckpointCallback(80, str(folder), full=True, trust=True, incremental=True)
    model.learn(160, saving)
    model.save(folder / "last.zip")
    loaded = DQN.load(folder / "rl_model_80_steps.zip", env=lanes(2, lambda: Tiny(length=7)), trust=True).resume()
    same = torch.equal(model.learner.flat, loaded.learner.flat) and model.num_timesteps == loaded.num_timesteps
    same = same and torch.equal(model.rng.sample.get_state(), loaded.rng.sample.get_state())
    return same, sorted(str(path.relative_to(folder)) for path in folder.rglob("*.zip"))


@SLOW
def test_full_checkpoints_have_a_part_for_each_learner(tmp_path: Path) -> None:
    first, second = run_learners(2, resumed, tmp_path)
    assert first[0] is second[0] is True
    names = [f"rl_model_{steps}_steps.zip" for steps in (160, 80)]
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.zip")} == {
        "last.zip",
        *names,
        *(f"learner1/{name}" for name in names),
    }
    with pytest.raises(CheckpointError, match="must be resumed by 2 learners.*got learner 0 of 1"):
        DQN.load(tmp_path / names[0], env=lanes(2), trust=True)
    (tmp_path / "learner1" / names[0]).unlink()
    _, lone = run_learners(2, lambda: DQN.load(tmp_path / names[0], env=lanes(2), trust=True).rank)
    assert "got learner 1 of 2 with the file of learner 0" in lone
    loaded = run_learners(2, lambda: DQN.load(tmp_path / "last.zip", env=lanes(2)).rng.sample.get_state().tolist())
    assert loaded[0] != loaded[1]  # each has its own random numbers


class Dies(BaseCallback):
    """Kills the process of the second learner."""

    def _on_step(self) -> bool:
        if self.model.rank == 1 and self.num_timesteps > 60:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def error_and_time(env: Any, callback: Any) -> Any:
    """Returns the error of a learner, and when it came."""
    model = DQN(
        "MlpPolicy", env() if LearnerGroup.of_process().rank == 1 else lanes(2), device="cpu", seed=0, **OFF_POLICY
    )
    try:
        model.learn(100_000, callback)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}", time.time()


@SLOW
@pytest.mark.parametrize(
    ("env", "callback", "named"),
    [
        (lambda: lanes(2, lambda: Faulty("raise", 40)), None, "learner 1 (EnvironmentFault: the environment in lane"),
        (lambda: lanes(2), Dies(), "learner 1 without an error message"),
    ],
    ids=["raises", "killed"],
)
def test_a_learner_that_ends_is_named_by_the_others(env: Any, callback: Any, named: str) -> None:
    started = time.time()
    (text, ended), _, (also, _) = run_learners(3, error_and_time, env, callback)
    assert text.startswith("LearnerLost: all 3 learners must run until the end, got the end of ")
    assert named in text
    assert named in also
    assert ended - started < 60  # rather than the two hours of the time limit


class Stops(Tiny):
    """Stops in the middle of an episode: its process, or only the thread that learns."""

    def __init__(self, what: str) -> None:
        super().__init__(length=10_000)
        self.what = what

    def step(self, action: Any) -> Any:
        if self.t == 40 and self.what == "process":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.t == 40 and self.what == "thread":
            time.sleep(1_000)
        return super().step(action)


class Evaluates(BaseCallback):
    """Takes longer than a learner may hang, in short waits, as the episodes of a slow game do."""

    def _on_step(self) -> bool:
        if self.model.rank == 0 and self.n_calls == 10:
            until = time.monotonic() + 1.25 * learner_watch.HANG_SECONDS
            while time.monotonic() < until:
                time.sleep(0.05)
        return True


def hung(rank: int, what: str) -> Any:
    own = LearnerGroup.of_process().rank
    env = lanes(2, partial(Stops, what)) if own == rank else lanes(2)
    started = time.monotonic()
    try:
        DQN("MlpPolicy", env, device="cpu", seed=0, **OFF_POLICY).learn(1_000, Evaluates())
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - started


@SLOW
@pytest.mark.parametrize(
    ("rank", "what"),
    a_few([(1, "process"), (0, "process"), (1, "thread"), (0, "thread")], (0, "process")),
)
def test_a_learner_that_hangs_is_ended_and_named_by_the_others(
    rank: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_watch, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(learner_watch, "HANG_SECONDS", 5.0)
    results = run_learners(2, hung, rank, what)
    assert results[rank] is None
    text, seconds = results[1 - rank]
    assert text.startswith("LearnerLost: all 2 learners must run until the end, got the end of ")
    assert f"learner {rank}" in text
    assert "made no progress for 5 seconds" in text
    assert seconds < 55


def listens() -> list[str]:
    quick().learn(20)
    return listening([os.getpid()])


@SLOW
def test_learners_of_one_machine_listen_on_the_loopback_interface_only() -> None:
    first, second = run_learners(2, listens)
    assert len(first) >= 2  # the store, and the connections of the gradients
    assert set(first) | set(second) <= LOOPBACK


def refused(lanes_of: tuple[int, int], algorithm: type[Any] = DQN, **settings: Any) -> str:
    rank = LearnerGroup.of_process().rank
    try:
        algorithm("MlpPolicy", lanes(lanes_of[rank]), device="cpu", **settings).learn(20)
    except ConfigurationError as error:
        return str(error)
    return ""


@SLOW
def test_what_several_learners_refuse() -> None:
    def all_refusals() -> list[str]:
        return [
            refused((1, 1), train_freq=(1, "episode")),
            refused((1, 1), REINFORCE),
            refused((1, 2)),
        ]

    for found in run_learners(2, all_refusals):
        assert "train_freq must count steps with several learners, got (1, 'episode')" in found[0]
        assert "must have one learner" in found[1]
        assert "n_envs must be the same for all learners, got [1, 2]" in found[2]
