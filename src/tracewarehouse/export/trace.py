"""A rank's trace as one JSON text: its header, every event as it was, then what is added."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tracewarehouse import engine
from tracewarehouse.export.added import added_texts
from tracewarehouse.export.choice import Additions
from tracewarehouse.export.texts import event_texts

_HEADER = "SELECT header FROM ranks WHERE run_id = $run AND rank = $rank"


def trace_text(con: engine.Connection, run: str, rank: int, more: Additions) -> Iterator[str]:
    """A rank's trace in pieces: the keys of its header, then the list of its events, then those added.

    The connection has the tables that `more` reads.
    """
    more.create_analyses(con)
    with con.cursor() as cursor:
        (header,) = cursor.execute(_HEADER, {"run": run, "rank": rank}).fetchone() or ("{}",)
    members = header.strip()[1:-1].strip()
    yield "{" + (f"{members},\n" if members else "") + '"traceEvents": ['
    before = "\n"
    for text in chain(event_texts(con, run, rank), added_texts(con, run, rank, more.added)):
        yield before + text
        before = ",\n"
    yield "\n]}\n"
