"""Preset catalogue: lookup by algorithm and environment, and the settings of a preset with other ones over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.files import read_yaml
from sb_dqn.presets.literals import load_yaml_file, plain

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs, Settings

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """Hyperparameters of an algorithm for an environment, or for all environments that match a pattern."""

    name: str
    """Name of the entry: an environment id or a pattern such as `ALE/*`."""
    algorithm: str
    """Name of the file, lower case; the parent algorithm for a variant without its own entry."""
    source: str = field(repr=False)
    """Origin of the numbers: a paper, a repository or a tuning run."""
    n_timesteps: int
    """Environment steps over all lanes."""
    policy: str
    """Name of the policy, such as `MlpPolicy`."""
    n_envs: int = 1
    """Number of lanes."""
    result: str | None = field(default=None, repr=False)
    """Result measured with these settings; None if not measured."""
    env_kwargs: Settings = field(default_factory=dict, repr=False)
    """Keyword arguments of the environment."""
    settings: Settings = field(default_factory=dict, repr=False)
    """Keyword arguments of the constructor; a schedule is text (`linear 1e-3`)."""


NO_PRESET = "none"
"""Name by which no preset is chosen, where there is one."""
MERGED = ("features_extractor_kwargs", "optimizer_kwargs")
"""Dicts within `policy_kwargs` that are merged key by key, like `policy_kwargs` itself."""
_RESERVED = frozenset(Preset.__dataclass_fields__) - {"name", "algorithm", "settings"}


def find_preset(algo: str, env_id: str, name: str | None = None) -> Preset | None:
    """Returns the preset of `algo` for `env_id`, or None.

    The file of the algorithm has priority over that of its parent; within a file, an exact id has priority over a
    pattern, and a longer pattern over a shorter one. `name` selects an entry by name, independent of `env_id`; a name that
    ends in .yaml or .yml is a file in the form of the presets; "none" is no preset, for the defaults of the class.

    Raises:
        ConfigurationError: there is no entry `name`, or the file is not one of presets.
    """
    if name is not None and name.endswith((".yaml", ".yml")):
        return _read_file(Path(name), env_id)
    if name == NO_PRESET:
        return None
    lineage = [_entries(file) for file in _lineage(algo)]
    if name is not None:
        for entries in lineage:
            if name in entries:
                return entries[name]
        allowed = sorted({entry for entries in lineage for entry in entries})
        raise ConfigurationError(
            f"preset of {algo} must be one of {[*allowed, NO_PRESET]}, got {name!r}. Use one of them.{nearest(name, allowed)}"
        )
    for entries in lineage:
        if (matching := _match(entries, env_id)) is not None:
            return entries[matching]
    return None


def _match(names: Iterable[str], env_id: str) -> str | None:
    """Returns the most precise of the ids and patterns that fit an environment, or None."""
    matching = [name for name in names if name == env_id or fnmatchcase(env_id, name)]
    return max(matching, key=lambda name: (name == env_id, len(name)), default=None)


def _read_file(path: Path, env_id: str) -> Preset:
    """Reads the entry for `env_id`, or the only entry, of a user's file."""
    content = load_yaml_file(path, "preset")
    entries = content.get("presets") if isinstance(content, dict) else None
    if not isinstance(entries, dict) or not entries or not all(isinstance(entry, dict) for entry in entries.values()):
        raise ConfigurationError(
            f"preset file {path} must have `presets:` with a mapping of settings per environment, got {str(content)[:80]!r}. "
            f"Write it in the form of best.yaml of `sb-dqn tune`."
        )
    name = next(iter(entries)) if len(entries) == 1 else _match(entries, env_id)
    if name is None:
        raise ConfigurationError(
            f"preset file {path} must have one entry, or one for {env_id}, got {sorted(entries)}. Add one for {env_id}."
        )
    return make_preset(name, path.stem, {"source": str(path), **entries[name]})


