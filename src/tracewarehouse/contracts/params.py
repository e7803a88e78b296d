"""Parameters of contracts: values from Python or the command line are converted to the declared type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracewarehouse.durations import trace_time_ns
from tracewarehouse.errors import ParamError, similar_names

_PYTHON_TYPES = {"BIGINT": int, "INTEGER": int, "DOUBLE": float, "VARCHAR": str, "BOOLEAN": bool}
_BITS = {"BIGINT": 63, "INTEGER": 31}
_MOST_DIGITS = 40
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(?:\.0+)?")


@dataclass(frozen=True)
class Param:
    """A parameter of a table or analysis; the default None means NULL."""

    name: str
    type: str
    default: object
    doc: str
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    choices: tuple[object, ...] = ()


def python_type(param: Param) -> Any:
    """The type of the parameter in Python code; a duration may be text like `30us`."""
    type_: Any = _PYTHON_TYPES[param.type]
    if param.unit == "ns":
        type_ = type_ | str
    return type_ if param.default is not None else type_ | None


def bind(params: Iterable[Param], values: Mapping[str, object], owner: str) -> dict[str, object]:
    """Every parameter with its value in the declared type; raises ParamError."""
    known = {param.name: param for param in params}
    for name in values:
        if name not in known:
            raise _unknown(name, list(known), owner)
    return {name: cast(param, values.get(name, param.default)) for name, param in known.items()}


def cast(param: Param, value: object) -> object:
    """The value in the parameter's type; if the unit is ns, also text like `30us`. Raises ParamError."""
    if value is None:
        if param.default is not None:
            raise ParamError(f"{param.name}: missing value", f"the default is {param.default}")
        return None
    found = _typed(param, value)
    _check_range(param, found)
    return found


def _typed(param: Param, value: object) -> object:
    found: object
    if param.type == "BOOLEAN":
        found = _boolean(value)
    elif param.type == "VARCHAR":
        found = value if isinstance(value, str) and "\0" not in value else None
    elif param.type == "DOUBLE":
        found = _double(value)
    else:
        found = _integer(value, _BITS[param.type], param.unit == "ns")
    if found is None:
        raise ParamError(f"{param.name}: {value!r} is not {_wanted(param)}", param.doc)
    return found


def _boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _double(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if found - found == 0 else None


def _integer(value: object, bits: int, is_ns: bool) -> int | None:
    if isinstance(value, str):
        value = trace_time_ns(value) if is_ns else _whole_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << bits) <= value < 1 << bits else None


def _whole_number(text: str) -> int | None:
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    return int(text.partition(".")[0].replace("_", ""))


def _wanted(param: Param) -> str:
    if param.unit == "ns":
        return "a whole number of ns; 30000, 30us, 1ms and 2s are understood"
    return {
        "BIGINT": "a 64-bit integer",
        "INTEGER": "a 32-bit integer",
        "DOUBLE": "a finite number",
        "VARCHAR": "a string",
        "BOOLEAN": "true or false",
    }[param.type]


def _check_range(param: Param, value: object) -> None:
    if param.choices and value not in param.choices:
        known = ", ".join(map(str, param.choices))
        raise ParamError(f"{param.name}: {value!r} is not one of its choices", f"choose one of {known}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if param.min is not None and value < param.min:
            raise ParamError(f"{param.name}: {value} is too small", f"the minimum is {param.min}")
        if param.max is not None and value > param.max:
            raise ParamError(f"{param.name}: {value} is too large", f"the maximum is {param.max}")


def _unknown(name: str, known: list[str], owner: str) -> ParamError:
    if close := similar_names(name, known):
        hint = f"did you mean {', '.join(close)}?"
    else:
        hint = f"it takes {', '.join(known)}" if known else "it takes no parameters"
    return ParamError(f"{owner} has no parameter {name}", hint)
