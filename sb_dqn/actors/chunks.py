"""Chunks: some ticks of all lanes in one block of memory, written by workers, each its own lanes, and read as rows; and as arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sb_dqn.devices import aligned
from sb_dqn.types import Array, ArraySpec, Info, Rows, Slot

SLOTS = 2
"""Slots of a tick; a tick of one slot uses the second."""

OF_TICKS = ("action", "stepped", "departed")
"""Arrays without an axis of slots."""

Infos = dict[int, list[Info]]
"""Infos of the ticks in which episodes ended, one dict per lane."""


class Report(NamedTuple):
    """A finished chunk of one worker; the rows themselves lie in the memory of the chunks."""

    chunk: int
    """Number of the chunk of this worker, from 0."""
    extras: list[dict[str, Array]]
    """`Rows.extra` of each tick."""
    infos: Infos


@dataclass(frozen=True)
class ChunkLayout:
    """Shapes and positions of the arrays of chunks.

    Args:
        leaves: shape and dtype of each array of an observation of one lane, by key.
        action: shape and dtype of an action of one lane.
        mask: shape of the mask of one lane; None: no masks.
        num_lanes: B, of all workers.
        ticks: T, ticks per chunk.
        places: number of chunks of a worker that the memory holds.
    """

    leaves: Mapping[str, ArraySpec]
    action: ArraySpec
    mask: tuple[int, ...] | None
    num_lanes: int
    ticks: int
    places: int
    arrays: dict[str, ArraySpec] = field(init=False, default_factory=dict)
    """Shape and dtype of each array: `[P, T, B, ...]`, those of slots `[P, T, 2, B, ...]`."""

    def __post_init__(self) -> None:
        flag, number = np.dtype(np.bool_), np.dtype(np.float32)
        of_slots: dict[str, ArraySpec] = {
            **{f"obs/{key}": leaf for key, leaf in self.leaves.items()},
            **dict.fromkeys(("reward", "score"), ((), number)),
            **dict.fromkeys(("terminal", "last", "valid"), ((), flag)),
        }
        if self.mask is not None:
            of_slots["mask"] = (self.mask, flag)
        of_ticks = dict(zip(OF_TICKS, (self.action, ((), flag), ((), flag)), strict=True))
        place, lanes = (self.places, self.ticks), (self.num_lanes,)
        for name, (shape, dtype) in of_slots.items():
            self.arrays[name] = ((*place, SLOTS, *lanes, *shape), dtype)
        for name, (shape, dtype) in of_ticks.items():
            self.arrays[name] = ((*place, *lanes, *shape), dtype)

    @classmethod
    def for_stream(cls, stream: Any, ticks: int, places: int) -> ChunkLayout:
        """Returns the layout for the lanes of a stream, or of what stands in for one."""
        leaves = {key: (shape[1:], dtype) for key, (shape, dtype) in stream.leaves.items()}
        actions = stream.action_shape
        dtype = np.dtype(np.int64 if actions.num_actions else np.float32)
        mask = (*actions.shape, actions.num_actions) if stream.has_masks else None
        return cls(leaves, (actions.shape, dtype), mask, stream.num_envs, ticks, places)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(aligned(_bytes(*array)) for array in self.arrays.values())

    def views(self, memory: Any) -> dict[str, Array]:
        """Returns the arrays by name as views of a block of `nbytes` bytes."""
        views, offset = {}, 0
        for name, (shape, dtype) in self.arrays.items():
            views[name] = np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape)
            offset += aligned(_bytes(shape, dtype))
        return views


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize


class TickCells(NamedTuple):
    """Views of the arrays of one tick of a worker's lanes, `[k, ...]`."""

    slots: list[dict[str, Array]]
    action: Array
    stepped: Array
    departed: Array


