"""Evaluation callback: intervals, files, children, seeds, resuming and closing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN
from sb_dqn.actors import OverlappedActors
from sb_dqn.callbacks import BaseCallback, CallbackList, EvalCallback, StopTrainingOnRewardThreshold
from sb_dqn.envs.streams.sb3 import sync_normalizer
from sb_dqn.errors import CheckpointError, ConfigurationError
from tests.full_disk import POSIX, files_limited_to

pytestmark = pytest.mark.usefixtures("eagerly")


class Game(gymnasium.Env[Any, Any]):
    """Episodes of `length` steps with `reward` each; the initial observation is a random number."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 2, success: bool | None = None) -> None:
        self.length = length
        self.success = success
        self.reward = 1.0
        self.closed = False
        self.starts: list[float] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.remaining = self.length
        self.starts.append(float(self.np_random.random()))
        return np.array([self.starts[-1]], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.remaining -= 1
        info = {"is_success": self.success} if self.success is not None and self.remaining == 0 else {}
        return np.zeros(1, np.float32), self.reward, self.remaining == 0, False, info

    def close(self) -> None:
        self.closed = True


class Counter(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.at: list[int] = []

    def _on_step(self) -> bool:
        self.at.append(self.num_timesteps)
        return True


def test_evaluations_are_logged_and_both_files_written(make_model: Any, make_loop: Any, tmp_path: Path) -> None:
    model, logs, best = make_model(8), tmp_path / "logs", tmp_path / "best"
    callback = EvalCallback(
        Game(), n_eval_episodes=3, eval_freq=20, log_path=logs, best_model_save_path=best, verbose=0
    )
    make_loop(model, callback).learn(ticks=6)  # 48 steps
    with np.load(logs / "evaluations.npz") as file:
        assert sorted(file.files) == ["ep_lengths", "results", "timesteps"]
        assert file["timesteps"].tolist() == [24, 40]
        assert file["results"].tolist() == [[2.0] * 3] * 2
        assert file["ep_lengths"].tolist() == [[2] * 3] * 2
    assert model.tape == ["save best_model.zip"]  # the second evaluation was not better
    assert (best / "best_model.zip").read_text() == "24"
    assert callback.last_mean_reward == callback.best_mean_reward == 2.0
    expected = {"eval/mean_reward": 2.0, "eval/mean_ep_length": 2.0}
    assert model.logger.dumps == [(n, {**expected, "time/total_timesteps": n}) for n in (24, 40)]
    assert [path.name for path in logs.iterdir()] == ["evaluations.npz"]  # no temporary file


@pytest.mark.parametrize("success", [None, True])
def test_attributes_hold_all_evaluations(make_model: Any, make_loop: Any, success: bool | None) -> None:
    callback = EvalCallback(Game(success=success), n_eval_episodes=3, eval_freq=20, verbose=0)
    make_loop(make_model(8), callback).learn(ticks=6)
    assert callback.evaluations_timesteps == [24, 40]
    assert callback.evaluations_results == [[2.0] * 3] * 2
    assert callback.evaluations_length == [[2] * 3] * 2
    assert callback.evaluations_successes == ([[True] * 3] * 2 if success else [])


def test_best_model_and_children_at_each_evaluation(model: Any, make_loop: Any, tmp_path: Path) -> None:
    env, new_best, after = Game(), Counter(), Counter()
    callback = EvalCallback(env, new_best, after, eval_freq=10, best_model_save_path=tmp_path, verbose=0)
    rewards = iter([1.0, 3.0, 2.0, 4.0])

    class NextReward(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 10 == 9:
                env.reward = next(rewards)
            return True

    make_loop(model, CallbackList([NextReward(), callback])).learn(ticks=40)
    assert after.at == [10, 20, 30, 40]
    assert new_best.at == [10, 20, 40]
    assert (tmp_path / "best_model.zip").read_text() == "40"
    assert (callback.last_mean_reward, callback.best_mean_reward) == (8.0, 8.0)


@pytest.mark.parametrize("place", ["callback_on_new_best", "callback_after_eval"])
def test_a_child_stops_the_training(model: Any, make_loop: Any, place: str) -> None:
    child: Any = {place: StopTrainingOnRewardThreshold(2.0)}
    assert not make_loop(model, EvalCallback(Game(), eval_freq=10, verbose=0, **child)).learn(ticks=40)
    assert model.num_timesteps == 10


def test_both_children_are_called_even_if_the_first_stops(model: Any, make_loop: Any) -> None:
    after = Counter()
    callback = EvalCallback(Game(), StopTrainingOnRewardThreshold(1.0), after, eval_freq=10, verbose=0)
    assert not make_loop(model, callback).learn(ticks=40)
    assert after.at == [10]


def test_children_may_be_functions(model: Any, make_loop: Any) -> None:
    best: list[int] = []
    callback = EvalCallback(
        Game(),
        callback_on_new_best=lambda locals_, globals_: best.append(model.num_timesteps),
        callback_after_eval=lambda locals_, globals_: model.num_timesteps < 20,
        eval_freq=10,
        verbose=0,
    )
    assert not make_loop(model, callback).learn(ticks=50)
    assert (best, model.num_timesteps) == ([10], 20)


def test_success_is_logged_and_written(model: Any, make_loop: Any, tmp_path: Path, capsys: Any) -> None:
    envs = [lambda: Game(success=True), lambda: Game(success=False), lambda: Game(success=True), lambda: Game()]
    make_loop(model, EvalCallback(envs, n_eval_episodes=4, eval_freq=10, log_path=tmp_path)).learn(ticks=20)
    assert [values["eval/success_rate"] for _, values in model.logger.dumps] == [pytest.approx(2 / 3)] * 2
    with np.load(tmp_path / "evaluations.npz") as file:
        assert file["successes"].tolist() == [[True, False, True, False]] * 2
    output = capsys.readouterr().out
    score = "episode_reward=2.00 +/- 0.00, episode length 2.00 +/- 0.00, success rate 66.7%"
    assert f"Eval num_timesteps=20, {score}" in output
    assert output.count("New best mean reward!") == 1


def test_episodes_differ_between_evaluations_and_are_reproducible(make_model: Any, make_loop: Any) -> None:
    def starts(seed: int | None, model_seed: int) -> list[float]:
        env, model = Game(), make_model()
        model.seed = model_seed
        make_loop(model, EvalCallback(env, n_eval_episodes=2, eval_freq=10, seed=seed, verbose=0)).learn(ticks=20)
        return env.starts

    first = starts(None, 3)
    assert len(set(first)) == len(first) == 4  # two evaluations of two episodes, all different
    assert starts(None, 3) == first
    assert starts(None, 4) != first
    assert starts(7, 3) == starts(7, 4) != first


def test_zero_frequency_never_evaluates(model: Any, make_loop: Any) -> None:
    make_loop(model, EvalCallback(Game(), eval_freq=0)).learn(ticks=20)
    assert model.logger.dumps == []


def test_a_resumed_run_continues_its_file(make_model: Any, make_loop: Any, tmp_path: Path) -> None:
    def run(model: Any, **kwargs: Any) -> None:
        make_loop(model, EvalCallback(Game(), eval_freq=10, log_path=tmp_path, verbose=0, **kwargs)).learn(ticks=20)

    run(make_model())
    resumed = make_model()
    resumed.num_timesteps = 10  # from a checkpoint older than the last evaluation
    run(resumed)
    path = tmp_path / "evaluations.npz"
    with np.load(path) as file:
        assert file["timesteps"].tolist() == [10, 20, 30]
        assert file["results"].shape == (3, 5)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="n_eval_episodes must be 5 as in .*, got 2. Set n_eval_episodes=5"):
        run(resumed, n_eval_episodes=2)
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    with pytest.raises(CheckpointError, match=r"evaluations.npz must be a readable .* Move the file"):
        run(resumed)
    run(make_model())  # a new run writes a new file
    with np.load(path) as file:
        assert file["timesteps"].tolist() == [10, 20]


def test_a_failed_write_keeps_the_old_file(model: Any, make_loop: Any, tmp_path: Path, monkeypatch: Any) -> None:
    make_loop(model, EvalCallback(Game(), eval_freq=10, log_path=tmp_path, verbose=0)).learn(ticks=10)
    before = (tmp_path / "evaluations.npz").read_bytes()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half a fi")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(UserWarning, match=r"evaluations\.npz was not written, training continues: .*No space"):
        make_loop(model, EvalCallback(Game(), eval_freq=10, log_path=tmp_path, verbose=0)).learn(ticks=10)
    assert [path.name for path in tmp_path.iterdir()] == ["evaluations.npz"]
    assert (tmp_path / "evaluations.npz").read_bytes() == before


def test_only_environments_opened_by_the_callback_are_closed(model: Any, make_loop: Any) -> None:
    opened: list[Game] = []

    def open_game() -> Game:
        opened.append(Game())
        return opened[-1]

    user_env = Game()
    make_loop(model, EvalCallback(user_env, eval_freq=10, verbose=0)).learn(ticks=20)
    assert not user_env.closed
    callback = EvalCallback([open_game], eval_freq=10, verbose=0)
    make_loop(model, callback).learn(ticks=20)
    assert [env.closed for env in opened] == [True]  # opened once for both evaluations
    make_loop(model, callback).learn(ticks=20)
    assert [env.closed for env in opened] == [True, True]  # opened again by the second learn


def test_the_training_env_is_refused_before_the_first_step(model: Any, make_loop: Any) -> None:
    model.env = Game()
    with pytest.raises(ConfigurationError, match=r"(?s)learning on.*its id"):
        make_loop(model, EvalCallback(gymnasium.Wrapper(model.env), verbose=0)).learn(ticks=1)
    assert model.num_timesteps == 0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"eval_env": None}, "eval_env must be an environment, got None"),
        ({"n_eval_episodes": 0}, "n_eval_episodes.*0"),
        ({"eval_freq": 2.5}, "eval_freq.*2.5"),
        ({"max_steps": 0}, "max_steps.*0"),
        ({"seed": "a"}, "seed.*'a'"),
        ({"callback_on_new_best": 3}, "callback_on_new_best must be None, a function .* got 3"),
        (
            {"callback_after_eval": StopTrainingOnRewardThreshold},
            "callback_after_eval must be an object, got the class Stop",
        ),
    ],
)
def test_invalid_arguments_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EvalCallback(**{"eval_env": Game(), **kwargs})


