"""DQN balances the pole of CartPole-v1 with the settings of its preset, and films one episode.

About a minute on two cores; the mean return is 500, the highest possible. Needs `pip install "sb_dqn[plots,render]"`.
"""

import gymnasium
from gymnasium.wrappers import RenderCollection
from PIL import Image

from sb_dqn import DQN, evaluate_policy

STEPS = 50_000

model = DQN.from_preset("CartPole-v1", seed=0)
model.learn(STEPS)
mean, std = evaluate_policy(model, "CartPole-v1", n_eval_episodes=20)
print(f"mean return {mean:.0f} ± {std:.0f}")

# the first 250 steps of an episode, every fifth frame at half its size
env = RenderCollection(gymnasium.make("CartPole-v1", render_mode="rgb_array"), reset_clean=False)
evaluate_policy(model, env, n_eval_episodes=1)
frames = [Image.fromarray(frame).resize((300, 200)).quantize(16) for frame in env.render()[:250:5]]
frames[0].save("cartpole.gif", save_all=True, append_images=frames[1:], duration=100, loop=0)
env.close()
