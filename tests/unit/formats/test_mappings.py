"""Mappings of formats: columns of `activities`, lines, and a format of a test."""

from __future__ import annotations

import pytest

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck import engine
from tracewarehouse.formats import mapped
from tracewarehouse.formats.nsys import NsysSource

CATALOG = Catalog.load()
MOST_LINES = 120
# What contracts return that describe activities, or tables of a mapping.
OTHERS = {
    "xplane_kernels": {
        "op", "path", "module_path", "class_path", "pass", "model_flop", "hardware_flop", "read_bytes",
        "write_bytes", "bound", "family", "dtype", "compute_dtype", "dtype_known",
    },
    "execution_collectives": {"place"},
    "nsight_compute": {"unusable", "own_decimal"},
    "rocprofv3_gpus": {"handle", "number"},
    "rocprofv3_process": {"subject", "handle", "number", "kernel_id", "kind", "operation"},
}  # fmt: skip
# What is filled in place of activities.
TABLES = {
    "timeline_elements": "memory_timeline",
    "nsight_compute": "kernel_metrics",
    "execution_collectives": "execution_nodes",
}
HELPERS = {"part", "file_row", "rule", "rows", "example", "node", "process", "process_device"}


@pytest.mark.parametrize("contract", CATALOG.all("format"), ids=lambda contract: contract.name)
def test_a_mapping_returns_columns_of_activities(contract: Contract) -> None:
    with engine.connect(threads=1) as con:
        for table in contract.raw_tables:
            mapped.register(con, table, mapped.raw_table(table, contract.name, {}, ()))
        con.execute(NsysSource.setup)
        found = con.sql(engine.sql_with_params(contract, {}))
        columns = {
            name: str(type_)
            for name, type_ in zip(found.columns, found.types, strict=True)
            if type_.id != "struct"
        }
        assert found.fetchall() == []
    filled = CATALOG.get(TABLES.get(contract.name, "activities"))
    known = {column.name: column.type for column in filled.columns}
    assert set(columns) - set(known) <= OTHERS.get(contract.name, HELPERS)
    texts = {"pid", "tid"}  # numbers are written as digits
    plain = {name: type_.replace("JSON", "VARCHAR") for name, type_ in known.items()}
    differ = {
        name: type_
        for name, type_ in columns.items()
        if name in plain and name not in texts and type_.replace("JSON", "VARCHAR") != plain[name]
    }
    assert differ == {}


@pytest.mark.parametrize("contract", CATALOG.all("format"), ids=lambda contract: contract.name)
def test_a_mapping_is_short(contract: Contract) -> None:
    lines = [
        line for line in contract.body.splitlines() if line.strip() and not line.strip().startswith("--")
    ]
    assert len(lines) <= MOST_LINES
