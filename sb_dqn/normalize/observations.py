"""Observations at one scale: each number by the mean and the deviation of all that ever arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.errors import CheckpointError, ConfigurationError, nearest
from sb_dqn.normalize.moments import Moments
from sb_dqn.spaces import Space, flatten_space, leaf_dtype, leaf_shape
from sb_dqn.types import Slot


@dataclass(frozen=True)
class NormalizeObservations:
    """How observations are normalised: clip((o - mean) / sqrt(variance + epsilon), -clip, clip).

    Args:
        clip: bound on what the nets see, above 0.
        epsilon: above 0; what never varied is divided by its root.
        keys: of a Dict observation, by path ("camera/left"); None: every key that holds floating-point numbers.

    Raises:
        ConfigurationError: out of range.
    """

    clip: float = 10.0
    epsilon: float = 1e-8
    keys: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_float("normalize_observations['clip']", self.clip, 0.0, above=True)
        check_float("normalize_observations['epsilon']", self.epsilon, 0.0, above=True)
        texts = isinstance(self.keys, (list, tuple)) and all(isinstance(key, str) for key in self.keys)
        if self.keys is not None and not (texts and self.keys):
            raise ConfigurationError(
                f"normalize_observations['keys']={self.keys!r} is not allowed: give a list of keys of the observation, "
                f"or None for all that hold floating-point numbers"
            )


class ObservationNormalizer:
    """Statistics of the observations, and the function that normalises by them.

    What was gathered takes effect at `settle`: until then the function goes on as it was, so that updates can see what the
    policy saw. It reads tensors that are written in place, so a recording of it stays valid.

    Args:
        space: of one lane's observation.
        settings: clip, epsilon, keys.
        device: where the nets are.
        frame_stack: K frames in an observation of which one arrives at a time; its statistics serve all of them.

    Raises:
        ConfigurationError: a key is unknown, or there is nothing to normalise.
    """

    def __init__(
        self, space: Space, settings: NormalizeObservations, device: torch.device, frame_stack: int = 1
    ) -> None:
        leaves = flatten_space(space)
        shapes = {key: leaf_shape(leaves[key]) for key in _chosen(leaves, settings.keys)}
        if frame_stack > 1:  # single frames are [1, H, W]: what is known of them broadcasts over the stack
            shapes = {key: (shape[0] // frame_stack, *shape[1:]) for key, shape in shapes.items()}
        self.settings = settings
        self.moments = {key: Moments(shape) for key, shape in shapes.items()}
        self.mean = {key: torch.zeros(shape, device=device) for key, shape in shapes.items()}
        self.scale = {key: torch.ones(shape, device=device) for key, shape in shapes.items()}

    def arrived(self, slot: Slot) -> None:
        """Takes in the observations of the valid lanes: of steps, final ones and those of resets alike, each once."""
        for key, moments in self.moments.items():
            array = slot.obs[key] if slot.full else slot.obs[key][slot.valid]
            moments.update(array)

    def settle(self) -> None:
        """What was gathered takes effect."""
        for key, moments in self.moments.items():
            scale = 1.0 / np.sqrt(moments.variance + self.settings.epsilon)
            self.mean[key].copy_(torch.from_numpy(moments.mean))
            self.scale[key].copy_(torch.from_numpy(np.asarray(scale)))

    def __call__(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Observations `[N, *shape]` by key, as the nets see them: float32 in [-clip, clip]; other keys as they are."""
        clip = self.settings.clip
        return {
            key: ((x - self.mean[key]) * self.scale[key]).clamp(-clip, clip) if key in self.mean else x
            for key, x in obs.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """What was gathered, and what is in effect."""
        effect = {key: {"mean": self.mean[key].clone(), "scale": self.scale[key].clone()} for key in self.mean}
        return {"moments": {key: moments.state_dict() for key, moments in self.moments.items()}, "effect": effect}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: it is of other keys.
        """
        if state["moments"].keys() != self.moments.keys():
            raise CheckpointError(
                f"the statistics are of the observation keys {sorted(state['moments'])}, this model normalises "
                f"{sorted(self.moments)}; give the same normalize_observations['keys']"
            )
        for key, moments in self.moments.items():
            moments.load_state_dict(state["moments"][key])
            self.mean[key].copy_(state["effect"][key]["mean"])
            self.scale[key].copy_(state["effect"][key]["scale"])


def _chosen(leaves: Mapping[str, Space], wanted: Sequence[str] | None) -> list[str]:
    """Keys to normalise: those wanted, or all that hold floating-point numbers."""
    able = [key for key, leaf in leaves.items() if leaf_dtype(leaf).kind == "f"]
    for key in wanted or ():
        if key not in able:
            raise ConfigurationError(
                f"normalize_observations['keys'] names {key!r}, which is no Box of floating-point numbers; allowed are "
                f"{able}.{nearest(key, able)}"
            )
    if not able:
        raise ConfigurationError(
            f"normalize_observations needs a Box of floating-point numbers, not {dict(leaves)}: images are divided by 255 "
            f"and whole numbers are one-hot already; leave it out"
        )
    return able if wanted is None else [key for key in able if key in wanted]
