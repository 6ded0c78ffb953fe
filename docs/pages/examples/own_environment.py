"""An environment of your own: a boat sails over a windy lake to the harbour in the far corner, and a reef is in the way.

About 20 seconds on two cores; the mean return is 0.76. The picture shows the value of each place and where the boat
turns there. It starts at the left shore; places that it never sees, such as the reef itself, have values of no meaning.
"""

import gymnasium
import numpy as np
from gymnasium import spaces
from matplotlib import pyplot

from sb_dqn import DQN, check_env, evaluate_policy

STEPS = 20_000
SIZE = 8
REEF = [(row, column) for row in range(2, 6) for column in range(3, 5)]
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])  # right, down, left, up


class Lake(gymnasium.Env):
    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random
        self.place = np.array([self.np_random.integers(SIZE), 0])
        return self.observe(self.place), {}

    def step(self, action):
        if self.np_random.random() < 0.1:  # the wind turns the boat
            action = self.np_random.integers(4)
        self.place = np.clip(self.place + MOVES[action], 0, SIZE - 1)
        aground = tuple(self.place) in REEF
        arrived = bool((self.place == SIZE - 1).all())
        reward = 1.0 if arrived else -1.0 if aground else -0.02
        return self.observe(self.place), reward, arrived or aground, False, {}

    def observe(self, place):
        return (np.asarray(place) / (SIZE - 1)).astype(np.float32)


gymnasium.register("WindyLake-v0", Lake, max_episode_steps=60)
check_env("WindyLake-v0")  # all faults of the environment in one error
settings = {"learning_rate": "linear 1e-3", "learning_starts": 500, "target_update_interval": 500, "n_steps": 3}
model = DQN("MlpPolicy", "WindyLake-v0", double_q=True, exploration_fraction=0.5, seed=0, **settings)
model.learn(STEPS)
mean, std = evaluate_policy(model, "WindyLake-v0", n_eval_episodes=50)
print(f"mean return {mean:.2f} ± {std:.2f}")

places = np.array(list(np.ndindex(SIZE, SIZE)))
values = model.q_values((places / (SIZE - 1)).astype(np.float32))  # [places, actions]
figure, axes = pyplot.subplots(figsize=(5, 4.2), layout="constrained")
axes.figure.colorbar(axes.imshow(values.max(1).reshape(SIZE, SIZE), vmin=-1, vmax=1), label="value")
moves = MOVES[values.argmax(1)]
axes.quiver(places[:, 1], places[:, 0], moves[:, 1], -moves[:, 0], color="white")
rows, columns = np.array(REEF).T
axes.scatter(columns, rows, marker="s", color="black", s=500)
axes.set(xticks=[], yticks=[])
figure.savefig("own_environment.png", dpi=100)
