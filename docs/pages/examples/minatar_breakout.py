"""DQN learns MinAtar's Breakout from images of 10 x 10 cells with the settings of its preset, and films one game.

About a minute on two cores; the mean return is 4.5 ± 1.2 after a fifth of the preset's steps.
Needs `pip install "sb_dqn[plots,minatar]"`.
"""

from PIL import Image

from sb_dqn import DQN, evaluate_policy, make_vec_env

STEPS = 100_000  # the preset is made for 500,000

model = DQN.from_preset("MinAtar/Breakout-v1", seed=0)  # eight games at a time
model.learn(STEPS)
mean, std = evaluate_policy(model, "MinAtar/Breakout-v1", n_eval_episodes=50)
print(f"mean return {mean:.1f} ± {std:.1f}")

# the first 150 steps of a game
frames = []
env = make_vec_env("MinAtar/Breakout-v1", n_envs=1, env_kwargs={"render_mode": "rgb_array"})
evaluate_policy(model, env, n_eval_episodes=1, callback=lambda *_: frames.append(Image.fromarray(env.render()[0])))
frames[0].save("minatar_breakout.gif", save_all=True, append_images=frames[1:150], duration=100, loop=0)
env.close()
