"""Actors: who steps the environments while a model learns, and where.

In the process of the learner they act with its network, which changes in place. Worker processes read a flat copy of its
weights in shared memory: the collector writes one and names it in each request (`ChunkRequest.weights`).
"""

from sb_dqn.actors.settings import OverlappedActors, ProcessActors, RayActors, as_actors

__all__ = ["OverlappedActors", "ProcessActors", "RayActors", "as_actors"]
