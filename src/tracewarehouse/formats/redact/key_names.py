"""Which names of keys, variables and options say that their value is a secret."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracewarehouse.formats.redact.policy import Policy

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT: Final = re.compile(r"[_\-.\s]+")
_LONGEST_NAME: Final = 200

_LEAST_RANDOM: Final = 16
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9][0-9_.,]*(?:[eE][-+]?[0-9]+)?)")
_FILE: Final = re.compile(r"[\w.+=~@-]*(?:/[\w.+=~@-]+)+\.[a-z]{1,10}")
_WORD: Final = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|[0-9]+|[a-z]+[0-9]{1,4}|[A-Z]+[0-9]{1,4}")
_PARTS: Final = re.compile(r"[/\\.:,;_|()<>\[\]{}*&#@!?%~=+-]+")
_HEX_BITS: Final = 3.0
_SHARE_OF_MOST: Final = 0.85
# Values under such names describe a secret: where it is, or its kind.
_ABOUT: Final = frozenset(
    ("file", "path", "dir", "folder", "name", "id", "ids", "url", "uri", "type", "length", "len", "count")
    + ("size", "index", "idx", "policy", "manager", "provider", "prompt", "helper", "store", "mode")
)


@dataclass(frozen=True)
class KeyNames:
    """Words and endings of names. Values of `weak` names are secret only if they look random."""

    words: frozenset[str]
    endings: tuple[str, ...]
    weak: tuple[str, ...]
    plain: frozenset[str]
    exact: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, data: Mapping[str, Sequence[str]], policy: Policy) -> KeyNames:
        """The names of the data file and those of a policy."""
        words = [text for word in data["words"] for text in (word, f"{word}s")]
        return cls(
            frozenset(words),
            tuple(data["endings"]),
            tuple(data["weak"]),
            frozenset((*data["plain"], *map(_joined, policy.plain_keys))),
            frozenset(map(_joined, policy.secret_keys)),
        )

    @classmethod
    def none(cls) -> KeyNames:
        """No name is that of a secret."""
        return cls(frozenset(), (), (), frozenset())

    def is_secret(self, name: str) -> bool:
        """Whether every text value under this name is a secret."""
        return _strength(self, name) == "secret"

    def is_weak(self, name: str) -> bool:
        """Whether a value under this name is a secret if it looks random."""
        return _strength(self, name) == "weak"

    def pattern(self) -> str:
        """An RE2 pattern, regardless of case, that is in every secret name, and at the end of a weak one."""
        singular = [word for word in self.words if not word.endswith("s") or word[:-1] not in self.words]
        names = sorted({*singular, *self.endings, *self.exact})
        weak = "|".join(map(_spelled, sorted(self.weak)))
        return "|".join(map(_spelled, names)) + rf"|^[\w.-]*(?:{weak})$"

    def weak_pair_pattern(self) -> str:
        """An RE2 pattern that is in JSON text where a weak name has a value that may look random."""
        weak = "|".join(map(_spelled, sorted(self.weak)))
        value = rf"""[^"'\s\\]{{{_LEAST_RANDOM}}}"""
        return rf"""(?i:(?:{weak})\\*["']?\s*[:=]\s*[bru]?\\*["']?{value})"""


def _spelled(name: str) -> str:
    return "[_.-]*".join(map(re.escape, name.split("_")))


def _words_of(name: str) -> list[str]:
    words = [word for part in _SPLIT.split(name) for word in _CAMEL.split(part) if word]
    return [word.lower() for word in words]


def _joined(name: str) -> str:
    return "_".join(_words_of(name))


@lru_cache(maxsize=65_536)
def _strength(names: KeyNames, name: str) -> str:
    if len(name) > _LONGEST_NAME:
        name = name[-_LONGEST_NAME:]
    words = _words_of(name)
    joined = "_".join(words)
    if joined in names.exact:
        return "secret"
    if not names.words.isdisjoint(words):
        return "secret"
    if joined in names.plain or any(joined.endswith(f"_{plain}") for plain in names.plain):
        return ""
    if joined.endswith(names.endings):
        return "secret"
    return "weak" if words and (words[-1] in names.weak or joined.endswith(_session(names))) else ""


def _session(names: KeyNames) -> tuple[str, ...]:
    """Weak names of several words."""
    return tuple(name for name in names.weak if "_" in name)


def is_about(name: str) -> bool:
    """Whether a name speaks about a secret: `token_file`, `secret-name`."""
    words = _words_of(name)
    return bool(words) and words[-1] in _ABOUT


def is_random(value: str) -> bool:
    """Whether a value looks like a key: 16 characters or more, no blanks, words or number, high entropy."""
    if len(value) < _LEAST_RANDOM or any(map(str.isspace, value)):
        return False
    if _NUMBER.fullmatch(value) or _UUID.fullmatch(value) or _FILE.fullmatch(value):
        return False
    if all(map(_WORD.fullmatch, _PARTS.split(value))):
        return False
    bits = _entropy_bits(value)
    if _HEX.fullmatch(value):
        return bits >= _HEX_BITS
    return bits >= _SHARE_OF_MOST * math.log2(min(len(value), 64))


def _entropy_bits(value: str) -> float:
    """Bits per character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
