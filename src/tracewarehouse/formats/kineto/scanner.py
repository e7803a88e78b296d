"""The interface of a scanner: text of an event array in, batches of columns out.

Two scanners implement it. The native one fills the columns; the row-by-row one may flag any row ODD, for the
path that reads flagged rows. Either way the same text gives the same activities, whatever the sizes of the
pieces that it is fed in; where batches end may differ.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tracewarehouse.formats.kineto.batch import Batch

# An element that is longer than this may hold a string that is better hashed than kept.
LONGEST_BYTES: Final = 64 << 20
# No element may be longer: positions in a column of texts have 32 bits.
MOST_BYTES: Final = 1 << 30


class State(IntEnum):
    """Where a scanner stands after the text it was fed."""

    MORE = 0  # inside the array: it reads on
    CLOSED = 1  # at the `]` that closed the array
    REFUSED = 2  # at an element or a separator that is not strict JSON in UTF-8
    TOO_LONG = 3  # at the beginning of an element longer than `longest_bytes`


class RefusedError(ValueError):
    """A text that was said to be an array of strict JSON is none."""


class Scanner(Protocol):
    """Reads the elements of one event array; begins behind its `[`.

    `feed` in state MORE until the state is another one or the text ends; then `flush`, which may still change
    the state. Where the text ends in state MORE, the array was not closed. Elements of every JSON type are
    rows; an array that holds no strict JSON is refused at the first element or separator that is wrong, and
    the rows before it are handed out as usual.

    TOO_LONG: either raise `longest_bytes` (up to MOST_BYTES, beyond which the element is refused) and feed
    on, or take the element out with `take_rest` and feed a shorter text in its place, then what follows.
    Memory is bounded by a few times `longest_bytes`.

    Raises MemoryError where memory is short.
    """

    longest_bytes: int

    @property
    def state(self) -> State: ...

    @property
    def offset(self) -> int:
        """Bytes of what `feed` got that were read: up to `]`, or to the element that is not read yet."""

    @property
    def rows(self) -> int:
        """Elements read so far, those of batches that were handed out included."""

    def feed(self, piece: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads on; the batches that became full. The piece may end anywhere and is not kept."""

    def feed_array(self, array: bytes | bytearray | memoryview) -> list[Batch]:
        """Reads a whole array of strict JSON, from `[` to `]`, as further elements; the full batches.

        Only between elements: not where a piece ended inside one. `longest_bytes` does not apply. Raises
        RefusedError where it is no array of strict JSON; the elements before the wrong one have been read.
        """

    def flush(self) -> Batch | None:
        """The rows since the last batch, read from all text there is; call it until it is None."""

    def take_rest(self) -> bytes:
        """The fed text from `offset` on, which the scanner forgets: it goes on with what is fed next.

        After CLOSED this is the text from `]` on.
        """
