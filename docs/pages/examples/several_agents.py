"""Two agents of a PettingZoo environment learn to meet, with one policy for both, and are filmed doing so.

About 20 seconds on two cores. Each agent sees where the other one is, and each step but the last costs both 0.05: they
meet after about three, with a mean return of 0.89. Needs `pip install "sb_dqn[plots]" pettingzoo`.
"""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from PIL import Image

from sb_dqn import DQN, evaluate_policy
from sb_dqn.envs import PettingZooLanes

STEPS = 20_000
SIZE = 9
MOVES = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])


class Meeting(ParallelEnv):
    def __init__(self):
        self.possible_agents, self.agents = ["red", "blue"], []
        self.spaces = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(5)
        self.random = np.random.default_rng()

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed) if seed is not None else self.random
        self.agents, self.steps = list(self.possible_agents), 0
        self.places = {agent: self.random.integers(SIZE, size=2) for agent in self.agents}
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        self.places = {agent: np.clip(self.places[agent] + MOVES[move], 0, SIZE - 1) for agent, move in actions.items()}
        met, late = bool((self.places["red"] == self.places["blue"]).all()), self.steps == 30
        results = [dict.fromkeys(actions, value) for value in (1.0 if met else -0.05, met, late and not met, {})]
        self.agents = [] if met or late else self.agents
        return self.observe(), *results

    def observe(self):
        distance = ((self.places["blue"] - self.places["red"]) / SIZE).astype(np.float32)
        return {"red": distance, "blue": -distance}


settings = {"learning_rate": 1e-3, "learning_starts": 500, "target_update_interval": 200, "exploration_fraction": 0.3}
model = DQN("MlpPolicy", PettingZooLanes([Meeting] * 4), seed=0, **settings)  # 8 lanes, one for each agent
model.learn(STEPS)
meeting, frames = Meeting(), []


def film(*_):
    picture = np.full((SIZE, SIZE, 3), 230, np.uint8)
    picture[tuple(meeting.places["red"])] = 200, 60, 60
    picture[tuple(meeting.places["blue"])] = 60, 90, 200
    frames.append(Image.fromarray(picture).resize((180, 180), 0))


mean, std = evaluate_policy(model, PettingZooLanes(meeting), n_eval_episodes=40, callback=film)
print(f"mean return {mean:.2f} ± {std:.2f}")
frames[0].save("several_agents.gif", save_all=True, append_images=frames[2:120:2], duration=200, loop=0)
