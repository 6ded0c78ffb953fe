"""Random streams go on where they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.checkpoint import pack, rng_state, set_rng_state, unpack
from sb_dqn.errors import CheckpointError

BIT_GENERATORS: list[Callable[[int], Any]] = [
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.MT19937,
    np.random.SFC64,
]


def through_json(state: dict[str, Any]) -> Any:
    skeleton, tensors = pack(state)
    return unpack(json.loads(json.dumps(skeleton)), tensors)


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_numpy_generators_go_on(kind: Callable[[int], Any]) -> None:
    rng, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    rng.integers(0, 9, 5, dtype=np.int32)  # leaves half of a 64-bit draw behind, which is part of the state
    set_rng_state(other, through_json(rng_state(rng)))
    assert rng.integers(0, 9, 7, dtype=np.int32).tolist() == other.integers(0, 9, 7, dtype=np.int32).tolist()
    assert rng.random(9).tolist() == other.random(9).tolist()


def test_torch_generators_go_on() -> None:
    rng, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    torch.randn(3, generator=rng)  # leaves a cached normal
    set_rng_state(other, through_json(rng_state(rng)))
    assert torch.equal(torch.randn(20, generator=rng), torch.randn(20, generator=other))


def test_taking_the_state_draws_nothing_and_does_not_follow() -> None:
    rng = torch.Generator().manual_seed(1)
    state = rng_state(rng)
    first = torch.rand(3, generator=rng)
    set_rng_state(rng, state)
    assert torch.equal(torch.rand(3, generator=rng), first)


def test_another_kind_of_generator_is_refused() -> None:
    numpy_rng, torch_rng = np.random.default_rng(0), torch.Generator()
    for rng, state in (
        (torch_rng, rng_state(numpy_rng)),
        (numpy_rng, rng_state(torch_rng)),
        (numpy_rng, rng_state(np.random.Generator(np.random.MT19937(0)))),
        (torch_rng, rng_state(torch_rng) | {"device": "cuda"}),
        (torch_rng, rng_state(torch_rng) | {"state": torch.zeros(3, dtype=torch.uint8)}),
        (torch_rng, {"kind": "torch", "device": "cpu"}),
        (numpy_rng, {}),
    ):
        with pytest.raises(CheckpointError, match="generator"):
            set_rng_state(rng, state)
