"""Presets: tuned hyperparameters, one YAML file per algorithm; each entry has a source and, once measured, a result."""

from __future__ import annotations

from sb_dqn.presets.catalogue import Preset, find_preset, list_presets
from sb_dqn.presets.catalogue import list_presets as list
from sb_dqn.presets.literals import parse_value

__all__ = ["Preset", "find_preset", "list", "list_presets", "parse_value"]
