"""Hindsight experience replay: bounds of episodes, new goals and their rewards, resume, environments, and refusals."""

from __future__ import annotations

import gc
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn import DQN, PQN, QRDQN, R2D2, SAC
from sb_dqn.accelerate import forced_mode
from sb_dqn.actors import OverlappedActors, ProcessActors
from sb_dqn.buffers.hindsight import EpisodeBounds
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.envs.goal_tasks import BitFlip
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.types import Slot
from tests.actors.test_overlapped import SaveAt
from tests.continuing import differences
from tests.marks import FULL, SLOW, a_few

SMALL: dict[str, Any] = {
    "policy": "MultiInputPolicy", "learning_starts": 20, "batch_size": 32, "buffer_size": 400, "seed": 3, "device": "cpu",
    "policy_kwargs": {"net_arch": [8]},
}  # fmt: skip


class Trail(gymnasium.Env[Any, Any]):
    """Achieved goals are (number of the episode, step); a reward is 100 * achieved step - desired step, as floats."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, lane: int = 0) -> None:
        row = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=row, achieved_goal=row, desired_goal=row)
        self.episode, self.t = 1000 * lane, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        self.length = 1 + int(self.np_random.integers(9))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ended = self.t == self.length
        terminal = ended and self.episode % 2 == 0
        own = self._observe()
        reward = self.compute_reward(own["achieved_goal"][None], own["desired_goal"][None], [{}])[0]
        return own, float(reward), terminal, ended and not terminal, {}

    def _observe(self) -> dict[str, Any]:
        here = np.array([self.episode, self.t], np.float32)
        return {"observation": here, "achieved_goal": here, "desired_goal": np.full(2, -1, np.float32)}

    def compute_reward(self, achieved: Any, desired: Any, infos: Any) -> Any:
        assert len(achieved) == len(desired) == len(infos)
        return 100 * achieved[:, 1] - desired[:, 1]

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self.episode, "t": self.t, "length": self.length, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.t, self.length = state["episode"], state["t"], state["length"]
        self.np_random.bit_generator.state = state["rng"]


def learned(strategy: str = "future", steps: int = 300, lanes: int = 2, callback: Any = None, **kwargs: Any) -> Any:
    settings = {"n_sampled_goal": 4, "goal_selection_strategy": strategy}
    env = kwargs.pop("env", [partial(Trail, lane) for lane in range(lanes)])
    return DQN(env=env, hindsight=settings, **{**SMALL, **kwargs}).learn(steps, callback)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=40),
    st.integers(3, 9),
)
def test_bounds_of_episodes_are_those_of_a_scan(events: list[tuple[bool, bool, bool, bool]], rows: int) -> None:
    """Of each event: rows that are `last` in both lanes, whether lane 1 receives a row, and whether the bounds are read."""
    ring = Ring(Layout(2 * rows, 2, {"obs": spaces.Box(-1, 1, (1,), np.float32)}, num_actions=2))
    bounds = EpisodeBounds(ring)
    flags: tuple[list[bool], list[bool]] = ([], [])
    zeros = np.zeros(2, np.float32)
    for *last, both, read in events:
        valid = np.array([True, both])
        slot = Slot({"obs": zeros[:, None]}, zeros, zeros, np.zeros(2, bool), np.array(last), valid, bool(both))
        ring.arrive(slot)
        for lane in range(2):
            flags[lane].extend([last[lane]] if valid[lane] else [])
        if read:
            check_bounds(bounds, flags, rows)
    check_bounds(bounds, flags, rows)


def check_bounds(bounds: EpisodeBounds, flags: tuple[list[bool], list[bool]], stored: int) -> None:
    bounds.ring.refresh_bounds()
    bounds.refresh()
    for lane in range(2):
        count = len(flags[lane])
        for row in range(max(0, count - stored), count - 1):
            ends = [at for at in range(row, count - 1) if flags[lane][at]]
            begins = [at + 1 for at in range(row) if flags[lane][at]]
            first, last = bounds.find(np.array([lane]), np.array([row]))
            assert int(last[0]) == (ends[0] if ends else count - 1)
            assert int(first[0]) == max(begins[-1] if begins else 0, count - stored)


def goals_of(model: Any, draws: int = 60) -> tuple[Any, ...]:
    """Observations, goals, rewards and bounds of episodes of many transitions of the buffer."""
    batches = [model.replay.sample(64, torch.Generator().manual_seed(draw)) for draw in range(draws)]
    here, after = (
        torch.cat([each["achieved_goal"] for each in part])
        for part in ([b.obs for b in batches], [b.next_obs for b in batches])
    )
    goal = torch.cat([batch.obs["desired_goal"] for batch in batches])
    assert torch.equal(goal, torch.cat([batch.next_obs["desired_goal"] for batch in batches]))
    reward = torch.cat([batch.return_ for batch in batches])
    lane, row = torch.cat([batch.place for batch in batches], 1).numpy()
    first, last = model.replay.relabeler.episodes.find(lane, row)
    return here.numpy(), after.numpy(), goal.numpy(), reward.numpy(), first - row, last - row


@SLOW
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("buffer_size", [400, 60])
def test_goals_are_those_of_the_same_episode(strategy: str, buffer_size: int) -> None:
    model = learned(strategy, buffer_size=buffer_size)
    here, after, goal, reward, first, last = goals_of(model)
    assert (here[:, 0] == after[:, 0]).all()
    new = goal[:, 0] >= 0
    assert abs(new.mean() - 0.8) < 0.03
    assert (goal[~new] == -1).all()
    assert (reward == 100 * after[:, 1] - goal[:, 1]).all()
    assert (goal[new, 0] == here[new, 0]).all()
    offset = (goal[:, 1] - here[:, 1])[new]
    if strategy == "future":
        assert (offset >= 1).all()
    if strategy == "final":
        assert (offset == last[new]).all()
    else:
        assert (offset <= last[new]).all()
        assert (offset >= first[new] + 1).all()
        steps, drawn = (last, offset) if strategy == "future" else (last - first, goal[new, 1])
        longest = Counter(drawn[steps[new] == 9].tolist())
        assert set(longest) == set(range(1, 10))
        assert max(longest.values()) < 2 * sum(longest.values()) / 9  # uniform


def test_returns_of_several_steps_are_those_of_a_loop() -> None:
    model = learned(n_steps=3, gamma=0.5)
    ring = model.replay.ring
    batch = model.replay.sample(500)
    goal = batch.obs["desired_goal"]
    assert 0.7 < (goal[:, 0] >= 0).float().mean() < 0.9
    for index, (lane, row) in enumerate(batch.place.T.tolist()):
        expected = 0.0
        for step in range(1, 4):
            cell = int(ring.cells(torch.tensor(lane), torch.tensor(row + step)))
            reward = 100 * float(ring.obs["achieved_goal"][cell, 1]) - float(goal[index, 1])
            expected += 0.5 ** (step - 1) * reward
            if ring.last[cell]:
                break
        assert float(batch.return_[index]) == pytest.approx(expected, rel=1e-5)


def test_another_environment_brings_its_own_rewards() -> None:
    class Doubled(Trail):
        def compute_reward(self, achieved: Any, desired: Any, infos: Any) -> Any:
            return 2 * super().compute_reward(achieved, desired, infos)

    model = learned(lanes=1)
    model.set_env(Doubled())
    model.learn(20, reset_num_timesteps=False)
    _, after, goal, reward, _, _ = goals_of(model, draws=5)
    new = goal[:, 0] >= 0
    assert (reward[new] == 2 * (100 * after[new, 1] - goal[new, 1])).all()


def test_everything_else_of_a_transition_stays() -> None:
    model = learned()
    plain = model.replay.view.gather(*model.replay.sampler.draw(64, torch.Generator().manual_seed(0)))
    batch = model.replay.sample(64, torch.Generator().manual_seed(0))
    for name in ("action", "discount", "weight", "place"):
        assert torch.equal(getattr(plain, name), getattr(batch, name))
    for key in ("observation", "achieved_goal"):
        assert torch.equal(plain.obs[key], batch.obs[key])
        assert torch.equal(plain.next_obs[key], batch.next_obs[key])


@SLOW
@pytest.mark.parametrize("kwargs", a_few([{}, {"prioritized_replay": True, "normalize_rewards": True}], {}))
def test_a_run_depends_on_the_seed_alone_and_resumes(kwargs: dict[str, Any], tmp_path: Path) -> None:
    whole, again = learned(steps=160, callback=SaveAt(tmp_path), **kwargs), learned(steps=160, **kwargs)
    assert differences(whole, again) == []
    for file in sorted(tmp_path.glob("*.zip")):
        resumed = DQN.load(file, env=[partial(Trail, lane) for lane in range(2)]).resume()
        assert differences(whole, resumed) == []
        rows = [model.replay.sample(64, torch.Generator().manual_seed(0)) for model in (whole, resumed)]
        assert all(torch.equal(a, b) for a, b in zip(rows[0].tensors(), rows[1].tensors(), strict=True))


@SLOW
def test_traced_updates_are_those_of_eager_ones() -> None:
    traced = learned(steps=200)
    with forced_mode("eager"):
        eager = learned(steps=200)
    for name, tensor in traced.policy.state_dict().items():
        torch.testing.assert_close(tensor, eager.policy.state_dict()[name], rtol=1e-4, atol=1e-5)


ENVS: dict[str, dict[str, Any]] = {
    "one": {"env": BitFlip(4)},
    "worker processes": {
        "env": gymnasium.vector.AsyncVectorEnv,  # made in the test
    },
    "overlapped": {"env": BitFlip(4), "actors": "overlapped"},
    "groups": {"env": partial(BitFlip, 4), "actors": OverlappedActors(2, lanes=1)},
    "process actors": {"env": partial(BitFlip, 4), "actors": ProcessActors(2)},
}


@SLOW
@pytest.mark.parametrize("case", a_few(ENVS, "one", "process actors"))
def test_kinds_of_environments(case: str) -> None:
    kwargs = dict(ENVS[case])
    if case == "worker processes":
        kwargs["env"] = gymnasium.vector.AsyncVectorEnv([partial(BitFlip, 4)] * 2)
    model = learned(steps=150, **kwargs)
    batch = model.replay.sample(256)
    reached = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)
    assert torch.equal(batch.return_, reached.float() - 1)
    assert 0.3 < reached.float().mean() < 0.9
    model.close()


class ScaleOfReset(BitFlip):
    """Draws what the reward needs at a reset, as a simulator does that loads its scene there, and notes that it was closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(4)
        self.folder = folder

    def reset(self, **kwargs: Any) -> Any:
        self.scale = 1.0
        return super().reset(**kwargs)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.scale * super().compute_reward(achieved_goal, desired_goal, info)

    def close(self) -> None:
        if hasattr(self, "scale"):  # not one that was made to read its spaces
            (self.folder / str(os.getpid())).touch()


