"""Modes of torch that the caller of `learn` set: the results are those without them, or an error names the mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from sb_dqn import DQN, PPO, R2D2, SAC
from sb_dqn.errors import ConfigurationError
from tests.continuous import Reach
from tests.marks import SLOW, a_few
from tests.tiny import quick

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
}


@contextmanager
def default(dtype: torch.dtype | None = None, device: str | None = None) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


DEFAULTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "float64": (lambda: default(dtype=torch.float64), "default dtype must be float32 .* got torch.float64"),
    "float16": (lambda: default(dtype=torch.float16), "default dtype must be float32 .* got torch.float16"),
    "meta": (lambda: default(device="meta"), "default device must be the CPU .* got meta"),
    "context of a device": (lambda: torch.device("meta"), "default device must be the CPU .* got meta"),
}


def make(algorithm: Any) -> Any:
    env = Reach() if algorithm is SAC else None
    kwargs = {"n_steps": 16, "n_epochs": 2} if algorithm is PPO else {}
    return quick(env, algorithm=algorithm, **kwargs)


def parameters(model: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.policy.parameters()]


@cache
def learned_without(algorithm: Any) -> list[torch.Tensor]:
    return parameters(make(algorithm).learn(48))


@SLOW
@pytest.mark.parametrize("algorithm", a_few([DQN, R2D2, SAC, PPO], DQN))
@pytest.mark.parametrize("mode", MODES)
def test_learning_in_a_mode_gives_the_parameters_of_learning_without_it(mode: str, algorithm: Any) -> None:
    model = make(algorithm)
    first = parameters(model)
    with MODES[mode]():
        model.learn(48)
        assert torch.is_grad_enabled() is (mode not in ("no_grad", "inference_mode"))
        assert torch.is_autocast_enabled("cpu") is mode.startswith("autocast")
    learned = parameters(model)
    assert all(torch.equal(a, b) for a, b in zip(learned, learned_without(algorithm), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(learned, first, strict=True))


@pytest.mark.parametrize("name", DEFAULTS)
def test_another_default_dtype_or_device_is_refused_by_name_when_a_model_is_made_and_when_it_learns(name: str) -> None:
    mode, message = DEFAULTS[name]
    with mode(), pytest.raises(ConfigurationError, match=message):
        make(DQN)
    model = make(DQN)
    with mode(), pytest.raises(ConfigurationError, match=message):
        model.learn(48)
    assert model.learn(48).num_timesteps >= 48


def test_a_model_that_was_made_in_inference_mode_predicts_and_refuses_to_learn() -> None:
    with torch.inference_mode():
        model = make(DQN)
        assert model.predict(model.observation_space.sample())[0] in range(3)
    with pytest.raises(ConfigurationError, match="must be made outside of torch.inference_mode"):
        model.learn(48)


@pytest.mark.parametrize("mode", a_few(sorted(MODES.keys() - {"inference_mode"}), "autocast to bfloat16"))
def test_a_model_that_was_made_in_a_mode_learns_as_one_made_without_it(mode: str) -> None:
    with MODES[mode]():
        model = make(DQN)
    assert all(torch.equal(a, b) for a, b in zip(parameters(model.learn(48)), learned_without(DQN), strict=True))
