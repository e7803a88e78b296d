"""A caching allocator of GPU memory that records snapshots, for examples and tests without a GPU.

It follows the rules of PyTorch's allocator: requests are rounded to 512 bytes; small and large requests have
separate pools; a free block is split if enough remains, and merged with its free neighbors; segments are
released only when the device is full. `expandable` grows one segment per pool instead. The results do not
depend on anything but the calls.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

MIB: Final = 1 << 20
_ROUND: Final = 512
_SMALL: Final = 1 * MIB
_SMALL_SEGMENT: Final = 2 * MIB
_LARGE_SEGMENT: Final = 20 * MIB
_LARGE_LIMIT: Final = 10 * MIB
_SEGMENT_ROUND: Final = 2 * MIB
_FIRST_ADDRESS: Final = 0x7F0000000000
_ADDRESS_STEP: Final = 1 << 36
_FIRST_TIME_US: Final = 1_760_000_000_000_000
Frames = list[dict[str, Any]]


class OutOfMemory(Exception):
    """The device has no memory left for a request."""


def frames(*calls: tuple[str, int, str]) -> Frames:
    """A call stack, innermost frame first, from (file, line, function)."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in calls]


class Block(Struct):
    """A part of a segment; free if `requested` is None."""

    address: int
    size: int
    segment: Segment
    requested: int | None = None
    frames: Frames = field(default_factory=list)
    pending: bool = False

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size


