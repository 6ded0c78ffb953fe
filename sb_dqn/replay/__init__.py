"""Replay: storage with per-lane cursors, samplers, and views of transitions."""

from sb_dqn.replay.experience import Cadence, Replay
from sb_dqn.replay.frames import FrameStack
from sb_dqn.replay.prioritized import Prioritized, PrioritizedSampler
from sb_dqn.replay.ring import Ring
from sb_dqn.replay.samplers import Sampler, UniformSampler
from sb_dqn.replay.sequences import Sequences, SequenceView
from sb_dqn.replay.views import TransitionView

__all__ = [
    "Cadence",
    "FrameStack",
    "Prioritized",
    "PrioritizedSampler",
    "Replay",
    "Ring",
    "Sampler",
    "SequenceView",
    "Sequences",
    "TransitionView",
    "UniformSampler",
]
