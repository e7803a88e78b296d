"""The rules of redaction: those of `rules.toml`, changed by the policy of a warehouse."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from tracewarehouse.errors import PolicyError
from tracewarehouse.formats.redact.key_names import KeyNames
from tracewarehouse.formats.redact.policy import NO_POLICY, NO_REDACTION, Policy

Check = Literal["", "digit", "mixed", "alnum"]
Value = Literal["word", "line", "field", "parameter"]

_FILE: Final = Path(__file__).with_name("rules.toml")
_COUNT: Final = re.compile(r"\{([1-9][0-9]*)(?:,[0-9]*)?\}")
# Also after the escape of a line break or tab in text of Python.
_BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


@dataclass(frozen=True)
class TokenRule:
    """A secret by its own shape. `quick` finds its beginning in the text of a file, `pattern` all of it."""

    name: str
    quick: str
    pattern: str
    check: Check = ""
    inside: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TokenRule:
        """The rule of an entry of the data file."""
        start = fields.get("start", "")
        return cls(
            fields["name"],
            fields.get("quick", start),
            fields.get("pattern", start + fields.get("rest", "")),
            fields.get("check", ""),
            fields.get("inside", False),
        )

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What matches the secret in a decoded string."""
        return re.compile(self.pattern if self.inside else _BEFORE + self.pattern)


@dataclass(frozen=True)
class TextRule:
    """A secret by the text before it; see the comment in the data file."""

    name: str
    head: str
    value: Value
    hint: str = ""
    check: Check = ""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What matches the text before the secret."""
        return re.compile(self.head, re.IGNORECASE)


@dataclass(frozen=True)
class Rules:
    """Everything that redaction goes by. `version` is that of the data file."""

    version: int
    tokens: tuple[TokenRule, ...]
    texts: tuple[TextRule, ...]
    keys: KeyNames
    allowed: frozenset[str] = field(default=frozenset())

    @cached_property
    def in_file_text(self) -> str:
        """An RE2 pattern: whatever the rules find in JSON text holds a match, or an escaped character."""
        return rf"{self.in_strings}|\\u00"

    @cached_property
    def in_strings(self) -> str:
        """An RE2 pattern: a string that holds a secret, or is the name of one, has a match."""
        if not self.version:
            return r"[^\s\S]"  # no string has a match
        hints = "|".join(rule.hint for rule in self.texts if rule.hint)
        words = "|".join(filter(None, (self.keys.pattern(), hints)))
        # The shorter a pattern is, the sooner RE2 has compiled it.
        starts = (_COUNT.sub(_fewer, rule.quick) for rule in self.tokens)
        return "|".join((f"(?i:{words})", self.keys.weak_pair_pattern(), *starts))

    @cached_property
    def starts(self) -> re.Pattern[str]:
        """What matches wherever a token may begin."""
        return re.compile("|".join(rule.quick for rule in self.tokens) or r"(?!)")


# Version 0 says in the facts of a rank that nothing was redacted.
_NO_RULES: Final = Rules(0, (), (), KeyNames.none())


def _fewer(count: re.Match[str]) -> str:
    """In place of `{16}` or `{4,40}`: what is shorter, and matches whatever that matches."""
    is_last = count.end() == len(count.string)
    return f"{{{min(4, int(count[1]))}}}" if is_last else "+"


@lru_cache(maxsize=8)
def rules(policy: Policy = NO_POLICY) -> Rules:
    """The rules under a policy; raises PolicyError where it switches off a rule that there is not."""
    if not policy.enabled:
        return _NO_RULES
    data = _data()
    known = [each["name"] for each in (*data["token"], *data["text"])]
    if unknown := [name for name in policy.off if name not in known]:
        raise PolicyError(f"no redaction rule {', '.join(unknown)}", f"rules: {', '.join(sorted(known))}")
    tokens = [TokenRule.of(each) for each in data["token"]]
    tokens += [TokenRule(name, pattern, pattern) for name, pattern in policy.patterns]
    texts = [
        TextRule(each["name"], each["head"], each["value"], each.get("hint", ""), each.get("check", ""))
        for each in data["text"]
    ]
    return Rules(
        data["version"],
        tuple(each for each in tokens if each.name not in policy.off),
        tuple(each for each in texts if each.name not in policy.off),
        KeyNames.of(data["keys"], policy),
        frozenset(policy.allowed),
    )


def samples() -> Iterator[tuple[str, str]]:
    """Name and template of a test value of each rule."""
    data = _data()
    for each in (*data["token"], *data["text"]):
        yield each["name"], each["sample"]


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def fingerprint(policy: Policy) -> str:
    """16 hex digits of a policy; empty for none."""
    if policy in (NO_POLICY, NO_REDACTION):
        return ""
    return hashlib.sha256(repr(policy).encode()).hexdigest()[:16]
