"""The rules of redaction: those of `rules.toml`, changed by the policy of a warehouse."""

from __future__ import annotations

import hashlib
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracewarehouse.errors import PolicyError
from tracewarehouse.late_regex import late_regex

POLICY_FILE: Final = "_tw/redact.toml"
POLICY_VARIABLE: Final = "TW_REDACT_POLICY"
_TABLES: Final = {"keys": ("secret", "plain"), "allow": ("values",), "rules": ("off",)}
_EXAMPLE: Final = """a policy has tables such as
  [keys]  secret = ["badge_id"], plain = ["page_token"]
  [[pattern]]  name = "acme", pattern = 'acme_[a-z0-9]{20}'
  [allow]  values = ["hf_this_is_an_example_1"]
  [rules]  off = ["twilio-api-key"]"""


class Policy(Struct, frozen=True):
    """Changes to the rules: names of secret and plain keys, patterns by name, allowed values, rules off.

    `enabled` False: there are no rules, and nothing is redacted.
    """

    secret_keys: tuple[str, ...] = ()
    plain_keys: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    enabled: bool = True


NO_POLICY: Final = Policy()
NO_REDACTION: Final = Policy(enabled=False)


def policy_of(warehouse: Path, redact: bool = True) -> Policy:
    """The policy of the warehouse in a folder: the file TW_REDACT_POLICY names, else its own, else none.

    NO_REDACTION without `redact`. Raises PolicyError for a file that is missing or not a policy.
    """
    if not redact:
        return NO_REDACTION
    named = os.environ.get(POLICY_VARIABLE)
    path = Path(named) if named else warehouse / POLICY_FILE
    if not named and not path.is_file():
        return NO_POLICY
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PolicyError(f"{path}: cannot be read as a redaction policy: {why}", _EXAMPLE) from error


def parse(data: Mapping[str, Any], path: Path) -> Policy:
    """The policy in a parsed file; raises PolicyError for unknown names and bad patterns."""
    unknown = [table for table in data if table not in (*_TABLES, "pattern")]
    for table, names in _TABLES.items():
        section = data.get(table, {})
        if not isinstance(section, dict):
            raise PolicyError(f"{path}: {table} is not a table", _EXAMPLE)
        unknown += [f"{table}.{name}" for name in section if name not in names]
    if unknown:
        raise PolicyError(f"{path}: unknown: {', '.join(unknown)}", _EXAMPLE)
    return Policy(
        _texts(data, path, "keys", "secret"),
        _texts(data, path, "keys", "plain"),
        _patterns(data.get("pattern", []), path),
        _texts(data, path, "allow", "values"),
        _texts(data, path, "rules", "off"),
    )


def _texts(data: Mapping[str, Any], path: Path, table: str, name: str) -> tuple[str, ...]:
    texts = data.get(table, {}).get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise PolicyError(f"{path}: {table}.{name} is not a list of strings", _EXAMPLE)
    return tuple(texts)


def _patterns(entries: object, path: Path) -> tuple[tuple[str, str], ...]:
    patterns: list[tuple[str, str]] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if (
            not isinstance(entry, dict)
            or entry.keys() != {"name", "pattern"}
            or not all(isinstance(text, str) and text for text in entry.values())
        ):
            raise PolicyError(f"{path}: each [[pattern]] has a name and a pattern, both text", _EXAMPLE)
        _check_pattern(entry["pattern"], f"{path}: pattern {entry['name']}")
        patterns.append((entry["name"], entry["pattern"]))
    return tuple(patterns)


def _check_pattern(pattern: str, place: str) -> None:
    """Raises PolicyError for what RE2 does not read, or what matches everything."""
    try:
        late_regex(pattern)
        everything = pc.match_substring_regex(pa.array([""]), pattern)[0].as_py()
    except (re.error, pa.ArrowInvalid) as error:
        raise PolicyError(f"{place}: not an RE2 pattern: {error}", "RE2 has no lookaround") from error
    if everything:
        raise PolicyError(f"{place}: it matches an empty text", "make it match the secret alone")


_CAMEL: Final = late_regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLIT: Final = late_regex(r"[_\-.\s]+")
_LONGEST_NAME: Final = 200

