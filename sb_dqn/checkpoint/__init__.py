"""Model files: one zip of a JSON manifest and tensors; atomic, versioned, read without running code."""

from __future__ import annotations

from sb_dqn.checkpoint.archive import file_to_write, model_info, read_archive, write_archive
from sb_dqn.checkpoint.atomic import atomic_write
from sb_dqn.checkpoint.background import Writing, copied
from sb_dqn.checkpoint.bounds import NetBound
from sb_dqn.checkpoint.container import FORMAT_VERSION, Target
from sb_dqn.checkpoint.incremental import write_checkpoint
from sb_dqn.checkpoint.random_state import rng_state, set_rng_state
from sb_dqn.checkpoint.replacements import Replacements
from sb_dqn.checkpoint.segments import checkpoint_at, read_rows, sweep
from sb_dqn.checkpoint.space_codec import decode_space, encode_space
from sb_dqn.checkpoint.strips import Strip, Strips, Written
from sb_dqn.checkpoint.tree import pack, unpack
from sb_dqn.checkpoint.values import decode_value, encode_value

__all__ = [
    "FORMAT_VERSION",
    "NetBound",
    "Replacements",
    "Strip",
    "Strips",
    "Target",
    "Writing",
    "Written",
    "atomic_write",
    "checkpoint_at",
    "copied",
    "decode_space",
    "decode_value",
    "encode_space",
    "encode_value",
    "file_to_write",
    "model_info",
    "pack",
    "read_archive",
    "read_rows",
    "rng_state",
    "set_rng_state",
    "sweep",
    "unpack",
    "write_archive",
    "write_checkpoint",
]
