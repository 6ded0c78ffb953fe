"""State of environments as plain data: from their own `state_dict`, or from known attributes of public environments."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import gymnasium
import numpy as np

from sb_dqn.errors import CheckpointError
from sb_dqn.types import Env, EnvLike, State

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "gymnasium.wrappers.common:TimeLimit": ("_elapsed_steps",),
    "gymnasium.wrappers.common:OrderEnforcing": ("_has_reset",),
    "gymnasium.wrappers.common:PassiveEnvChecker": (),
    "gymnasium.wrappers.common:Autoreset": ("autoreset",),
    "sb_dqn.envs.goal_tasks:BitFlip": ("state", "goal", "steps"),
    "sb_dqn.envs.memory_tasks:TMaze": ("place", "steps", "sign"),
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
"""Class name to the attributes that change from step to step, without the random generator."""
STORED_NAMES = {"sb_dqn.envs.vector.seed_only:SeedOnly": "sb_dqn.envs.seed_only:SeedOnly"}
"""Class names that files store under an earlier module."""
OWN_STATE = "said"
"""Kind of a state from `state_dict()`, as stored in files."""
CHECKED = {"checked_reset": True, "checked_step": True, "checked_data_reuse": True}
"""Attributes of gymnasium's checker in mid-episode: it checks only the first calls."""
STATELESS = (
    "gymnasium.wrappers.transform_action",
    "gymnasium.wrappers.transform_observation",
    "gymnasium.wrappers.transform_reward",
    "gymnasium.wrappers.rendering",
)
"""Modules whose wrappers have no state on which a step depends."""


class NoEnvState(RuntimeError):
    """The state of an environment is not available; the message names the part and the reason."""


def has_state_dict(env: EnvLike) -> bool:
    """Returns True if the class itself (not an env inside it) has `state_dict()` and `load_state_dict(state)`."""
    return all(callable(getattr(type(env), name, None)) for name in ("state_dict", "load_state_dict"))


def layers_state(env: Env) -> list[State]:
    """Returns the states of one environment's wrappers, from the outermost in, and of the environment itself.

    Raises:
        NoEnvState: a layer is not known and has no `state_dict()`.
    """
    return [{"class": _class_name(layer), "state": _layer_state(layer)} for layer in _layers(env)]


def load_layers_state(env: Env, states: list[State]) -> None:
    """Restores the states of an environment with the same layers.

    Raises:
        CheckpointError: its layers differ.
    """
    layers = list(_layers(env))
    actual, expected = [_class_name(layer) for layer in layers], [state["class"] for state in states]
    if actual != expected:
        raise CheckpointError(
            f"the environment must have the layers {expected} as in the checkpoint, got {actual}. Make it with the same wrappers."
        )
    for layer, state in zip(layers, states, strict=True):
        _restore(layer, state["state"])


def env_state(env: EnvLike, trust: bool) -> State:
    """Returns the state of an environment of any kind, or with `trust` a pickle where no state is available.

    Raises:
        NoEnvState: neither is available.
    """
    try:
        if not has_state_dict(env):
            raise NoEnvState(f"{type(env).__name__} has no state_dict()")
        return {"kind": OWN_STATE, "state": env.state_dict()}
    except NoEnvState as why:
        if not trust:
            raise
        try:
            raw = importlib.import_module("cloudpickle").dumps(env)
        except Exception as error:  # pickling may raise any exception of the environment's own code
            raise NoEnvState(f"{why}, and it cannot be pickled ({type(error).__name__}: {error})") from error
        return {"kind": "pickle", "state": np.frombuffer(raw, np.uint8)}


def restored_env(env: EnvLike, state: State, trust: bool) -> EnvLike:
    """Restores a state from `env_state`; returns the same environment, or the unpickled one.

    Raises:
        CheckpointError: the state is of another environment, or is a pickle and `trust` is False.
    """
    if state["kind"] == OWN_STATE:
        env.load_state_dict(state["state"])
        return env
    if not trust:
        raise CheckpointError(
            "trust must be True for a checkpoint with its environment as a pickle, which loading does not run, got False. Pass "
            "load(..., trust=True) if you know who made the file (it can then run any code)."
        )
    return importlib.import_module("cloudpickle").loads(np.asarray(state["state"], np.uint8).tobytes())


def _layers(env: EnvLike) -> Iterator[EnvLike]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _class_name(layer: object) -> str:
    name = f"{type(layer).__module__}:{type(layer).__qualname__}"
    return STORED_NAMES.get(name, name)


def _layer_state(layer: EnvLike) -> State:
    name = _class_name(layer)
    if has_state_dict(layer):
        state = {"own": layer.state_dict()}
    elif name in ATTRIBUTES:
        state = {"attributes": {key: getattr(layer, key) for key in ATTRIBUTES[name]}}
    elif type(layer).__module__ in STATELESS:
        state = {}
    else:
        raise NoEnvState(f"{type(layer).__name__} has no state_dict()")
    if not isinstance(layer, gymnasium.Wrapper):
        state["np_random"] = layer.np_random.bit_generator.state
    return state


def _restore(layer: EnvLike, state: State) -> None:
    if "own" in state:
        layer.load_state_dict(state["own"])
    attributes = {
        **state.get("attributes", {}),
        **(CHECKED if _class_name(layer).endswith(":PassiveEnvChecker") else {}),
    }
    for key, value in attributes.items():
        setattr(layer, key, value)
    if "np_random" in state:
        layer.np_random.bit_generator.state = state["np_random"]
