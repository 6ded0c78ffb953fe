"""Model files: one zip of a JSON manifest and tensors; atomic, versioned, read without running code."""

from __future__ import annotations

from sb_dqn.checkpoint.encoding.allocation_guard import AllocationGuard
from sb_dqn.checkpoint.encoding.constructor_arguments import decode_value, encode_value
from sb_dqn.checkpoint.encoding.custom_objects import CustomObjects
from sb_dqn.checkpoint.encoding.random_state import rng_state, set_rng_state
from sb_dqn.checkpoint.encoding.spaces import decode_space, encode_space
from sb_dqn.checkpoint.encoding.state_tree import pack, unpack
from sb_dqn.checkpoint.format.atomic_write import atomic_write
from sb_dqn.checkpoint.format.zip_archive import file_to_write, model_info, read_archive, write_archive
from sb_dqn.checkpoint.format.zip_reader import FORMAT_VERSION, Target
from sb_dqn.checkpoint.incremental.background_writer import Writing, copied
from sb_dqn.checkpoint.incremental.row_blocks import SegmentColumn, SegmentedRows, Written
from sb_dqn.checkpoint.incremental.segments import checkpoint_at, read_rows, sweep
from sb_dqn.checkpoint.incremental.writer import write_checkpoint

__all__ = [
    "FORMAT_VERSION",
    "AllocationGuard",
    "CustomObjects",
    "SegmentColumn",
    "SegmentedRows",
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