def test_state_is_restored(model: Any, make_loop: Any) -> None:
    callback = EvalCallback(Game(), StopTrainingOnRewardThreshold(99), eval_freq=10, verbose=0)
    assert callback.state_dict()["mean_reward"] is None
    make_loop(model, callback).learn(ticks=20)
    fresh = EvalCallback(Game(), StopTrainingOnRewardThreshold(99), eval_freq=10, verbose=0)
    fresh.load_state_dict(callback.state_dict())
    assert (fresh.best_mean_reward, fresh.n_evaluations, fresh.n_calls) == (2.0, 2, 20)
    assert fresh.state_dict() == callback.state_dict()


def test_a_best_mean_reward_set_by_the_user_is_kept_until_the_first_evaluation() -> None:
    callback = EvalCallback(Game())
    callback.best_mean_reward = 5.0
    callback.load_state_dict(EvalCallback(Game()).state_dict())
    assert callback.best_mean_reward == 5.0


def test_normalizer_statistics_are_copied(model: Any) -> None:
    class Outer:
        def __init__(self, venv: Any) -> None:
            self.venv = venv

    class VecNormalize(Outer):
        def __init__(self, mean: float) -> None:
            super().__init__(object())
            self.obs_rms, self.ret_rms = {"mean": mean}, {"mean": -mean}

    training, evaluation = VecNormalize(5.0), VecNormalize(0.0)
    sync_normalizer(Outer(training), Outer(Outer(evaluation)))
    assert (evaluation.obs_rms, evaluation.ret_rms) == ({"mean": 5.0}, {"mean": -5.0})
    assert evaluation.obs_rms is not training.obs_rms
    sync_normalizer(object(), Outer(evaluation))  # nothing to copy
    assert evaluation.obs_rms == {"mean": 5.0}
    with pytest.raises(ConfigurationError, match=r"eval_env must be wrapped in VecNormalize.*got object. Pass VecNorm"):
        sync_normalizer(training, object())


