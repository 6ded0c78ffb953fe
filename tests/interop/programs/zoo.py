"""Trains DQN with settings in the form of the Zoo's YAML files."""

import torch.nn as nn
import yaml
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule

SETTINGS = """
CartPole-v1:
  n_envs: 2
  n_timesteps: !!float 8e3
  policy: 'MlpPolicy'
  learning_rate: lin_2.3e-3
  batch_size: 64
  buffer_size: 100000
  learning_starts: 500
  gamma: 0.99
  target_update_interval: 10
  train_freq: 64
  gradient_steps: 32
  exploration_fraction: 0.3
  exploration_final_eps: 0.04
  policy_kwargs: "dict(net_arch=[64, 64], activation_fn=nn.ReLU)"
"""

settings = yaml.safe_load(SETTINGS)["CartPole-v1"]
n_envs, steps = settings.pop("n_envs"), int(settings.pop("n_timesteps"))
rate = settings["learning_rate"]
settings["learning_rate"] = LinearSchedule(float(rate.removeprefix("lin_")), 0.0, 1.0)
settings["policy_kwargs"] = eval(settings["policy_kwargs"], {"nn": nn})
settings["train_freq"] //= n_envs

env = make_vec_env("CartPole-v1", n_envs=n_envs, seed=0)
stops = StopTrainingOnRewardThreshold(reward_threshold=400, verbose=0)
evaluates = EvalCallback(
    make_vec_env("CartPole-v1", n_envs=1, seed=5),
    callback_on_new_best=stops,
    n_eval_episodes=3,
    eval_freq=max(1_000 // n_envs, 1),
    best_model_save_path=".",
    log_path=".",
    verbose=0,
)
model = DQN(env=env, seed=0, tensorboard_log="runs", **settings)
model.learn(steps, callback=evaluates, tb_log_name="dqn")
best = DQN.load("best_model")
RESULT = {
    "best": evaluates.best_mean_reward,
    "evaluated": evaluates.evaluations_timesteps,
    "updates": model._n_updates,
    "timesteps": model.num_timesteps,
    "rate": model.policy.optimizer.param_groups[0]["lr"],
    "loaded": best.num_timesteps in evaluates.evaluations_timesteps,
}
