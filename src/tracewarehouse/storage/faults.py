"""What the disk refuses, said in words: the one place where an OSError becomes a WarehouseError."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracewarehouse.errors import WarehouseError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turns an OSError of the block into a WarehouseError that names the place and a remedy."""
    try:
        yield
    except OSError as error:
        raise disk_error(root, error) from error


def disk_error(root: Path, error: OSError) -> WarehouseError:
    """The WarehouseError for what the operating system refused."""
    place = error.filename if isinstance(error.filename, str) else str(root)
    if error.errno in _FULL:
        return WarehouseError(
            f"{root}: no space left to write", "free some space and repeat; what is published stays whole"
        )
    if error.errno in _REFUSED:
        return WarehouseError(f"{place}: may not be written or read", "check its owner and permissions")
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return WarehouseError(f"{place}: a file is in the way of a folder", "move it away and repeat")
    return WarehouseError(f"{place}: {error.strerror or error}", "run tw verify to see what is damaged")
