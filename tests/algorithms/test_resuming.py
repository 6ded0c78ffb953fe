"""A run that is interrupted at its full checkpoint and resumed is the run that nobody interrupted, bit for bit."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.accelerate import modes
from sb_dqn.algorithms import ALGORITHMS, DQN, PQN
from sb_dqn.callbacks import BaseCallback, CallbackList, CheckpointCallback, EvalCallback
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.envs.atari import make_atari_env
from sb_dqn.envs.make import make_vec_env
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import evaluate_policy
from tests.continuing import Kept, differences, digest
from tests.marks import FULL, SLOW, a_few
from tests.tiny import Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

SMALL: dict[str, Any] = {"features_dim": 12, "channels": (4,), "kernels": (4,), "strides": (2,)}


@pytest.fixture(autouse=True)
def nothing_is_said() -> Any:
    """A full checkpoint that is exact warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def interrupted(make: Any, env: Any, folder: Path, steps: int, at: int, **loading: Any) -> tuple[Any, Any]:
    """The run of `steps`, and the one that was resumed from its checkpoint at `at`, in fresh objects."""
    whole = make(env()).learn(steps, callback=CheckpointCallback(at, folder, full=True))
    path = min(folder.glob("*.zip"), key=lambda found: int(found.stem.split("_")[2]))
    resumed = type(whole).load(path, env=env(), device="cpu", **loading)
    assert resumed.num_timesteps < whole.num_timesteps
    callback = CheckpointCallback(at, folder / "again", full=True)
    resumed.resume(callback=callback)
    assert resumed._n_updates == whole._n_updates
    return whole, resumed


TRACED = {"DQN", "FQF", "Rainbow", "PPO", "SAC"}
"""One of each kind of update."""


@pytest.mark.parametrize(
    "name",
    a_few(
        [pytest.param(name, marks=pytest.mark.traced) if name in TRACED else name for name in ALGORITHMS],
        "DQN",
        "Rainbow",
        "R2D2",
        "SAC",
        "PPO",
    ),
)
def test_every_algorithm(name: str, tmp_path: Path) -> None:
    rollouts = {"n_steps": 16, "batch_size": 8} if "n_epochs" in constructor_arguments(ALGORITHMS[name]) else {}
    make = partial(quick, algorithm=ALGORITHMS[name], **rollouts)
    whole, resumed = interrupted(make, lambda: "CartPole-v1", tmp_path, 110, 61)
    assert differences(whole, resumed) == []
    assert whole._n_updates > 0


