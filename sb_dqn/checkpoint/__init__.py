"""Model files: a zip of a JSON manifest and tensors, written atomically, versioned, and read without running code."""

from __future__ import annotations

from sb_dqn.checkpoint.encoding.allowance import AllocationGuard, Allowance
from sb_dqn.checkpoint.encoding.constructor_arguments import CustomObjects, decode_value, encode_value
from sb_dqn.checkpoint.encoding.spaces import decode_space, encode_space
from sb_dqn.checkpoint.encoding.state_tree import pack, unpack
from sb_dqn.checkpoint.format.zip_reader import model_info, read_archive
from sb_dqn.checkpoint.format.zip_writer import file_to_write, write_archive
from sb_dqn.checkpoint.incremental.row_blocks import SegmentColumn, SegmentedRows, WrittenBlocks
from sb_dqn.checkpoint.incremental.segments import find_checkpoint, read_rows, remove_unused_segments
from sb_dqn.checkpoint.incremental.writer import BackgroundWrite, copy_members, write_checkpoint
from sb_dqn.files import atomic_write

__all__ = [
    "AllocationGuard",
    "Allowance",
    "BackgroundWrite",
    "CustomObjects",
    "SegmentColumn",
    "SegmentedRows",
    "WrittenBlocks",
    "atomic_write",
    "copy_members",
    "decode_space",
    "decode_value",
    "encode_space",
    "encode_value",
    "file_to_write",
    "find_checkpoint",
    "model_info",
    "pack",
    "read_archive",
    "read_rows",
    "remove_unused_segments",
    "unpack",
    "write_archive",
    "write_checkpoint",
]
