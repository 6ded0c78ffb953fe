"""Tables of a report: settings with their origin, versions and machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from sb_dqn.errors import ConfigurationError
from sb_dqn.files import plain_data, yaml_line
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import Score
from sb_dqn.types import Kwargs, Settings

ABSENT = object()
"""Value of a keyword that an algorithm does not have."""
RUN_KEYS = ("n_timesteps", "policy", "n_envs", "env_kwargs", "learners")
"""Keys of `config.yaml` next to `settings` that are settings, too."""


@dataclass(frozen=True)
class Cell:
    """Value of a setting and where it comes from."""

    text: str
    origin: str
    """CSS class: "user", "preset", "default" or "absent"."""


@dataclass(frozen=True)
class Setting:
    """Row of the table of settings."""

    name: str
    cells: Sequence[Cell]
    preset: str = ""
    default: str = ""


def origin_of(name: str, value: object, preset: Settings, defaults: Settings) -> str:
    """Returns the origin of a value: "default", "preset" or "user"."""
    expected = preset.get(name, defaults.get(name, ABSENT))
    if expected is ABSENT and name not in RUN_KEYS:
        return "default"  # nothing is known of a class of another version
    if value != expected:
        return "user"
    return "preset" if name in preset and value != defaults.get(name, ABSENT) else "default"


def reference_of(run: Run) -> tuple[Kwargs, Kwargs]:
    """Returns preset and defaults of a run; empty ones where this version knows neither."""
    from sb_dqn.presets import find_preset
    from sb_dqn.runs.plan import STEPS_WITHOUT_PRESET
    from sb_dqn.runs.settings_syntax import algorithm_class, constructor_defaults

    config = run.config
    defaults: Kwargs = {"n_envs": 1, "env_kwargs": {}, "learners": 1, "policy": config.get("policy")}
    defaults["n_timesteps"] = STEPS_WITHOUT_PRESET
    preset: Kwargs = {}
    try:
        defaults |= constructor_defaults(algorithm_class(str(config["algorithm"])))
        if config.get("preset"):
            entry = find_preset(str(config["algorithm"]), str(config["env_id"]), config["preset"]["name"])
            # an entry of a file may have the same name
            if entry is not None and entry.source == config["preset"]["source"]:
                preset = {name: getattr(entry, name) for name in ("n_timesteps", "policy", "n_envs", "env_kwargs")}
                preset |= entry.settings
    except (ConfigurationError, click.ClickException, KeyError, TypeError):
        pass  # an algorithm or a preset file that no longer exists
    return plain_data(preset), plain_data(defaults)


def values_of(run: Run) -> Kwargs:
    """Returns all settings of a run by name, without its seed."""
    named = {name: run.config[name] for name in RUN_KEYS if name in run.config}
    return {name: plain_data(value) for name, value in {**named, **run.settings}.items() if name != "seed"}


def settings_table(groups: Sequence[Score]) -> tuple[list[Setting], list[Setting]]:
    """Returns the settings that differ from a default or between groups, and the others; one cell for each group."""
    values = [values_of(group.runs[0]) for group in groups]
    references = [reference_of(group.runs[0]) for group in groups]
    special: list[Setting] = []
    ordinary: list[Setting] = []
    for name in dict.fromkeys(name for each in values for name in each):
        cells = [
            Cell(text_of(each[name]), origin_of(name, each[name], *reference)) if name in each else Cell("–", "absent")
            for each, reference in zip(values, references, strict=True)
        ]
        preset, default = (text_of(source.get(name, ABSENT)) for source in references[0])
        row = Setting(name, cells, preset, default)
        differs = len({cell.text for cell in cells if cell.origin != "absent"}) > 1
        (special if differs or any(cell.origin in ("user", "preset") for cell in cells) else ordinary).append(row)
    return special, ordinary


def text_of(value: object) -> str:
    """Returns a value as in a command line: YAML in one line; empty for `ABSENT`."""
    return "" if value is ABSENT else yaml_line(value)


def environment_table(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Returns versions and machine of the runs; several values of an entry are joined."""
    rows: dict[str, dict[str, None]] = {}
    for run in runs:
        config = run.config
        machine = config.get("machine") or {}
        entries = {**(config.get("versions") or {}), "platform": config.get("platform"), **machine}
        for name, value in entries.items():
            if value is not None:
                rows.setdefault(str(name), {})[str(value)] = None
    return [(name, ", ".join(values)) for name, values in rows.items()]
