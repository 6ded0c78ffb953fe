"""Random generators of a model, derived from one seed; each part has its own, so that none affects another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from sb_dqn.types import State

NAMES = ("init", "env", "explore", "predict", "sample", "noise")


class Generators:
    """Random generators of one model, derived from one seed and saved with the model.

    Args:
        seed: seed; None draws one from the operating system and stores it in `seed`, so that the run can be repeated.
        device: device of `noise`.
        sample_device: device of `sample`, the same as the replay buffer's; None for `device`.
        rank: number of the learner, from 0. Learners share the seed of the initial weights only.
    """

    def __init__(
        self, seed: int | None, device: torch.device, sample_device: torch.device | None = None, rank: int = 0
    ) -> None:
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        states = dict(zip(NAMES, np.random.SeedSequence(self.seed).spawn(len(NAMES)), strict=True))
        self.init_seed = int(states["init"].generate_state(1)[0])
        if rank:
            states = dict(zip(NAMES, np.random.SeedSequence((self.seed, rank)).spawn(len(NAMES)), strict=True))
        env_seed, sample, noise = (int(states[name].generate_state(1)[0]) for name in ("env", "sample", "noise"))
        self.env_seed = env_seed % 2**30  # ALE accepts 31 bits, and lane b is seeded with env_seed + b
        self.explore = np.random.default_rng(states["explore"])
        self.predict = np.random.default_rng(states["predict"])
        self.sample = torch.Generator(sample_device or device).manual_seed(sample)
        self.noise = torch.Generator(device).manual_seed(noise)

    def state_dict(self) -> State:
        return {
            "seed": self.seed,
            "explore": self.explore.bit_generator.state,
            "predict": self.predict.bit_generator.state,
            "sample": self.sample.get_state(),
            "noise": self.noise.get_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.seed = state["seed"]
        self.explore.bit_generator.state = state["explore"]
        self.predict.bit_generator.state = state["predict"]
        for name in ("sample", "noise"):
            generator: torch.Generator = getattr(self, name)
            if state[name].numel() == generator.get_state().numel():  # a CUDA state does not fit a CPU generator
                generator.set_state(state[name].cpu())


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Seeds torch's global generator, from which layers are initialized, for the block; restores it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def later_seed(seed: int, steps: int) -> int:
    """Returns a seed for the episodes after `steps` env steps, which differ from those at the start of the run."""
    return int(np.random.SeedSequence((seed, steps)).generate_state(1)[0]) % 2**30
