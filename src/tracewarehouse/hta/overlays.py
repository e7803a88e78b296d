"""A rank's trace with more in it, in a folder that the user names."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.opened import Opened, log


def write(
    opened: Opened,
    rank: int,
    folder: Path,
    name: str,
    *,
    counters: Iterable[str] = (),
    overlays: Iterable[str] = (),
) -> Path:
    """Writes the trace with what is added after its events; returns the file.

    `name` holds `{}` for that of the input without its ending. Raises ParamError for the folder of the input.
    """
    if folder.resolve() in opened.inputs:
        raise ParamError(
            f"{folder} holds the traces", "name another: the file would be read as one more rank"
        )
    (about,) = opened.house.query(f"SELECT source_name FROM ranks WHERE rank = {rank}").rows()
    stem = about["source_name"].removesuffix(".gz").removesuffix(".json")
    text = opened.house.export_trace(opened.run, rank, counters=counters, overlays=overlays)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.format(stem)}.json.gz"
    with gzip.open(target, "wt", encoding="utf-8") as out:
        out.writelines(text)
    return target


def write_each(opened: Opened, ranks: Iterable[int], folder: Path, name: str, counters: list[str]) -> None:
    """The same of several ranks; those that lack what counters are made of are told and left out.

    Raises ParamError where all of them do.
    """
    written, lacking = 0, None
    for rank in ranks:
        try:
            write(opened, rank, folder, name, counters=counters)
            written += 1
        except ParamError as error:
            log.warning("rank %s has no counters: %s", rank, error)
            lacking = error
    if lacking is not None and not written:
        raise lacking
