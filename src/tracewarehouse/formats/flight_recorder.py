"""Flight recorder dumps of PyTorch, a pickle or JSON: the last collectives that a rank called."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import OnePartFile
from tracewarehouse.formats.pickles.reader import PlainSource
from tracewarehouse.late_regex import late_regex

NAME: Final = "flight_recorder"
VERSION: Final = 1
# How far into a pickle its keys are searched for.
_SEARCHED_BYTES: Final = 4096
# The recorder may hold thousands of entries before the keys that follow them.
_JSON_KEYS: Final = late_regex(rb'"(?:comm_lib_version|nccl_version|pg_config|pg_status)"')
_RECORD: Final = b'"collective_seq_id"'


class FlightRecorderFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a pickle or JSON with the keys of a dump."""
        if path.is_dir():
            return False
        if head.lstrip()[:1] == b"{":
            start = head[:_SEARCHED_BYTES]
            return b'"traceEvents"' not in head and (
                _RECORD in start or (_JSON_KEYS.search(start) is not None and b'"entries"' in head)
            )
        if not file_text.is_pickle(path, head):
            return False
        start = head[:_SEARCHED_BYTES]
        return any(key in start for key in (b"pg_config", b"collective_seq_id", b"pg_status"))

    def open(self, path: Path) -> OnePartFile:
        """The file; nothing is read yet."""
        return OnePartFile(path, FlightRecorderSource, NAME)


class FlightRecorderSource(PlainSource):
    """A Source that fills `flight_records`."""

    walk = NAME
    what = "a flight recorder dump"
