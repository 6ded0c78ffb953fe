"""Worker: steps some of a model's lanes with a copy of its weights, in another process or on another machine."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.acting.action_selection import ActingConfig
from sb_dqn.acting.actor import Actor
from sb_dqn.actors.chunks import Chunks, Report
from sb_dqn.actors.lanes import open_lanes
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.nn.layers.norms import spectral_weights
from sb_dqn.normalize import Normalizer
from sb_dqn.types import Blueprint, EnvLike, Info, Rows, State, any_true

CPU = torch.device("cpu")
KEPT_INFOS = (str, int, float, bool, np.generic)
"""Types of the entries of infos that are sent to the learner."""


class Seeds(NamedTuple):
    """Seeds of a worker that begins."""

    env: int | None
    """Of its first lane; None: the environment's own."""
    acting: tuple[int, ...]
    """Of exploration and noise."""


class ChunkRequest(NamedTuple):
    """Message to a worker: the chunk to collect next."""

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
        lanes: its lanes within the model.
        blueprint: spaces and lanes of the model.
        acting: what it shares with the model's other actors, with networks on the CPU.
    """

    env: EnvLike
    lanes: slice
    blueprint: Blueprint
    acting: ActingConfig


class Weights:
    """The tensors that acting depends on, as one float32 array: parameters, buffers and statistics of the normalization.

    Args:
        network: the one that acts.
        normalizer: its normalization of observations.
    """

    def __init__(self, network: torch.nn.Module, normalizer: Normalizer) -> None:
        buffers = [buffer for buffer in network.buffers() if buffer.is_floating_point()]
        self._tensors = [*network.parameters(), *buffers, *normalizer.acting_tensors()]
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
        lanes: place of its lanes in the chunks.
    """

    def __init__(self, config: WorkerConfig, chunks: Chunks, lanes: slice) -> None:
        self.chunks = chunks
        self.lanes = lanes
        first = config.lanes.start
        stream = open_lanes(config.env, config.lanes.stop - first, config.acting.action_mask)
        stream.number_lanes(first)
        normalizer = config.acting.normalization.build(config.blueprint, CPU)
        network = config.acting.policy.acting_network
        self.weights = Weights(network, normalizer)
        self.weights.move_to_one_array()  # before the networks are traced with their memory
        self._spectral = spectral_weights(network)
        self._noise = torch.Generator(CPU)
        self._rng = np.random.default_rng(0)
        acting = replace(config.acting, transform=normalizer.observations, spectral_weights=self._spectral)
        self.actor = Actor.build(acting, stream, self._rng, self._noise, first_lane=first)

    def collect(self, request: ChunkRequest, weights: npt.NDArray[np.float32]) -> Iterator[Report | None]:
        """Collects one chunk: yields None after each tick, then the report."""
        self.weights.read(weights)
        if self._spectral is not None:
            self._spectral.invalidate()
        exploration = self.actor.selector.exploration
        if exploration is not None and request.exploration is not None:
            exploration.load_state_dict(request.exploration)
        report = Report(request.chunk, [], {})
        seeds = request.seeds
        for tick in range(self.chunks.layout.ticks):
            rows, seeds = self.actor.step(request.uniform) if seeds is None else self._begin(seeds), None
            self.chunks.write(request.place, tick, self.lanes, rows)
            report.extras.append({name: np.array(values) for name, values in rows.extra.items()})
            if any(any_true(slot.last) for slot in rows.slots):
                report.infos[tick] = [_plain(info) for info in rows.make_infos()]
            yield None
        yield report

    def _begin(self, seeds: Seeds) -> Rows:
        explore, noise = np.random.SeedSequence(seeds.acting).spawn(2)
        self._rng.bit_generator.state = np.random.default_rng(explore).bit_generator.state
        self._noise.manual_seed(int(noise.generate_state(1)[0]))
        return self.actor.begin(seeds.env)

    def state(self, trust: bool) -> tuple[dict[str, Any] | None, str]:
        """Returns the state between two chunks, or None and the reason why there is none."""
        try:
            state = self.actor.state(trust)
        except NoEnvState as why:
            return None, str(why)
        parts = self.actor.saved_parts().items()
        states = {"recurrent" if name == "memory" else name: part.state_dict() for name, part in parts}
        own = {"explore": self._rng.bit_generator.state, "noise": self._noise.get_state()}
        # a copy: a pipe moves the memory of the tensors that it sends, and this actor continues to write its frames
        return {**state, **own, **deepcopy(states)}, ""

    def load_state(self, state: State, trust: bool) -> None:
        """Restores a `state`."""
        self.actor.load_state(state, trust)
        self._rng.bit_generator.state = state["explore"]
        self._noise.set_state(state["noise"])
        for name, part in self.actor.saved_parts().items():
            part.load_state_dict(state["recurrent" if name == "memory" else name])

    def close(self) -> None:
        """Closes the environments."""
        self.actor.stream.close()


def _plain(info: Info) -> Info:
    """Returns the entries of an info that are numbers or texts."""
    return {key: value for key, value in info.items() if isinstance(value, KEPT_INFOS)}
