"""Regular expressions of modules, each compiled when it is first used: most commands use few of them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LateRegex:
    """Takes the place of a compiled pattern; it keeps the methods that were used."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of protocols like that of copy
            raise AttributeError(name)
        method = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, method)
        return method


def late_regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern, as from `re.compile`. Pass it to no function that needs a real one, like those of `re`."""
    return cast("re.Pattern[AnyStr]", _LateRegex(text, flags))
