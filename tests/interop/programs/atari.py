"""Trains DQN on stacked frames of Pong with checkpoints."""

from pathlib import Path

import ale_py
import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

gym.register_envs(ale_py)
env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0), n_stack=4)
model = DQN(
    "CnnPolicy",
    env,
    learning_rate=1e-4,
    buffer_size=400,
    learning_starts=40,
    batch_size=8,
    train_freq=4,
    gradient_steps=1,
    target_update_interval=50,
    exploration_fraction=0.1,
    exploration_final_eps=0.01,
    optimize_memory_usage=False,
    policy_kwargs={"features_extractor_kwargs": {"features_dim": 32}},
    verbose=0,
    seed=0,
)
checkpoints = CheckpointCallback(save_freq=40, save_path="logs", name_prefix="pong", save_replay_buffer=True)
every = EveryNTimesteps(50, CheckpointCallback(save_freq=1, save_path="every"))
model.learn(200, callback=CallbackList([checkpoints, every]), log_interval=10)

model.save("dqn_pong")
model.save_replay_buffer("dqn_pong_rows")
loaded = DQN.load("dqn_pong", env=env)
loaded.load_replay_buffer("dqn_pong_rows")
obs = env.reset()
assert (loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]).all()
loaded.learn(40, reset_num_timesteps=False)
sample = model.replay_buffer.sample(8)
RESULT = {
    "files": sorted(path.name for path in Path("logs").iterdir()),
    "every": len(list(Path("every").iterdir())),
    "observations": tuple(sample.observations.shape),
    "updates": model._n_updates,
    "timesteps": (model.num_timesteps, loaded.num_timesteps),
    "q": tuple(model.q_net(sample.observations).shape),
}
env.close()
