"""Worker: steps some of a model's lanes with a copy of its weights, in another process or on another machine."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv

from sb_dqn.accelerate import Mode
from sb_dqn.acting.action_selection import ActionSelector, Observe, QActionSelector, SampledActionSelector
from sb_dqn.acting.tick_state import tick_of, tick_state
from sb_dqn.actors.chunks import Chunks, Report
from sb_dqn.buffers import FrameStack
from sb_dqn.envs.streams.open import Stream, open_stream
from sb_dqn.envs.streams.sb3 import is_sb3
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.nn.layers.norms import spectral_weights
from sb_dqn.normalize import NormalizationConfig, Normalizer
from sb_dqn.policies.base import Policy, StochasticPolicy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import Blueprint, Rows, any_true

CPU = torch.device("cpu")
KEPT_INFOS = (str, int, float, bool, np.generic)
"""Types of the entries of infos that are sent to the learner."""


class Seeds(NamedTuple):
    """Seeds of a worker that begins."""

    env: int | None
    """Of its first lane; None: the environment's own."""
    acting: tuple[int, ...]
    """Of exploration and noise."""


class Order(NamedTuple):
    """Order to a worker: the chunk to collect next."""

    chunk: int
    """Number of the chunk of this worker, from 0."""
    place: int
    """Place of the chunk in the memory of the chunks."""
    weights: int
    """Place of the weights to act with."""
    uniform: bool
    """Draw the actions uniformly."""
    exploration: dict[str, Any] | None
    """State of the exploration; None: there is none."""
    seeds: Seeds | None = None
    """Not None: reset all lanes first."""


@dataclass(frozen=True)
class WorkerConfig:
    """Everything that a worker is made from.

    Args:
        env: id or factory of all lanes, or a list of factories of this worker's lanes.
        first_lane: number of its first lane within the model.
        lanes: number of its lanes.
        blueprint: spaces and lanes of the model.
        action_mask: source of the legal actions, see `StreamOptions`.
        policy: networks on the CPU.
        exploration: strategy of its lanes; None for policies that sample.
        normalization: arguments of the model's normalization.
        mode: how the networks run.
        stores_q_values: see `QActionSelector`.
    """

    env: Any
    first_lane: int
    lanes: int
    blueprint: Blueprint
    action_mask: str | None
    policy: Policy
    exploration: ExplorationConfig | None
    normalization: NormalizationConfig
    mode: Mode
    stores_q_values: bool

    @property
    def slice(self) -> slice:
        """Its lanes within the model."""
        return slice(self.first_lane, self.first_lane + self.lanes)


def open_lanes(env: Any, lanes: int, action_mask: str | None) -> Stream:
    """Opens the lanes of one worker.

    Args:
        env: an id, a factory (of one environment, which is called for each lane, or of a vector environment with all lanes), or
            a list of factories.
        lanes: number of lanes.
        action_mask: source of the legal actions.

    Raises:
        ConfigurationError: another kind of environment, or one with another number of lanes.
    """
    if isinstance(env, str):
        return open_stream(env, num_envs=lanes, action_mask=action_mask)
    if isinstance(env, (list, tuple)):
        return open_stream(list(env), action_mask=action_mask)
    made = env()
    if not (isinstance(made, (VectorEnv, Stream)) or is_sb3(made)):
        return open_stream([lambda: made, *[env] * (lanes - 1)], action_mask=action_mask)
    stream = open_stream(made, action_mask=action_mask)
    if stream.num_envs != lanes:
        stream.close()
        raise ConfigurationError(
            f"the vector environment of one process must have lanes={lanes} environments, got {stream.num_envs}. Make it with as "
            f"many, or change lanes."
        )
    return stream


class Weights:
    """The tensors that acting depends on, as one float32 array: parameters, buffers and statistics of the normalization.

    Args:
        online: the network that acts.
        normalizer: its normalization of observations.
    """

    def __init__(self, online: torch.nn.Module, normalizer: Normalizer) -> None:
        buffers = [buffer for buffer in online.buffers() if buffer.is_floating_point()]
        self._tensors = [*online.parameters(), *buffers, *normalizer.acting_tensors()]
        self.size = sum(tensor.numel() for tensor in self._tensors)
        self._flat: npt.NDArray[np.float32] | None = None

    def move_to_one_array(self) -> None:
        """Moves the tensors into one array, which `read` copies to at once; nothing happens if not all are float32."""
        if any(tensor.dtype != torch.float32 for tensor in self._tensors):
            return
        flat = np.zeros(self.size, np.float32)
        self.write(flat)
        sizes = [tensor.numel() for tensor in self._tensors]
        for tensor, part in zip(self._tensors, torch.split(torch.from_numpy(flat), sizes), strict=True):
            tensor.data = part.view_as(tensor)
        self._flat = flat

    @torch.no_grad()
    def write(self, array: npt.NDArray[np.float32]) -> None:
        """Copies the tensors into an array of `size` numbers."""
        out = torch.from_numpy(array)
        torch.cat([tensor.detach().reshape(-1).to(CPU, torch.float32) for tensor in self._tensors], out=out)

    @torch.no_grad()
    def read(self, array: npt.NDArray[np.float32]) -> None:
        """Copies an array into the tensors."""
        if self._flat is not None:
            self._flat[...] = array
            return
        sizes = [tensor.numel() for tensor in self._tensors]
        for tensor, part in zip(self._tensors, torch.split(torch.from_numpy(array), sizes), strict=True):
            tensor.copy_(part.view_as(tensor))


