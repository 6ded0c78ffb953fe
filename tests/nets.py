"""Small policies and batches for tests of what learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.nn import BaseFeaturesExtractor
from sb_dqn.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, QPolicy
from sb_dqn.rng import torch_seeded
from sb_dqn.spaces import leaf_shape
from sb_dqn.types import Batch

NUM_ACTIONS = 3
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
PICTURE = spaces.Box(0, 255, (2, 12, 12), np.uint8)
MIXTURE = spaces.Dict({"place": VECTOR, "mode": spaces.Discrete(3, start=1), "bits": spaces.MultiBinary(2)})
SMALL_CNN: dict[str, Any] = {"features_dim": 16, "channels": (8, 8), "kernels": (4, 3), "strides": (2, 1)}


class OwnExtractor(BaseFeaturesExtractor):
    """Defined by a user, so nobody knows what it does with values."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, 8)
        self.linear = nn.Linear(observation_space.shape[0], 8)
        self.unused = nn.Linear(2, 2)

    def forward(self, observation: Tensor) -> Tensor:
        return torch.tanh(self.linear(observation)) if bool(observation.sum() > 0) else self.linear(observation)


NETS: dict[str, tuple[type[QPolicy], spaces.Space[Any], dict[str, Any]]] = {
    "mlp": (MlpPolicy, VECTOR, {"net_arch": [16, 16]}),
    "linear": (MlpPolicy, VECTOR, {"net_arch": []}),
    "tanh": (MlpPolicy, VECTOR, {"net_arch": [8], "activation_fn": nn.Tanh}),
    "dict": (MultiInputPolicy, MIXTURE, {"net_arch": [16]}),
    "one hot": (MlpPolicy, spaces.Discrete(5, start=-2), {"net_arch": [8]}),
    "cnn": (CnnPolicy, PICTURE, {"features_extractor_kwargs": SMALL_CNN}),
}


def make_policy(name: str, seed: int = 0) -> QPolicy:
    """A policy by its name in `NETS`; its target differs from its online net."""
    policy_class, space, kwargs = NETS[name]
    with torch_seeded(seed):
        policy = policy_class(space, spaces.Discrete(NUM_ACTIONS), **kwargs)
        with torch.no_grad():
            for parameter in policy.q_net_target.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape))
    return policy


def make_obs(space: spaces.Space[Any], size: int, rng: torch.Generator) -> dict[str, Tensor]:
    """Random observations of the spaces above."""
    if isinstance(space, spaces.Dict):
        return {key: make_obs(leaf, size, rng)["obs"] for key, leaf in space.spaces.items()}
    if space == PICTURE:
        return {"obs": torch.randint(256, [size, *PICTURE.shape], dtype=torch.uint8, generator=rng)}
    if isinstance(space, spaces.Discrete):
        low = int(space.start)
        return {"obs": torch.randint(low, low + int(space.n), (size,), generator=rng)}
    if isinstance(space, spaces.MultiBinary):
        return {"obs": torch.randint(2, [size, *leaf_shape(space)], dtype=torch.int8, generator=rng)}
    return {"obs": torch.randn(size, 4, generator=rng)}


def make_batch(name: str, seed: int, size: int = 16, scale: float = 1.0) -> Batch:
    """A random batch for the net of that name; the last row is padding, some rows end in a termination."""
    rng, space = torch.Generator().manual_seed(seed), NETS[name][1]
    weight = torch.ones(size)
    weight[-1] = 0.0
    return Batch(
        obs=make_obs(space, size, rng),
        action=torch.randint(NUM_ACTIONS, (size,), generator=rng),
        return_=scale * torch.randn(size, generator=rng),
        discount=0.9 * (torch.rand(size, generator=rng) < 0.7),
        next_obs=make_obs(space, size, rng),
        weight=weight,
        place=torch.zeros(2, size, dtype=torch.long),
    )


def assert_equal_convolutions(plain: nn.Module, ours: nn.Module, plain_reads: Tensor, ours_reads: Tensor) -> None:
    """The same outputs and gradients with the same weights."""
    ours.load_state_dict(plain.state_dict())
    found = []
    for convolution, read in ((plain, plain_reads), (ours, ours_reads)):
        x = read.clone(memory_format=torch.preserve_format).requires_grad_() if read.is_floating_point() else read
        out = convolution(x)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        inputs = [*convolution.parameters(), *([x] if ours_reads.is_floating_point() else [])]
        found.append([out, *torch.autograd.grad((out * weights).sum(), inputs)])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)
