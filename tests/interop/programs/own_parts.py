"""Trains DQN with an environment, a features extractor and a callback of the user's own."""

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class GoLeft(gym.Env):
    """An agent on a line that is rewarded at its left end."""

    def __init__(self, size=6):
        super().__init__()
        self.size = size
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(low=0, high=size, shape=(1,), dtype=np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place, self.steps = self.size - 1, 0
        return np.array([self.place], dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        self.place = int(np.clip(self.place + (-1 if action == 0 else 1), 0, self.size))
        won = self.place == 0
        return np.array([self.place], dtype=np.float32), float(won), won, self.steps >= 40, {}


class Scaled(BaseFeaturesExtractor):
    """Divides by the size of the line, and a hidden layer."""

    def __init__(self, observation_space, features_dim=16):
        super().__init__(observation_space, features_dim)
        self.linear = th.nn.Sequential(th.nn.Linear(observation_space.shape[0], features_dim), th.nn.ReLU())

    def forward(self, observations):
        return self.linear(observations / 6.0)


class CountEpisodes(BaseCallback):
    """Counts episodes and logs them."""

    def __init__(self, verbose=0):
        super().__init__(verbose)
        self.episodes = 0

    def _on_step(self):
        self.episodes += int(sum(self.locals["dones"]))
        self.logger.record("custom/episodes", self.episodes)
        assert self.training_env.num_envs == 1
        return True


env = GoLeft()
check_env(env, warn=True)
callback = CountEpisodes()
model = DQN(
    "MlpPolicy",
    Monitor(env, "."),
    learning_rate=1e-2,
    learning_starts=100,
    train_freq=(1, "step"),
    target_update_interval=100,
    exploration_fraction=0.5,
    gamma=0.9,
    policy_kwargs={
        "features_extractor_class": Scaled,
        "features_extractor_kwargs": {"features_dim": 8},
        "net_arch": [16],
    },
    seed=3,
)
model.learn(1_000, callback=callback)
mean, _ = evaluate_policy(model, Monitor(GoLeft()), n_eval_episodes=3)
tensor, _ = model.policy.obs_to_tensor(np.array([3.0], dtype=np.float32))
with th.no_grad():
    values = model.q_net(tensor)
model.save("go_left")
loaded = DQN.load("go_left", env=env)
assert evaluate_policy(loaded, Monitor(GoLeft()), n_eval_episodes=1)[0] == mean
RESULT = {
    "mean": mean,
    "episodes": callback.episodes,
    "monitored": len(load_results(".")),
    "prefers left": bool(values[0, 0] > values[0, 1]),
}
model.get_env().close()
