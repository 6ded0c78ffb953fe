"""One seed, many named generators: each part draws from its own, so none disturbs another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

NAMES = ("init", "env", "explore", "predict", "sample", "noise")


class Generators:
    """The random streams of one model, derived from one seed and saved with it.

    Args:
        seed: None draws one from the operating system; it is kept, so every run can be repeated.
        device: where `noise` draws.
        sample_device: where `sample` draws, beside the replay; None: on `device`.
    """

    def __init__(self, seed: int | None, device: torch.device, sample_device: torch.device | None = None) -> None:
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        states = dict(zip(NAMES, np.random.SeedSequence(self.seed).spawn(len(NAMES)), strict=True))
        self.init_seed, env_seed, sample, noise = (
            int(states[name].generate_state(1)[0]) for name in ("init", "env", "sample", "noise")
        )
        self.env_seed = env_seed % 2**30  # ALE takes 31 bits, and lane b is seeded by env_seed + b
        self.explore = np.random.default_rng(states["explore"])
        self.predict = np.random.default_rng(states["predict"])
        self.sample = torch.Generator(sample_device or device).manual_seed(sample)
        self.noise = torch.Generator(device).manual_seed(noise)

    def state_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "explore": self.explore.bit_generator.state,
            "predict": self.predict.bit_generator.state,
            "sample": self.sample.get_state(),
            "noise": self.noise.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]
        self.explore.bit_generator.state = state["explore"]
        self.predict.bit_generator.state = state["predict"]
        for name in ("sample", "noise"):
            generator: torch.Generator = getattr(self, name)
            if state[name].numel() == generator.get_state().numel():  # a CUDA state does not fit a CPU generator
                generator.set_state(state[name].cpu())


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """torch's global generator seeded for the block (layers initialise from it) and put back after it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
