"""Chunks of one worker as plain arrays for a network, with images compressed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sb_dqn.actors.chunks import ChunkLayout, Chunks
from sb_dqn.types import Rows

LEVEL = 1
"""Level of zlib; higher ones are slower and save little."""
IMAGE_AXES = 2
"""Least axes of an observation of one lane that is compressed."""


class PackedImages(NamedTuple):
    """Images `[T, 2, k, ...]` uint8: each tick xor the one before, compressed by zlib. Most pixels do not change."""

    shape: tuple[int, ...]
    data: bytes


Array = npt.NDArray[Any] | PackedImages


def pack_images(images: npt.NDArray[np.uint8]) -> PackedImages:
    """Compresses images `[T, ...]`, of which consecutive ones are similar."""
    changes = images.copy()
    changes[1:] ^= images[:-1]
    return PackedImages(images.shape, zlib.compress(changes.tobytes(), LEVEL))


def unpack_images(packed: PackedImages) -> npt.NDArray[np.uint8]:
    """Restores the images that `pack_images` compressed."""
    changes = np.frombuffer(zlib.decompress(packed.data), np.uint8).reshape(packed.shape)
    return np.bitwise_xor.accumulate(changes, axis=0)


def pack_chunk(arrays: Mapping[str, npt.NDArray[Any]], compress: bool) -> dict[str, Array]:
    """Returns the arrays of a chunk for sending; observations without the first slot where no tick has one.

    Args:
        arrays: result of `Chunks.take`.
        compress: compress observations that are images of bytes; for a network, not for shared memory.
    """
    first = 0 if arrays["valid"][:, 0].any() else 1
    packed: dict[str, Array] = {}
    for name, array in arrays.items():
        observation = name.startswith("obs/")
        sent = array[:, first:] if observation else array
        is_image = observation and array.dtype == np.uint8 and array.ndim >= 3 + IMAGE_AXES
        packed[name] = pack_images(sent) if compress and is_image else sent
    return packed


def unpack_chunk(arrays: Mapping[str, Array]) -> dict[str, npt.NDArray[Any]]:
    """Returns what `Chunks.put` takes: the arrays that `pack_chunk` was called with, or with one slot instead of two."""
    return {name: unpack_images(x) if isinstance(x, PackedImages) else x for name, x in arrays.items()}


class OwnChunks(Chunks):
    """Chunks that hold the lanes of one worker only, in memory of its own.

    Args:
        layout: of the chunks of all lanes.
        lanes: number of lanes of this worker.
    """

    def __init__(self, layout: ChunkLayout, lanes: int) -> None:
        own = replace(layout, num_lanes=lanes)
        super().__init__(own, np.zeros(max(own.nbytes, 1), np.uint8))
        self._own = slice(0, lanes)

    def write(self, place: int, tick: int, lanes: slice, rows: Rows) -> None:
        super().write(place, tick, self._own, rows)

    def take(self, place: int, lanes: slice | None = None) -> dict[str, npt.NDArray[Any]]:
        return super().take(place, self._own)
