"""Names that people give: of runs and files, labels, reasons. They become paths and text of reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from tracewarehouse.errors import ParamError
from tracewarehouse.formats.redact.policy import POLICY_FILE
from tracewarehouse.formats.redact.text import Redactor

_MARK: Final = re.compile(r"\[redacted:([0-9a-f]{4})\]")


def clean_name(redactor: Redactor, name: str) -> str:
    """The name of a run or file without secrets; a mark in it is spelled `redacted-8f3a`."""
    clean, _ = redactor.clean(name)
    return name if clean == name else _MARK.sub(r"redacted-\1", clean)


def check_text(redactor: Redactor, what: str, texts: Mapping[str, str | None]) -> None:
    """Raises ParamError where a label or reason (name → text) looks like a secret, or is not Unicode."""
    for name, text in texts.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError as error:
            raise ParamError(f"{what} is not valid Unicode: {text!r}", "write it as UTF-8 text") from error
        _, found = redactor.text(json.dumps({name: text or ""}))
        if found:
            raise ParamError(
                f"{what} looks like a secret (rule {found[0].kind}); nothing was stored",
                f"use another text, or allow it in {POLICY_FILE}",
            )