class Chunks:
    """The arrays of chunks, in shared or other memory.

    Args:
        layout: their shapes.
        memory: buffer of `layout.nbytes` bytes.
    """

    def __init__(self, layout: ChunkLayout, memory: object) -> None:
        self.layout = layout
        self.arrays = layout.views(memory)
        self._obs = {key: self.arrays[f"obs/{key}"] for key in layout.leaves}
        # views that `write` has made: making them takes longer than writing to them
        self._cells: dict[tuple[int, ...], TickCells] = {}

    def write(self, place: int, tick: int, lanes: slice, rows: Rows) -> None:
        """Writes a tick of a worker's lanes."""
        key = place, tick, lanes.start, lanes.stop
        if key not in self._cells:
            self._cells[key] = self._make_cells(place, tick, lanes)
        cells = self._cells[key]
        for unused in cells.slots[: SLOTS - len(rows.slots)]:
            unused["valid"][...] = False
        for arrays, slot in zip(cells.slots[SLOTS - len(rows.slots) :], rows.slots, strict=True):
            for name, observation in slot.obs.items():
                arrays[f"obs/{name}"][...] = observation
            arrays["reward"][...] = slot.reward
            arrays["score"][...] = slot.score
            arrays["terminal"][...] = slot.terminal
            arrays["last"][...] = slot.last
            arrays["valid"][...] = slot.valid
            if slot.mask is not None:
                arrays["mask"][...] = slot.mask
        cells.departed[...] = rows.action is not None
        cells.action[...] = 0 if rows.action is None else rows.action
        cells.stepped[...] = rows.stepped

    def _make_cells(self, place: int, tick: int, lanes: slice) -> TickCells:
        of_slots = {name: array[place, tick] for name, array in self.arrays.items() if name not in OF_TICKS}
        slots = [{name: array[number, lanes] for name, array in of_slots.items()} for number in range(SLOTS)]
        return TickCells(slots, *[self.arrays[name][place, tick, lanes] for name in OF_TICKS])

    def take(self, place: int, lanes: slice) -> dict[str, Array]:
        """Returns copies of the arrays of one worker's chunk: `[T, (2,) k, ...]` by name."""
        return {name: self._lanes(name, place, lanes).copy() for name in self.arrays}

    def put(self, place: int, lanes: slice, arrays: Mapping[str, Array]) -> None:
        """Writes what `take` returned."""
        for name in self.arrays:
            self._lanes(name, place, lanes)[...] = arrays[name]

    def _lanes(self, name: str, place: int, lanes: slice) -> Array:
        chunk: Array = self.arrays[name][place]
        return chunk[:, lanes] if name in OF_TICKS else chunk[:, :, lanes]

    def rows(self, tick: int, finished: Sequence[FinishedChunk]) -> Rows:
        """Returns a tick that consists of ticks of some workers; lanes of other workers are empty.

        The arrays are views of the memory where all workers are at the same place.
        """
        at = self._at(tick, finished)
        valid = at("valid")
        slots = tuple(
            Slot(
                {key: at(f"obs/{key}")[number] for key in self._obs},
                at("reward")[number], at("score")[number], at("terminal")[number], at("last")[number], valid[number],
                bool(valid[number].all()),
                None if self.layout.mask is None else at("mask")[number],
            )
            for number in range(SLOTS)
            if number == SLOTS - 1 or valid[number].any()
        )  # fmt: skip
        departed, stepped = at("departed"), at("stepped")
        whole = self._is_whole(finished) and bool(departed.all() or not departed.any())
        return Rows(
            at("action") if departed.any() else None,
            slots,
            stepped,
            int(np.count_nonzero(stepped)),
            lambda: self._infos(tick, finished),
            self._extras(tick, finished),
            None if whole else departed,
        )

    def _is_whole(self, finished: Sequence[FinishedChunk]) -> bool:
        return sum(chunk.size for chunk in finished) == self.layout.num_lanes

    def _at(self, tick: int, finished: Sequence[FinishedChunk]) -> Callable[[str], Array]:
        places = {chunk.place for chunk in finished}
        if len(places) == 1 and self._is_whole(finished):
            (place,) = places
            return lambda name: self.arrays[name][place, tick]
        gathered: dict[str, Array] = {}
        return lambda name: (
            gathered[name] if name in gathered else gathered.setdefault(name, self._gather(name, tick, finished))
        )

    def _gather(self, name: str, tick: int, finished: Sequence[FinishedChunk]) -> Array:
        array = self.arrays[name]
        out: Array = np.zeros_like(array[0, 0])
        for chunk in finished:
            index = (chunk.lanes,) if name in OF_TICKS else (slice(None), chunk.lanes)
            out[index] = array[chunk.place, tick][index]
        return out

    def _extras(self, tick: int, finished: Sequence[FinishedChunk]) -> dict[str, Array]:
        extras: dict[str, Array] = {}
        for chunk in finished:
            for name, values in chunk.report.extras[tick].items():
                if name not in extras:
                    extras[name] = np.zeros((self.layout.num_lanes, *values.shape[1:]), values.dtype)
                extras[name][chunk.lanes] = values
        return extras

    def _infos(self, tick: int, finished: Sequence[FinishedChunk]) -> list[Info]:
        infos: list[Info] = [{} for _ in range(self.layout.num_lanes)]
        for chunk in finished:
            if tick in chunk.report.infos:
                infos[chunk.lanes] = [dict(info) for info in chunk.report.infos[tick]]
        return infos


class FinishedChunk(NamedTuple):
    """A finished chunk of one worker."""

    lanes: slice
    place: int
    report: Report

    @property
    def size(self) -> int:
        """Number of lanes."""
        size: int = self.lanes.stop - self.lanes.start
        return size


LEVEL = 1
"""Level of zlib; higher ones are slower and save little."""
IMAGE_AXES = 2
"""Least axes of an observation of one lane that is compressed."""


class PackedImages(NamedTuple):
    """Images `[T, 2, k, ...]` uint8: each tick xor the one before, compressed by zlib. Most pixels do not change."""

    shape: tuple[int, ...]
    data: bytes


Packed = Array | PackedImages


def pack_images(images: npt.NDArray[np.uint8]) -> PackedImages:
    """Compresses images `[T, ...]`, of which consecutive ones are similar."""
    changes = images.copy()
    changes[1:] ^= images[:-1]
    return PackedImages(images.shape, zlib.compress(changes.tobytes(), LEVEL))


def unpack_images(packed: PackedImages) -> npt.NDArray[np.uint8]:
    """Restores the images that `pack_images` compressed."""
    changes = np.frombuffer(zlib.decompress(packed.data), np.uint8).reshape(packed.shape)
    return np.bitwise_xor.accumulate(changes, axis=0)


def pack_chunk(arrays: Mapping[str, Array], compress: bool) -> dict[str, Packed]:
    """Returns the arrays of a chunk for sending; observations without the first slot where no tick has one.

    Args:
        arrays: result of `Chunks.take`.
        compress: compress observations that are images of bytes; for a network, not for shared memory.
    """
    first = 0 if arrays["valid"][:, 0].any() else 1
    packed: dict[str, Packed] = {}
    for name, array in arrays.items():
        observation = name.startswith("obs/")
        sent = array[:, first:] if observation else array
        is_image = observation and array.dtype == np.uint8 and array.ndim >= 3 + IMAGE_AXES
        packed[name] = pack_images(sent) if compress and is_image else sent
    return packed


def unpack_chunk(arrays: Mapping[str, Packed]) -> dict[str, Array]:
    """Returns what `Chunks.put` takes: the arrays that `pack_chunk` was called with, or with one slot instead of two."""
    return {name: unpack_images(x) if isinstance(x, PackedImages) else x for name, x in arrays.items()}
