"""Trains PPO on Pendulum in processes with normalized observations and rewards, and continues from files."""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

if __name__ == "__main__":
    env = make_vec_env(
        "Pendulum-v1", n_envs=2, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    )
    env = VecNormalize(env, norm_obs=True, norm_reward=True, clip_obs=10.0)
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=64, n_epochs=2, gae_lambda=0.95, ent_coef=0.0, seed=0)
    model.learn(1_000)
    assert model.num_timesteps == 1_024  # whole rollouts
    assert model.get_vec_normalize_env() is env
    model.save("ppo_pendulum")
    env.save("vec_normalize.pkl")
    returns = [info["r"] for info in model.ep_info_buffer]
    env.close()

    env = VecNormalize.load("vec_normalize.pkl", make_vec_env("Pendulum-v1", n_envs=1, vec_env_cls=DummyVecEnv))
    env.training, env.norm_reward = False, False
    model = PPO.load("ppo_pendulum", env=env)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=2)
    RESULT = {"mean": mean, "returns": returns, "count": float(env.obs_rms.count)}
