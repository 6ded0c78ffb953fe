"""Recorded episodes as an environment: rows against the data, passes, resuming, refusals, learning without a game."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN, PPO, R2D2, SAC, evaluate_policy
from sb_dqn.envs import RecordedEpisodes, open_stream
from sb_dqn.errors import CheckpointError, ConfigurationError, SpaceError
from tests.marks import SLOW

BOX = spaces.Box(-100, 100, (2,), np.float32)


def episode(number: int, length: int, terminated: bool, **changed: Any) -> Any:
    """Observations (number, step), actions number % 3, rewards 10 * number + step."""
    steps = np.arange(length + 1)
    end = np.arange(length) == length - 1
    parts = {
        "observations": np.stack([np.full(length + 1, number), steps], 1).astype(np.float32),
        "actions": np.full(length, number % 3) + 5,
        "rewards": 10.0 * number + steps[1:],
        "terminations": end & terminated,
        "truncations": end & (not terminated),
    }
    return SimpleNamespace(**{**parts, **changed})


def three(num_envs: int = 1) -> RecordedEpisodes:
    episodes = [episode(0, 2, True), episode(1, 3, False), episode(2, 1, True)]
    return RecordedEpisodes(iter(episodes), BOX, spaces.Discrete(3, start=5), num_envs)


def test_rows_are_the_recorded_steps_with_their_actions() -> None:
    stream = open_stream(three())
    obs = [stream.begin(0).slots[0].obs["obs"][0].tolist()]
    rows = []
    for _ in range(8):
        tick = stream.step(np.array([1]))  # the policy's actions do not matter
        slot = tick.slots[0]
        assert tick.action is not None
        obs.append(slot.obs["obs"][0].tolist())
        rows.append(
            (int(tick.action[0]), float(slot.reward[0]), bool(slot.terminal[0]), bool(slot.last[0]), tick.steps)
        )
    assert obs == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0], [2, 1]]
    assert rows == [
        (0, 1, False, False, 1),
        (0, 2, True, True, 1),
        (0, 0, False, False, 0),  # a reset row
        (1, 11, False, False, 1),
        (1, 12, False, False, 1),
        (1, 13, False, True, 1),
        (0, 0, False, False, 0),
        (2, 21, True, True, 1),
    ]


class Reused(gymnasium.Env[Any, Any]):
    """Counts to the action in one array for all observations; three steps and no end after an action of 3."""

    observation_space = spaces.Tuple((spaces.Box(-9, 9, (1,), np.float64), spaces.Discrete(9)))
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number, self.array = 0, np.array([0.0 if seed is None else float(seed)])
        return (self.array, 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.number += 1
        self.array += {1: 1.0, 2: 2.0, 3: 3.0}[action]  # the policy's action as it is: an array is no key
        return (self.array, self.number), 0.5 * float(action), self.number == 2 and action == 1, self.number == 3, {}


def test_episodes_are_recorded_with_their_ends_and_the_seed_of_the_first() -> None:
    actions = iter([2, 1, 3, 3, 3, 1, 2, 2])
    recorded = RecordedEpisodes.record(Reused(), lambda observation: next(actions), 6, seed=4)
    assert [(each.reward.tolist(), each.terminated) for each in recorded.episodes] == [
        ([1.0, 0.5], True),
        ([1.5, 1.5, 1.5], False),
        ([0.5, 1.0, 1.0], False),  # whole episodes: 8 steps
    ]
    first, second, _ = recorded.episodes
    assert first.obs["0"].ravel().tolist() == [4.0, 6.0, 7.0]  # decoy: [7, 7, 7], the last numbers of a reused array
    assert second.obs["0"].ravel().tolist() == [0.0, 3.0, 6.0, 9.0]
    assert second.obs["1"].tolist() == [0, 1, 2, 3]
    assert second.action.tolist() == [2, 2, 2]  # from 0
    with pytest.raises(ConfigurationError, match="num_steps must be an integer >= 1, got 0"):
        RecordedEpisodes.record(Reused(), lambda observation: 1, 0)


def starts(stream: Any, ticks: int) -> list[list[int]]:
    """Numbers of the episodes that begin, by lane."""
    found: list[list[int]] = [[] for _ in range(stream.num_envs)]
    for _ in range(ticks):
        slot = stream.step(np.zeros(stream.num_envs, np.int64)).slots[0]
        for lane, (number, step) in enumerate(slot.obs["obs"].tolist()):
            if step == 0:
                found[lane].append(int(number))
    return found


def test_every_pass_plays_each_episode_once_in_an_order_of_the_seed() -> None:
    stream = open_stream(three())
    assert stream.env.num_steps == 6
    stream.begin(0)
    passes = [0, *starts(stream, 9 * 5)[0]]
    orders = [tuple(passes[i : i + 3]) for i in range(0, 15, 3)]
    assert orders[0] == (0, 1, 2)
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(set(orders)) > 1
    stream.begin(0)
    assert [0, *starts(stream, 9 * 5)[0]] == passes
    stream.begin(1)
    assert [0, *starts(stream, 9 * 5)[0]] != passes


def test_lanes_play_different_episodes() -> None:
    stream = open_stream(three(num_envs=2))
    assert stream.begin(0).slots[0].obs["obs"].tolist() == [[0, 0], [1, 0]]
    assert starts(stream, 3) == [[2], []]


def test_the_state_continues_in_the_middle_of_an_episode() -> None:
    stream, other = open_stream(three()), open_stream(three())
    stream.begin(3)
    starts(stream, 13)
    other.load_state_dict(stream.state_dict())
    assert starts(other, 40) == starts(stream, 40)
    fewer = RecordedEpisodes([episode(0, 2, True)], BOX, spaces.Discrete(3, start=5))
    with pytest.raises(CheckpointError, match="3 episodes of 6 steps in 1 lanes, got 1 of 2 in 1"):
        open_stream(fewer).load_state_dict(stream.state_dict())


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"actions": np.array([5, 8, 5])}, SpaceError, "actions of episode 1 must be .* from 0 to 2, got 3"),
        ({"actions": np.zeros(3)}, SpaceError, "actions of episode 1 must be .* integer dtype, got float64"),
        ({"observations": np.zeros((3, 2), np.float32)}, SpaceError, r"episode 1 must have shape \(4, 2\), one more"),
        ({"observations": np.full((4, 2), np.nan)}, SpaceError, "observations 'obs' of episode 1 must be finite"),
        ({"rewards": np.array([0, np.inf, 0])}, SpaceError, "rewards of episode 1 must be finite"),
        ({"rewards": np.zeros(2)}, ConfigurationError, r"one entry per step, got shapes \(2,\), \(3,\) and \(3,\)"),
        (
            {"terminations": np.array([0, 1, 0])},
            ConfigurationError,
            "must end at its last step, 2, got an end at step 1",
        ),
    ],
)
def test_damaged_episodes_are_refused(changed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RecordedEpisodes([episode(0, 2, True), episode(1, 3, True, **changed)], BOX, spaces.Discrete(3, start=5))


def test_what_cannot_learn_from_recorded_actions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one episode, got none"):
        RecordedEpisodes([], BOX, spaces.Discrete(3))
    with pytest.raises(ConfigurationError, match="env of PPO must play its actions, got RecordedEpisodes"):
        PPO("MlpPolicy", three())
    with pytest.raises(ConfigurationError, match="action_mask must be None for recorded episodes, .* got 'info'"):
        DQN("MlpPolicy", three(), action_mask="info")
    model = DQN("MlpPolicy", three(), buffer_size=50)
    with pytest.raises(ConfigurationError, match="must play the actions, got RecordedEpisodes"):
        evaluate_policy(model, three())


class Chain(gymnasium.Env[Any, Any]):
    """Six places in a row; action 1 goes right, 0 left, and the right end pays 1 and terminates."""

    observation_space = spaces.Box(0, 1, (6,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return np.eye(6, dtype=np.float32)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = max(self.place + (1 if action == 1 else -1), 0)
        ended = self.place == 5
        return np.eye(6, dtype=np.float32)[self.place], float(ended), ended, False, {}


def random_walks(episodes: int, steps: int) -> list[Any]:
    rng, env, walks = np.random.default_rng(0), Chain(), []
    for _ in range(episodes):
        observations, rewards, ended = [env.reset()[0]], [], False
        actions: list[int] = []
        while len(actions) < steps and not ended:
            actions.append(int(rng.integers(2)))
            observation, reward, ended, _, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(reward)
        flags = np.arange(len(actions)) == len(actions) - 1
        walks.append(
            SimpleNamespace(
                observations=np.array(observations),
                actions=np.array(actions),
                rewards=np.array(rewards),
                terminations=flags & ended,
                truncations=flags & (not ended),
            )
        )
    return walks


@SLOW
@pytest.mark.usefixtures("eagerly")
def test_a_policy_better_than_the_recorded_one_is_learned_without_a_game(tmp_path: Path) -> None:
    recorded = RecordedEpisodes(random_walks(30, 30), Chain.observation_space, Chain.action_space)
    model = DQN(
        "MlpPolicy", recorded, buffer_size=2_000, learning_starts=recorded.num_steps, train_freq=1, learning_rate=3e-3,
        target_update_interval=20, gamma=0.9, policy_kwargs={"net_arch": [32]}, seed=0,
    )  # fmt: skip
    model.learn(recorded.num_steps + 400)
    assert evaluate_policy(model, gymnasium.wrappers.TimeLimit(Chain(), 5), n_eval_episodes=2) == (1.0, 0.0)
    ring = model.replay_buffer.ring
    actions = np.concatenate([walk.actions for walk in random_walks(30, 30)])
    stored = ring.action[: len(actions) + 30][~ring.last[: len(actions) + 30]][: len(actions)]
    assert stored.tolist() == actions.tolist()  # not those of the policy
    model.set_env(Chain())
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps == recorded.num_steps + 420


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("kind", ["recurrent", "continuous"])
def test_other_algorithms_learn_from_recordings(kind: str) -> None:
    if kind == "recurrent":
        recorded = RecordedEpisodes(random_walks(10, 30), Chain.observation_space, Chain.action_space, num_envs=2)
        model: Any = R2D2("MlpLstmPolicy", recorded, learning_starts=60, buffer_size=1_000, batch_B=4, seed=0,
            batch_T=8, warmup_T=4, store_rnn_state_interval=4,)  # fmt: skip
    else:
        box = spaces.Box(-1.0, 1.0, (1,), np.float32)
        walks = [
            SimpleNamespace(**{**vars(walk), "actions": 2.0 * walk.actions[:, None] - 1})
            for walk in random_walks(10, 30)
        ]
        recorded = RecordedEpisodes(walks, Chain.observation_space, box)
        model = SAC("MlpPolicy", recorded, learning_starts=60, buffer_size=1_000, seed=0)
    model.learn(100)
    assert model.training_run.recent != []


@pytest.mark.parametrize(
    ("space", "observations"),
    [
        (spaces.Discrete(4), [0, 1, 7]),
        (spaces.Discrete(4), [0, -1, 2]),
        (spaces.Box(0, 255, (), np.uint8), np.array([0, 300, 4], np.uint16)),
    ],
)
def test_observations_outside_the_space_are_refused(space: Any, observations: Any) -> None:
    with pytest.raises(SpaceError, match=r"observations 'obs' of episode 0 must be in"):
        RecordedEpisodes(
            [episode(0, 2, True, observations=np.asarray(observations))], space, spaces.Discrete(3, start=5)
        )


def test_only_one_environment_is_recorded() -> None:
    with pytest.raises(ConfigurationError, match="env must be one environment, got 'CartPole-v1'"):
        RecordedEpisodes.record("CartPole-v1", lambda obs: 0, 10)  # type: ignore[arg-type]
