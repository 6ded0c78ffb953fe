"""Replay and rollout buffers: ring storage with one cursor per lane, samplers, and views that read batches."""

from sb_dqn.buffers.frame_stack import FrameStack
from sb_dqn.buffers.n_step_transitions import TransitionView
from sb_dqn.buffers.prioritized_sampler import Prioritized, PrioritizedSampler
from sb_dqn.buffers.replay_buffer import ReplayBuffer, UpdateSchedule
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.sequences import Sequences, SequenceView
from sb_dqn.buffers.uniform_sampler import UniformSampler

__all__ = [
    "FrameStack",
    "Layout",
    "Prioritized",
    "PrioritizedSampler",
    "ReplayBuffer",
    "Ring",
    "SequenceView",
    "Sequences",
    "TransitionView",
    "UniformSampler",
    "UpdateSchedule",
]
