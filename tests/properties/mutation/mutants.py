"""Mutants of contracts: mechanical edits of tokens, like typing errors in a SELECT."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import Token, tokens

BOUNDS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
SUMS = {"sum": "max", "list_sum": "list_max"}
SWAPS = {
    "=": "<>", "<>": "=", "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "+", "min": "max",
    "max": "min", "arg_min": "arg_max", "arg_max": "arg_min", "greatest": "least", "least": "greatest",
    "lead": "lag", "lag": "lead", "first_value": "last_value", "last_value": "first_value",
    "bool_or": "bool_and", "bool_and": "bool_or", "row_number": "rank", "rank": "dense_rank",
    "floor": "ceil", "ceil": "floor", "string_agg": "max", "any_value": "count", "PRECEDING": "FOLLOWING",
    "FOLLOWING": "PRECEDING", "TRUE": "FALSE", "FALSE": "TRUE", "AND": "OR", "OR": "AND", "SEMI": "ANTI",
    "ANTI": "SEMI",
}  # fmt: skip
CALLED = frozenset(word for word in SWAPS | SUMS if word.islower())
ENDS = frozenset({
    "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "ASOF", "SEMI", "ANTI", "POSITIONAL", "WHERE", "GROUP",
    "HAVING", "QUALIFY", "ORDER", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "THEN", "ELSE", "END", "ROWS",
    "RANGE", "SELECT",
})  # fmt: skip
NUMERIC = ("BIGINT", "INTEGER", "DOUBLE")


@dataclass(frozen=True)
class Edit:
    """Replaces tokens `start` to `end` by a text."""

    start: int
    end: int
    text: str
    what: str


@dataclass(frozen=True)
class Mutant:
    """A contract with one edit, identified by a description and its location."""

    contract: Contract
    change: str
    place: str


def mutants(contract: Contract, *, every: bool = False) -> list[Mutant]:
    """The mutants of a contract, in the order of its text; bodies lose comments and line breaks.

    `every`: also those of RULES beyond the kinds that are listed.
    """
    found = tokens(contract.body)
    rules = RULES if every else LISTED
    edits = sorted((edit for rule in rules for edit in rule(contract, found)), key=lambda edit: edit.start)
    made: dict[str, Mutant] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for edit in edits:
        texts = [token.text for token in found]
        body = " ".join([*texts[: edit.start], edit.text, *texts[edit.end :]])
        if body not in made:
            place = _place(found, edit)
            seen[edit.what, place] += 1
            again = f" ({seen[edit.what, place]})" if seen[edit.what, place] > 1 else ""
            made[body] = Mutant(replace(contract, body=body), edit.what, place + again)
    return list(made.values())


def _place(found: Sequence[Token], edit: Edit) -> str:
    """The CTE, and the tokens before and after the replaced ones."""
    texts = [token.text for token in found]
    before, after = texts[max(edit.start - 4, 0) : edit.start], texts[edit.end : edit.end + 4]
    named = _join([*before, "[", *texts[edit.start : edit.end], "]", *after])
    return f"{_cte(found, edit.start)}: {named}"


def _cte(found: Sequence[Token], index: int) -> str:
    if found[min(index, len(found) - 1)].depth == 0:
        return "result"
    start = max((n for n in range(index) if found[n].depth == 0 and found[n].text == "("), default=0)
    name = next((n - 1 for n in range(start, 0, -1) if found[n].text == "AS"), -1)
    return found[name].text if found[0].text == "WITH" and start - name < 5 else "result"


def _join(texts: Sequence[str]) -> str:
    return re.sub(r"(?<=\w) (?=\()| ?(\.|::) ?|(?<=\() | (?=[),])", r"\1", " ".join(filter(None, texts)))


Found = Sequence[Token]
Rule = Callable[[Contract, Found], Iterator[Edit]]


def _near(found: Found, index: int) -> str:
    return found[index].text if 0 <= index < len(found) else ""


def _swapped(words: dict[str, str]) -> Rule:
    def rule(_: Contract, found: Found) -> Iterator[Edit]:
        for n, token in enumerate(found):
            new = words.get(token.text)
            if new is None or token.kind not in ("word", "mark"):
                continue
            if token.text in CALLED and _near(found, n + 1) != "(":
                continue
            if not _of_between(found, n) and not _is_star(found, n):
                yield Edit(n, n + 1, new, f"{token.text} → {new}")

    return rule


def _is_star(found: Found, n: int) -> bool:
    return found[n].text == "*" and _near(found, n - 1) in ("(", "SELECT", ",", ".")


def _of_between(found: Found, n: int) -> bool:
    """Whether it is the AND of a BETWEEN, which precedes it on the same level."""
    depth = found[n].depth
    if found[n].text != "AND":
        return False
    for token in reversed(found[:n]):
        if token.depth < depth or token.depth == depth and token.text in ENDS - {"ROWS", "RANGE"}:
            break
        if token.depth == depth and token.text in ("BETWEEN", "AND"):
            return token.text == "BETWEEN"
    return False


def _inner(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        before = _near(found, n - 1)
        if token.text == "JOIN" and before in ("LEFT", "FULL", "RIGHT"):
            new = {"LEFT": "", "FULL": "LEFT", "RIGHT": ""}[before]
            yield Edit(n - 1, n, new, f"{before} JOIN → {new or 'inner'} JOIN")


def _outer(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        before = _near(found, n - 1)
        if token.text == "JOIN" and before == "ASOF":
            yield Edit(n, n, "LEFT", "ASOF JOIN → ASOF LEFT JOIN")
        elif token.text == "JOIN" and before not in (
            "LEFT", "FULL", "RIGHT", "CROSS", "SEMI", "ANTI", "INNER", "POSITIONAL",
        ):  # fmt: skip
            yield Edit(n, n, "LEFT", "JOIN → LEFT JOIN")


def _unions(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "UNION" and _near(found, n + 1) != "ALL":
            yield Edit(n + 1, n + 1, "ALL", "UNION → UNION ALL")


def _rows(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "UNION" and _near(found, n + 1) == "ALL":
            yield Edit(n + 1, n + 2, "", "UNION ALL → UNION")
        if token.text == "DISTINCT" and _near(found, n - 1) in ("SELECT", "("):
            yield Edit(n, n + 1, "", "DISTINCT left out")
        if token.text == "DESC":
            yield Edit(n, n + 1, "", "DESC → ASC")
        if token.text in ("FIRST", "LAST") and _near(found, n - 1) == "NULLS":
            new = {"FIRST": "LAST", "LAST": "FIRST"}[token.text]
            yield Edit(n, n + 1, new, f"NULLS {token.text} → NULLS {new}")


def _orders(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "BY" and _near(found, n - 1) == "ORDER":
            start, end = _list(found, n + 1)[0]
            if "DESC" not in (each.text for each in found[start:end]):
                yield Edit(end, end, "DESC", "ASC → DESC")


def _keys(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "BY" and _near(found, n - 1) == "PARTITION":
            yield from _drops(found, _list(found, n + 1), n - 1, "partition")
        if token.text == "USING" and _near(found, n + 1) == "(":
            items = _list(found, n + 2)
            if len(items) > 1:
                yield from _drops(found, items, n, "join")


def _drops(found: Found, items: Sequence[tuple[int, int]], head: int, what: str) -> Iterator[Edit]:
    for place, (start, end) in enumerate(items):
        name = _text(found, start, end)
        if len(items) == 1:
            yield Edit(head, end, "", f"{what} key {name} left out")
        elif place == 0:
            yield Edit(start, end + 1, "", f"{what} key {name} left out")
        else:
            yield Edit(start - 1, end, "", f"{what} key {name} left out")


def _text(found: Found, start: int, end: int) -> str:
    return _join([token.text for token in found[start:end]])


def _list(found: Found, start: int, ends: frozenset[str] = ENDS) -> list[tuple[int, int]]:
    """Start and end of the items of a list, separated by commas on its level."""
    depth, items, first = found[start].depth, [], start
    for n in range(start, len(found)):
        here = found[n].depth == depth
        if found[n].depth < depth or here and found[n].text in ends:
            return [*items, (first, n)]
        if here and found[n].text == ",":
            items.append((first, n))
            first = n + 1
    return [*items, (first, len(found))]


def _parts(found: Found, start: int, end: int, word: str) -> list[tuple[int, int]]:
    """The terms of a condition, separated by AND or OR on its level."""
    depth, parts, first = found[start].depth, [], start
    for n in range(start, end):
        if found[n].depth == depth and found[n].text == word and not _of_between(found, n):
            parts.append((first, n))
            first = n + 1
    return [*parts, (first, end)]


def _conditions(*clauses: str) -> Rule:
    def rule(_: Contract, found: Found) -> Iterator[Edit]:
        for n, token in enumerate(found):
            if token.text not in clauses or token.kind != "word":
                continue
            start = n + 2 if token.text == "FILTER" else n + 1
            if token.text == "FILTER" and _near(found, start) == "WHERE":
                continue
            start, end = _list(found, start)[0]
            yield from _left_out(found, start, end, token.text)

    return rule


def _left_out(found: Found, start: int, end: int, clause: str) -> Iterator[Edit]:
    either = _parts(found, start, end, "OR")
    for first, last in either:
        both = _parts(found, first, last, "AND")
        if len(both) > 1 or len(either) == 1 and clause != "WHEN":
            for one, other in both:
                yield Edit(one, other, "TRUE", f"{clause}: {_text(found, one, other)} left out")
        if len(either) > 1:
            yield Edit(first, last, "FALSE", f"{clause}: {_text(found, first, last)} left out")


def _nulls(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "IS" and _near(found, n + 1) == "NULL":
            yield Edit(n + 1, n + 1, "NOT", "IS NULL → IS NOT NULL")
        if token.text == "NOT" and _near(found, n + 1) not in ("MATERIALIZED",):
            yield Edit(n, n + 1, "", "NOT left out")
        if token.text == "IN" and token.kind == "word" and _near(found, n - 1) != "NOT":
            yield Edit(n, n, "NOT", "IN → NOT IN")


def _calls(*names: str) -> Rule:
    def rule(_: Contract, found: Found) -> Iterator[Edit]:
        for n, token in enumerate(found):
            if _near(found, n + 1) != "(" or token.text not in names:
                continue
            items = _list(found, n + 2, frozenset())
            close = items[-1][1] + 1
            for start, end in items if token.text in ("greatest", "least") else items[:1]:
                inside = _text(found, start, end)
                yield Edit(n, close, f"({inside})", f"{token.text}(…) → {inside}")

    return rule


def _cases(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.text == "WHEN":
            end = _next(found, n + 1, ("WHEN", "ELSE", "END"))
            if _near(found, end) == "WHEN" or "WHEN" in (each.text for each in found[_case(found, n) : n]):
                yield Edit(n, end, "", f"{_text(found, n, end)} left out")
        if token.text == "ELSE":
            end = _next(found, n + 1, ("END",))
            yield Edit(n, end, "", f"{_text(found, n, end)} left out")
        if token.text == "FILTER" and _near(found, n + 1) == "(":
            end = next(k for k in range(n + 2, len(found)) if found[k].depth == token.depth)
            yield Edit(n, end + 1, "", f"{_text(found, n, end + 1)} left out")


def _case(found: Found, n: int) -> int:
    """The start of the CASE that contains a WHEN."""
    open_ = 0
    for k in range(n - 1, -1, -1):
        if found[k].text == "END":
            open_ += 1
        elif found[k].text == "CASE":
            if open_ == 0:
                return k
            open_ -= 1
    return 0


def _next(found: Found, start: int, words: Sequence[str]) -> int:
    """The next of these words that belongs to the same CASE."""
    open_ = 0
    for k in range(start, len(found)):
        if open_ == 0 and found[k].text in words:
            return k
        open_ += (found[k].text == "CASE") - (found[k].text == "END")
    return len(found)


def _numbers(contract: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.kind == "number" and not _is_of_type(found, n):
            new = "1" if re.fullmatch(r"10+", token.text) else _next_number(token.text)
            yield Edit(n, n + 1, new, f"{token.text} → {new}")


def _is_of_type(found: Found, n: int) -> bool:
    return "DECIMAL" in (_near(found, n - 2), _near(found, n - 4))


def _next_number(text: str) -> str:
    return str(int(text) + 1) if text.isdecimal() else f"{float(text) / 2:g}"


def _params(contract: Contract, found: Found) -> Iterator[Edit]:
    numeric = {f"${param.name}" for param in contract.params if param.type in NUMERIC}
    for n, token in enumerate(found):
        if token.text in numeric:
            yield Edit(n, n + 1, f"({token.text} * 1000)", f"{token.text} → {token.text} * 1000")
            yield Edit(n, n + 1, f"({token.text} // 1000)", f"{token.text} → {token.text} // 1000")


def _strings(_: Contract, found: Found) -> Iterator[Edit]:
    for n, token in enumerate(found):
        if token.kind == "string":
            yield Edit(n, n + 1, f"{token.text[:-1]}~'", f"{token.text} → {token.text[:-1]}~'")


def _micros(contract: Contract, found: Found) -> Iterator[Edit]:
    """Each ns column of the result in us, in each SELECT of its union."""
    for n, token in enumerate(found):
        if token.text == "SELECT" and token.depth == 0:
            items = _list(found, n + 1, frozenset({"FROM"}))
            if len(items) == len(contract.columns):
                yield from _divided(contract, found, items)


def _divided(contract: Contract, found: Found, items: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    for column, (start, end) in zip(contract.columns, items, strict=True):
        if column.unit in ("ns", "ts") and found[start].text != "NULL":
            value = end - 2 if _near(found, end - 2) == "AS" else end
            division = "/" if column.type == "DOUBLE" else "//"
            text = f"(({_text(found, start, value)}) {division} 1000)::{column.type} AS {column.name}"
            yield Edit(start, end, text, f"{column.name} in us")


# < for <=, a join or partition key left out, inner for left join, a sum for a union, us for ns.
LISTED: tuple[Rule, ...] = (
    _swapped(BOUNDS), _inner, _keys, _conditions("ON"), _swapped(SUMS), _unions, _calls("greatest", "least"),
    _micros, _params,
)  # fmt: skip
RULES: tuple[Rule, ...] = (
    *LISTED, _swapped(SWAPS), _outer, _rows, _orders, _nulls, _cases, _numbers, _strings,
    _conditions("WHERE", "HAVING", "QUALIFY", "FILTER", "WHEN"), _calls("coalesce", "nullif", "abs"),
)  # fmt: skip
