"""A `learn` that makes no update is warned of once: before it where that is certain, else after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sb_dqn.algorithms import A2C, DQN, PPO, R2D2, REINFORCE
from tests.marks import FULL, a_few
from tests.tiny import Tiny

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("eagerly")]
ENV = "CartPole-v1"
SMALL: dict[str, Any] = {"buffer_size": 1_000, "policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}


def on_policy(algorithm: Any, **settings: Any) -> Any:
    return algorithm("MlpPolicy", ENV, policy_kwargs={"net_arch": [8]}, seed=0, device="cpu", **settings)


def test_a_run_that_ends_before_learning_starts_says_so_to_the_step() -> None:
    short = DQN("MlpPolicy", ENV, learning_starts=100, train_freq=4, **SMALL)
    with pytest.warns(
        UserWarning, match=r"total_timesteps=103\) will make no update.*learning_starts=100 .*104"
    ) as seen:
        short.learn(103)
    assert short.counters.n_updates == 0
    assert seen[0].filename == __file__, "it points at the line that called learn"
    enough = DQN("MlpPolicy", ENV, learning_starts=100, train_freq=4, **SMALL).learn(104)  # warnings are errors
    assert enough.counters.n_updates == 1


def test_r2d2_with_its_defaults_trains_nothing_in_sixty_thousand_steps_and_says_what_would() -> None:
    model = R2D2("MlpLstmPolicy", ENV, **SMALL)
    with pytest.warns(
        UserWarning, match="learning_starts=100,000 .*every 7,680 env steps. Learn for 107,520 env steps"
    ):
        model.learn(60_000, callback=lambda *_: False)  # it is said before the first step


@pytest.mark.parametrize(("episodes", "much"), [(1, "until an episode has ended"), (3, "until 3 episodes have ended")])
def test_a_run_without_the_end_of_an_episode_is_not_told_to_count_steps(episodes: int, much: str) -> None:
    model = DQN("MlpPolicy", Tiny(length=10**9), learning_starts=10, train_freq=(episodes, "episode"), **SMALL)
    with pytest.warns(UserWarning, match=f"Learn {much}, or give the environment a time limit, or count env steps"):
        model.learn(45)


def test_steps_of_earlier_learns_count_and_it_is_said_once() -> None:
    model = DQN("MlpPolicy", ENV, learning_starts=100, **SMALL)
    with pytest.warns(UserWarning, match="will make no update"):
        model.learn(40)
    model.learn(40, reset_num_timesteps=False)
    assert model.counters.n_updates == 0
    model.learn(40)  # 40 steps since the count was reset, 120 of the replay
    assert model.counters.n_updates > 0
    model.learn(1)


def test_a_loaded_model_waits_again_and_says_so_again(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", ENV, learning_starts=100, **SMALL).learn(120)
    model.save(tmp_path / "model.zip")
    loaded = DQN.load(tmp_path / "model.zip", env=ENV)
    with pytest.warns(UserWarning, match="learning_starts=100 env steps, 0 are done"):
        loaded.learn(60, reset_num_timesteps=False)


def test_a_run_that_goes_on_was_warned_of_when_it_began(tmp_path: Path) -> None:
    def save(found: dict[str, Any], _: Any) -> bool:
        found["self"].save(tmp_path / "model.zip", full=True)
        return False

    model = DQN("MlpPolicy", ENV, learning_starts=100, **SMALL)
    with pytest.warns(UserWarning, match="will make no update"):
        model.learn(60, callback=save)
    DQN.load(tmp_path / "model.zip", env=ENV).resume()


@FULL
def test_sequences_that_are_never_complete() -> None:
    settings = {"sequences": {"batch_T": 32, "warmup_T": 16}, "learning_starts": 0, "train_freq": 1, **SMALL}
    model = DQN("MlpLstmPolicy", ENV, **settings)
    with pytest.warns(UserWarning, match=r"made no update: one sample takes 33 rows of a lane, \d+ have arrived"):
        model.learn(15)
    model.learn(60, reset_num_timesteps=False)
    assert model.counters.n_updates > 0


def test_updates_after_episodes_that_do_not_end() -> None:
    model = DQN("MlpPolicy", ENV, learning_starts=0, train_freq=(9, "episode"), **SMALL)
    with pytest.warns(UserWarning, match=r"made no update: updates come after every 9 episodes .*, \d have ended"):
        model.learn(30)


@pytest.mark.parametrize(("algorithm", "steps"), a_few([(PPO, 2_048), (A2C, 5)], A2C))
def test_a_rollout_that_is_never_full(algorithm: Any, steps: int) -> None:
    certain = on_policy(algorithm, n_steps=steps)
    with pytest.warns(UserWarning, match=rf"will make no update.*n_steps={steps:,}, .*Learn for {steps:,} env steps"):
        certain.learn(max(steps // 4, 1))
    certain.learn(steps, reset_num_timesteps=False)
    assert certain.counters.n_updates > 0
    tight = on_policy(algorithm, n_steps=200)
    with pytest.warns(
        UserWarning, match=r"made no update: an update takes a full rollout of n_steps=200, of which 1\d\d"
    ):
        tight.learn(150)  # episodes that begin are ticks, too, so nobody could know


def test_episodes_that_do_not_end() -> None:
    with pytest.warns(UserWarning, match="made no update: an update takes episodes_per_update=8 complete episodes"):
        on_policy(REINFORCE).learn(40)


def test_who_stops_it_knows_why() -> None:
    on_policy(PPO, n_steps=256).learn(256, callback=lambda *_: False)
