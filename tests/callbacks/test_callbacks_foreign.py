"""Callbacks that derive from Stable-Baselines3's `BaseCallback`, in `learn` of this library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from sb_dqn import DQN, PPO, make_vec_env
from sb_dqn.callbacks import CallbackList, EvalCallback, as_callback
from tests.marks import SLOW
from tests.tiny import quick

theirs: Any = pytest.importorskip("stable_baselines3.common.callbacks", reason="the peer, installed by the test extra")
logger: Any = pytest.importorskip("stable_baselines3.common.logger", reason="comes with the peer")
monitor: Any = pytest.importorskip("stable_baselines3.common.monitor", reason="comes with the peer")
vec_env: Any = pytest.importorskip("stable_baselines3.common.vec_env", reason="comes with the peer")


def cartpole() -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", buffer_size=500, learning_starts=50, seed=0)


class Reads(theirs.BaseCallback):  # type: ignore[misc]
    """Counts the calls of each hook and sums what `locals` has."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.reward = 0.0
        self.episodes: list[float] = []

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def _init_callback(self) -> None:
        self._count("init")

    def _on_training_start(self) -> None:
        self._count("start")
        assert self.locals["self"] is self.model
        assert self.locals["total_timesteps"] == 60

    def _on_rollout_start(self) -> None:
        self._count("rollout start")

    def _on_rollout_end(self) -> None:
        self._count("rollout end")

    def _on_training_end(self) -> None:
        self._count("end")

    def _on_step(self) -> bool:
        self.reward += float(self.locals["rewards"].sum())
        self.episodes += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        assert self.num_timesteps == self.model.num_timesteps <= 2 * self.n_calls  # resets are no env steps
        assert self.locals["dones"].shape == (2,)
        self.logger.record("custom/number", self.n_calls)
        return True


@SLOW
def test_hooks_and_locals() -> None:
    callback = Reads()
    PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), n_steps=10, batch_size=20, seed=0).learn(60, callback=callback)
    assert callback.calls.pop("rollout start") == 4
    assert callback.calls == {"init": 1, "start": 1, "rollout end": 3, "end": 1}
    assert 0 < sum(callback.episodes) <= callback.reward <= 60
    assert callback.n_calls >= 30


def test_false_stops_and_a_count_continues() -> None:
    class Stops(theirs.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return bool(self.n_calls < 5)

    model = quick()
    model.learn(100, callback=[Stops()])
    assert model.num_timesteps == 5
    wrapped = as_callback(Stops())
    wrapped.load_state_dict({"n_calls": 3, "children": []})
    assert wrapped.state_dict() == {"n_calls": 3, "children": []}


def test_evaluation_checkpoints_and_stopping(tmp_path: Path) -> None:
    env = vec_env.DummyVecEnv([lambda: monitor.Monitor(gymnasium.make("CartPole-v1"))])
    best = theirs.StopTrainingOnRewardThreshold(reward_threshold=1.0, verbose=0)
    evaluates = theirs.EvalCallback(
        env, best, n_eval_episodes=2, eval_freq=30, log_path=tmp_path, best_model_save_path=tmp_path, verbose=0
    )
    saves = theirs.CheckpointCallback(10, tmp_path / "kept", save_replay_buffer=True, save_vecnormalize=True)
    events: list[int] = []

    def note(locals_: Any, _: Any) -> bool:
        events.append(locals_["self"].num_timesteps)
        return True

    every = theirs.EveryNTimesteps(7, theirs.ConvertCallback(note))
    model = cartpole().learn(100, callback=theirs.CallbackList([saves, every, evaluates]))
    assert model.num_timesteps == 30  # the first evaluation is above the threshold
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [30]
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"rl_model_10_steps.zip", "rl_model_20_steps.zip", "rl_model_30_steps.zip"} <= names
    assert len([name for name in names if "replay_buffer" in name]) == 3
    assert events == [7, 14, 21, 28]
    assert DQN.load(tmp_path / "best_model.zip").num_timesteps == 30


class Pruned(theirs.EvalCallback):  # type: ignore[misc]
    """Reports each evaluation to a study and stops as the study decides, as Optuna's examples do."""

    def __init__(self, env: Any, report: Any, **kwargs: Any) -> None:
        super().__init__(env, verbose=0, **kwargs)
        self.report = report
        self.is_pruned = False

    def _on_step(self) -> bool:
        if self.eval_freq > 0 and self.n_calls % self.eval_freq == 0:
            super()._on_step()
            self.is_pruned = self.report(self.last_mean_reward)
            return not self.is_pruned
        return True


def test_a_pruned_trial() -> None:
    env = vec_env.DummyVecEnv([lambda: monitor.Monitor(gymnasium.make("CartPole-v1"))])
    reports: list[float] = []

    def report(mean: float) -> bool:
        reports.append(mean)
        return len(reports) == 2

    callback = Pruned(env, report, eval_freq=20, n_eval_episodes=1)
    model = cartpole().learn(200, callback=callback)
    assert callback.is_pruned
    assert model.num_timesteps == 40
    assert min(reports) > 5


def test_theirs_in_ours_and_ours_in_theirs() -> None:
    calls: list[str] = []

    class Notes(theirs.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            calls.append(type(self.parent).__name__)
            return self.parent.best_mean_reward < 1.0

    model = cartpole().learn(
        100, callback=EvalCallback("CartPole-v1", Notes(), eval_freq=20, n_eval_episodes=1, verbose=0)
    )
    assert calls == ["EvalCallback"]
    assert model.num_timesteps == 20
    notes: Any = CallbackList([Reads(), Reads()])
    quick(make_vec_env("CartPole-v1", 2)).learn(60, callback=notes)
    assert [each.callback.calls["end"] for each in notes.callbacks] == [1, 1]
    inner = CallbackList([as_callback(lambda locals_, _: bool(locals_["self"].num_timesteps < 14))])
    assert quick().learn(100, callback=theirs.EveryNTimesteps(7, inner)).num_timesteps == 14


def test_media_of_their_logger(tmp_path: Path) -> None:
    class Logs(theirs.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            hparam = logger.HParam({"gamma": 0.9}, {"rollout/ep_rew_mean": 0.0})
            self.logger.record("hparams", hparam, exclude=("stdout", "log", "json", "csv"))
            image = logger.Image(np.zeros((3, 4, 4), np.uint8), "CHW")
            self.logger.record("image", image, exclude=("stdout", "log", "json", "csv"))
            self.logger.dump(self.num_timesteps)
            return self.n_calls < 2

    quick(tensorboard_log=tmp_path).learn(10, callback=Logs())
    (events,) = tmp_path.glob("DQN_1/events*")
    assert b"image" in events.read_bytes()
