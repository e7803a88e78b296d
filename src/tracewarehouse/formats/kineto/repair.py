"""Minimal repair of invalid JSON values, and the record of lost and repaired positions of a file.

Values are never guessed: an invalid literal (NaN, 01, None) becomes a string with the same characters; bytes
that are not UTF-8 become `\xff` in text. An incomplete value is not repaired but recorded as lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tracewarehouse.formats.base import Loss, Status
from tracewarehouse.formats.json_text import minify


@dataclass
class Losses:
    """Collects losses while a file is read; repairs with the same reason become one entry with a count."""

    shift: int = 0
    damaged: bool = False
    losses: list[Loss] = field(default_factory=list)
    repairs: dict[str, tuple[int, int]] = field(default_factory=dict)

    def repair(self, at: int, reason: str) -> None:
        """Records a position where the text was repaired without loss."""
        first, count = self.repairs.get(reason, (at, 0))
        self.repairs[reason] = first, count + 1

    def lose(self, start: int, end: int, events: int | None, reason: str, *, damaged: bool = True) -> None:
        """Records bytes that could not be read."""
        self.damaged = self.damaged or damaged
        self.losses.append(Loss(start + self.shift, end + self.shift, events, reason))

    @property
    def status(self) -> Status:
        """intact, repaired (the text was repaired, all events are present) or damaged (something is lost)."""
        if self.damaged:
            return "damaged"
        return "repaired" if self.losses or self.repairs else "intact"

    def all(self) -> tuple[Loss, ...]:
        """All losses and repairs, in file order."""
        repairs = [self._line(reason, *found) for reason, found in self.repairs.items()]
        return tuple(sorted([*self.losses, *repairs], key=lambda loss: (loss.byte_from, loss.byte_to)))

    def _line(self, reason: str, first: int, count: int) -> Loss:
        at = first + self.shift
        times = f" ({count} times, first at byte {at})" if count > 1 else ""
        return Loss(at, at, 0, reason + times)


_STRING = r'"(?:[^"\\]|\\.)*"'
# For unescaped quotes: a quote closes the string only where a string may end.
_LOOSE_STRING = r'"(?:.*?)"(?=\s*(?:[,:}\]]|$))'
_REST = r'|[{}\[\],:]|[^\s{}\[\],:"]+|"'
_STRICT_TOKEN = re.compile(_STRING + _REST, re.DOTALL)
_LOOSE_TOKEN = re.compile(_LOOSE_STRING + _REST, re.DOTALL)
_PAIR = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = frozenset('"\\/bfnrt')
_SURROGATE = re.compile(
    r"(\\\\)|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\)(u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_CONTROL = re.compile(r"[\x00-\x1f]")
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class _Repairer:
    """Rebuilds JSON from tokens; `run` returns None if the structure is incomplete."""

    reasons: dict[str, None] = field(default_factory=dict)
    out: list[str] = field(default_factory=list)
    closers: list[str] = field(default_factory=list)
    # With unescaped quotes a key could swallow the previous member: keys must not contain quotes then.
    loose: bool = False
    # Kind of the previous token: start of a container, key, colon, value or comma.
    last: str = "start"

    def run(self, tokens: list[str]) -> str | None:
        for at, token in enumerate(tokens):
            if at and not self.closers:
                return None
            step = {"{": self._open, "[": self._open, "}": self._close, "]": self._close}.get(token)
            step = step or {",": self._comma, ":": self._colon}.get(token, self._scalar)
            if not step(token):
                return None
        return None if self.closers or not self.out else "".join(self.out)

    def note(self, reason: str) -> None:
        self.reasons[reason] = None

    def _in_object(self) -> bool:
        return bool(self.closers) and self.closers[-1] == "}"

    def _before_value(self) -> bool:
        """Inserts a comma before a value or key if one is missing."""
        if self.last == "key":
            return False
        if self.last == "value" and self.closers:
            self.note("a comma was missing")
            self.out.append(",")
        if self.last == "comma":
            self.out.append(",")
        return True

    def _open(self, token: str) -> bool:
        if not self._before_value() or (self._in_object() and self.last != "colon"):
            return False
        self.out.append(token)
        self.closers.append("}" if token == "{" else "]")
        self.last = "start"
        return True

    def _close(self, token: str) -> bool:
        if not self.closers or self.closers[-1] != token or self.last == "key":
            return False
        if self.last == "comma":
            self.note("a comma before a closing bracket")
        if self.last == "colon":
            self._missing_value()
        self.out.append(self.closers.pop())
        self.last = "value"
        return True

    def _comma(self, token: str) -> bool:
        if self.last == "colon":
            self._missing_value()
        elif self.last == "comma" or self.last == "start":
            self.note("a comma too many")
            return bool(self.closers)
        elif self.last == "key":
            return False
        self.last = "comma"
        return True

    def _missing_value(self) -> None:
        self.note("a value was missing, read as null")
        self.out.append("null")

    def _colon(self, token: str) -> bool:
        found = self.last == "key"
        self.out.append(":")
        self.last = "colon"
        return found

    def _scalar(self, token: str) -> bool:
        if not self._before_value():
            return False
        is_key = self._in_object() and self.last != "colon"
        if is_key and self.loose and '\\"' in token:
            return False
        text = self._string(token) if token[0] == '"' else self._bare(token, is_key)
        if text is None:
            return False
        self.out.append(text)
        self.last = "key" if is_key else "value"
        return True

    def _bare(self, token: str, is_key: bool) -> str | None:
        if is_key:
            self.note("a key without quotes")
            return f'"{token}"' if _BARE_KEY.fullmatch(token) else None
        if _LITERAL.fullmatch(token):
            return token
        self.note("a value that is not JSON (NaN, Infinity, …) is kept as a string")
        return self._string(f'"{token}"')

    def _string(self, token: str) -> str | None:
        if len(token) < 2:
            return None
        return f'"{self._controls(self._surrogates(self._backslashes(token[1:-1])))}"'

    def _backslashes(self, body: str) -> str:
        """Escapes all backslashes if one escape is invalid: then the writer escaped none in this string."""
        pairs = _PAIR.findall(body)
        if all(pair in _ESCAPES or len(pair) == 5 for pair in pairs) and not _odd_tail(body):
            return body
        self.note("unescaped backslashes are read literally")
        body = _PAIR.sub(lambda m: m[0] if m[1] in '"\\' else f"\\\\{m[1]}", body)
        return body + "\\" if _odd_tail(body) else body

    def _surrogates(self, body: str) -> str:
        if "\\u" not in body:
            return body

        def literal(match: re.Match[str]) -> str:
            if match[2] is None:
                return match[0]
            self.note("half of a surrogate pair is kept as text")
            return f"\\\\{match[3]}"

        return _SURROGATE.sub(literal, body)

    def _controls(self, body: str) -> str:
        def escape(match: re.Match[str]) -> str:
            self.note("control characters inside a string are escaped")
            return f"\\u{ord(match[0]):04x}"

        return _CONTROL.sub(escape, body)


def _odd_tail(body: str) -> bool:
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def repair(raw: bytes) -> tuple[bytes, tuple[str, ...]] | None:
    """The value as minified valid JSON, and the repairs; None if it cannot be repaired completely."""
    text, reasons = _decode(raw)
    for pattern, more in ((_STRICT_TOKEN, ()), (_LOOSE_TOKEN, ("quotes inside a string are escaped",))):
        repairer = _Repairer(dict.fromkeys((*reasons, *more)), loose=bool(more))
        tokens = pattern.findall(text)
        if more:
            tokens = [_escape_quotes(token) for token in tokens]
        done = repairer.run(tokens)
        small = minify(done.encode()) if done is not None else None
        if small is not None:
            return small, tuple(repairer.reasons)
    return None


def _escape_quotes(token: str) -> str:
    if len(token) < 2 or token[0] != '"':
        return token
    body = token[1:-1]
    if _odd_tail(body):
        body += "\\"
    return '"' + re.sub(r'((?:\\\\)*)(\\?)"', lambda m: f'{m[1]}\\"', body) + '"'


def _decode(raw: bytes) -> tuple[str, tuple[str, ...]]:
    try:
        return raw.decode(), ()
    except UnicodeDecodeError:
        pass
    parts: list[str] = []
    at = 0
    while at < len(raw):
        try:
            parts.append(raw[at:].decode())
            break
        except UnicodeDecodeError as error:
            parts.append(raw[at : at + error.start].decode())
            bad = raw[at + error.start : at + error.end]
            parts.append("".join(f"\\\\x{byte:02x}" for byte in bad))
            at += error.end
    return "".join(parts), (r"bytes that are not UTF-8 are kept as \xNN",)