def list_presets(algo: str | None = None, env: str | None = None) -> list[Preset]:
    """Returns all presets, or those that apply.

    Args:
        algo: class name; the presets are the entries of its file and of its parents' files.
        env: id of an environment; the presets are the entry of each file that fits it best.
    """
    if env is not None:
        found = [(file, find_preset(file, env)) for file in ([algo] if algo else _files())]
        return [preset for file, preset in found if preset and (algo or preset.algorithm == file)]
    if algo is None:
        return [entry for file in _files() for entry in _entries(file).values()]
    presets: dict[str, Preset] = {}
    for file in _lineage(algo):
        presets = {**_entries(file), **presets}
    return list(presets.values())


def class_with_presets(cls: type) -> str:
    """Returns the name of a class, or of its nearest parent that has presets."""
    return next((each.__name__ for each in cls.__mro__ if list_presets(each.__name__)), cls.__name__)


def _files() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def _lineage(algo: str) -> list[str]:
    """Returns the files of the algorithm, its parent and so on; empty for an algorithm without a file."""
    files: list[str] = []
    name: str | None = algo.lower()
    while name is not None and (_FOLDER / f"{name}.yaml").is_file():
        files.append(name)
        parent = _read(name).get("parent")
        name = parent.lower() if parent else None
    return files


@cache
def _read(file: str) -> Kwargs:
    content: Kwargs = read_yaml(_FOLDER / f"{file}.yaml")
    return content


@cache
def _entries(file: str) -> dict[str, Preset]:
    return {name: make_preset(name, file, _merged(name, file)) for name in _read(file).get("presets", {})}


def _merged(name: str, file: str) -> Kwargs:
    """Returns the values of an entry, with defaults from the entry of the same name in the file of `like`."""
    raw: Kwargs = plain(_read(file)["presets"][name])
    like = raw.pop("like", None)
    if like is None:
        return raw
    if name not in _read(like.lower()).get("presets", {}):
        raise ConfigurationError(
            f"preset {name!r} in {file}.yaml must have an entry of the same name in {like.lower()}.yaml, got like: {like}. "
            f"Add the entry or remove `like`."
        )
    other = _merged(name, like.lower())
    return {key: value for key, value in other.items() if key not in {"source", "result"}} | raw


def make_preset(name: str, file: str, raw: Kwargs) -> Preset:
    """Returns the preset with the values of an entry; those with no field of their own are settings."""
    missing = {"source", "n_timesteps", "policy"} - raw.keys()
    if missing:
        raise ConfigurationError(
            f"preset {name!r} in {file}.yaml must have {', '.join(sorted(missing))}, got {sorted(raw)}. Add them."
        )
    reserved = {key: value for key, value in raw.items() if key in _RESERVED}
    settings = {key: value for key, value in raw.items() if key not in _RESERVED}
    return Preset(name=name, algorithm=file, settings=settings, **reserved)


def merge_settings(preset: Settings, assigned: Settings) -> Kwargs:
    """Returns the preset's settings with `assigned` over them.

    `policy_kwargs` are merged, so that another width keeps the preset's layer norm; null removes a key of the preset.
    """
    settings = {**preset, **assigned}
    base, override = preset.get("policy_kwargs"), assigned.get("policy_kwargs")
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        merged = merge_policy_kwargs(base, override)
        settings["policy_kwargs"] = {
            name: value for name, value in merged.items() if value is not None or name not in base
        }
    return settings


def merge_policy_kwargs(base: Settings, override: Settings) -> Kwargs:
    """Returns `policy_kwargs` with `override` over `base`; the dicts of `MERGED` are merged key by key.

    Keywords of a features extractor are dropped if `override` names another one, which has keywords of its own.
    """
    before, after = (_class_name(kwargs.get("features_extractor_class")) for kwargs in (base, override))
    if before is not None and after not in (None, before):
        base = {name: value for name, value in base.items() if name != "features_extractor_kwargs"}
    inner = {
        name: {**base[name], **override[name]}
        for name in MERGED
        if isinstance(base.get(name), Mapping) and isinstance(override.get(name), Mapping)
    }
    return {**base, **override, **inner}


def _class_name(found: object) -> object:
    """Returns the name of a class, and a name as it is."""
    return found.__name__ if isinstance(found, type) else found
