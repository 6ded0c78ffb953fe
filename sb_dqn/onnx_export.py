"""Export of the greedy policy to an ONNX file, and its comparison with `predict`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.files import atomic_write
from sb_dqn.nn.layers.norms import spectral_weights
from sb_dqn.policies.q_policy import QPolicy
from sb_dqn.spaces import BoxActions, Space, flatten_space, leaf_dtype, leaf_shape
from sb_dqn.types import Array, ModelLike, Observation

TOLERANCE = 1e-5
"""Largest difference to `predict`, in units of the largest number, or of 1 if that is smaller."""
CHECKED = 64
"""Number of random observations of the comparison."""
MODERATE = 1e6
"""Bounds of a Box up to which random observations are drawn between them."""

Arrays = dict[str, Array]


class Exported(NamedTuple):
    """A written ONNX file."""

    path: Path
    inputs: list[str]
    outputs: list[str]
    difference: float | None
    """Largest difference to `predict` and `q_values`; None if onnxruntime is not installed."""


class GreedyNetwork(nn.Module):
    """Networks, preprocessing, normalization and action masks of a model as one function of tensors.

    It holds copies, on the CPU.

    Args:
        model: the model.
    """

    def __init__(self, model: ModelLike) -> None:
        super().__init__()
        self.policy: Any = deepcopy(model.policy).cpu().requires_grad_(False)
        self.transform = model.normalizer.frozen().observations
        self.actions = model.predictor.actions
        self.learns_values = isinstance(model.policy, QPolicy)
        self.keys = list(flatten_space(model.observation_space))
        self.mask_key = "action_mask" if model.action_mask == "info" else model.action_mask
        masks = [self.mask_key] if model.action_mask == "info" else []
        recurrent = ["previous_action", "previous_reward", "state"] if self.policy.recurrent else []
        self.inputs = [*self.keys, *masks, *recurrent]
        self.outputs = ["action", *(["q_values"] if self.learns_values else []), *(["next_state"] if recurrent else [])]
        self.start = torch.as_tensor(self.actions.start)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Maps the inputs to the outputs, in the order of `inputs` and `outputs`."""
        by_name = dict(zip(self.inputs, tensors, strict=True))
        mask = None if self.mask_key is None else self._mask(by_name[self.mask_key])
        obs = self.transform({key: by_name[key] for key in self.keys})
        recurrent = tensors[-3:] if self.policy.recurrent else ()
        if not self.learns_values:
            action, *state = self.policy.greedy_step(obs, mask, *recurrent)
            return action + self.start, *state
        q, *state = self.policy.values_step(obs, mask, *recurrent)
        return q.argmax(-1) + self.start, q, *state

    def _mask(self, mask: Tensor) -> Tensor:
        """Returns legal actions `[n, (D,) A]`; an observation without any has all."""
        mask = mask != 0
        legal = self.actions.legal
        if self.actions.branched and mask.dim() == 2:  # one branch after the other
            place = np.zeros(legal.shape, np.int64)
            place[legal] = np.arange(legal.sum())
            mask = mask[:, torch.from_numpy(place)]
        mask = mask & torch.from_numpy(legal)
        return mask | ~mask.any(-1, keepdim=True)

    def example(self, rng: np.random.Generator, count: int, observation_space: Space) -> Arrays:
        """Returns random inputs at the start of an episode."""
        arrays: Arrays = dict(random_observations(observation_space, count, rng))
        if "action_mask" in self.inputs and "action_mask" not in self.keys:
            mask = rng.random((count, int(self.actions.legal.sum()))) < 0.7
            branches = np.split(mask, np.cumsum(self.actions.branches)[:-1], axis=1)
            # an action of each branch must be legal
            arrays["action_mask"] = np.concatenate([part | ~part.any(1, keepdims=True) for part in branches], axis=1)
        if self.policy.recurrent:
            arrays["previous_action"] = self.policy.no_action(count)
            arrays["previous_reward"] = np.zeros(count, np.float32)
            arrays["state"] = np.zeros((count, self.policy.state_size), np.float32)
        return arrays


