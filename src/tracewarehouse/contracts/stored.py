"""The columns of a stored table in its files, which hold `args` of `events` as templates and numbers.

A template is a format of printf: `%3$d` prints the third of `PRINTED`, and `%%` a percent sign.
Numbers that equal another column are not stored twice, and those that never change are part of the template.
"""

from __future__ import annotations

from typing import Final

from tracewarehouse.contracts.contract import Column, Contract

ARGS: Final = "args"
TEMPLATE: Final = "args_template"
# Columns that arguments often repeat, and columns for other numbers.
REPEATED: Final = (
    "correlation", "external_id", "stream", "device", "bytes", "sequence_number", "forward_thread",
    "python_id", "python_parent_id", "module_id",
)  # fmt: skip
NUMBERS: Final = tuple(f"args_{number}" for number in range(1, 13))
PRINTED: Final = (*REPEATED, *NUMBERS)
ARGS_SQL: Final = f"printf({TEMPLATE}, {', '.join(f'coalesce({name}, 0)' for name in PRINTED)})"


def has_template(contract: Contract) -> bool:
    """Whether files of the table have templates in the place of `args`."""
    return contract.name == "events" and any(column.name == ARGS for column in contract.columns)


def file_columns(contract: Contract) -> tuple[Column, ...]:
    """The columns in the files of a table."""
    if not has_template(contract):
        return contract.columns
    numbers = [Column(name, "BIGINT", unit="id", null=True, doc="Number in arguments.") for name in NUMBERS]
    made = (Column(TEMPLATE, "VARCHAR", null=True, doc="Template of the arguments."), *numbers)
    at = next(at for at, column in enumerate(contract.columns) if column.name == ARGS)
    return (*contract.columns[:at], *made, *contract.columns[at + 1 :])
