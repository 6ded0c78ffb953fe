"""Agents of parallel PettingZoo environments as lanes: rows against a naive log, early ends, refusals, learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN, evaluate_policy
from sb_dqn.envs import PettingZooLanes, open_stream
from sb_dqn.envs.streams.training_env import as_training_env
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError


class Game:
    """Episodes of `length` steps in PettingZoo's parallel interface; observations are (number, agent, episode, step).

    The reward is the action. In step `dies_at` the episode of the first agent terminates, and the agent leaves.
    """

    metadata: Mapping[str, Any] = {"name": "game"}
    render_mode = None
    possible_agents: list[Any] = ["a", "b"]  # noqa: RUF012

    def __init__(self, number: int = 0, length: int = 2, dies_at: int | None = None) -> None:
        self.number = number
        self.length = length
        self.dies_at = dies_at
        self.episode = 0
        self.seeds: list[int | None] = []
        self.agents: list[Any] = []
        self.closed = False

    def observation_space(self, agent: Any) -> spaces.Space[Any]:
        return spaces.Box(0, 100, (4,), np.float32)

    def action_space(self, agent: Any) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        self.seeds.append(seed)
        self.episode += 1
        self.steps = 0
        self.agents = list(self.possible_agents)
        return self.observe(), {agent: {"action_mask": self.legal()} for agent in self.agents}

    def step(self, actions: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        assert list(actions) == self.agents
        self.steps += 1
        rewards = {agent: float(action) for agent, action in actions.items()}
        terminated = {agent: agent == "a" and self.steps == self.dies_at for agent in self.agents}
        truncated = dict.fromkeys(self.agents, self.steps == self.length)
        result = (
            self.observe(),
            rewards,
            terminated,
            truncated,
            {agent: {"action_mask": self.legal()} for agent in actions},
        )
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        return result

    def observe(self) -> dict[Any, Any]:
        names = enumerate(self.possible_agents)
        where = self.number, self.episode, self.steps
        return {
            agent: np.array([where[0], index, *where[1:]], np.float32) for index, agent in names if agent in self.agents
        }

    def legal(self) -> np.ndarray[Any, Any]:
        return np.array([True, self.steps != 1, True])

    def close(self) -> None:
        self.closed = True


def test_each_agent_is_a_lane_and_an_environment_is_reset_after_its_last_row() -> None:
    games = [Game(0, length=2), Game(1, length=3)]
    env = PettingZooLanes([lambda: games[0], lambda: games[1]])
    assert env.num_envs == 4
    stream = open_stream(env, action_mask="info")
    rows = stream.begin(5)
    assert rows.slots[0].obs["obs"].tolist() == [[0, 0, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]]
    assert games[0].seeds == [5]
    assert games[1].seeds == [6]
    # by tick: episode and step of each environment, and whether its row is the last one; actions are 0, 1, 2, 1
    log = [((1, 1), (1, 1)), ((1, 2), (1, 2)), ((2, 0), (1, 3)), ((2, 1), (2, 0)), ((2, 2), (2, 1))]
    for at in log:
        slot = (rows := stream.step(np.array([0, 1, 2, 1]))).slots[0]
        last = [step == game.length for (_, step), game in zip(at, games, strict=True)]
        reset = [step == 0 for _, step in at]
        assert slot.obs["obs"].tolist() == [[c, a, *at[c]] for c in (0, 1) for a in (0, 1)]
        assert slot.last.tolist() == [last[0], last[0], last[1], last[1]]
        assert slot.terminal.tolist() == [False] * 4
        assert slot.reward.tolist() == [0 if reset[lane // 2] else (0, 1, 2, 1)[lane] for lane in range(4)]
        assert rows.steps == 4 - 2 * sum(reset)
        assert slot.mask is not None
        assert slot.mask[:, 1].tolist() == [at[lane // 2][1] != 1 for lane in range(4)]
    stream.close()
    assert [game.closed for game in games] == [True, True]


def test_an_agent_that_ends_early_is_named() -> None:
    env = PettingZooLanes(Game(length=4, dies_at=2))
    env.reset()
    env.step([0, 0])
    with pytest.raises(EnvironmentFault, match="the end of 'a' while 'b' continues. Pass .*on_early_end='truncate'"):
        env.step([0, 0])


def test_on_early_end_truncate_ends_the_episode_of_the_others() -> None:
    env = PettingZooLanes(Game(length=4, dies_at=2), on_early_end="truncate")
    env.reset()
    assert not any(env.step([0, 0])[2])
    observations, rewards, terminated, truncated, _ = env.step([1, 2])
    assert observations[:, 3].tolist() == [2, 2]
    assert rewards.tolist() == [1, 2]
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    observations, rewards, terminated, truncated, _ = env.step([1, 2])
    assert observations[:, 2:].tolist() == [[2, 0], [2, 0]]  # the next episode
    assert rewards.tolist() == [0, 0]
    assert not (terminated | truncated).any()


class Unequal(Game):
    def action_space(self, agent: Any) -> spaces.Space[Any]:
        return spaces.Discrete(3 if agent == "a" else 2)


class Late(Game):
    """An agent enters after the reset."""

    def observe(self) -> dict[Any, Any]:
        return {agent: x for agent, x in super().observe().items() if agent == "a" or self.steps}


class Turns(Game):
    def agent_iter(self) -> None: ...


class Lost(Game):
    """A step without a result for one agent."""

    def step(self, actions: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        return tuple({agent: x for agent, x in part.items() if agent == "a"} for part in super().step(actions))


def test_what_cannot_be_read_is_refused() -> None:
    game = Game()
    for wrong, error, message in (
        (Unequal(), SpaceError, r"action space of agent 'b' must be that of 'a', Discrete\(3\), got Discrete\(2\)"),
        (Turns(), ConfigurationError, "got Turns, whose agents act in turns. .*aec_to_parallel"),
        (object(), ConfigurationError, "with possible_agents, got object"),
        ([], ConfigurationError, "at least one factory, got none"),
        ([lambda: game, lambda: game], ConfigurationError, "the same one from two factories"),
    ):
        with pytest.raises(error, match=message):
            PettingZooLanes(wrong)
    with pytest.raises(ConfigurationError, match="on_early_end must be one of .*, got 'wait'"):
        PettingZooLanes(game, on_early_end="wait")
    with pytest.raises(EnvironmentFault, match="reset must return an observation of every agent, got none of 'b'"):
        PettingZooLanes(Late()).reset()
    lost = PettingZooLanes(Lost())
    lost.reset()
    with pytest.raises(EnvironmentFault, match="of every agent, got not all of 'b'"):
        lost.step([0, 0])
    with pytest.raises(ConfigurationError, match=r"got Game. Wrap it: sb_dqn.envs.PettingZooLanes\(env\)"):
        open_stream(game)


@pytest.mark.usefixtures("eagerly")
def test_one_policy_learns_from_all_agents() -> None:
    env = PettingZooLanes([lambda: Game(0, 5), lambda: Game(1, 5)])
    model = DQN(
        "MlpPolicy", env, learning_rate=1e-2, learning_starts=40, train_freq=4, buffer_size=1_000, action_mask="info",
        exploration_fraction=0.5, target_update_interval=40, gamma=0.5, seed=0,
    )  # fmt: skip
    model.learn(800)
    assert as_training_env(env).get_attr("number", indices=[1, 2]) == [0, 1]
    mean, spread = evaluate_policy(model, PettingZooLanes(Game(0, 5)), n_eval_episodes=4)
    assert (mean, spread) == (10.0, 0.0)  # the reward is the action, at most 2


def test_an_environment_of_the_package() -> None:
    rps = pytest.importorskip("pettingzoo.classic.rps_v2", reason="of PettingZoo, with pygame")
    env = PettingZooLanes(rps.parallel_env(max_cycles=3))
    stream = open_stream(env)
    stream.begin(0)
    ends = [stream.step(np.array([0, 1])).slots[0] for _ in range(4)]
    assert [slot.last.tolist() for slot in ends] == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert [slot.reward.tolist() for slot in ends] == [[-1, 1], [-1, 1], [-1, 1], [0, 0]]  # paper covers rock
    stream.close()