def export_onnx(model: ModelLike, path: str | Path) -> Exported:
    """Writes the greedy policy of a model; see `BaseAlgorithm.export_onnx`."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f'onnx and onnxscript must be installed for export_onnx, got no {missing[0]}. Run pip install "sb_dqn[onnx]".'
        )
    path = Path(path) if Path(path).suffix else Path(path).with_suffix(".onnx")
    network = GreedyNetwork(model).eval()
    with atomic_write(path) as file:
        temporary = Path(file.name)
        _write(network, network.example(np.random.default_rng(0), 2, model.observation_space), temporary)
        difference = None if find_spec("onnxruntime") is None else compare(model, network, temporary)
    return Exported(path, network.inputs, network.outputs, difference)


def compare(model: ModelLike, network: GreedyNetwork, path: Path) -> float:
    """Returns the largest difference between a file and `predict`; a recurrent model makes two steps.

    Raises:
        ConfigurationError: an action differs, or a number by more than the tolerance.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    inputs = network.example(rng, CHECKED, model.observation_space)
    state = None
    largest = 0.0
    for _ in range(2 if network.policy.recurrent else 1):
        found = dict(zip(network.outputs, session.run(network.outputs, inputs), strict=True))
        obs = {key: inputs[key] for key in network.keys}
        observation = obs if isinstance(model.observation_space, spaces.Dict) else obs["obs"]
        reward = inputs.get("previous_reward")
        masks = inputs["action_mask"] if model.action_mask == "info" else None
        expected: Arrays = {}
        if network.learns_values:
            expected["q_values"] = model.q_values(observation, state, None, masks, reward)
        action, state = model.predict(observation, state, None, True, masks, reward)
        expected["action"] = np.asarray(action)
        if network.policy.recurrent:
            expected["next_state"] = state["memory"]
            follows = {"previous_action": state["action"], "state": found["next_state"]}
            inputs = network.example(rng, CHECKED, model.observation_space) | follows
            inputs["previous_reward"] = rng.normal(size=CHECKED).astype(np.float32)
        largest = max(largest, _difference(network, expected, found))
    return largest


def _difference(network: GreedyNetwork, expected: Arrays, found: Arrays) -> float:
    """Returns the largest difference between outputs of numbers, and checks all outputs."""
    advice = "Check own networks for code that depends on values or on the batch size."
    largest = 0.0
    for name, array in expected.items():
        if name == "action" and not isinstance(network.actions, BoxActions):
            continue
        known = np.abs(array) < 1e30  # not those of illegal actions
        difference = float(np.abs(array - found[name]).max(where=known, initial=0.0))
        allowed = TOLERANCE * float(np.abs(array).max(where=known, initial=1.0))
        if not difference <= allowed:
            raise ConfigurationError(
                f"{name} of the exported file must differ from the model's by at most {allowed:.1e}, got {difference:.1e}. {advice}"
            )
        largest = max(largest, difference)
    if not isinstance(network.actions, BoxActions):
        differs = expected["action"] != found["action"]
        if network.learns_values:
            q = expected["q_values"]
            chosen = np.take_along_axis(q, (found["action"] - network.actions.start)[..., None], -1)[..., 0]
            differs &= q.max(-1) - chosen > TOLERANCE * np.maximum(1.0, np.abs(chosen))
        if differs.any():
            raise ConfigurationError(
                f"the actions of the exported file must equal those of predict, got {differs.sum()} others. {advice}"
            )
    return largest


def random_observations(space: Space, count: int, rng: np.random.Generator) -> Observation:
    """Returns random observations `[count, *shape]` by key: uniform between moderate bounds, else normal within them."""
    found = {}
    for key, leaf in flatten_space(space).items():
        if isinstance(leaf, spaces.Box) and leaf_dtype(leaf).kind == "f":
            shape = (count, *leaf_shape(leaf))
            moderate = (np.abs(leaf.low) <= MODERATE) & (np.abs(leaf.high) <= MODERATE)
            low, high = np.where(moderate, leaf.low, 0.0), np.where(moderate, leaf.high, 1.0)
            normal = np.clip(rng.normal(size=shape), leaf.low, leaf.high)
            found[key] = np.where(moderate, rng.uniform(low, high, shape), normal).astype(leaf_dtype(leaf))
        else:
            own = deepcopy(leaf)  # sampling must not advance the generator of the model's space
            own.seed(int(rng.integers(2**31)))
            found[key] = np.stack([np.asarray(own.sample()) for _ in range(count)]).astype(leaf_dtype(leaf))
    return found


def _write(network: GreedyNetwork, example: Arrays, path: Path) -> None:
    tensors = tuple(torch.from_numpy(np.ascontiguousarray(example[name])) for name in network.inputs)
    batch = torch.export.Dim("batch", min=1)
    weights = spectral_weights(network.policy.acting_network)
    try:
        with torch.no_grad(), _quiet(), nullcontext() if weights is None else weights.cached():
            torch.onnx.export(
                network,
                tensors,
                str(path),
                input_names=network.inputs,
                output_names=network.outputs,
                dynamic_shapes={"tensors": tuple({0: batch} for _ in tensors)},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        reason = (str(error.__cause__ or error).strip().splitlines() or [""])[0]
        raise ConfigurationError(
            f"the networks must be exportable by torch.onnx.export, got {type(error).__name__} ({reason}). Rewrite own networks "
            f"without code that depends on values."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences notes of the exporter about other packages and about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
