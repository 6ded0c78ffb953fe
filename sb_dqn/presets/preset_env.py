"""Environments of presets: an id with the keywords of an entry of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sb_dqn.presets.catalogue import class_with_presets, list_presets

if TYPE_CHECKING:
    from sb_dqn.types import Settings


@dataclass(frozen=True)
class PresetEnv:
    """Environment that a model was made for by a preset.

    Model files keep the two names only, and the catalogue has the keywords: a file must not choose arguments for `gymnasium.make`.
    """

    env_id: str
    preset: str
    """Name of the preset."""
    keywords: Settings
    """Keywords of the environment."""

    def is_named(self, env: object) -> bool:
        """Returns whether `env` is the id of this environment."""
        return isinstance(env, str) and env == self.env_id

    def names(self, cls: type) -> Mapping[str, str] | None:
        """Returns what a model file keeps; None if the catalogue has other keywords."""
        names = {"env": self.env_id, "preset": self.preset}
        return names if find_preset_env(cls, names) == self else None


def find_preset_env(cls: type, names: Mapping[str, str]) -> PresetEnv | None:
    """Returns the environment of the names that a model file has; None if the class has no such preset."""
    for entry in list_presets(class_with_presets(cls)):
        if entry.name == names["preset"]:
            return PresetEnv(names["env"], entry.name, entry.env_kwargs)
    return None
