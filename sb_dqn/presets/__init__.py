"""Tuned settings as data: one YAML file per algorithm, each entry with its source and, once measured, its result."""

from __future__ import annotations

from sb_dqn.presets.catalogue import Preset, find_preset, list_presets
from sb_dqn.presets.values import parse_value

__all__ = ["Preset", "find_preset", "list_presets", "parse_value"]
