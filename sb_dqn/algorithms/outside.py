"""What a constructor meets first: the environment, the device, and keywords that it does not know."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch

from sb_dqn.envs.stream import Stream, open_stream
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.types import Blueprint

NOT_NEEDED = {
    "optimize_memory_usage": "each frame is stored once anyway",
    "replay_buffer_class": "combine n_steps, frame stacks and Dict observations freely; no class is needed for it",
    "replay_buffer_kwargs": "give buffer_size, buffer_device or buffer_path",
    "action_noise": "the spread of the policy explores",
    "use_sde_at_warmup": "state-dependent exploration is not built",
    "use_sde": "state-dependent exploration is not built; the spread of a Gaussian policy is learned",
    "sde_sample_freq": "state-dependent exploration is not built",
    "rollout_buffer_class": "any observation, frame stack, mask and action fits into the one rollout",
    "rollout_buffer_kwargs": "give n_steps, gamma and gae_lambda",
    "_init_setup_model": "a model is always whole",
    "force_reset": "a stream that begins again always begins with a reset",
    "print_system_info": "`sb-dqn info FILE` prints what a file says of itself",
}
"""Keywords of Stable-Baselines3 that have no meaning here, and why."""
HER = (
    "hindsight experience replay (goal relabelling) is not part of this library. DQN and SAC learn from a Dict of "
    "observation and goals as it is, with MultiInputPolicy. Leave it out, or keep Stable-Baselines3 where relabelling is needed"
)
HER_KEYWORDS = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"}
"""Of `HerReplayBuffer`, in `replay_buffer_kwargs`."""


def open_outside(env: Any, action_mask: str | None = None) -> tuple[Blueprint, Stream | None]:
    """The spaces of an environment, and the environment read as rows; a Blueprint has no rows.

    Args:
        env: of any kind.
        action_mask: "info", or the key of a Dict observation, where the legal actions are told; None: as `env` itself says.
    """
    if env is None:
        raise ConfigurationError("env=None is not allowed: give an id such as 'CartPole-v1', an env, or a vector env")
    if isinstance(env, Blueprint):
        return env, None
    stream = open_stream(env, action_mask=action_mask)
    return stream.blueprint, stream


def resolve_device(device: Any, name: str = "device") -> torch.device:
    """The torch device of a name; "auto" takes CUDA where there is one.

    Args:
        device: as the user gave it.
        name: of the argument, for messages.

    Raises:
        ConfigurationError: an unknown name, or CUDA where there is none.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}={device!r} is unknown: give 'auto', 'cpu', 'cuda' or 'cuda:0'") from error
    if found.type == "meta":
        raise ConfigurationError(f"{name}={device!r} holds no numbers: give 'auto', 'cpu', 'cuda' or 'cuda:0'")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            f"{name}={device!r}: torch {torch.__version__} sees no CUDA here; give 'auto' or 'cpu'"
        )
    return found


def refuse_unknown(cls: type, unknown: Mapping[str, Any]) -> None:
    """Names a keyword that the constructor does not know, and the nearest that it does.

    Raises:
        ConfigurationError: there is one.
    """
    for name in unknown:
        if name in NOT_NEEDED:
            why = HER if _asks_for_her(name, unknown[name]) else f"{NOT_NEEDED[name]}; leave it out"
            raise ConfigurationError(f"{cls.__name__} takes no {name!r}: {why}")
        allowed = constructor_arguments(cls)
        raise ConfigurationError(
            f"{cls.__name__} takes no {name!r}.{nearest(name, allowed)} It takes {sorted(allowed)}"
        )


def _asks_for_her(name: str, value: Any) -> bool:
    """True for Stable-Baselines3's `HerReplayBuffer`, a class derived from it, their name, or keywords of theirs."""
    if name == "replay_buffer_class":
        names = [base.__name__ for base in value.__mro__] if isinstance(value, type) else [str(value)]
        return "HerReplayBuffer" in names
    return name == "replay_buffer_kwargs" and isinstance(value, Mapping) and bool(HER_KEYWORDS & value.keys())


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Keyword arguments of a final class, its parents' included, by name; without `self`, `policy` and `env`."""
    found: dict[str, inspect.Parameter] = {}
    for parent in cls.__mro__:
        signature = inspect.signature(parent.__init__).parameters  # type: ignore[misc]  # of a class, on purpose
        keywords = {name: p for name, p in signature.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        found = {**keywords, **found}
        if not any(p.kind is p.VAR_KEYWORD and p.name == "kwargs" for p in signature.values()):
            break  # a variant hands its **kwargs to its parent; this one hands on nothing
    return {name: p for name, p in found.items() if name not in ("self", "policy", "env")}


def remembered(
    cls: type, arguments: Mapping[str, Any], replaces: Collection[str], further: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a model for its files: all but those that are replaced, and what its class has further.

    Raises:
        ConfigurationError: a keyword of the class is not among them: a model file would forget it.
    """
    for name in constructor_arguments(cls):
        if name not in arguments and name not in replaces and name not in further:
            raise ConfigurationError(
                f"{name} of {cls.__name__} would be forgotten by its model files; before super().__init__, put it into Learned's "
                f"arguments, or into self.further = {{{name!r}: {name}}}"
            )
    return {**{name: value for name, value in arguments.items() if name not in replaces}, **further}