SETTINGS: dict[str, dict[str, Any]] = {
    "priorities": {"prioritized_replay": {"uniform_mix": 0.2}, "n_steps": 3, "gradient_steps": -1},
    "noise": {"noisy": "independent", "dueling": True, "double_q": True, "train_freq": 3},
    "a full ring": {"buffer_size": 50, "prioritized_replay": True, "exploration": "boltzmann"},
    "bf16, whole episodes": {"precision": "bf16", "train_freq": (2, "episode"), "tau": 0.3},
    "running statistics": {"normalize_observations": True, "normalize_rewards": True, "n_steps": 3},
    "values by classification": {"value_loss": "hl_gauss", "n_steps": 3, "prioritized_replay": True},
    "resets": {
        "self_prediction": True,  # five products of one shape, which TorchScript joins from the second run on
        "policy_kwargs": {"net_arch": [64, 64]},
        "resets": {"every": 12, "keep": 0.5},
        "prioritized_replay": True,
        "noisy": True,
        "n_steps": {"start": 4, "end": 1, "updates": 9},
    },
    "ReDo": {"redo": {"every": 6, "threshold": 0.7}, "prioritized_replay": True, "noisy": True},
    "shared heads": {
        "target": "shared",
        "iterations": 3,
        "noisy": True,
        "exploration": "epsilon",
        "resets": 20,
    },
    "ensemble": {"ensemble": 3, "prioritized_replay": True, "resets": 20},
    "another optimizer": {"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.RMSprop}},
}


@SLOW
@pytest.mark.traced
@pytest.mark.parametrize(
    ("name", "count"),
    a_few(
        list(zip(SETTINGS, (4, 1, 4, 4, 3, 2, 2, 2, 2, 2, 1), strict=True)),
        "priorities",
        "bf16, whole episodes",
        "resets",
        "ReDo",
        "shared heads",
        "ensemble",
    ),
)
def test_settings(name: str, count: int, tmp_path: Path) -> None:
    settings = {**SETTINGS[name], "exploration_fraction": 0.8, "target_update_interval": 17}
    env = partial(make_vec_env, "CartPole-v1", count)
    whole, resumed = interrupted(partial(quick, **settings), env, tmp_path, 200, 90)
    assert differences(whole, resumed) == []


@pytest.mark.parametrize("at", [60, 63, 66])  # around the end of a rollout
def test_statistics_of_a_rollout(at: int, tmp_path: Path) -> None:
    settings = {"n_steps": 5, "normalize_observations": True, "normalize_rewards": True}
    env = partial(make_vec_env, "CartPole-v1", 3)
    whole, resumed = interrupted(partial(quick, algorithm=PQN, **settings), env, tmp_path, 120, at)
    assert differences(whole, resumed) == []


@pytest.mark.parametrize(
    ("algorithm", "observation", "actions"),
    [
        (DQN, "frames", "discrete"),
        (DQN, "dict", "multi discrete"),
        (PQN, "frames", "multi discrete"),
        (PQN, "dict", "discrete"),
    ],
)
def test_observations_and_actions(algorithm: Any, observation: str, actions: str, tmp_path: Path) -> None:
    policy = {"vector": "MlpPolicy", "dict": "MultiInputPolicy", "frames": "CnnPolicy"}[observation]
    kwargs = {"features_extractor_kwargs": SMALL} if observation == "frames" else {"net_arch": [8]}
    mask = "legal" if observation == "dict" else "info"
    if algorithm is PQN:
        kwargs = {"net_arch": [8]} if observation != "frames" else kwargs
    make = partial(quick, policy=policy, algorithm=algorithm, policy_kwargs=kwargs, action_mask=mask)
    env = partial(lanes, 3, partial(Kept, observation, actions, True))
    whole, resumed = interrupted(make, env, tmp_path, 96, 40)
    assert differences(whole, resumed) == []


def pong(exact_resume: bool, **kwargs: Any) -> Any:
    """Four lanes of games that are cut after 40 to 60 steps, sticky actions on."""
    kwargs = {"max_frames": 200, "num_threads": 1, **kwargs}
    return make_atari_env("ALE/Pong-v5", 4, exact_resume=exact_resume, **kwargs)


def pong_dqn(env: Any) -> DQN:
    kwargs = {"features_extractor_kwargs": {**SMALL, "kernels": (8,), "strides": (8,)}}
    return quick(env, "CnnPolicy", policy_kwargs=kwargs, learning_starts=40, train_freq=16, exploration_fraction=0.9)


@FULL
def test_pong_with_exact_resume(tmp_path: Path) -> None:
    whole, resumed = interrupted(pong_dqn, partial(pong, True), tmp_path, 300, 220)
    assert whole.statistics.num_episodes >= 4
    assert differences(whole, resumed) == []
    path = tmp_path / "rl_model_220_steps.zip"
    with pytest.raises(CheckpointError, match="replayed games must end at the observations of the checkpoint"):
        DQN.load(path, env=pong(True, protocol="classic"), device="cpu").resume()
    with pytest.raises(CheckpointError, match="exact_resume must be True as in the checkpoint"):
        DQN.load(path, env=pong(False), device="cpu").resume()


@FULL
@pytest.mark.traced
@pytest.mark.parametrize("trial", [5, 13])
def test_the_update_from_which_on_large_nets_are_traced(
    trial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes, "WARM_UP_UPDATES", trial)
    whole, resumed = interrupted(pong_dqn, partial(pong, True), tmp_path, 300, 220)  # 11 of 16 updates
    assert [model.update_runner.mode for model in (whole, resumed)] == ["traced", "traced"]
    assert differences(whole, resumed) == []
    if trial == 13:  # the whole run is the same bit for bit as far as both are eager
        return
    monkeypatch.setattr(modes, "WARM_UP_UPDATES", 1000)
    never = pong_dqn(pong(True)).learn(300)
    assert never.update_runner.mode == "eager"
    torch.testing.assert_close(never.learner.flat, whole.learner.flat, rtol=1e-3, atol=1e-4)


@SLOW
def test_pong_without_it_truncates_what_was_interrupted(tmp_path: Path) -> None:
    model = pong_dqn(pong(False))
    with pytest.warns(UserWarning, match=r"a resumed run starts new episodes, .*exact_resume=True"):
        model.learn(100, callback=CheckpointCallback(60, tmp_path, full=True))
    path = next(tmp_path.glob("*.zip"))
    resumed = DQN.load(path, env=pong(False), device="cpu").resume()
    ring = resumed.replay.ring
    cut = ring.last[: 4 * 26].view(-1, 4).nonzero().tolist()
    assert cut == [[15, lane] for lane in range(4)]  # a reset and 15 steps of each lane; then they begin anew
    assert not ring.terminal.any()


@pytest.mark.parametrize(
    "settings",
    [
        {"prioritized_replay": True},
        {"prioritized_replay": {"initial": "td_error"}, "gamma": {"start": 0.5, "end": 0.9, "updates": 9}},
        {"prioritized_replay": {"initial": "td_error"}, "normalize_rewards": True, "buffer_size": 37},
    ],
    ids=["initial priorities", "TD errors", "TD errors of normalized rewards"],
)
def test_saving_at_every_step_changes_no_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    plain = quick("CartPole-v1", **settings).learn(60)
    saving = quick("CartPole-v1", **settings)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
    saving.learn(60, callback=CheckpointCallback(1, tmp_path, full=True))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (torch.get_num_threads(), torch.get_default_dtype())
    assert differences(plain, saving) == []
    assert len(list(tmp_path.glob("*.zip"))) == 60


@pytest.mark.parametrize(
    ("name", "value_loss"), [("SAC", False), ("SAC", "hl_gauss"), ("PPO", False), ("PPO", "hl_gauss")]
)
def test_box_actions(name: str, value_loss: Any, tmp_path: Path) -> None:
    rollouts = {"n_steps": 16, "batch_size": 8} if name == "PPO" else {}
    make = partial(quick, algorithm=ALGORITHMS[name], value_loss=value_loss, **rollouts)
    whole, resumed = interrupted(make, partial(make_vec_env, "Pendulum-v1", 2), tmp_path, 120, 70)
    assert differences(whole, resumed) == []
    assert whole._n_updates > 0


def test_loading_and_evaluating_leave_the_process_alone(tmp_path: Path) -> None:
    def mine() -> Any:
        numpy_state: Any = np.random.get_state()  # noqa: NPY002 - looked at, not used
        settings = torch.get_num_threads(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
        return random.getstate(), numpy_state[1].tolist(), torch.get_rng_state().tolist(), settings

    quick("CartPole-v1").learn(40, callback=CheckpointCallback(20, tmp_path, full=True))
    before = mine()
    loaded = DQN.load(tmp_path / "rl_model_20_steps.zip", env="CartPole-v1", device="cpu")
    evaluate_policy(loaded, "CartPole-v1", n_eval_episodes=2)
    assert mine() == before
    loaded.resume()
    assert mine() == before  # torch's generator is put where it was at the checkpoint, and nobody drew since


@SLOW
@pytest.mark.traced
def test_resumed_from_every_step(tmp_path: Path) -> None:
    """The end of an episode, the reset, the first updates: no place is special."""
    whole = quick("CartPole-v1", n_steps=2).learn(40, callback=CheckpointCallback(7, tmp_path, full=True))
    for path in tmp_path.glob("*.zip"):
        assert differences(whole, DQN.load(path, env="CartPole-v1", device="cpu").resume()) == []


SCRIPT = """
import sys
from sb_dqn import DQN
from tests.continuing import digest
print(digest(DQN.load(sys.argv[1], env="CartPole-v1", device="cpu").resume()))
"""


@FULL
@pytest.mark.traced
def test_in_a_fresh_process(tmp_path: Path) -> None:
    whole = quick("CartPole-v1", prioritized_replay=True)
    whole.learn(120, callback=CheckpointCallback(70, tmp_path, full=True))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "rl_model_70_steps.zip")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.strip() == digest(whole)


class Counts(BaseCallback):
    """Remembers every step that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def _on_step(self) -> bool:
        self.seen.append(self.num_timesteps)
        return True

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.seen = list(state["seen"])


@SLOW
def test_callbacks_go_on(tmp_path: Path) -> None:
    """Those that come after the checkpoint in the list have seen the step, too: it is taken when the tick is over."""

    def callbacks(folder: Path) -> tuple[EvalCallback, Counts, CallbackList]:
        evaluation, counts = EvalCallback("CartPole-v1", eval_freq=20, log_path=folder, verbose=0), Counts()
        return evaluation, counts, CallbackList([CheckpointCallback(60, folder, full=True), evaluation, counts])

    first, seen, all_of_them = callbacks(tmp_path)
    whole = quick("CartPole-v1").learn(100, callback=all_of_them)
    second, seen_again, all_again = callbacks(tmp_path)
    resumed = DQN.load(tmp_path / "rl_model_60_steps.zip", env="CartPole-v1", device="cpu").resume(callback=all_again)
    assert differences(whole, resumed) == []
    assert seen.seen == seen_again.seen == list(range(1, 101))
    assert (first.n_calls, first.n_evaluations) == (second.n_calls, second.n_evaluations) == (100, 5)
    assert first.evaluations_results == second.evaluations_results
    assert first.best_mean_reward == second.best_mean_reward


def test_schedules_keep_their_horizon(tmp_path: Path) -> None:
    def make(env: Any) -> DQN:
        return quick(env, exploration_fraction=1.0)

    whole, resumed = interrupted(make, lambda: "CartPole-v1", tmp_path, 100, 50)
    assert resumed._total_timesteps == whole._total_timesteps == 100
    assert resumed.exploration_rate == whole.exploration_rate


def test_resume_of_a_run_that_is_done_does_nothing(tmp_path: Path) -> None:
    model = quick("CartPole-v1").learn(30)
    model.save(tmp_path / "done", full=True)
    loaded = DQN.load(tmp_path / "done", env="CartPole-v1", device="cpu")
    assert differences(model, loaded.resume()) == []
    assert loaded.learn(10, reset_num_timesteps=False).num_timesteps == 40


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    model = quick("CartPole-v1")
    with pytest.raises(ConfigurationError, match="full must be False before the first learn"):
        model.save(tmp_path / "early", full=True)
    model.learn(30).save(tmp_path / "plain")
    with pytest.raises(ConfigurationError, match=r"nothing to resume: .* saved with full=True"):
        DQN.load(tmp_path / "plain", env="CartPole-v1").resume()
    model.save(tmp_path / "full", full=True)
    without = DQN.load(tmp_path / "full")
    assert without.num_timesteps == 30
    with pytest.raises(ConfigurationError, match="nothing to resume"):
        without.resume()
    with pytest.raises(CheckpointError, match=r"must have 1 lanes, as the full checkpoint, got 2. Give as many"):
        DQN.load(tmp_path / "full", env=lanes(2, partial(make_one, "CartPole-v1")))
    loaded = DQN.load(tmp_path / "full", env="CartPole-v1").learn(5, reset_num_timesteps=False)
    with pytest.raises(ConfigurationError, match="have learned since"):
        loaded.resume()


def make_one(env_id: str) -> Any:
    import gymnasium

    return gymnasium.make(env_id)


def test_an_environment_without_state_is_said_and_its_episode_truncated(tmp_path: Path) -> None:
    model = quick(Tiny(length=1000))
    with pytest.warns(
        UserWarning, match=r"without the environment's state \(Tiny has no state_dict\(\)\).*truncated"
    ) as caught:
        model.learn(60, callback=CheckpointCallback(40, tmp_path, full=True))
    assert "trust=" not in str(caught[0].message)  # `sb-dqn train` shows this warning, too, and has no such argument
    game = Tiny(length=1000)
    resumed = DQN.load(tmp_path / "rl_model_40_steps.zip", env=game, device="cpu").resume()
    ring = resumed.replay.ring
    assert ring.last[:62].nonzero().flatten().tolist() == [40]  # a reset and 40 steps; then it begins anew
    assert not ring.terminal.any()
    assert resumed.num_timesteps == 60
    assert len(game.seeds) == 1
    assert game.seeds[0] != model.rng.env_seed  # other games than those at the start


def test_a_pickled_environment_needs_trust_twice(tmp_path: Path) -> None:
    whole = quick(Tiny(length=9))
    whole.learn(60, callback=CheckpointCallback(40, tmp_path, full=True, trust=True))
    path = tmp_path / "rl_model_40_steps.zip"
    with pytest.raises(CheckpointError, match=r"environment as a pickle.*trust=True"):
        DQN.load(path, env=Tiny(length=9)).resume()
    resumed = DQN.load(path, env=Tiny(length=9), device="cpu", trust=True).resume()
    assert differences(whole, resumed) == []


def test_an_environment_of_other_parts_is_refused(tmp_path: Path) -> None:
    import gymnasium

    quick("CartPole-v1").learn(40, callback=CheckpointCallback(20, tmp_path, full=True))
    with pytest.raises(CheckpointError, match=r"layers .*TimeLimit.*Make it with the same wrappers"):
        DQN.load(tmp_path / "rl_model_20_steps.zip", env=gymnasium.make("CartPole-v1").unwrapped).resume()


def test_a_learn_that_broke_in_mid_step_is_resumed_with_new_episodes(tmp_path: Path) -> None:
    class Breaks(Kept):
        def step(self, action: Any) -> Any:
            if self.t == 5:
                raise ZeroDivisionError
            return super().step(action)

    model = quick(Breaks())
    with pytest.raises(RuntimeError):
        model.learn(50)
    with pytest.warns(UserWarning, match="stopped in the middle of a step"):
        model.save(tmp_path / "broken", full=True)
    resumed = DQN.load(tmp_path / "broken", env=Kept(), device="cpu").resume()
    assert resumed.num_timesteps == 50
    assert np.isfinite(resumed.replay.ring.reward.numpy()).all()


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    model, folder = quick("CartPole-v1"), tmp_path / "checkpoints"
    good = quick("CartPole-v1").learn(60)
    callback = CheckpointCallback(20, folder, full=True)

    def breaks(locals_: Any, globals_: Any) -> bool:
        if model.num_timesteps == 30:
            folder.rename(tmp_path / "moved")
            folder.write_text("no folder any more")
        return True

    with pytest.warns(UserWarning, match="the checkpoint was not written, training continues: .*cannot write") as said:
        model.learn(60, callback=[callback, breaks])
    assert len(said) == 1
    assert differences(model, good) == []
    assert (tmp_path / "moved" / "rl_model_20_steps.zip").is_file()
