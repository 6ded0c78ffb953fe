"""Search spaces: names of settings to choices and ranges, from YAML to samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.presets.literals import load_yaml_file, plain
from sb_dqn.types import Kwargs, Settings

if TYPE_CHECKING:
    import optuna

DEFAULTS = Path(__file__).with_name("spaces.yaml")
RANGE = {"low", "high", "log"}

Space = dict[str, Any]
"""Name of a setting to a list of choices or `{low, high, log}`; a dict has its settings as `policy_kwargs.net_arch`."""


def default_space(algorithm: str) -> Space:
    """Returns the default search space of an algorithm."""
    spaces = _read(DEFAULTS)
    return _flatten(_inherit(spaces, algorithm.lower(), DEFAULTS), str(DEFAULTS))


def read_space(path: Path, algorithm: str) -> Space:
    """Reads a user's search space: one of settings, or, as in the file of the defaults, one of algorithms.

    Raises:
        ConfigurationError: the file cannot be read, an entry is no choice and no range, or an algorithm has none to be like.
    """
    content = _read(path)
    names = {name.lower(): name for name in content}
    if algorithm.lower() in names:
        content = {name.lower(): value for name, value in content.items()}
        content = _inherit({**_read(DEFAULTS), **content}, algorithm.lower(), path)
    space = _flatten(content, str(path))
    if not space:
        raise ConfigurationError(
            f"search space in {path} must have a setting, got none. Add one, for example gamma: [0.98, 0.99]."
        )
    return space


def _read(path: Path) -> Kwargs:
    content = load_yaml_file(path, "search space")
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigurationError(
            f"search space in {path} must be a mapping of settings to choices and ranges, got {str(content)[:80]!r}. "
            f"Write for example gamma: [0.98, 0.99]."
        )
    return content


def _inherit(spaces: Settings, name: str, path: Path, above: tuple[str, ...] = ()) -> Kwargs:
    """Returns the space `name` with that of its `like` below it; `above` are the spaces that are like it."""
    if not isinstance(spaces[name], Mapping):
        raise ConfigurationError(
            f"{name} in {path} must be a mapping of settings to choices and ranges, got {spaces[name]!r}. Write for example "
            f"{name}: {{gamma: [0.98, 0.99]}}."
        )
    own = dict(spaces[name])
    like = own.pop("like", None)
    if like is None:
        return own
    parent, above = str(like).lower(), (*above, name)
    if parent not in spaces or parent in above:
        raise ConfigurationError(
            f"like of {name} in {path} must be another algorithm that is not like it, got {like!r}. Name another one, or write "
            f"all settings.{nearest(parent, spaces.keys() - above)}"
        )
    return {**_inherit(spaces, parent, path, above), **own}


def _flatten(content: Settings, path: str, outer: str = "") -> Space:
    """Returns the entries by dotted name; checks each."""
    space: Space = {}
    for name, entry in content.items():
        label = f"{outer}{name}"
        if entry is None:
            continue
        if isinstance(entry, Mapping) and not RANGE & entry.keys():
            space |= _flatten(entry, path, f"{label}.")
        elif (isinstance(entry, list) and entry) or _is_range(entry):
            space[label] = entry
        else:
            raise ConfigurationError(
                f"{label} in {path} must be a list of choices or a range {{low: a, high: b, log: true}} with a < b (and 0 < a for "
                f"log), got {entry!r}. Write for example {label}: {{low: 0.1, high: 0.9}}."
            )
    return space


def _is_range(entry: object) -> bool:
    if not isinstance(entry, Mapping) or not {"low", "high"} <= entry.keys() <= RANGE:
        return False
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
    return numbers and isinstance(log, bool) and low < high and (low > 0 or not log)


def without_fixed(space: Space, settings: Settings) -> Space:
    """Returns the space without the settings that have a fixed value; those of a dict are compared one by one."""
    fixed = set(settings)
    for name, value in settings.items():
        if isinstance(value, Mapping):
            fixed = (fixed - {name}) | {f"{name}.{inner}" for inner in value}
    return {name: entry for name, entry in space.items() if name not in fixed and name.partition(".")[0] not in fixed}


def sample(trial: optuna.Trial, space: Space) -> Kwargs:
    """Samples every setting with a trial of Optuna; returns constructor keywords."""
    settings: Kwargs = {}
    for name, entry in space.items():
        if isinstance(entry, list):
            choices = {_label(choice): choice for choice in entry}
            value = choices[trial.suggest_categorical(name, list(choices))]
        else:
            low, high = entry["low"], entry["high"]
            whole = isinstance(low, int) and isinstance(high, int)
            suggest = trial.suggest_int if whole else trial.suggest_float
            value = suggest(name, low, high, log=entry.get("log", False))
        *outer, last = name.split(".")
        target = settings
        for part in outer:
            target = target.setdefault(part, {})
        target[last] = value
    return settings


def start_of(space: Space, *sources: Settings) -> Kwargs:
    """Returns parameters of a trial close to known settings: each value that lies in the space, by the first source that has it."""
    start: Kwargs = {}
    for name, entry in space.items():
        value = next((found for source in sources if (found := _look_up(source, name.split("."))) is not None), None)
        value = schedule_parts(value)[1]
        if isinstance(entry, list):
            if value in entry:
                start[name] = _label(value)
        elif isinstance(value, int | float) and entry["low"] <= value <= entry["high"]:
            start[name] = value
    return start


def _label(choice: object) -> Any:
    """Returns a choice as a value that every storage of Optuna keeps: a list or a dict as text."""
    return choice if isinstance(choice, str | int | float | None) else json.dumps(choice)


def _look_up(source: object, path: Iterable[str]) -> Any:
    for part in path:
        source = source.get(part) if isinstance(source, Mapping) else None
    return source


def schedule_parts(value: object) -> tuple[str, Any]:
    """Splits a schedule such as "linear 1e-3" into "linear" and 0.001; any other value into "" and itself."""
    if isinstance(value, str) and len(words := value.split()) == 2 and isinstance(plain(words[1]), float):
        return words[0], plain(words[1])
    return "", value


def keep_schedules(sampled: Settings, preset: Settings) -> Kwargs:
    """Returns the sampled settings; a number falls by the schedule that the preset has for it."""
    kept = dict(sampled)
    for name, value in sampled.items():
        word, _ = schedule_parts(preset.get(name))
        if word and isinstance(value, int | float):
            kept[name] = f"{word} {value!r}"
    return kept
