"""Strings too long to keep: hashed as they go by, and replaced by a marker with their length."""

from __future__ import annotations

import hashlib
import re
from typing import Final

LONGEST_BYTES: Final = 64 << 20
_WHOLE_STRINGS: Final = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_BODY: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class LongStrings:
    """Passes JSON text on, piece by piece, without strings of more than `longest` bytes.

    Begins outside a string. `replaced` are the lengths of the strings that are gone, in bytes as in the file.
    """

    def __init__(self, salt: bytes, longest: int = LONGEST_BYTES) -> None:
        self.replaced: list[int] = []
        self.inside = False
        self._salt = salt
        self._longest = longest
        self._begin()

    def feed(self, piece: bytes) -> bytes:
        """The text as far as it can be passed on: a string that is not closed yet is held back."""
        return b"".join(
            self._feed(piece[at : at + self._longest]) for at in range(0, len(piece), self._longest)
        )

    def _feed(self, piece: bytes) -> bytes:
        """Of a piece in which no whole string is too long."""
        out: list[bytes] = []
        at = 0
        while at < len(piece):
            if not self.inside:
                whole = _WHOLE_STRINGS.match(piece, at)
                stop = whole.end() if whole else at
                out.append(piece[at:stop])
                if stop == len(piece):
                    break
                self._begin()
                self.inside, at = True, stop + 1
                continue
            end = self._end(piece, at)
            self._take(piece[at : end if end >= 0 else len(piece)])
            if end < 0:
                break
            out.append(self._close())
            self.inside, at = False, end + 1
        return b"".join(out)

    def _begin(self) -> None:
        self._held: list[bytes] = []
        self._sha = hashlib.sha256(self._salt)
        self._size = 0
        # Whether the piece before ended with a backslash that escapes what comes next.
        self._escaped = False

    def _end(self, piece: bytes, at: int) -> int:
        """Where the closing quote is, -1 if not in this piece."""
        body = _BODY.match(piece, at + self._escaped)
        stop = body.end() if body else at
        self._escaped = piece[stop : stop + 1] == b"\\"
        return stop if piece[stop : stop + 1] == b'"' else -1

    def _take(self, content: bytes) -> None:
        self._size += len(content)
        self._sha.update(content)
        if self._size <= self._longest:
            self._held.append(content)
        else:
            self._held.clear()

    def _close(self) -> bytes:
        """The string with its quotes, or its marker."""
        if self._size <= self._longest:
            return b'"' + b"".join(self._held) + b'"'
        self.replaced.append(self._size)
        return f'"[replaced: {self._size} bytes, sha256 {self._sha.hexdigest()[:16]}]"'.encode()