@SLOW
@pytest.mark.parametrize("kind", a_few(["process actors", "workers"], "workers"))
def test_the_environment_that_only_computes_rewards_is_reset_and_closed(tmp_path: Path, kind: str) -> None:
    make, actors = partial(ScaleOfReset, tmp_path), None
    env: Any = make
    if kind == "workers":
        env = gymnasium.vector.AsyncVectorEnv([make] * 2)
    else:
        actors = ProcessActors(1)
    model = learned(steps=60, env=env, actors=actors)
    note = tmp_path / str(os.getpid())
    assert not note.exists()
    model.close()
    note.unlink()
    model.replay.sample(64)  # makes another one
    del model
    gc.collect()
    assert note.exists()
    if kind == "workers":
        env.close()


@pytest.mark.parametrize("kind", a_few([DQN, QRDQN, SAC], DQN))
def test_algorithms(kind: Any) -> None:
    model = kind(env=BitFlip(4), hindsight=True, **SMALL).learn(120)
    assert model.replay.relabeler.settings.share == 0.8
    assert model._n_updates > 0


@FULL
def test_bits_are_flipped_with_hindsight_only() -> None:
    def successes(hindsight: bool) -> float:
        model = DQN(
            "MultiInputPolicy", partial(BitFlip, 8), hindsight=hindsight, learning_rate=1e-3, buffer_size=20_000, learning_starts=200,
            train_freq=1, target_update_interval=200, exploration_fraction=0.5, gamma=0.98, seed=0, device="cpu",
            policy_kwargs={"net_arch": [64]},
        ).learn(8_000)  # fmt: skip
        env, won = BitFlip(8), 0
        for seed in range(100):
            obs, _ = env.reset(seed=seed)
            ended = truncated = False
            while not (ended or truncated):
                obs, _, ended, truncated, _ = env.step(int(model.predict(obs, deterministic=True)[0]))
            won += ended
        return won / 100

    assert successes(True) > 0.9
    assert successes(False) < 0.3


