"""Bases: declarations that several contracts share, written once under `sql/bases/`.

A contract with `like = "findings_base@1"` inherits the base's `grain`, `order`, parameters and columns; its
keys replace those of the base, also single ones (`share = { doc = "…" }`), and `count = {}` places the
columns that it adds before `count`. The SELECT of the base reads the contract's SELECT as `base_input`. A
base may be like another one in the same way. The result is a contract
like any other: hashes, style checks and documentation cover what is inherited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from tracewarehouse.contracts.front_matter import Place, check_keys, split
from tracewarehouse.errors import ContractError

FOLDER = "bases"
INPUT = "base_input"
KEYS = ("like", "summary", "grain", "order", "params", "columns")
_MOST_BASES = 4
_REF = re.compile(r"([a-z][a-z0-9_]*)@([1-9]\d*)")

ReadBase = Callable[[PurePath], str]  # the text of a base by its path, `sql/bases/<name>.v<version>.sql`


def reader(folder: Path) -> ReadBase:
    """Reads the bases of a folder like `sql/`."""
    return lambda path: (folder / FOLDER / path.name).read_text(encoding="utf-8")


def inherit(
    head: Mapping[str, Any], body: str, place: Place, read: ReadBase | None, above: int = 0
) -> tuple[dict[str, Any], str, int]:
    """The front matter and SELECT of a contract, merged with those of the base that `like` names.

    Also the number of lines above the contract's own SELECT. Raises ContractError.
    """
    base, sql = _base(head["like"], place, read)
    if above == _MOST_BASES:
        raise place.error("bases are like each other", f"at most {_MOST_BASES} in a row", "like")
    own = {key: value for key, value in head.items() if key != "like"}
    merged: dict[str, Any] = {key: base[key] for key in ("grain", "order") if key in base}
    merged.update(own)
    for key in ("params", "columns"):
        if key in base or key in own:
            merged[key] = _merge(base.get(key, {}), own.get(key, {}))
    if not body:
        raise place.error("the SELECT is missing", f"write the SELECT that the base reads as {INPUT}")
    body, above = f"WITH {INPUT} AS (\n{body}\n)\n{sql}", above + 1
    if "like" in base:
        return inherit({**merged, "like": base["like"]}, body, place, read, above)
    return merged, body, above


def _base(ref: object, place: Place, read: ReadBase | None) -> tuple[dict[str, Any], str]:
    match = _REF.fullmatch(ref) if isinstance(ref, str) else None
    if match is None:
        raise place.error(f"like {ref!r} is not a reference to a base", 'write "name@version"', "like")
    path = PurePosixPath("sql", FOLDER, f"{match[1]}.v{match[2]}.sql")
    try:
        text = read(path) if read else None
    except FileNotFoundError:
        text = None
    if text is None:
        raise place.error(f"base {ref} does not exist", f"create {path}, or name another base", "like")
    head, base_place, body, _ = split(text, path)
    check_keys(head, KEYS, base_place)
    if INPUT not in body:
        raise ContractError(f"{path}:1: the base does not read {INPUT}", f"SELECT … FROM {INPUT}")
    return head, body


def _merge(base: Any, own: Any) -> Any:
    """The entries of a section in the order of the base, then the contract's; the contract's keys win.

    An empty entry of the contract, `count = {}`, places those above it before that of the base.
    """
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own or base
    added = list(own)
    order: list[str] = []
    for name in base:
        if own.get(name) == {} and name in added:
            at = added.index(name)
            order, added = [*order, *added[:at]], added[at:]
        order.append(name)
    return {name: _entry(base.get(name), own.get(name)) for name in dict.fromkeys([*order, *added])}


def _entry(base: Any, own: Any) -> Any:
    if isinstance(base, dict) and isinstance(own, dict):
        return base | own
    return base if own is None else own
