"""Actors: who steps the environments while a model learns, and where."""

from sb_dqn.actors.settings import OverlappedActors, ProcessActors, RayActors, as_actors

__all__ = ["OverlappedActors", "ProcessActors", "RayActors", "as_actors"]
