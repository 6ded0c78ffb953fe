"""Actors: who steps the environments while a model learns, and where."""

from sb_dqn.actors.settings import ProcessActors, RayActors, as_actors

__all__ = ["ProcessActors", "RayActors", "as_actors"]
