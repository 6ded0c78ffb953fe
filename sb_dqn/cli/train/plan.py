"""What a training run is going to do: the preset, and over it what the command line says."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from sb_dqn.cli.train.settings_syntax import (
    algorithm_class,
    canonical,
    constructor_defaults,
    kwargs_over,
    parse_assignments,
)
from sb_dqn.presets import Preset, find_preset

STEPS_WITHOUT_PRESET = 100_000

ELSEWHERE = {
    "env": "the environment's id as its second argument",
    "env_kwargs": "--env-set NAME=VALUE",
    "n_envs": "--n-envs N",
    "n_timesteps": "--timesteps N",
    "policy": "--policy NAME",
    "total_timesteps": "--timesteps N",
}
"""What else makes a run, and how it is said."""


@dataclass(frozen=True)
class Plan:
    """All that decides a run."""

    algorithm: str
    env_id: str
    preset: Preset | None
    n_timesteps: int
    n_envs: int
    policy: str | None
    """None: by the kind of observation."""
    env_kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    """Keywords of the constructor that differ from its defaults; `seed` is always among them."""

    def config(self, policy: str) -> dict[str, Any]:
        """As it is written to the run's folder, with the constructor's defaults filled in."""
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
    assignments: Iterable[str] = (),
    env_assignments: Iterable[str] = (),
) -> Plan:
    """The preset of `algo` for `env_id` with everything that was said laid over it; a seed is drawn if none was given.

    Raises:
        click.BadParameter: an unknown algorithm, or an assignment that cannot be read or is no keyword of the constructor.
        ConfigurationError: an unknown preset.
    """
    algorithm = canonical(algo)
    found = find_preset(algorithm, env_id, preset)
    said = parse_assignments(assignments)
    for name in said.keys() & ELSEWHERE.keys():
        raise click.BadParameter(f"{name} is no setting; `sb-dqn train` has {ELSEWHERE[name]}", param_hint="--set")
    _refuse_none(algorithm, said)
    for name, value in (("seed", seed), ("device", device)):
        if value is not None and said.setdefault(name, value) != value:
            raise click.BadParameter(
                f"{name}={said[name]} contradicts --{name} {value}; say one of them", param_hint="--set"
            )
    settings = _over(found.settings if found else {}, said)
    if settings.get("seed") is None:
        settings["seed"] = secrets.randbelow(2**31)
    env_kwargs = {**(found.env_kwargs if found else {}), **parse_assignments(env_assignments, "--env-set")}
    if found is not None:
        _check_preprocessed(env_id, found, env_kwargs)
    return Plan(
        algorithm=algorithm,
        env_id=env_id,
        preset=found,
        n_timesteps=timesteps or (found.n_timesteps if found else STEPS_WITHOUT_PRESET),
        n_envs=n_envs or (found.n_envs if found else 1),
        policy=policy or (found.policy if found else None),
        env_kwargs=env_kwargs,
        settings=settings,
    )


def _check_preprocessed(env_id: str, preset: Preset, env_kwargs: Mapping[str, Any]) -> None:
    """Keywords that take away the preprocessing for which a preset of Atari is tuned; `obs_type` says that it is meant."""
    from sb_dqn.envs.atari import is_atari, plain_keys, protocol_of, unprocessed
    from sb_dqn.envs.make import spec_of

    keys = plain_keys(env_kwargs)
    if not keys or not is_atari(spec_of(env_id)) or not protocol_of(spec_of(env_id)):
        return
    lost = f"{unprocessed(env_id, env_kwargs)}, and the preset {preset.name} is not for that"
    if "obs_type" not in keys:
        watch = " (`sb-dqn enjoy RUN` shows a run)" if "render_mode" in keys else ""
        raise click.BadParameter(
            f"{lost}; leave {', '.join(keys)} out{watch}, or say that this is meant: obs_type=rgb",
            param_hint="--env-set",
        )
    warnings.warn(lost, stacklevel=3)


def _refuse_none(algorithm: str, said: Mapping[str, Any]) -> None:
    """The word `none` where no text is allowed, but `null` is."""
    words = [name for name, value in said.items() if isinstance(value, str) and value.lower() == "none"]
    if not words:
        return
    from sb_dqn.core.arguments import constructor_arguments

    arguments = constructor_arguments(algorithm_class(algorithm))
    for name in words:
        allowed = str(arguments[name].annotation) if name in arguments else ""
        if "None" in allowed and "str" not in allowed:
            raise click.BadParameter(f"{name}={said[name]} is a word; say {name}=null", param_hint="--set")


def _over(preset: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """`said` over the settings of the preset; another width is not to take away its layer norm."""
    settings = {**preset, **said}
    before, given = preset.get("policy_kwargs"), said.get("policy_kwargs")
    if isinstance(before, Mapping) and isinstance(given, Mapping):
        whole = kwargs_over(before, given)
        gone = {name for name in before if whole[name] is None}
        settings["policy_kwargs"] = {name: value for name, value in whole.items() if name not in gone}
    return settings
