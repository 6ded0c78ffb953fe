"""DQN lands the lunar lander with the settings of its preset, and films one landing.

About three minutes on two cores; the mean return is 165 ± 107. Needs `pip install "sb_dqn[plots,box2d]"`.
"""

import gymnasium
from gymnasium.wrappers import RenderCollection
from PIL import Image

from sb_dqn import DQN, evaluate_policy

STEPS = 100_000

model = DQN.from_preset("LunarLander-v3", seed=0)
model.learn(STEPS)
mean, std = evaluate_policy(model, "LunarLander-v3", n_eval_episodes=20)
print(f"mean return {mean:.0f} ± {std:.0f}")

# one episode, every sixth frame at half its size
env = RenderCollection(gymnasium.make("LunarLander-v3", render_mode="rgb_array"), reset_clean=False)
evaluate_policy(model, env, n_eval_episodes=1)
frames = [Image.fromarray(frame).resize((300, 200)).quantize(16) for frame in env.render()[:480:6]]
frames[0].save("lunar_lander.gif", save_all=True, append_images=frames[1:], duration=120, loop=0)
env.close()
