"""Text from a trace made safe for a terminal: it may hold escape codes, line ends, marks of direction."""

from __future__ import annotations

import re

# C1 controls, DEL, line separators, marks that turn text around, and surrogates, which cannot be printed.
_ALWAYS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_NOT_ON_ONE_LINE = re.compile(f"[\x00-\x1f{_ALWAYS}]")
_NOT_ON_A_TERMINAL = re.compile(f"[\x00-\x08\x0b-\x1f{_ALWAYS}]")


def one_line(text: str) -> str:
    """`text` with every control character written as an escape, so that it stays on one line."""
    return _NOT_ON_ONE_LINE.sub(_escape, text)


def for_terminal(text: str) -> str:
    """`text` with its own line ends and tabs, and nothing else that moves a cursor."""
    return _NOT_ON_A_TERMINAL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 10:
        return "\\n"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
