"""A model plays without Python: it is exported to ONNX, and a page balances the pole with it in the browser.

Half a minute on two cores. Needs `pip install "sb_dqn[plots,onnx]"`. For the page copy onnx_in_browser.html next to
cartpole.onnx, `npm install onnxruntime-web`, `python -m http.server`, and open localhost:8000/onnx_in_browser.html.
"""

import numpy as np
import onnxruntime
from matplotlib import pyplot

from sb_dqn import DQN

STEPS = 25_000

model = DQN.from_preset("CartPole-v1", seed=0)
model.learn(STEPS)
model.export_onnx("cartpole.onnx")

# what the file decides, by the angle of the pole and its speed
session = onnxruntime.InferenceSession("cartpole.onnx")
angles, spins = np.meshgrid(np.linspace(-0.2, 0.2, 81), np.linspace(-2, 2, 81))
zeros = np.zeros_like(angles)
states = np.stack([zeros, zeros, angles, spins], axis=-1).reshape(-1, 4).astype(np.float32)
(values,) = session.run(["q_values"], {"obs": states})
advantage = (values[:, 1] - values[:, 0]).reshape(81, 81)
figure, axes = pyplot.subplots(figsize=(5, 3.8), layout="constrained")
figure.colorbar(axes.pcolormesh(angles, spins, advantage, cmap="coolwarm"), label="value of right less that of left")
axes.contour(angles, spins, advantage, levels=[0], colors="black")
axes.set(xlabel="angle of the pole", ylabel="its speed")
figure.savefig("onnx_in_browser.png", dpi=100)