# Shorter values are never secrets; shorter ones are never random.
LEAST: Final = 8
LEAST_RANDOM: Final = 16
_HEX: Final = late_regex(r"[0-9a-fA-F]+")
_UUID: Final = late_regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER: Final = late_regex(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9][0-9_.,]*(?:[eE][-+]?[0-9]+)?|[0-9]+(?:[xX*][0-9]+)+)"
)
_KEY_NAMES_FILE: Final = late_regex(r"[\w.+=~@-]*(?:/[\w.+=~@-]+)+\.[a-z]{1,10}")
# Also `BFloat16`, and short ones such as `e4m3fn`.
_WORD: Final = late_regex(
    r"[A-Z]?[a-z]*|[A-Z]+|[0-9]+|[a-z]+[0-9]{1,4}|[A-Z]+[0-9]{1,4}|[A-Z]{1,2}[a-z]{3,}[0-9]{0,4}|[a-z][a-z0-9]{1,5}"
)
_PARTS: Final = late_regex(r"[/\\.:,;_|()<>\[\]{}*&#@!?%~=+-]+")
_SIGNS: Final = late_regex(r"[^\w\s]")
# The least entropy, as a share of what the length allows, and the least mean length of words between many
# signs: 1 of 2,000 random values has less.
_SHARE_OF_MOST: Final = 0.71
_HEX_SHARE: Final = 0.58
_LEAST_WORD: Final = 2.5
_MOST_SIGNS: Final = 3
# Values under such names describe a secret: where it is, or its kind.
_ABOUT: Final = frozenset(
    ("file", "path", "dir", "folder", "name", "id", "ids", "url", "uri", "type", "length", "len", "count")
    + ("size", "index", "idx", "policy", "manager", "provider", "prompt", "helper", "store", "mode")
)


# How surely values under a name are secret: any text; any but numbers; any but words; random ones.
Strength = Literal["password", "secret", "likely", "weak", ""]


class KeyNames(Struct, frozen=True):
    """Words and endings of names; see the comments in the data file."""

    words: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: Mapping[str, Sequence[str]], policy: Policy) -> KeyNames:
        """The names of the data file and those of a policy."""
        words = [text for word in data["words"] for text in (word, f"{word}s")]
        plain = [*data["plain"], *map(_joined, policy.plain_keys)]
        exact = list(map(_joined, policy.secret_keys))
        return msgspec.convert({**data, "words": words, "plain": plain, "exact": exact}, cls)

    def is_secret(self, name: str) -> bool:
        """Whether every text value under this name is a secret."""
        return self.strength(name) in ("password", "secret")

    def strength(self, name: str) -> Strength:
        """How surely values under this name are secret."""
        return _strength(self, name)

    def pattern(self) -> str:
        """An RE2 pattern, regardless of case, that is in every secret name, and at the end of the others."""
        singular = [word for word in self.words if not word.endswith("s") or word[:-1] not in self.words]
        names = {*singular, *self.endings, *self.passwords, *self.exact}
        weaker = rf"^[\w.-]*(?:{_any_of((*self.likely, *self.weak))})[\d_.-]*$"
        shortest = (name for name in names if not any(part in name for part in names - {name}))
        return f"{_any_of(shortest)}|{weaker}"

    def pair_pattern(self) -> str:
        """An RE2 pattern that is in JSON text where another name has a value that may be a secret."""
        sign = r"""[\d_.-]{0,4}\\*["']?\s*(?:[:=,]>?|>)\s*[bru]?\\*["']?"""
        weak, likely = (
            rf"""(?:{_any_of(names)})(?:{sign}|\s+)[^"'\s\\]{{{least}}}"""
            for names, least in ((self.weak, LEAST_RANDOM), (self.likely, LEAST))
        )
        return f"(?i:{weak}|{likely})"


def _any_of(names: Iterable[str]) -> str:
    return "|".join(map(_spelled, sorted(names)))


