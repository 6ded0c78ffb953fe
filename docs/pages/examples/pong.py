"""n-step DQN plays Pong from pixels: the settings of its preset, cut to a first lesson, and a film of what it sees.

One to two minutes on two cores, after which it still loses nearly every ball: the preset is made for 400,000 steps. Set STEPS to
that, and the film is of a game that it wins.
"""

from PIL import Image

from sb_dqn import NStepDQN, evaluate_policy, make_atari_env

STEPS = 10_000

model = NStepDQN.from_preset("ALE/Pong-v5", seed=0)  # eight games at a time
model.learn(STEPS)

frames = []


def film(now, _):
    newest = now["observations"][0, -1]  # of the four stacked frames, 42 x 42 grey
    frames.append(Image.fromarray(newest).resize((168, 168), Image.Resampling.NEAREST))


env = make_atari_env("ALE/Pong-v5", n_envs=1, protocol="classic", env_kwargs={"img_height": 42, "img_width": 42})
mean, _ = evaluate_policy(model, env, n_eval_episodes=1, callback=film)
print(f"return {mean:.0f}")
frames[0].save("pong.gif", save_all=True, append_images=frames[1:150], duration=66, loop=0)
env.close()