def test_statistics_of_rewards_alone_are_copied() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="the peer, installed by the test extra")
    env, eval_env = (
        vec_env.VecNormalize(vec_env.DummyVecEnv([Game]), training=each, norm_obs=False) for each in (True, False)
    )
    model = DQN("MlpPolicy", env, learning_starts=1_000, seed=0)
    model.learn(20, EvalCallback(eval_env, eval_freq=20, n_eval_episodes=1, verbose=0))
    assert eval_env.ret_rms.count == env.ret_rms.count > 19


@POSIX
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # NumPy 1 leaves the archive of savez open
def test_files_that_cannot_be_written_do_not_end_the_training(tmp_path: Path) -> None:
    """A full disk until step 40; then there is room again."""
    logs, best = tmp_path / "logs", tmp_path / "best"
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=1_000, seed=0)
    callback = EvalCallback(
        "CartPole-v1", n_eval_episodes=1, eval_freq=10, log_path=logs, best_model_save_path=best, verbose=0
    )
    with (
        pytest.warns(UserWarning, match="was not written, training continues: cannot write") as said,
        files_limited_to(64),
    ):
        model.learn(40, callback)
    unwritten = [str(each.message).split()[0] for each in said if "was not written" in str(each.message)]
    assert sorted(unwritten) == ["best_model.zip", "evaluations.npz"]
    assert [*logs.iterdir(), *best.iterdir()] == []
    model.learn(20, callback, reset_num_timesteps=False)
    assert np.load(logs / "evaluations.npz")["timesteps"].tolist() == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("env", ["CartPole-v1", lambda: gymnasium.make("CartPole-v1")])
def test_an_id_or_factory_may_be_that_of_the_training(env: Any) -> None:
    actors = OverlappedActors(groups=2, lanes=1)
    model = DQN(
        "MlpPolicy", env, actors=actors, buffer_size=100, learning_starts=1_000, policy_kwargs={"net_arch": [4]}
    )
    callback = EvalCallback(env, eval_freq=10, n_eval_episodes=1, verbose=0)
    model.learn(20, callback=callback)
    assert len(callback.evaluations_results) == 2