class Worker:
    """Collects chunks of its lanes; state of lanes and generators is kept from one chunk to the next.

    Args:
        config: what it is made from.
        chunks: memory to write rows to.
    """

    def __init__(self, config: WorkerConfig, chunks: Chunks) -> None:
        self.config = config
        self.chunks = chunks
        self.stream = open_lanes(config.env, config.lanes, config.action_mask)
        self.stream.number_lanes(config.first_lane)
        policy: Any = config.policy
        self.normalizer = config.normalization.build(config.blueprint, CPU)
        online, _ = policy.networks
        self.weights = Weights(online, self.normalizer)
        self.weights.move_to_one_array()  # before the networks are recorded with their memory
        self._spectral = spectral_weights(online)
        self._noise = torch.Generator(CPU)
        self._rng = np.random.default_rng(0)
        self.selector = self._make_selector(policy)
        stack = config.blueprint.frame_stack
        spaces = flatten_space(self.stream.observation_space)
        self.frames = FrameStack(stack, config.lanes, spaces) if stack > 1 else None
        self._latest: Rows | None = None

    def _make_selector(self, policy: Any) -> ActionSelector:
        lanes, transform = self.config.lanes, self.normalizer.observations
        mode = self.config.mode
        if isinstance(policy, StochasticPolicy):
            return SampledActionSelector(
                policy, lanes, self._rng, transform, mode, has_critic=False, spectral_weights=self._spectral
            )
        assert self.config.exploration is not None  # every Q-policy has one
        exploration = self.config.exploration.build(policy.actions, lanes, self._rng)
        selector = QActionSelector(
            policy,
            exploration,
            lanes,
            transform,
            self._noise,
            spectral_weights=self._spectral,
            stores_q_values=self.config.stores_q_values,
        )
        selector.mode = mode
        return selector

    def collect(self, order: Order, weights: npt.NDArray[np.float32]) -> Iterator[Report | None]:
        """Collects one chunk: yields None after each tick, then the report."""
        self.weights.read(weights)
        if self._spectral is not None:
            self._spectral.invalidate()
        if order.exploration is not None:
            self._explore_as(order.exploration)
        report = Report(order.chunk, [], {})
        for tick in range(self.chunks.layout.ticks):
            begins = order.seeds is not None and tick == 0
            rows = self._begin(order.seeds) if begins and order.seeds is not None else self._step(order.uniform)
            self.chunks.write(order.place, tick, self.config.slice, rows)
            report.extras.append({name: np.array(values) for name, values in rows.extra.items()})
            if any(any_true(slot.last) for slot in rows.slots):
                report.infos[tick] = [_plain(info) for info in rows.make_infos()]
            yield None
        yield report

    def _explore_as(self, state: dict[str, Any]) -> None:
        exploration: Any = getattr(self.selector, "exploration", None)
        if exploration is not None:
            exploration.load_state_dict(state)

    def _begin(self, seeds: Seeds) -> Rows:
        explore, noise = np.random.SeedSequence(seeds.acting).spawn(2)
        self._rng.bit_generator.state = np.random.default_rng(explore).bit_generator.state
        self._noise.manual_seed(int(noise.generate_state(1)[0]))
        self._latest = self.stream.begin(seeds.env)
        return self._latest

    def _step(self, uniform: bool) -> Rows:
        assert self._latest is not None  # the first order begins
        rows = self._latest
        action = self.selector.select(rows, self._observer(rows), uniform)
        extras = self.selector.extras
        self._latest = self.stream.step(action)
        self._latest.extra = extras
        return self._latest

    def _observer(self, rows: Rows) -> Observe:
        if self.frames is None:
            return lambda: rows.slots[-1].obs
        self.frames.extend(rows)
        return self.frames.stacked

    def state(self, trust: bool) -> tuple[dict[str, Any] | None, str]:
        """Returns the state between two chunks, or None and the reason why there is none."""
        if self._latest is None:
            return None, "the environments have not begun"
        try:
            stream = self.stream.state_dict(trust)
        except NoEnvState as why:
            return None, str(why)
        recurrent = self.selector.recurrent_state
        return {
            "stream": stream,
            "tick": tick_state(self._latest),
            "explore": self._rng.bit_generator.state,
            "noise": self._noise.get_state(),
            "recurrent": None if recurrent is None else recurrent.state_dict(),
            "frames": None if self.frames is None else self.frames.ring.state_dict(),
        }, ""

    def load_state(self, state: dict[str, Any], trust: bool) -> None:
        """Restores a `state`."""
        self.stream.load_state_dict(state["stream"], trust)
        self._latest = tick_of(state["tick"], self.stream)
        self._rng.bit_generator.state = state["explore"]
        self._noise.set_state(state["noise"])
        if self.selector.recurrent_state is not None:
            self.selector.recurrent_state.load_state_dict(state["recurrent"])
        if self.frames is not None:
            self.frames.ring.load_state_dict(state["frames"])

    def close(self) -> None:
        """Closes the environments."""
        self.stream.close()


def on_cpu(policy: Policy) -> Policy:
    """Returns a copy of a policy on the CPU, for a worker."""
    copied: Policy = copy.deepcopy(policy).to(CPU)
    return copied


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of an info that are numbers or texts."""
    return {key: value for key, value in info.items() if isinstance(value, KEPT_INFOS)}
