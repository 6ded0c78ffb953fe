"""Random streams as plain state: the numbers after a restore are the numbers there would have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sb_dqn.errors import CheckpointError


def rng_state(generator: torch.Generator | np.random.Generator) -> dict[str, Any]:
    """The position of a generator as a tree for `pack` (128-bit numbers included); draws nothing."""
    if isinstance(generator, torch.Generator):
        return {"kind": "torch", "device": generator.device.type, "state": generator.get_state()}
    return {"kind": "numpy", "state": generator.bit_generator.state}


def set_rng_state(generator: torch.Generator | np.random.Generator, state: dict[str, Any]) -> None:
    """Puts a generator where `rng_state` found it.

    Raises:
        CheckpointError: the state is of another kind of generator (torch or numpy, another device or bit generator).
    """
    own = rng_state(generator)
    given, allowed = ((one.get("kind"), one.get("device")) for one in (state, own))
    if given != allowed:
        raise CheckpointError(
            f"the state is of a generator of kind {given}, this one is {allowed}; load on the same kind of device"
        )
    try:
        if isinstance(generator, torch.Generator):
            generator.set_state(state["state"])
        else:
            generator.bit_generator.state = state["state"]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the state of a random generator does not fit this one ({error})") from error
