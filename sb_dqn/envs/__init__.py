"""Environments: construction by id, streams of rows, monitor files and episode statistics. Names are imported lazily."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sb_dqn.envs.atari import make_atari_env as make_atari_env
    from sb_dqn.envs.make import make_vec_env as make_vec_env
    from sb_dqn.envs.monitor import Monitor as Monitor
    from sb_dqn.envs.monitor import load_results as load_results
    from sb_dqn.envs.statistics import EpisodeStatistics as EpisodeStatistics
    from sb_dqn.envs.streams.open import Stream as Stream
    from sb_dqn.envs.streams.open import StreamOptions as StreamOptions
    from sb_dqn.envs.streams.open import open_stream as open_stream
    from sb_dqn.envs.streams.recorded import RecordedEpisodes as RecordedEpisodes
    from sb_dqn.envs.vector.atari_env import AtariLanes as AtariLanes
    from sb_dqn.envs.vector.pettingzoo_env import PettingZooLanes as PettingZooLanes
    from sb_dqn.envs.vector.sync_env import Lanes as Lanes

_MODULES = {
    "AtariLanes": "vector.atari_env",
    "EpisodeStatistics": "statistics",
    "Lanes": "vector.sync_env",
    "Monitor": "monitor",
    "PettingZooLanes": "vector.pettingzoo_env",
    "RecordedEpisodes": "streams.recorded",
    "Stream": "streams.open",
    "StreamOptions": "streams.open",
    "load_results": "monitor",
    "make_atari_env": "atari",
    "make_vec_env": "make",
    "open_stream": "streams.open",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {__all__}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