class Segment(Struct):
    """Memory reserved from the device, and its blocks in order of address."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    frames: Frames
    blocks: list[Block] = field(default_factory=list)


class Usage(Struct, frozen=True):
    """Bytes after a trace entry: allocated and active (as requested), reserved, and the free blocks."""

    allocated: int
    active: int
    reserved: int
    free: int
    largest_free: int


class Allocator:
    """One device. `other_bytes` belong to other processes; `usage` has the state after each entry."""

    def __init__(self, device_bytes: int, other_bytes: int = 0, expandable: bool = False) -> None:
        self.device_bytes, self.other_bytes, self.expandable = device_bytes, other_bytes, expandable
        self.segments: list[Segment] = []
        self.entries: list[dict[str, Any]] = []
        self.usage: list[Usage] = []
        self._blocks: dict[int, Block] = {}
        self._allocated = self._active = self._reserved = self._free = 0
        self._next_address = _FIRST_ADDRESS
        self._growing: dict[tuple[int, bool], Segment] = {}

    @property
    def device_free(self) -> int:
        """Bytes of the device that no process has reserved."""
        return self.device_bytes - self.other_bytes - self._reserved

    def malloc(self, requested: int, stack: Frames | None = None, stream: int = 0) -> int:
        """The address of a new block. Raises OutOfMemory after recording an `oom` entry."""
        stack = stack or []
        size = max(_ROUND, -(-requested // _ROUND) * _ROUND)
        is_small = size <= _SMALL
        block = self._best(size, is_small, stream) or self._grow(size, is_small, stream, stack)
        if block is None:
            self._release_cached()
            block = self._grow(size, is_small, stream, stack)
        if block is None:
            self._record("oom", None, size, stream, stack, device_free=self.device_free)
            raise OutOfMemory(f"{size} bytes requested, {self.device_free} free")
        self._split(block, size)
        block.requested, block.frames = requested, stack
        self._blocks[block.address] = block
        self._allocated += requested
        self._active += requested
        self._free -= block.size
        self._record("alloc", block.address, requested, stream, stack)
        return block.address

    def free(self, address: int, stack: Frames | None = None, *, pending: bool = False) -> None:
        """Frees a block; `pending` leaves it active, as one that another stream still uses."""
        block = self._blocks[address]
        assert block.requested is not None
        self._allocated -= block.requested
        self._record("free_requested", address, block.requested, block.segment.stream, stack or [])
        block.pending = True
        if not pending:
            self.complete(address)

    def complete(self, address: int) -> None:
        """Ends a pending free: the block returns to its pool."""
        block = self._blocks.pop(address)
        size, stream = block.requested, block.segment.stream
        assert size is not None
        self._active -= size
        self._free += block.size
        block.requested, block.frames, block.pending = None, [], False
        self._merge(block)
        self._record("free_completed", address, size, stream, [])

    def snapshot(self, cut: int = 0) -> dict[str, Any]:
        """The snapshot, as `torch.cuda.memory._snapshot()`; the first `cut` entries are lost."""
        return {
            "segments": [self._segment(piece, blocks) for piece, blocks in self._pieces()],
            "device_traces": [self.entries[cut:]],
            "allocator_settings": {"expandable_segments": self.expandable, "PYTORCH_CUDA_ALLOC_CONF": ""},
            "external_annotations": [],
        }

    def dump(self, path: Path, cut: int = 0) -> Path:
        """Writes the snapshot as a pickle."""
        path.write_bytes(pickle.dumps(self.snapshot(cut)))
        return path

    def _best(self, size: int, small: bool, stream: int) -> Block | None:
        """The smallest free block that fits."""
        fitting = [
            block
            for segment in self.segments
            if segment.small == small and segment.stream == stream
            for block in segment.blocks
            if block.requested is None and block.size >= size
        ]
        return min(fitting, key=lambda block: (block.size, block.address), default=None)

    def _grow(self, size: int, small: bool, stream: int, stack: Frames) -> Block | None:
        """A free block in new memory of the device, None if it has too little."""
        if self.expandable:
            return self._expand(size, small, stream, stack)
        length = _SMALL_SEGMENT if small else _LARGE_SEGMENT if size < _LARGE_LIMIT else _rounded(size)
        if length > self.device_free:
            return None
        segment = Segment(self._next_address, length, stream, small, False, stack)
        self._next_address += _rounded(length) + _SEGMENT_ROUND
        segment.blocks.append(Block(segment.address, length, segment))
        self.segments.append(segment)
        self._reserve(length)
        self._record("segment_alloc", segment.address, length, stream, stack)
        return segment.blocks[0]

    def _expand(self, size: int, small: bool, stream: int, stack: Frames) -> Block | None:
        """Free memory at the end of the growing segment of a pool."""
        segment = self._growing.get((stream, small))
        last_block = segment.blocks[-1] if segment and segment.blocks else None
        end = segment.address + segment.size if segment else 0
        is_free = last_block is not None and last_block.requested is None and last_block.end == end
        tail = last_block.size if last_block and is_free else 0
        page = _SMALL_SEGMENT if small else _LARGE_SEGMENT
        length = -(-(size - tail) // page) * page
        if length > self.device_free:
            return None
        if segment is None:
            segment = Segment(self._next_address, 0, stream, small, True, stack)
            self._next_address += _ADDRESS_STEP
            self._growing[stream, small] = segment
            self.segments.append(segment)
        block = Block(segment.address + segment.size, length, segment)
        segment.size += length
        segment.blocks.append(block)
        self._reserve(length)
        block = self._merge(block)
        self._record("segment_map", segment.address + segment.size - length, length, stream, stack)
        return block

    def _split(self, block: Block, size: int) -> None:
        rest_bytes = block.size - size
        segment = block.segment
        if rest_bytes < _ROUND or (rest_bytes <= _SMALL and not (segment.small or segment.expandable)):
            return
        index = segment.blocks.index(block)
        segment.blocks.insert(index + 1, Block(block.address + size, rest_bytes, segment))
        block.size = size

    def _merge(self, block: Block) -> Block:
        """Joins a free block with its free neighbors."""
        blocks = block.segment.blocks
        index = blocks.index(block)
        for neighbor in (index + 1, index - 1):
            if 0 <= neighbor < len(blocks) and blocks[neighbor].requested is None:
                first, second = sorted((block, blocks[neighbor]), key=lambda piece: piece.address)
                if first.end == second.address:
                    first.size += second.size
                    blocks.remove(second)
                    block = first
        return block

    def _release_cached(self) -> None:
        """Returns memory without blocks in use to the device."""
        for segment in list(self.segments):
            for block in [part for part in segment.blocks if part.requested is None]:
                if segment.expandable:
                    self._unmap(block)
                elif block.size == segment.size:
                    self.segments.remove(segment)
                    self._reserve(-segment.size)
                    self._record("segment_free", segment.address, segment.size, segment.stream, [])

    def _unmap(self, block: Block) -> None:
        """Returns the complete pages in a free block of an expandable segment."""
        segment = block.segment
        page = _SMALL_SEGMENT if segment.small else _LARGE_SEGMENT
        start = segment.address + -(-(block.address - segment.address) // page) * page
        end = segment.address + (block.end - segment.address) // page * page
        if start >= end:
            return
        index = segment.blocks.index(block)
        pieces = [(block.address, start), (end, block.end)]
        blocks = [Block(low, high - low, segment) for low, high in pieces if low < high]
        segment.blocks[index : index + 1] = blocks
        if end == segment.address + segment.size:
            segment.size = start - segment.address
        self._reserve(start - end)
        self._record("segment_unmap", start, end - start, segment.stream, [])

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._free += size

    def _record(
        self, action: str, address: int | None, size: int, stream: int, stack: Frames, **more: int
    ) -> None:
        entry: dict[str, Any] = {"action": action, "size": size, "stream": stream, "frames": stack}
        entry |= more if address is None else {"addr": address}
        entry["time_us"] = _FIRST_TIME_US + 7 * len(self.entries)
        self.entries.append(entry)
        blocks = [block for segment in self.segments for block in segment.blocks] if action == "oom" else []
        free_sizes = [block.size for block in blocks if block.requested is None]
        largest = max(free_sizes, default=0) if action == "oom" else -1
        self.usage.append(Usage(self._allocated, self._active, self._reserved, self._free, largest))

    def _pieces(self) -> list[tuple[Segment, list[Block]]]:
        """Each contiguous piece of a segment with its blocks."""
        pieces: list[tuple[Segment, list[Block]]] = []
        for segment in self.segments:
            for block in segment.blocks:
                if pieces and pieces[-1][0] is segment and pieces[-1][1][-1].end == block.address:
                    pieces[-1][1].append(block)
                else:
                    pieces.append((segment, [block]))
        return pieces

    def _segment(self, segment: Segment, blocks: list[Block]) -> dict[str, Any]:
        blocks_in_use = [block for block in blocks if block.requested is not None]
        return {
            "device": 0,
            "address": blocks[0].address,
            "total_size": sum(block.size for block in blocks),
            "stream": segment.stream,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": segment.expandable,
            "allocated_size": sum(block.size for block in blocks_in_use if not block.pending),
            "active_size": sum(block.size for block in blocks_in_use),
            "requested_size": sum(block.requested or 0 for block in blocks_in_use),
            "frames": segment.frames,
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested or 0,
                    "state": _state(block),
                    "frames": block.frames,
                }
                for block in blocks
            ],
        }


def _state(block: Block) -> str:
    if block.requested is None:
        return "inactive"
    return "active_pending_free" if block.pending else "active_allocated"


def _rounded(size: int) -> int:
    return -(-size // _SEGMENT_ROUND) * _SEGMENT_ROUND