class NoGoals(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Without the achieved goal."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        parts = env.observation_space.spaces
        self.observation_space = spaces.Dict({key: parts[key] for key in ("observation", "desired_goal")})

    def observation(self, observation: Any) -> Any:
        return {key: observation[key] for key in ("observation", "desired_goal")}


def test_wrong_settings_and_environments_are_answered_with_the_fix() -> None:
    with pytest.raises(ConfigurationError, match="hindsight must be unset with a recurrent policy"):
        R2D2("MlpLstmPolicy", "CartPole-v1", hindsight=True)
    with pytest.raises(ConfigurationError, match=r"must have compute_reward\(achieved_goal"):
        DQN("MlpPolicy", "CartPole-v1", hindsight=True, buffer_size=100)
    with pytest.raises(ConfigurationError, match="'achieved_goal' and 'desired_goal' of one shape"):
        DQN(env=NoGoals(BitFlip(4)), hindsight=True, **SMALL)
    with pytest.raises(ConfigurationError, match=r"hindsight\['goal_selection_strategy'\] must be .*got 'past'"):
        DQN(env=BitFlip(4), hindsight={"goal_selection_strategy": "past"}, **SMALL)
    with pytest.raises(ConfigurationError, match=r"hindsight\['n_sampled_goal'\] must be an integer >= 1, got 0"):
        DQN(env=BitFlip(4), hindsight={"n_sampled_goal": 0}, **SMALL)
    with pytest.raises(ConfigurationError, match="'td_error', an error for the goal"):
        DQN(env=BitFlip(4), hindsight=True, prioritized_replay={"initial": "td_error"}, **SMALL)
    with pytest.raises(ConfigurationError, match="hindsight"):
        PQN(env=BitFlip(4), hindsight=True)  # type: ignore[call-arg]


def test_a_reward_function_that_raises_is_a_fault_of_the_environment() -> None:
    class Reads(BitFlip):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            rewards = super().compute_reward(achieved, desired, info)
            return rewards * info["scale"] if isinstance(info, list) else rewards  # type: ignore[call-overload]  # the fault

    with pytest.raises(
        EnvironmentFault, match=r"compute_reward\(.*a list of \d+ empty infos, got TypeError: list indices"
    ):
        DQN(env=Reads(4), hindsight=True, **SMALL).learn(200)


@SLOW
@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda achieved, desired, infos: 0.0, ConfigurationError, r"one reward for each of \d+ goals, got shape \(\)"),
        (lambda achieved, desired, infos: np.full(len(infos), np.nan), EnvironmentFault, "finite rewards"),
    ],
)
def test_wrong_reward_functions_are_answered_with_the_fix(returned: Any, error: Any, message: str) -> None:
    model = learned(steps=50)
    model.replay.relabeler.reward = returned
    with pytest.raises(error, match=message):
        model.replay.sample(64)
    without = Trail()
    without.compute_reward = None  # type: ignore[assignment, method-assign]
    with pytest.raises(ConfigurationError, match=r"must have compute_reward"):
        DQN(env=without, hindsight=True, **SMALL)
