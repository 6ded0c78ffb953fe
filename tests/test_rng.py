"""Random generators: independent of each other and of the global ones, reproducible, restorable."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.rng import Generators, torch_seeded

CPU = torch.device("cpu")


def draw(generators: Generators) -> list[float]:
    return [
        generators.explore.random(),
        generators.predict.random(),
        torch.rand((), generator=generators.sample).item(),
        torch.rand((), generator=generators.noise).item(),
    ]


def numbers(generators: Generators) -> list[float]:
    return [generators.init_seed, generators.env_seed, *draw(generators), *draw(generators)]


def global_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]  # type: ignore[index]  # noqa: NPY002 - read, not used


def test_the_same_seed_gives_the_same_streams() -> None:
    assert numbers(Generators(3, CPU)) == numbers(Generators(3, CPU))


def test_streams_differ_from_each_other_and_between_seeds() -> None:
    found = numbers(Generators(3, CPU)) + numbers(Generators(4, CPU))
    assert len(set(found)) == len(found)


def test_without_a_seed_one_is_drawn_and_stored() -> None:
    first, second = Generators(None, CPU), Generators(None, CPU)
    assert first.seed != second.seed
    assert numbers(Generators(first.seed, CPU)) == numbers(first)


def test_the_largest_seed() -> None:
    assert Generators(2**63 - 1, CPU).env_seed < 2**32


def test_one_stream_does_not_affect_another() -> None:
    quiet, busy = Generators(3, CPU), Generators(3, CPU)
    busy.predict.random(100)
    torch.rand(100, generator=busy.noise)
    assert busy.explore.random() == quiet.explore.random()
    assert torch.rand((), generator=busy.sample).item() == torch.rand((), generator=quiet.sample).item()


def test_streams_continue_from_their_state() -> None:
    first, other = Generators(3, CPU), Generators(9, CPU)
    draw(first)
    state = copy.deepcopy(first.state_dict())
    expected = [draw(first) for _ in range(3)]
    other.load_state_dict(state)
    assert [draw(other) for _ in range(3)] == expected
    assert other.seed == 3


def test_a_state_of_another_device_is_ignored() -> None:
    generators = Generators(3, CPU)
    state = {**generators.state_dict(), "sample": torch.zeros(16, dtype=torch.uint8)}  # the size of a CUDA state
    generators.load_state_dict(state)
    assert (
        torch.rand((), generator=generators.sample).item() == torch.rand((), generator=Generators(3, CPU).sample).item()
    )


def test_the_global_generators_are_not_changed() -> None:
    before = global_states()
    draw(Generators(3, CPU))
    draw(Generators(None, CPU))
    with torch_seeded(5):
        torch.nn.Linear(3, 3)
    assert global_states() == before


def test_layers_initialized_in_a_seeded_block_are_equal() -> None:
    def weights(seed: int) -> list[float]:
        with torch_seeded(seed):
            return torch.nn.Linear(2, 2).weight.flatten().tolist()

    assert weights(5) == weights(5)
    assert weights(5) != weights(6)


def test_an_error_in_a_seeded_block_restores_the_generator() -> None:
    before = global_states()
    with pytest.raises(KeyError), torch_seeded(5):
        torch.rand(3)
        raise KeyError
    assert global_states() == before
