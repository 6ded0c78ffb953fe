"""Training plan: the preset with the settings of the command line over it."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import click

from sb_dqn.presets import Preset, find_preset
from sb_dqn.presets.catalogue import merge_settings
from sb_dqn.runs.run import agent_of
from sb_dqn.runs.settings_syntax import algorithm_class, canonical, constructor_defaults, parse_assignments
from sb_dqn.types import Kwargs, Settings

STEPS_WITHOUT_PRESET = 100_000

OWN_OPTIONS = {
    "env": "the argument ENV",
    "env_kwargs": "--env-set NAME=VALUE",
    "n_envs": "--n-envs N",
    "n_timesteps": "--timesteps N",
    "policy": "--policy NAME",
    "total_timesteps": "--timesteps N",
}
"""Names that `--set` does not accept, and the option to use instead."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines a run."""

    algorithm: str
    env_id: str
    preset: Preset | None
    n_timesteps: int
    n_envs: int
    policy: str | None
    """Policy name; None: chosen by the observation space."""
    env_kwargs: Settings
    settings: Settings
    """Constructor keywords that differ from the defaults; always includes `seed`."""
    drew_seed: bool = False
    """True if the seed was not set but drawn."""

    def config(self, policy: str) -> Kwargs:
        """Returns the content of `config.yaml`, with the constructor's defaults filled in."""
        return {
            "algorithm": self.algorithm,
            "env_id": self.env_id,
            "n_envs": self.n_envs,
            "env_kwargs": dict(self.env_kwargs),
            "policy": policy,
            "n_timesteps": self.n_timesteps,
            "preset": None if self.preset is None else {"name": self.preset.name, "source": self.preset.source},
            "settings": {**constructor_defaults(algorithm_class(self.algorithm)), **self.settings},
        }

    @property
    def agent(self) -> Kwargs:
        """Returns what makes the agent: it is equal for two classes that differ only in defaults which their presets replace."""
        return agent_of({**self.config(self.policy or ""), "algorithm": ""})


def make_plan(
    algo: str,
    env_id: str,
    *,
    preset: str | None = None,
    timesteps: int | None = None,
    n_envs: int | None = None,
    policy: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    actors: str | None = None,
    assignments: Iterable[str] = (),
    env_assignments: Iterable[str] = (),
) -> Plan:
    """Returns the plan of a run: the preset of `algo` for `env_id` with all other arguments over it.

    Without a seed a random one is drawn.

    Raises:
        click.BadParameter: an unknown algorithm, or an assignment that cannot be parsed or has an option of its own.
        ConfigurationError: an unknown preset.
    """
    algorithm = canonical(algo)
    entry = find_preset(algorithm, env_id, preset)
    assigned = parse_assignments(assignments)
    for name in assigned.keys() & OWN_OPTIONS.keys():
        raise click.BadParameter(
            f"{name} must be set by its own option, got it with --set. Use {OWN_OPTIONS[name]} of `sb-dqn train`.",
            param_hint="--set",
        )
    _reject_word_none(algorithm, assigned)
    for name, value in (("seed", seed), ("device", device), ("actors", actors)):
        if value is not None and assigned.setdefault(name, value) != value:
            raise click.BadParameter(
                f"{name} must be {value} as in --{name}, got {assigned[name]}. Remove one of them.", param_hint="--set"
            )
    settings = merge_settings(entry.settings if entry else {}, assigned)
    drew_seed = settings.get("seed") is None
    if drew_seed:
        settings["seed"] = secrets.randbelow(2**31)
    env_kwargs = {**(entry.env_kwargs if entry else {}), **parse_assignments(env_assignments, "--env-set")}
    if entry is not None:
        _check_preprocessing(env_id, entry, env_kwargs)
    return Plan(
        algorithm=algorithm,
        env_id=env_id,
        preset=entry,
        n_timesteps=timesteps or (entry.n_timesteps if entry else STEPS_WITHOUT_PRESET),
        n_envs=n_envs or (entry.n_envs if entry else 1),
        policy=policy or (entry.policy if entry else None),
        env_kwargs=env_kwargs,
        settings=settings,
        drew_seed=drew_seed,
    )


def _check_preprocessing(env_id: str, preset: Preset, env_kwargs: Settings) -> None:
    """Rejects keywords that disable the preprocessing an Atari preset is tuned for; with `obs_type` it only warns."""
    from sb_dqn.envs.atari import is_atari, plain_keys, protocol_of, unprocessed
    from sb_dqn.envs.make import spec_of

    keys = plain_keys(env_kwargs)
    if not keys or not is_atari(spec_of(env_id)) or not protocol_of(spec_of(env_id)):
        return
    problem = f"{unprocessed(env_id, env_kwargs)}, and the preset {preset.name} is not tuned for that"
    if "obs_type" not in keys:
        watch = " (use `sb-dqn enjoy RUN` to watch a run)" if "render_mode" in keys else ""
        raise click.BadParameter(
            f"{problem}. Remove {', '.join(keys)}{watch}, or add obs_type=rgb to train on raw frames.",
            param_hint="--env-set",
        )
    warnings.warn(f"{problem}. Remove obs_type to train as the preset does.", stacklevel=3)


def _reject_word_none(algorithm: str, assigned: Settings) -> None:
    """Rejects the word `none` for keywords that accept `null` but no text."""
    words = [name for name, value in assigned.items() if isinstance(value, str) and value.lower() == "none"]
    if not words:
        return
    from sb_dqn.core.arguments import constructor_arguments

    arguments = constructor_arguments(algorithm_class(algorithm))
    for name in words:
        allowed = str(arguments[name].annotation) if name in arguments else ""
        if "None" in allowed and "str" not in allowed:
            raise click.BadParameter(
                f"{name} must not be text, got {assigned[name]}. Use {name}=null for no value.", param_hint="--set"
            )
