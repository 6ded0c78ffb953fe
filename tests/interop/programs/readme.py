"""Trains PPO on CartPole and plays with it, as the shortest example of Stable-Baselines3's documentation does."""

import gymnasium as gym
from stable_baselines3 import PPO

env = gym.make("CartPole-v1", render_mode="rgb_array")
model = PPO("MlpPolicy", env, verbose=1, seed=0)
model.learn(total_timesteps=6_000)

vec_env = model.get_env()
obs = vec_env.reset()
ends = 0
for _ in range(200):
    action, _state = model.predict(obs, deterministic=True)
    obs, reward, done, info = vec_env.step(action)
    ends += int(done[0])
assert vec_env.render("rgb_array").shape[-1] == 3

model.save("ppo_cartpole")
del model
model = PPO.load("ppo_cartpole", env=env)
model.learn(2048, reset_num_timesteps=False)
assert model.num_timesteps == 8_192
RESULT = {"ends": ends, "episodes": len(model.ep_info_buffer)}
