"""The limit on address space (`ulimit -v`): libraries crash below some size, so it is checked first."""

from __future__ import annotations

import resource

from tracewarehouse.errors import TwError

# Measured with DuckDB and pyarrow on 2 cores: 2.5 GB fail at exit, 3 GB run every command.
NEEDED_BYTES = 3_000 << 20


def limit_bytes() -> int | None:
    """The limit on the address space of this process, None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def check() -> None:
    """Raises TwError with the size needed if the limit is too low."""
    found = limit_bytes()
    if found is not None and found < NEEDED_BYTES:
        raise TwError(
            f"the address space is limited to {found >> 20} MiB, {NEEDED_BYTES >> 20} MiB are needed",
            f"raise the limit: ulimit -v {NEEDED_BYTES >> 10}",
        )
