"""Where an environment stands, as plain data: of those that offer it, and of the small public ones that are known here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from sb_dqn.errors import CheckpointError

Env = gymnasium.Env[Any, Any]

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "gymnasium.wrappers.common:TimeLimit": ("_elapsed_steps",),
    "gymnasium.wrappers.common:OrderEnforcing": ("_has_reset",),
    "gymnasium.wrappers.common:PassiveEnvChecker": (),
    "gymnasium.wrappers.common:Autoreset": ("autoreset",),
    "sb_dqn.envs.seed_only:SeedOnly": (),
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": ("state",),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": ("state", "last_u"),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": ("s", "lastaction"),
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": ("s", "lastaction"),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": ("s", "lastaction", "fickle_step"),
}
"""By class, all that changes from step to step, beside the generator."""
CHECKED = {"checked_reset": True, "checked_step": True, "checked_data_reuse": True}
"""What gymnasium's checker must know once it goes on in the middle of an episode: it looks at first calls alone."""
STATELESS = ("gymnasium.wrappers.transform_action", "gymnasium.wrappers.transform_observation",
             "gymnasium.wrappers.transform_reward", "gymnasium.wrappers.rendering")  # fmt: skip
"""Modules whose wrappers remember nothing that a step depends on."""


class NoState(RuntimeError):
    """Where an environment stands cannot be said; names what of it, and why."""


def says_state(thing: Any) -> bool:
    """Whether a class offers `state_dict()` and `load_state_dict(state)` of its own (what it wraps does not count)."""
    return all(callable(getattr(type(thing), name, None)) for name in ("state_dict", "load_state_dict"))


def layers_state(env: Env) -> list[dict[str, Any]]:
    """The state of one environment, its wrappers from outside in, then itself.

    Raises:
        NoState: a layer is not known, and offers no `state_dict()`.
    """
    return [{"class": _name(layer), "state": _said(layer)} for layer in _layers(env)]


def load_layers_state(env: Env, states: list[dict[str, Any]]) -> None:
    """Puts an environment of the same layers where `layers_state` found it.

    Raises:
        CheckpointError: its layers are others.
    """
    layers = list(_layers(env))
    given, wanted = [_name(layer) for layer in layers], [state["class"] for state in states]
    if given != wanted:
        raise CheckpointError(
            f"the checkpoint was taken of an environment made of {wanted}, this one is made of {given}; make it as before"
        )
    for layer, state in zip(layers, states, strict=True):
        _restore(layer, state["state"])


def env_state(env: Any, trust: bool) -> dict[str, Any]:
    """The state of an environment of any kind; with `trust` a pickle of it where there is no other way.

    Raises:
        NoState: it cannot be had.
    """
    try:
        if not says_state(env):
            raise NoState(f"{type(env).__name__} offers no state_dict()")
        return {"kind": "said", "state": env.state_dict()}
    except NoState as why:
        if not trust:
            raise
        return {"kind": "pickle", "state": _pickled(env, why)}


def restored_env(env: Any, state: Mapping[str, Any], trust: bool) -> Any:
    """The environment where `env_state` found it: itself, or the one that was pickled.

    Raises:
        CheckpointError: it does not fit, or is a pickle and `trust` was not said.
    """
    if state["kind"] == "said":
        env.load_state_dict(state["state"])
        return env
    if not trust:
        raise CheckpointError(
            "the checkpoint holds its environment as a pickle, which loading does not run; say load(..., trust=True) if you "
            "know who made the file (it can then run any code)"
        )
    return importlib.import_module("cloudpickle").loads(np.asarray(state["state"], np.uint8).tobytes())


def _pickled(env: Any, why: NoState) -> Any:
    try:
        raw = importlib.import_module("cloudpickle").dumps(env)
    except Exception as error:  # whatever the environment's own reduction raises
        raise NoState(f"{why}, and it cannot be pickled ({type(error).__name__}: {error})") from error
    return np.frombuffer(raw, np.uint8)


def _layers(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}:{type(layer).__qualname__}"


def _said(layer: Any) -> dict[str, Any]:
    name = _name(layer)
    if says_state(layer):
        state = {"own": layer.state_dict()}
    elif name in ATTRIBUTES:
        state = {"attributes": {key: getattr(layer, key) for key in ATTRIBUTES[name]}}
    elif type(layer).__module__ in STATELESS:
        state = {}
    else:
        raise NoState(f"{type(layer).__name__} offers no state_dict()")
    if not isinstance(layer, gymnasium.Wrapper):
        state["np_random"] = layer.np_random.bit_generator.state
    return state


def _restore(layer: Any, state: Mapping[str, Any]) -> None:
    if "own" in state:
        layer.load_state_dict(state["own"])
    known = {**state.get("attributes", {}), **(CHECKED if _name(layer).endswith(":PassiveEnvChecker") else {})}
    for key, value in known.items():
        setattr(layer, key, value)
    if "np_random" in state:
        layer.np_random.bit_generator.state = state["np_random"]
