"""Find the settings of an algorithm for an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.presets.values import plain

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """The settings of one algorithm on one environment, or on the family that a pattern names."""

    name: str
    """The entry: an environment id or a pattern such as `ALE/*`."""
    algorithm: str
    """Whose file it stands in, lower case: a variant without an entry of its own uses its parent's."""
    source: str
    """Where the numbers come from."""
    n_timesteps: int
    """Environment steps over all lanes."""
    policy: str
    n_envs: int = 1
    result: str | None = None
    """What was measured with them here; None until it was."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the constructor. A schedule is text here (`linear 1e-3`), which the constructor understands."""


_RESERVED = frozenset(Preset.__dataclass_fields__) - {"name", "algorithm", "settings"}


def find_preset(algo: str, env_id: str, name: str | None = None) -> Preset | None:
    """The preset of `algo` for `env_id`, or None where there is none.

    An exact id goes before a pattern, a longer pattern before a shorter one, and the algorithm's own file before its
    parent's. `name` asks for one entry by its name, whatever the environment.

    Raises:
        ConfigurationError: there is no entry called `name`.
    """
    lineage = [entries for file in _lineage(algo) for entries in [_entries(file)]]
    if name is not None:
        for entries in lineage:
            if name in entries:
                return entries[name]
        allowed = sorted({entry for entries in lineage for entry in entries})
        raise ConfigurationError(
            f"no preset {name!r} for {algo}; there are: {', '.join(allowed) or 'none'}.{nearest(name, allowed)}"
        )
    for entries in lineage:
        matching = [entry for entry in entries if entry == env_id or fnmatchcase(env_id, entry)]
        if matching:
            return entries[max(matching, key=lambda entry: (entry == env_id, len(entry)))]
    return None


def list_presets(algo: str | None = None) -> list[Preset]:
    """Every preset, or those that `algo` can use (its own first, then its parent's), in the order of the files."""
    if algo is None:
        return [entry for file in _files() for entry in _entries(file).values()]
    found: dict[str, Preset] = {}
    for file in _lineage(algo):
        found = {**_entries(file), **found}
    return list(found.values())


def _files() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def _lineage(algo: str) -> list[str]:
    """The files to look in: the algorithm's own, its parent's, and so on; empty for an algorithm without a file."""
    files: list[str] = []
    following: str | None = algo.lower()
    while following is not None and (_FOLDER / f"{following}.yaml").is_file():
        files.append(following)
        following = _read(following).get("parent")
        following = following.lower() if following else None
    return files


@cache
def _read(file: str) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load((_FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))
    return content


@cache
def _entries(file: str) -> dict[str, Preset]:
    return {name: _preset(name, file, _whole(name, file)) for name in _read(file).get("presets", {})}


def _whole(name: str, file: str) -> dict[str, Any]:
    """What stands in the entry, over what stands in the one of this name that it is `like`, in another file."""
    raw: dict[str, Any] = plain(_read(file)["presets"][name])
    like = raw.pop("like", None)
    if like is None:
        return raw
    if name not in _read(like.lower()).get("presets", {}):
        raise ConfigurationError(
            f"preset {name!r} in {file}.yaml is like {like}, but {like.lower()}.yaml has none of that name"
        )
    other = _whole(name, like.lower())
    return {key: value for key, value in other.items() if key not in {"source", "result"}} | raw


def _preset(name: str, file: str, raw: dict[str, Any]) -> Preset:
    missing = {"source", "n_timesteps", "policy"} - raw.keys()
    if missing:
        raise ConfigurationError(f"preset {name!r} in {file}.yaml lacks {', '.join(sorted(missing))}")
    reserved = {key: value for key, value in raw.items() if key in _RESERVED}
    settings = {key: value for key, value in raw.items() if key not in _RESERVED}
    return Preset(name=name, algorithm=file, settings=settings, **reserved)
