"""Observation normalization by running mean and standard deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checks import check_float, set_fields
from sb_dqn.devices import PackedArrays
from sb_dqn.errors import CheckpointError, ConfigurationError, nearest
from sb_dqn.normalize.moments import Moments
from sb_dqn.spaces import Space, flatten_space, leaf_dtype, leaf_shape
from sb_dqn.types import Slot, State


@dataclass(frozen=True)
class NormalizeObservations:
    """Settings of observation normalization, clip((o - mean) / sqrt(variance + epsilon), -clip, clip).

    Args:
        clip: bound of normalized values, > 0.
        epsilon: number that is added to the variance, > 0.
        keys: keys of a Dict observation, by path ("camera/left"). If None, all floating-point keys are normalized.

    Raises:
        ConfigurationError: a value is out of range.
    """

    clip: float = 10.0
    epsilon: float = 1e-8
    keys: Sequence[str] | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            clip=check_float("normalize_observations['clip']", self.clip, 0.0, above=True),
            epsilon=check_float("normalize_observations['epsilon']", self.epsilon, 0.0, above=True),
        )
        is_list_of_str = isinstance(self.keys, (list, tuple)) and all(isinstance(key, str) for key in self.keys)
        if self.keys is not None and not (is_list_of_str and self.keys):
            raise ConfigurationError(
                f"normalize_observations['keys'] must be a list of observation keys or None, got {self.keys!r}. Use None "
                f"for every floating-point key."
            )


class ObservationNormalizer:
    """Running statistics of observations and the normalization by them.

    Statistics have no effect until `commit`, so that updates can use the same normalization as the rollout. `commit` writes
    to the tensors in place, so that traced graphs stay valid.

    Args:
        space: observation space of one lane.
        settings: clip, epsilon, keys.
        device: device of the networks.
        frame_stack: frames K per observation; each tick adds one frame, and all K frames share its statistics.

    Raises:
        ConfigurationError: a key is unknown, or there is nothing to normalize.
    """

    def __init__(
        self, space: Space, settings: NormalizeObservations, device: torch.device, frame_stack: int = 1
    ) -> None:
        leaves = flatten_space(space)
        shapes = {key: leaf_shape(leaves[key]) for key in _normalized_keys(leaves, settings.keys)}
        if frame_stack > 1:  # statistics of single frames [1, H, W] broadcast over the stack
            shapes = {key: (shape[0] // frame_stack, *shape[1:]) for key, shape in shapes.items()}
        self.settings = settings
        self.moments = {key: Moments(shape) for key, shape in shapes.items()}
        arrays = [fill(shape, np.float32) for fill in (np.zeros, np.ones) for shape in shapes.values()]
        self._packed = PackedArrays(arrays, device)
        tensors = self._packed.send(arrays)
        self.mean = dict(zip(shapes, tensors[: len(shapes)], strict=True))
        self.scale = dict(zip(shapes, tensors[len(shapes) :], strict=True))

    def update(self, slot: Slot) -> None:
        """Adds the observations of the valid lanes (after steps, final and after resets), each once."""
        for key, moments in self.moments.items():
            array = slot.obs[key] if slot.full else slot.obs[key][slot.valid]
            moments.update(array)

    def commit(self) -> None:
        """Uses the current statistics from now on; Python does not wait until the device has them."""
        every = self.moments.values()
        scales = [1.0 / np.sqrt(moments.variance + self.settings.epsilon) for moments in every]
        self._packed.send([*(moments.mean for moments in every), *scales])

    def __call__(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Normalizes observations `[N, *shape]` by key to float32 in [-clip, clip]; other keys are unchanged."""
        clip = self.settings.clip
        return {
            key: ((x - self.mean[key]) * self.scale[key]).clamp(-clip, clip) if key in self.mean else x
            for key, x in obs.items()
        }

    def frozen(self) -> ObservationNormalizer:
        """Returns the same normalization with a copy of the committed statistics, on the CPU."""
        frozen = copy(self)
        frozen.mean = {key: mean.cpu().clone() for key, mean in self.mean.items()}
        frozen.scale = {key: scale.cpu().clone() for key, scale in self.scale.items()}
        return frozen

    def acting_tensors(self) -> list[Tensor]:
        """Returns the committed means and scales."""
        return [*self.mean.values(), *self.scale.values()]

    def state_dict(self) -> State:
        """Returns the current and the committed statistics."""
        committed = {key: {"mean": self.mean[key].clone(), "scale": self.scale[key].clone()} for key in self.mean}
        return {"moments": {key: moments.state_dict() for key, moments in self.moments.items()}, "effect": committed}

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`.

        Raises:
            CheckpointError: the state has other keys.
        """
        if state["moments"].keys() != self.moments.keys():
            raise CheckpointError(
                f"saved normalization statistics must be of the observation keys {sorted(self.moments)}, got "
                f"{sorted(state['moments'])}. Use the same normalize_observations['keys'] as the saved model."
            )
        for key, moments in self.moments.items():
            moments.load_state_dict(state["moments"][key])
            self.mean[key].copy_(state["effect"][key]["mean"])
            self.scale[key].copy_(state["effect"][key]["scale"])


def _normalized_keys(leaves: Mapping[str, Space], keys: Sequence[str] | None) -> list[str]:
    """Returns the keys to normalize: `keys`, or all floating-point keys if `keys` is None."""
    allowed = [key for key, leaf in leaves.items() if leaf_dtype(leaf).kind == "f"]
    for key in keys or ():
        if key not in allowed:
            raise ConfigurationError(
                f"normalize_observations['keys'] must be keys of floating-point observations {allowed}, got "
                f"{key!r}. Use these keys.{nearest(key, allowed)}"
            )
    if not allowed:
        raise ConfigurationError(
            f"normalize_observations must be False without floating-point observations, got {dict(leaves)}. Remove it: "
            f"images are divided by 255 and integers are one-hot encoded already."
        )
    return allowed if keys is None else [key for key in allowed if key in keys]