def _spelled(name: str) -> str:
    return "[_.-]*".join(map(re.escape, name.split("_")))


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case."""
    words = [word for part in _SPLIT.split(name) for word in _CAMEL.split(part) if word]
    return [word.lower() for word in words]


def _joined(name: str) -> str:
    return "_".join(words_of(name))


@lru_cache(maxsize=65_536)
def _strength(names: KeyNames, name: str) -> Strength:
    words = [word.rstrip("0123456789") or word for word in words_of(name[-_LONGEST_NAME:])]
    joined = "_".join(words).rstrip("_0123456789")
    last, ending = joined.rpartition("_")[2], f"_{joined}"
    if {joined, _joined(name)} & names.exact:
        return "secret"
    plain = tuple(f"_{each}" for each in names.plain)
    is_plain = ending.endswith(plain) or f"_{_joined(name)}".endswith(plain)
    if joined.endswith(names.passwords) and not is_plain:
        return "password"
    if not names.words.isdisjoint(words):
        return "secret"
    if is_plain:
        return ""
    if joined.endswith(names.endings):
        return "secret"
    for strength, weaker_names in (("likely", names.likely), ("weak", names.weak)):
        if last in weaker_names or ending.endswith(tuple(f"_{each}" for each in weaker_names if "_" in each)):
            return strength  # type: ignore[return-value]
    return ""


def is_about(name: str) -> bool:
    """Whether a name speaks about a secret: `token_file`, `secret-name`."""
    words = words_of(name)
    return bool(words) and words[-1] in _ABOUT


def is_words(value: str) -> bool:
    """Whether a value is a number, an ID, a file, or made of words."""
    if _NUMBER.fullmatch(value) or _UUID.fullmatch(value) or _KEY_NAMES_FILE.fullmatch(value):
        return True
    words = [part for part in _PARTS.split(value) if part]
    if not all(map(_WORD.fullmatch, words)):
        return False
    is_short = sum(map(len, words)) < _LEAST_WORD * len(words)
    return not (is_short and len(set(_SIGNS.findall(value))) > _MOST_SIGNS)


def is_random(value: str) -> bool:
    """Whether a value looks like a key: 16 characters or more, no blanks, words or number, high entropy."""
    if len(value) < LEAST_RANDOM or any(map(str.isspace, value)) or is_words(value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    bits = -sum(share * math.log2(share) for share in shares)  # per character
    share = bits / math.log2(min(len(value), 64))
    return share >= (_HEX_SHARE if _HEX.fullmatch(value) else _SHARE_OF_MOST)


Check = Literal["", "digit", "mixed", "alnum", "random"]
Value = Literal["word", "line", "field", "parameter", "element"]

_FILE: Final = Path(__file__).with_name("rules.toml")
_COUNT: Final = late_regex(r"\{([1-9][0-9]*)(?:,[0-9]*)?\}")
# The repetition of the first characters, of which one is enough for a match.
_FIRST: Final = late_regex(r"^(\[[^\]]+\])\+")
# Also after the escape of a line break or tab in text of Python.
_BEFORE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


class TokenRule(Struct, frozen=True, dict=True):
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
        shape = {"quick": start, "pattern": start + fields.get("rest", "")}
        return msgspec.convert({**shape, **fields}, cls)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What matches the secret in a decoded string."""
        return re.compile(self.pattern if self.inside else _BEFORE + self.pattern)


class TextRule(Struct, frozen=True, dict=True):
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


class Rules(Struct, frozen=True, dict=True):
    """Everything that redaction goes by. `version` is that of the data file."""

    version: int
    tokens: tuple[TokenRule, ...]
    texts: tuple[TextRule, ...]
    keys: KeyNames
    allowed: frozenset[str] = field(default=frozenset())

    @cached_property
    def in_strings(self) -> tuple[str, ...]:
        """RE2 patterns: a string that holds a secret, or is the name of one, matches one of them.

        RE2 builds its states while it searches, and more than twice as many for a pattern of both kinds.
        """
        if not self.version:
            return ()
        hints = "|".join(rule.hint for rule in self.texts if rule.hint)
        words = "|".join(filter(None, (self.keys.pattern(), hints)))
        # The shorter a pattern is, the sooner RE2 has compiled it.
        starts = dict.fromkeys(_FIRST.sub(r"\1", _COUNT.sub(_fewer, rule.quick)) for rule in self.tokens)
        return tuple(filter(None, (f"(?i:{words})|{self.keys.pair_pattern()}", "|".join(starts))))

    @cached_property
    def starts(self) -> re.Pattern[str]:
        """What matches wherever a token may begin."""
        return re.compile("|".join(rule.quick for rule in self.tokens) or r"(?!)")


# Version 0 says in the facts of a rank that nothing was redacted.
_NO_RULES: Final = Rules(0, (), (), KeyNames())


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
    names = [each["name"] for each in (*data["token"], *data["text"])]
    if unknown := [name for name in policy.off if name not in names]:
        raise PolicyError(f"no redaction rule {', '.join(unknown)}", f"rules: {', '.join(sorted(names))}")
    tokens = [TokenRule.of(each) for each in data["token"]]
    tokens += [TokenRule(name, pattern, pattern) for name, pattern in policy.patterns]
    texts = msgspec.convert(data["text"], list[TextRule])
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
