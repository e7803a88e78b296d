"""Begin and end events in pairs: on a thread, the last begin that is still open ends first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracewarehouse.formats.kineto.identity import read_tokens
from tracewarehouse.formats.kineto.kept import Brackets


@dataclass(frozen=True)
class Pairs:
    """Begins in order, their ends, and the ends' times: ns from the base and millionths of one."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    end_ts: NDArray[np.int64]
    end_fractions: NDArray[np.int32]

    def within(self, first: int, count: int) -> slice:
        """The pairs whose begin is one of `count` events from `first` on."""
        low, high = np.searchsorted(self.begins, [first, first + count])
        return slice(int(low), int(high))


def pairs(found: Sequence[Brackets]) -> Pairs:
    """Each begin that has an end.

    A begin and its end are on the same level of their thread: a level is how many begins are open. An end is
    a begin's if it is the next event of the level.
    """
    ids, is_begin, ts, fractions = (np.concatenate([one[at] for one in found]) for at in range(4))
    tracks = _tracks(found)
    order = np.lexsort((ids, fractions, ts, tracks))
    ids, is_begin, ts, fractions, tracks = (
        values[order] for values in (ids, is_begin, ts, fractions, tracks)
    )
    levels = _levels(is_begin, tracks)
    by_level = np.lexsort((np.arange(len(ids)), levels, tracks))
    here, after = by_level[:-1], by_level[1:]
    pair = (
        is_begin[here] & ~is_begin[after] & (tracks[here] == tracks[after]) & (levels[here] == levels[after])
    )
    begins, ends = here[pair], after[pair]
    by_begin = np.argsort(ids[begins])
    begins, ends = begins[by_begin], ends[by_begin]
    return Pairs(ids[begins], ids[ends], ts[ends], fractions[ends])


def _levels(is_begin: NDArray[np.bool_], tracks: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many begins of its thread are open where an event is: a begin's own counts, as does its end's."""
    steps = np.where(is_begin, 1, -1).cumsum()
    starts = np.flatnonzero(np.diff(tracks, prepend=-1))
    before = np.concatenate([[0], steps])[starts]
    lengths = np.diff(np.append(starts, len(tracks)))
    levels: NDArray[np.int64] = steps - np.repeat(before, lengths) + ~is_begin
    return levels


def _tracks(found: Sequence[Brackets]) -> NDArray[np.int64]:
    """A number per thread: equal where the texts of process and thread are."""
    pid, tid = (
        _numbers(pa.concat_arrays([getattr(one, name) for one in found])) for name in ("pids", "tids")
    )
    return pid.astype(np.int64) << 32 | tid


def _numbers(tokens: pa.Array) -> NDArray[np.int64]:
    """Equal numbers where the texts of the tokens are equal; 0 for null."""
    encoded = tokens.dictionary_encode()
    texts = read_tokens(encoded.dictionary.to_pylist()).texts
    numbers = {text: at for at, text in enumerate(dict.fromkeys(texts), 1)}
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: NDArray[np.int64] = np.array([*(numbers[text] for text in texts), 0], np.int64)[codes]
    return found
